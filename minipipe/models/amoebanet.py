"""AmoebaNet-D, the image network on which GPipe was measured."""

from collections.abc import Sequence

import numpy as np

from ..checks import whole_number
from ..arrays import Shape, Tree, constant, shape_of, sum_in_order
from ..layers import (
    AvgPool2d, BatchNorm, Block, Chain, Concat, Conv2d, GlobalAvgPool, Layer, Linear, MaxPool2d, ReLU, xavier,
)
from ..layers.skips import Pair


# Cells, whose states are sums of two operations on earlier states, and the layers that cells need.

class Cell(Block):
    """A layer from a pair to another pair: (A_prev, A_before) -> (A, A_prev).

    A_before is the A_prev of the cell before, so a list of cells is a chain of layers,
    and a pair is sent from stage to stage as one message.

        S_0 = fit_0(A_prev),  S_1 = fit_1(A_before)
        S_k = f(S_i) + g(S_j)  for k = 2, 3, ..., with i, j < k and its own f and g
        A   = the states S_k of the indices `concatenated`, concatenated

    Args:
        name: the repr of the cell.
        fits: two layers, fit_0 and fit_1.
        sums: for S_2, S_3, ... a pair of (operation, index of its input state).
        concatenated: indices of states.

    Backward, from (dA, dA_second): each S_k in A gets its rows of dA. From the last
    state to the first, dS_k is complete after all later states have added their
    contributions. It goes back through both operations of S_k, since S_k is their sum:

        dS_i += dS_k through f          dS_j += dS_k through g
        dA_prev = dA_second + dS_0 through fit_0          dA_before = dS_1 through fit_1

    A gradient of zeros may be None. Source: Zoph, Vasudevan, Shlens, Le 2017, arXiv
    1707.07012.
    """

    def __init__(self, name: str, fits: Sequence[Layer], sums: Sequence, concatenated: Sequence[int]):
        self.name, self.concatenated = name, tuple(concatenated)
        self.sources = [(i, j) for (_, i), (_, j) in sums]
        super().__init__([*fits, *(operation for pair in sums for operation, _ in pair)])

    def through(self, pair: Tree) -> Tree:
        check_pair(self, shape_of(pair))
        A_prev, _ = pair
        states = self._states(pair, lambda layer, S: layer.forward(S), self._sum)
        A = np.concatenate([states[k] for k in self.concatenated])
        self.kept = A.shape, A_prev.shape
        return A, A_prev

    def derivatives(self, dZ: Tree) -> tuple:
        for part, shape in zip(dZ, self.kept):
            if part is not None:
                self.check_dZ(part, shape)
        dA, dA_second = dZ
        dS: list = [None] * (2 + len(self.sources))
        for k, rows in zip(self.concatenated, np.split(dA, len(self.concatenated))):
            dS[k] = rows
        for k in reversed(range(2, len(dS))):
            for operation, i in self._operations(k):
                dS[i] = sum_in_order([dS[i], operation.backward_input(dS[k])])
        fit_A_prev, fit_A_before = self.layers[:2]
        dA_prev = sum_in_order([dA_second, fit_A_prev.backward_input(dS[0])])
        dA_before = fit_A_before.backward_input(dS[1])
        of_operations = [d for d in dS[2:] for _ in range(2)]  # both operations of a sum get its gradient
        return (dA_prev, dA_before), [dS[0], dS[1], *of_operations]

    def _states(self, pair, call, add):
        """Return all states, by `call(layer, S)`, and `add(S, S)` for sums."""
        states = [call(fit, part) for fit, part in zip(self.layers[:2], pair, strict=True)]
        for k in range(2, 2 + len(self.sources)):
            states.append(add(*(call(operation, states[i]) for operation, i in self._operations(k))))
        return states

    def _operations(self, k):
        """Return the two (operation, index of its input state) whose sum is S_k."""
        first = 2 + 2 * (k - 2)  # after the two fits, two for each state before S_k
        return zip(self.layers[first:first + 2], self.sources[k - 2], strict=True)

    def output_shape(self, shapes: Shape) -> Shape:
        states = self._shapes(shapes)
        parts = [states[k] for k in self.concatenated]
        return (sum(shape[0] for shape in parts), *parts[0][1:]), shapes[0]

    def macs(self, shapes: Shape) -> int:
        states = self._shapes(shapes)
        inputs = [*shapes, *(states[i] for pair in self.sources for i in pair)]
        return sum(layer.macs(shape) for layer, shape in zip(self.layers, inputs, strict=True))

    def _shapes(self, shapes):
        check_pair(self, shapes)
        return self._states(shapes, lambda layer, shape: layer.output_shape(shape), self._same_shape)

    def _sum(self, left, right):
        self._same_shape(left.shape, right.shape)
        return left + right

    def _same_shape(self, left, right):
        if left != right:
            raise ValueError(
                f"{self!r}: two operations have outputs of shapes {left} and {right}, which cannot be added: "
                "use images whose height and width can be halved as often as the network does"
            )
        return left

    def __repr__(self) -> str:
        return self.name


