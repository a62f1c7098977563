"""AmoebaNet-D, the image network that GPipe was tried on."""

from ..arguments import argument
from ..layers import (
    AvgPool2d,
    BatchNorm,
    Chain,
    Concat,
    Conv2d,
    GlobalAvgPool,
    Linear,
    MaxPool2d,
    ReLU,
    xavier,
)
from ..layers.skips import Pair
from .cells import Cell, First, Shift


def amoebanet_d(L, D, n_classes=1000, input_channels=3):
    """AmoebaNet-D with L normal cells and D filters, as a list of layers.

    L: a multiple of 3.
    D: a multiple of 8.
    n_classes: rows of the logits.
    input_channels: of the images (input_channels, H, W, m), with H and W multiples of 32.

        D / 4 channels       convolution 3 x 3 of stride 2, BatchNorm
        c = D / 2, then D    two reduction cells
        c = D                L / 3 normal cells
        c = 2 D              a reduction cell, and L / 3 normal cells
        c = 4 D              a reduction cell, and L / 3 normal cells
        n_classes            mean over the positions, then Linear: logits (n_classes, m)

    A normal cell has 4 c channels at its end; a reduction cell has 3 c, and halves H and W.
    A cell sees the outputs of the two before it, so what passes from cell to cell is a pair, see `Cell`.
    The loss is `SoftmaxCrossEntropy`. Average pooling counts the zeros around the image.

    (18, 208) has 81,505,540 parameters and (18, 416) has 319,024,120, while (3, 16) has each operation in it,
    too, and trains on a laptop. Sources: Real, Aggarwal, Huang, Le 2018, arXiv 1802.01548, figure 5
    and appendix; Huang et al. 2018, arXiv 1811.06965, section 3.

    >>> [str(layer) for layer in amoebanet_d(3, 16)[3:7]]
    ['ReductionCell(8)', 'ReductionCell(16)', 'NormalCell(16)', 'ReductionCell(32)']
    """
    L, D = argument("amoebanet_d.L", L), argument("amoebanet_d.D", D)
    if L < 3 or L % 3:
        raise ValueError(f"L={L} normal cells must be a multiple of 3, since there are three parts of L / 3")
    if D < 8 or D % 8:
        raise ValueError(
            f"D={D} filters must be a multiple of 8, since the narrowest convolution has D / 8 channels"
        )
    builder = _Cells(D // 4)
    builder.reduction(D // 2)
    for c in (D, 2 * D, 4 * D):
        builder.reduction(c)
        for _ in range(L // 3):
            builder.normal(c)
    stem = [Conv2d(input_channels, D // 4, 3, stride=2, padding=1, bias=False), BatchNorm(D // 4), Pair()]
    return [*stem, *builder.cells, First(), GlobalAvgPool(), Linear(builder.n_prev, n_classes, xavier)]


class _Cells:
    """Cells one behind the other, and what the next one has to know of the two before it.

    n_prev, n_before: their channels.
    halved: whether the last cell was a reduction, so that the two differ in resolution.
    """

    def __init__(self, channels):
        self.cells, self.n_prev, self.n_before, self.halved = [], channels, channels, False

    def normal(self, c):
        self._add(f"NormalCell({c})", c, normal_sums(c), (0, 3, 4, 6), halves=False)

    def reduction(self, c):
        self._add(f"ReductionCell({c})", c, reduction_sums(c), (4, 5, 6), halves=True)

    def _add(self, name, c, sums, concatenated, halves):
        fit_before = factorised_reduction if self.halved else convolution
        fits = [convolution(self.n_prev, c), fit_before(self.n_before, c)]
        self.cells.append(Cell(name, fits, sums, concatenated))
        self.n_prev, self.n_before, self.halved = len(concatenated) * c, self.n_prev, halves


def normal_sums(c):
    """(operation, state) twice for each of the states 2 to 6 of a normal cell."""
    return [
        ((convolution(c, c), 1), (MaxPool2d(3, stride=1, padding=1), 1)),
        ((Chain(), 1), (seven_by_seven(c), 0)),
        ((convolution(c, c), 0), (seven_by_seven(c), 0)),
        ((MaxPool2d(3, stride=1, padding=1), 2), (Chain(), 2)),
        ((AvgPool2d(3, stride=1, padding=1), 1), (convolution(c, c), 5)),
    ]


def reduction_sums(c):
    """The same for a reduction cell, in which what is done to the states 0 and 1 has stride 2."""
    return [
        ((MaxPool2d(2, stride=2), 0), (MaxPool2d(3, stride=2, padding=1), 0)),
        ((Chain(), 2), (three_by_three(c, stride=2), 1)),
        ((seven_by_seven(c), 2), (MaxPool2d(3, stride=1, padding=1), 2)),
        ((Chain(), 3), (MaxPool2d(2, stride=2), 1)),
        ((AvgPool2d(3, stride=1, padding=1), 2), (convolution(c, c), 3)),
    ]


def convolution(n_prev, n, kernel_size=(1, 1), stride=1):
    """ReLU, a convolution without bias that keeps H and W at stride 1, BatchNorm.

    n_prev, n: channels before it and behind it.
    kernel_size: odd numbers.
    stride: positions from one window to the next.
    """
    padding = tuple(k // 2 for k in kernel_size)
    return Chain(ReLU(), Conv2d(n_prev, n, kernel_size, stride, padding, bias=False), BatchNorm(n))


def three_by_three(c, stride):
    """3 x 3 between c / 4 channels, which are made of c before it and made c again behind it."""
    return Chain(convolution(c, c // 4), convolution(c // 4, c // 4, (3, 3), stride), convolution(c // 4, c))


def seven_by_seven(c):
    """The same with 1 x 7 and then 7 x 1."""
    narrow = c // 4
    across, down = convolution(narrow, narrow, (1, 7)), convolution(narrow, narrow, (7, 1))
    return Chain(convolution(c, narrow), across, down, convolution(narrow, c))


def factorised_reduction(n_prev, n):
    """Half the resolution: n / 2 channels see the even rows and columns, n / 2 the odd ones."""
    even = [Conv2d(n_prev, n // 2, 1, stride=2, bias=False)]
    odd = [Shift(), Conv2d(n_prev, n // 2, 1, stride=2, bias=False)]
    return Chain(ReLU(), Concat(even, odd), BatchNorm(n))
