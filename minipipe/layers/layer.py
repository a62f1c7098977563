"""The base class of all layers, the initial weights, and the halves of backward."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import (
    Gradients, Shape, Tree, constant, converted, is_finite, leaves, own_part, real_numbers, shape_of,
)
from ..checks import listed, shown, to_be_written, without_return
from ..registry import AsCode, Examples, Registry


# The initial weights: their variance decides whether a signal survives many layers.

def he(rng: np.random.Generator, n_prev: int, n: int) -> np.ndarray:
    """Draw W (n, n_prev) from N(0, 2/n_prev), by the generator `rng`, for ReLU.

    This variance keeps the mean square of a signal through ReLU. Source: He et al.
    2015, arXiv 1502.01852, equation 10.
    """
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)


def xavier(rng: np.random.Generator, n_prev: int, n: int) -> np.ndarray:
    """Draw W (n, n_prev) from N(0, 2/(n_prev + n)), by `rng`, for Tanh and Sigmoid.

    This is a compromise: 1/n_prev would keep the variance of the forward values, 1/n
    that of the backward values. Source: Glorot and Bengio 2010, AISTATS, equation 12.
    """
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / (n_prev + n))


def take_statistics(layers: Sequence[Layer]) -> list | None:
    """Return the `statistics` of `layers` and clear them; None if no layer has any."""
    for layer in layers:  # no function calls here: this runs for each micro-batch
        if layer.statistics is not None:
            break
    else:
        return None
    statistics = [layer.statistics for layer in layers]
    for layer in layers:
        layer.statistics = None
    return statistics


def commit(layers: Sequence, statistics: list | None) -> None:
    """Update `layers` from their `statistics` of a whole mini-batch, if not None."""
    for layer, counted in zip(layers, statistics or [None] * len(layers), strict=True):
        if counted is not None:
            layer.commit(counted)


# The parameters of a list of layers, with their gradients.

def pairs_of_layers(layers: Iterable[Layer]) -> list[Gradients]:
    """Return [(W, b)] of `layers`; for a layer made of layers, W and b are tuples."""
    return [(layer.W, layer.b) for layer in layers]


def parameters_with(layers: Sequence[Layer], gradients: Sequence[tuple]) -> dict:
    """Return {(layer's index, "W" or "b", position): (owner, parameter, gradient)}.

    Args:
        layers: the layers of a network.
        gradients: a pair (dW, db) for each of `layers`.

    The owner is that layer, or a layer inside it; `position` numbers the owners of one
    layer. Raise `ValueError` unless there are as many pairs as layers.
    """
    if len(layers) != len(gradients):
        raise ValueError(f"{len(layers)} layers but {len(gradients)} gradients: pass (dW, db) for each layer")
    return {
        (index, name, position): (owner, getattr(owner, name), gradient)
        for index, (layer, pair) in enumerate(zip(layers, gradients))
        for name, of_layer in zip("Wb", pair)
        for position, (owner, gradient) in enumerate(_owners(layer, of_layer))
    }


def _owners(layer, gradient):
    """Return [(layer, gradient)] of the layer, or of the layers inside it."""
    if gradient is None:
        return []
    if isinstance(gradient, tuple):
        return [pair for parts in zip(layer.layers, gradient, strict=True) for pair in _owners(*parts)]
    return [(layer, gradient)]


# Backward, whole or in halves: `Layer` makes the methods that a class does not write.

HALVES = "backward_input", "backward_weight"


class MadeGradients(NamedTuple):
    """The gradients that `backward_input` leaves, if made from a whole `backward`."""

    dW: np.ndarray
    db: np.ndarray | None


def _whole_of(kind):
    """Return a `backward` that calls the two halves of class `kind`."""
    def backward(self, dZ):
        """Return (dA_prev, dW, db), and keep the cache for a call with another dZ."""
        cache = self.cache
        # the halves of `kind`, not of self: a subclass may make its halves from super().backward
        derivatives = kind.backward_input(self, dZ), *kind.backward_weight(self, dZ)
        self.cache = cache
        return derivatives

    return backward


def _halves_of(kind):
    """Return the halves of a backward, made from `backward` of class `kind`."""
    def derivatives(self, dZ):
        found = kind.backward(self, dZ)
        if not (isinstance(found, tuple) and len(found) == 3):
            raise without_return(self, "backward", "dA_prev, dW, db", found)
        return found

    def backward_input(self, dZ):
        """Return dA_prev, from a whole backward with dZ."""
        dA_prev, dW, db = derivatives(self, dZ)
        if hasattr(self.backward_weight, "is_made"):  # if the class writes it, it needs the forward's cache
            self.cache = MadeGradients(dW, db) if self.has_parameters else None
        return dA_prev

    def backward_weight(self, dZ):
        """Return (dW, db) from the cache, or from a whole backward with dZ."""
        return tuple(self.cache) if isinstance(self.cache, MadeGradients) else derivatives(self, dZ)[1:]

    return backward_input, backward_weight


OneLayer = TypeVar("OneLayer", bound="Layer")
LAYERS = Registry("minipipe.layers", Examples)  # examples: (layer, shape of a sample), or of a pair of them


class Layer(AsCode):
    """The base of all layers: a formula, forward and backward, for all samples.

    Samples are the last axis: `A_prev` is `(n_prev, m)`, the output `A` is `(n, m)`.

        forward(A_prev)         -> A
        backward(dZ)            -> (dA_prev, dW, db)
        backward_input(dZ)      -> dA_prev
        backward_weight(dZ)     -> (dW, db)

    A class writes `forward`, and `backward` or its two halves; `Layer` makes the rest.
    A subclass of any layer may override them, and call `super().backward(dZ)`. Halves
    made from a whole `backward` work everywhere, but save no memory: `backward_input`
    computes dW and db, too, and leaves them in `cache` for `backward_weight`.

    >>> class Scale(Layer):                     # A = W A_prev, with W (n, 1)
    ...     def __init__(self, W):
    ...         self.W = W
    ...     def forward(self, A_prev):
    ...         self.cache = A_prev
    ...         return self.W * A_prev
    ...     def backward(self, dZ):
    ...         return self.W * dZ, (dZ * self.cache).sum(axis=1, keepdims=True), None
    >>> layer = Scale(np.array([[2.0], [3.0]]))
    >>> A = layer.forward(np.array([[1.0, 4.0], [1.0, 5.0]]))
    >>> layer.backward_input(np.ones((2, 2)))
    array([[2., 2.],
           [3., 3.]])
    >>> layer.cache
    MadeGradients(dW=array([[5.],
           [6.]]), db=None)

    Two rules make micro-batches work. A layer never divides by m: the loss has done
    that, so the gradients of micro-batches simply add. And all that `backward` needs
    from `forward` is in `cache`, one value that a stage takes out and puts back while
    other micro-batches pass through. After `backward_input`, `cache` holds only what
    `backward_weight` still reads. If that half reads no dZ, because `backward_input`
    has computed dW and db, the class says `weight_after_input = True`.

    The result has the dtype of the input. A layer writes into no array that it was
    given or has returned. Its input stays unchanged until `backward`, since `cache` may
    refer to it. A network copies outputs and parameters that are views.

    `W` and `b` are None in a layer without parameters, and so are `dW` and `db`. If
    `backward_weight` returns None for a parameter, no update changes it. In a layer
    made of `layers`, all four are tuples with one entry per layer. A layer may take or
    return a pair of arrays; then its shapes and gradients are pairs.

    `output_shape(shape)`, `parameter_shapes()` and `macs(shape)` need no values. The
    attributes below describe the layer to the rest of the package. `LAYERS` registers
    it. Before a forward, a network sets `training`, `step` (updates so far) and
    `first_sample` (the position in the mini-batch of the first sample of A_prev).
    """

    W: Tree = None
    b: Tree = None
    cache: Any = None
    arrays: tuple[str, ...] = ("W", "b")  # the attributes that `copy` converts
    decays: tuple[str, ...] = ("W",)  # the parameters that decay if an optimizer is `weights_only`
    drawn: tuple[str, ...] = ()  # other arrays that `initialize` draws, which a checkpoint needs
    takes: str = "numbers"  # or "tokens": what A_prev contains
    alone_per_sample: bool = True  # whether a sample's A depends on that sample alone
    layers: tuple[Layer, ...] = ()  # the layers that this one is made of
    fork: str | None = None  # the name of the skip connection that leaves here, see `Fork`
    join: str | None = None  # the name of the skip connection that enters here, see `Join`
    tie: str | None = None  # layers with the same `tie` share one W
    statistics: Any = None  # what a forward in training measures, for `commit` after the mini-batch
    training, step, first_sample = True, 0, 0
    index: int | None = None  # position in the network's list, for errors; an inner layer has its owner's
    recomputes: bool | None = None  # whether its backward recomputes a part of the cache; None: it cannot
    exchanges: tuple[bool, bool] = False, False  # whether forward, backward_input exchange, see `Exchange`
    over_copies: bool = False  # whether it exchanges with other replicas, and not with other shards
    splits: ClassVar[Mapping] = {}  # how devices may share its work, see `part`
    can_overflow: bool = True  # whether a forward can turn finite numbers into infinite ones
    weight_after_input: bool = False  # whether backward_weight reads what backward_input has left, and no dZ

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the halves from a class's `backward`, or `backward` from its halves."""
        super().__init_subclass__(**options)
        base = next(kind for kind in cls.__mro__[1:] if issubclass(kind, Layer))  # it has all three methods
        new = cls.__mro__[:cls.__mro__.index(base)]  # `cls`, and its bases that are not layers
        written = {name for kind in new for name in ("backward", *HALVES) if name in vars(kind)}
        if not written:
            return
        made: dict[str, Any] = {"backward": _whole_of(cls)}
        if "backward" in written:
            halves = zip(HALVES, _halves_of(cls))
            made = {name: half for name, half in halves if name not in written}
        if len(made) == 2:
            cls.weight_after_input = True
        elif hasattr(base.backward_input, "is_made") and "weight_after_input" not in vars(cls):
            cls.weight_after_input = False  # the halves of the base were made, but this class writes one
        for name, method in made.items():
            method.is_made = True
            setattr(cls, name, method)

    @property
    def has_parameters(self) -> bool:
        """Whether the layer, or a layer inside it, has a W or a b that is drawn."""
        if self.layers:
            return bool(leaves((self.W, self.b)))
        return self.W is not None or self.b is not None

    def initialize(self, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> None:
        """Draw a missing W by `rng` in `dtype`, and set a missing b to 0."""
        shape_of_W, shape_of_b = self.parameter_shapes()
        if shape_of_W is not None and self.W is None:
            self.W = self.draw(rng).reshape(shape_of_W).astype(dtype)
        if shape_of_b is not None and self.b is None:
            self.b = np.full(shape_of_b, constant(0, self.W), self.W.dtype)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return W in float64, drawn by `rng`, in any shape with the right entries."""
        raise to_be_written(self, "Layer", "draw(self, rng)", "W in float64")

    def forward(self, A_prev: np.ndarray) -> Tree:
        """Compute A = f(A_prev), and keep in `cache` what backward needs.

        Args:
            A_prev: (n_prev, ..., m), the output of the layer before.

        Returns:
            A (n, ..., m), in the dtype of A_prev.
        """
        raise to_be_written(self, "Layer", "forward(self, A_prev)", "A")

    def backward(self, dZ: np.ndarray) -> tuple:
        """Apply the chain rule to A = f(A_prev; W, b); return the cost's gradients.

            dA_prev = (dA/dA_prev)^T dZ      dW = (dA/dW)^T dZ      db = (dA/db)^T dZ

        Args:
            dZ: the gradient with respect to A, in the shape of A, divided by m already.

        Returns:
            (dA_prev, dW, db), in the shapes of A_prev, W and b.
        """
        raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")

    def backward_input(self, dZ: np.ndarray) -> Tree:
        """Return dA_prev = (dA/dA_prev)^T dZ: the first half of `backward`."""
        raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        """Return dW = (dA/dW)^T dZ and db = (dA/db)^T dZ: the second half."""
        if self.parameter_shapes() == (None, None):
            return None, None
        raise to_be_written(self, "Layer", "backward_weight(self, dZ)", "(dW, db)")

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of A for an A_prev of `shape`, which must fit."""
        return shape

    def parameter_shapes(self) -> tuple:
        """Return the shapes of (W, b), None for a missing one.

        A layer that draws W later writes this method.
        """
        return tuple(None if array is None else array.shape for array in (self.W, self.b))

    def macs(self, shape: Shape) -> int:
        """Return the multiply-accumulates of a forward for an A_prev of `shape`."""
        return 0

    def copy(self: OneLayer, convert: Callable = lambda array: array.copy()) -> OneLayer:
        """Return a copy with parameters `convert(W)` and `convert(b)`, and no cache.

        `layer.copy(np.float32)` changes the dtype;
        `layer.copy(minipipe.exact.rational)` makes the parameters exact.
        """
        twin = copy.copy(self)
        twin.layers = tuple(layer.copy(convert) for layer in self.layers)
        twin.cache = twin.statistics = None
        for name in self.arrays:
            value = getattr(self, name)
            setattr(twin, name, None if value is None else converted(value, convert))
        return twin

    def part(self: OneLayer, how: str, rank: int, size: int) -> OneLayer:
        """Return the part of this layer on one device: a copy with cut parameters.

        Args:
            how: how the devices share the work, one of the five texts below.
            rank, size: the index of the device, from 0, and the number of devices.

            "outputs"  all have A_prev, and each computes its own units of A
            "inputs"   each has its own units of A_prev, and computes a summand of A
            "units"    each computes its own units of A from the same units of A_prev
            "heads"    all have A_prev, and each computes a summand of A
            "tokens"   as "heads": each knows its own tokens, and has zeros for others

        Units, or channels, are the entries along axis 0. With "inputs", b is added to
        the sum. `splits` has an entry for each `how` that the layer allows: {"W" or
        "b": the axis that is cut}; for a layer made of `layers`, the `how` of each. A
        class with sizes in other attributes adapts them.
        """
        part, axes = copy.copy(self), self.splits[how]
        part.cache = part.statistics = None
        for name in ("W", "b"):
            array = getattr(self, name)
            is_there = array is not None and name in axes
            setattr(part, name, own_part(array, axes[name], rank, size) if is_there else None)
        return part

    def unrolled(self, name: str) -> tuple[Layer, ...] | None:
        """Return layers that compute the same, with a skip called `name`, or None."""
        return None

    def synchronised(self) -> Layer | None:
        """Return a layer that computes this one's A over all replicas, or None."""
        return None

    def misfit(self, wanted: str, shape: Shape) -> ValueError:
        """Return the error for an A_prev of `shape` instead of `wanted`: "(3, m)"."""
        return ValueError(f"{self!r} needs A_prev of shape {wanted}, got {shape}: samples are the last axis")

    def cached(self, dZ: Tree, shape_of_input: Callable | None = None) -> Any:
        """Return `cache`; raise an error without one, or for `dZ` of a wrong shape.

        Broadcasting would hide a wrong shape. A layer without W and b drops its
        `cache`, since its `backward_weight` will not read it.

        Args:
            dZ: the gradient with respect to A, an array or a pair of arrays.
            shape_of_input: a function from the cache to the shape of A_prev; if it is
                left out, the cache has that shape.
        """
        cache = self.cache
        if cache is None:
            self.check_forward(cache)
        shape = self.output_shape(np.shape(cache) if shape_of_input is None else shape_of_input(cache))
        if type(dZ) is tuple or dZ.shape != shape:  # `check_dZ` knows pairs
            self.check_dZ(dZ, shape)
        if self.W is None and self.b is None:
            self.cache = None
        return cache

    def check_forward(self, left: object) -> None:
        """Raise `RuntimeError` if `left`, a cache or a part of it, is None."""
        if left is None:
            where = "" if self.training else " in training"
            raise RuntimeError(f"{self!r}: backward needs the cache of a forward{where}: call forward first")

    def checked_input(self, A_prev: np.ndarray) -> tuple:
        """Return the shape of A for A_prev; raise an error without W or b."""
        shape = self.output_shape(A_prev.shape)
        if self.W is None or self.b is None:  # missing, or the layer has none
            for value, needed in zip((self.W, self.b), self.parameter_shapes()):
                if value is None and needed is not None:
                    raise RuntimeError(
                        f"{self!r} has no parameters yet: call initialize(rng), or put it into a Sequential"
                    )
        return shape

    def check_dZ(self, dZ: Tree, shape: tuple) -> None:
        """Raise `ValueError` unless dZ, an array or a pair, has `shape`."""
        if shape_of(dZ) != shape:
            raise ValueError(f"{self!r}: dZ has shape {shape_of(dZ)}, but the output had shape {shape}")

    def checked_parameter(self, name: str, value: Any, shape: Shape | None = None) -> np.ndarray | None:
        """Return a user's W or b as an array of floats or fractions, or None.

        Args:
            name: "W" or "b".
            value: an array, or None; `ValueError` for entries that are not finite
                numbers.
            shape: the shape that it must have; None: any but ().
        """
        if value is None:
            return None
        try:
            array = real_numbers(name, value)
        except ValueError as error:
            raise ValueError(f"{named(self)}: {error}") from None
        if shape is None and not array.shape:
            one = f"np.full((1, 1), {shown(value)})"
            raise ValueError(f"{named(self)}: {name}={shown(value)} is a single number: make it {one}")
        if shape is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but {named(self)} needs {shape}")
        return array.astype(np.float64) if array.dtype.kind in "iub" else array


def named(owner: Any) -> str:
    """Return what errors call `owner`, a layer or loss: its index and its repr."""
    return repr(owner) if getattr(owner, "index", None) is None else f"layer {owner.index}, {owner!r}"


def finite(owner: object, numbers: Tree, what: str) -> Tree:
    """Return `numbers` of `owner`, named `what`; raise `overflow` if not finite."""
    if not is_finite(numbers):
        raise overflow(owner, numbers, what)
    return numbers


def overflow(owner: object, numbers: Tree, what: str) -> FloatingPointError:
    """Return the `FloatingPointError` for `numbers` that are not finite.

    Args:
        owner: the layer or loss that has computed them.
        numbers: an array, or a tuple of arrays.
        what: their name in the error, such as "its output".
    """
    dtype = next(array.dtype for array in leaves(numbers) if not is_finite(array))
    return FloatingPointError(
        f"{named(owner)}: {what} is not finite, since {dtype} ends at {float(np.finfo(dtype).max):.2g}: "
        "use smaller numbers as data, a lower learning_rate or wider floats"
    )


def every_layer(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Yield each of `layers`, and after it the layers inside it, at any depth."""
    for layer in layers:
        yield layer
        yield from every_layer(layer.layers)


def checked_layers(layers: Iterable[Layer], least: int = 1) -> list[Layer]:
    """Return `layers`, at least `least`, as a list; `ValueError` for anything else."""
    layers = listed("layers", layers, least=least)
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise ValueError(f"layers[{index}] is {shown(layer)}: pass a layer object, such as ReLU()")
    return layers


def as_dtype_of(data: np.ndarray, parameter: np.ndarray) -> np.ndarray:
    """Return `parameter` in the dtype of `data`, unless those are whole numbers."""
    if data.dtype == parameter.dtype or data.dtype.kind in "iub":
        return parameter
    return parameter.astype(data.dtype)