class First(Layer):
    """A from the pair (A, A_before), after the last cell.

    backward_input(dZ) -> (dZ, None): the gradient with respect to A_before is 0.
    """

    def forward(self, pair: Tree) -> np.ndarray:
        self.cache = shape_of(pair)
        check_pair(self, self.cache)
        A, _ = pair
        return A

    def backward_input(self, dZ: np.ndarray) -> tuple:
        self.cached(dZ, tuple)
        return dZ, None

    def output_shape(self, shapes: Shape) -> Shape:
        check_pair(self, shapes)
        return shapes[0]


class Shift(Layer):
    """A[c, h, w] = A_prev[c, h + 1, w + 1], 0 in the last row and column.

    A_prev, A (C, H, W, m). dA_prev is dZ moved back.

    >>> Shift().forward(np.arange(4.0).reshape(1, 2, 2, 1))[0, :, :, 0]
    array([[3., 0.],
           [0., 0.]])
    """

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        A = np.full(A_prev.shape, constant(0, A_prev), A_prev.dtype, like=A_prev)
        self.cache = A_prev.shape
        A[:, :-1, :-1] = A_prev[:, 1:, 1:]
        return A

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        dA_prev = np.full(self.cached(dZ, tuple), constant(0, dZ), dZ.dtype, like=dZ)
        dA_prev[:, 1:, 1:] = dZ[:, :-1, :-1]
        return dA_prev


def check_pair(layer: Layer, shapes: Shape) -> None:
    """Raise `ValueError` unless `shapes`, those of the input of `layer`, are a pair."""
    if len(shapes) != 2 or not all(isinstance(shape, tuple) for shape in shapes):
        raise ValueError(f"{layer!r} needs a pair (A_prev, A_before), got one array {shapes}: use Pair()")


# The network.

def amoebanet_d(L: int, D: int, n_classes: int = 1000, input_channels: int = 3) -> list[Layer]:
    """Return AmoebaNet-D with L normal cells and D filters, as a list of layers.

    Args:
        L: a multiple of 3.
        D: a multiple of 8.
        n_classes: rows of the logits.
        input_channels: channels of the images (input_channels, H, W, m), where H and W
            are multiples of 32.

        D / 4 channels       convolution 3 x 3 of stride 2, BatchNorm
        c = D / 2, then D    two reduction cells
        c = D                L / 3 normal cells
        c = 2 D              a reduction cell, and L / 3 normal cells
        c = 4 D              a reduction cell, and L / 3 normal cells
        n_classes            mean over the positions, then Linear: logits (n_classes, m)

    The output of a normal cell has 4 c channels; that of a reduction cell 3 c, and half
    of H and W. The inputs of a cell are the outputs of the two cells before it, see
    `Cell`. Average pooling includes the zeros around the image. The loss is
    `SoftmaxCrossEntropy`.

    (18, 208) has 81,505,540 parameters and (18, 416) has 319,024,120; (3, 16) has each
    operation, too, and trains on a laptop. Sources: Real, Aggarwal, Huang, Le 2018,
    arXiv 1802.01548, figure 5 and appendix; Huang et al. 2018, arXiv 1811.06965,
    section 3.

    >>> [str(layer) for layer in amoebanet_d(3, 16)[3:7]]
    ['ReductionCell(8)', 'ReductionCell(16)', 'NormalCell(16)', 'ReductionCell(32)']
    """
    L, D = whole_number("L", L), whole_number("D", D)
    if L < 3 or L % 3:
        raise ValueError(f"L={L} normal cells must be a multiple of 3, since there are three parts of L / 3")
    if D < 8 or D % 8:
        raise ValueError(f"D={D} filters must be a multiple of 8: a convolution has D / 8 channels")
    plan = [("ReductionCell", D // 2)]
    for c in (D, 2 * D, 4 * D):
        plan += [("ReductionCell", c), *[("NormalCell", c)] * (L // 3)]
    layers = [Conv2d(input_channels, D // 4, 3, stride=2, padding=1, bias=False), BatchNorm(D // 4), Pair()]
    n_prev = n_before = D // 4  # channels of the outputs of the two cells before
    last_kind = None            # after a reduction, these two outputs differ in resolution
    for kind, c in plan:
        is_normal = kind == "NormalCell"
        sums, concatenated = (normal_sums(c), (0, 3, 4, 6)) if is_normal else (reduction_sums(c), (4, 5, 6))
        fit_before = factorised_reduction if last_kind == "ReductionCell" else convolution
        fits = [convolution(n_prev, c), fit_before(n_before, c)]
        layers.append(Cell(f"{kind}({c})", fits, sums, concatenated))
        n_prev, n_before, last_kind = len(concatenated) * c, n_prev, kind
    return [*layers, First(), GlobalAvgPool(), Linear(n_prev, n_classes, xavier)]


def normal_sums(c: int) -> list[tuple]:
    """Return the `sums` of a normal cell with `c` channels, for its states 2 to 6."""
    return [
        ((convolution(c, c), 1), (MaxPool2d(3, stride=1, padding=1), 1)),
        ((Chain(), 1), (bottleneck(c, (1, 7), (7, 1)), 0)),
        ((convolution(c, c), 0), (bottleneck(c, (1, 7), (7, 1)), 0)),
        ((MaxPool2d(3, stride=1, padding=1), 2), (Chain(), 2)),
        ((AvgPool2d(3, stride=1, padding=1), 1), (convolution(c, c), 5)),
    ]


def reduction_sums(c: int) -> list[tuple]:
    """Return the `sums` of a reduction cell with `c` channels, for states 2 to 6."""
    return [
        ((MaxPool2d(2, stride=2), 0), (MaxPool2d(3, stride=2, padding=1), 0)),
        ((Chain(), 2), (bottleneck(c, (3, 3), stride=2), 1)),
        ((bottleneck(c, (1, 7), (7, 1)), 2), (MaxPool2d(3, stride=1, padding=1), 2)),
        ((Chain(), 3), (MaxPool2d(2, stride=2), 1)),
        ((AvgPool2d(3, stride=1, padding=1), 2), (convolution(c, c), 3)),
    ]


def convolution(n_prev: int, n: int, kernel_size: tuple[int, int] = (1, 1), stride: int = 1) -> Chain:
    """Return a chain: ReLU, a convolution of `n_prev` to `n` channels, BatchNorm.

    It keeps H and W at `stride` 1, since `kernel_size` is odd.
    """
    padding = tuple(k // 2 for k in kernel_size)
    return Chain(ReLU(), Conv2d(n_prev, n, kernel_size, stride, padding, bias=False), BatchNorm(n))


def bottleneck(c: int, *kernels: tuple[int, int], stride: int = 1) -> Chain:
    """Return convolutions with these `kernels` and `stride`, of c / 4 channels each.

    A 1 x 1 convolution before them leads from `c` channels to c / 4; another one after
    them leads back.
    """
    n = c // 4
    narrow = (convolution(n, n, kernel_size, stride) for kernel_size in kernels)
    return Chain(convolution(c, n), *narrow, convolution(n, c))


def factorised_reduction(n_prev: int, n: int) -> Chain:
    """Return a chain of `n_prev` to `n` channels that halves H and W.

    Half of the channels see even rows and columns, the other half see odd ones.
    """
    even = [Conv2d(n_prev, n // 2, 1, stride=2, bias=False)]
    odd = [Shift(), Conv2d(n_prev, n // 2, 1, stride=2, bias=False)]
    return Chain(ReLU(), Concat(even, odd), BatchNorm(n))
