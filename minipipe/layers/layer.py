"""The contract that every layer keeps, its first weights, and its backward, whole or in halves."""

import copy
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from ..arrays import constant, converted, is_finite, leaves, own_part, real_numbers, shape_of
from ..checks import listed, shown, to_be_written, without_return
from ..registry import AsCode, Examples, Registry


# How large the first weights are: the variance that keeps signals alive through many layers.

def he(rng, n_prev, n):
    """W (n, n_prev) from N(0, 2/n_prev), which keeps the mean square of a signal through ReLU.

    Source: He et al. 2015, arXiv 1502.01852, equation 10.
    """
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)


def xavier(rng, n_prev, n):
    """W (n, n_prev) from N(0, 2/(n_prev + n)), for Tanh and Sigmoid.

    A compromise between keeping the variance of the forward values (1/n_prev) and of the backward
    values (1/n). Source: Glorot and Bengio 2010, AISTATS, equation 12.
    """
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / (n_prev + n))


# What layers count in the forwards of a mini-batch, such as batch norm's sums.

def take_statistics(layers):
    """Return what the forwards of these layers have counted, one entry for each layer, which forgets it.

    Return None if none of them has counted anything.
    """
    for layer in layers:
        if layer.statistics is not None:
            break
    else:
        return None
    statistics = [layer.statistics for layer in layers]
    for layer in layers:
        layer.statistics = None
    return statistics


def commit(layers, statistics):
    """Hand the layers their statistics of a whole mini-batch: BatchNorm moves its running mean and variance.

    Args:
        layers: a flat list, as for `take_statistics`.
        statistics: one entry for each layer, None for a layer that counts nothing; or None, if none does.
    """
    for layer, counted in zip(layers, statistics or [None] * len(layers), strict=True):
        if counted is not None:
            layer.commit(counted)


# The parameters of a list of layers, with their gradients.

def pairs_of_layers(layers):
    """Return (W, b) of each layer: arrays, None, or tuples for a layer made of layers."""
    return [(layer.W, layer.b) for layer in layers]


def parameters_with(layers, gradients):
    """Return {(index of the layer, "W" or "b", position): (its owner, the parameter, its gradient)}.

    The owner is the layer, or one that it is made of; the position counts the parameters of such a layer.

    Args:
        layers: the layers of a network or a stage.
        gradients: a list of `(dW, db)`, one per layer.

    Raises:
        ValueError: for another number of gradients.
    """
    if len(layers) != len(gradients):
        raise ValueError(
            f"{len(layers)} layers but {len(gradients)} gradients: pass one pair (dW, db) for each layer"
        )
    return {
        (index, name, position): (owner, getattr(owner, name), gradient)
        for index, (layer, pair) in enumerate(zip(layers, gradients))
        for name, of_layer in zip("Wb", pair)
        for position, (owner, gradient) in enumerate(_owners(layer, of_layer))
    }


def _owners(layer, gradient):
    """Return [(layer, gradient)]: the layer itself, or those that it is made of, if they have a gradient."""
    if gradient is None:
        return []
    if isinstance(gradient, tuple):
        return [pair for parts in zip(layer.layers, gradient, strict=True) for pair in _owners(*parts)]
    return [(layer, gradient)]


# A backward, whole or in halves: what a class does not write is made from what it writes.

HALVES = "backward_input", "backward_weight"


class MadeGradients(NamedTuple):
    """What the cache holds between two halves that were both made from a whole `backward`."""

    dW: np.ndarray
    db: np.ndarray | None


def _writers(kind):
    """Return the classes that write backward, backward_input, backward_weight; made methods do not count."""
    return tuple(
        next((base for base in kind.__mro__ if method in vars(base)
              and not hasattr(vars(base)[method], "is_made")), None)
        for method in ("backward", *HALVES)
    )


def _whole_of(kind):
    """Return `backward`, made from the two halves of `kind`."""
    def backward(self, dZ):
        """Return (dA_prev, dW, db), by both halves. The cache stays, so another dZ may follow."""
        cache = self.cache
        # the halves of `kind`, not of self: a subclass may make its halves from super().backward
        derivatives = kind.backward_input(self, dZ), *kind.backward_weight(self, dZ)
        self.cache = cache
        return derivatives

    return backward


def _halves_of(writer, are_both):
    """Return {name: half}, made from the `backward` of the class `writer`.

    are_both: whether a class needs both; the first then leaves dW and db in the cache for the second.
    """
    def derivatives(self, dZ):
        found = writer.backward(self, dZ)
        if not (isinstance(found, tuple) and len(found) == 3):
            raise without_return(self, "backward", "dA_prev, dW, db", found)
        return found

    def backward_input(self, dZ):
        """Return dA_prev, from a whole backward."""
        dA_prev, dW, db = derivatives(self, dZ)
        if are_both:
            self.cache = MadeGradients(dW, db) if self.has_parameters else None
        return dA_prev

    def backward_weight(self, dZ):
        """Return (dW, db): those in the cache, or else from a whole backward."""
        return tuple(self.cache) if isinstance(self.cache, MadeGradients) else derivatives(self, dZ)[1:]

    return {"backward_input": backward_input, "backward_weight": backward_weight}


# The contract.

LAYERS = Registry("minipipe.layers", Examples)  # examples: (layer, shape of a sample), or of a pair of them


class Layer(AsCode):
    """One formula, forward and backward, without a loop over samples.

    Samples are the last axis: `A_prev` is `(n_prev, m)`, the output `A` is `(n, m)`.

        forward(A_prev)         -> A
        backward(dZ)            -> (dA_prev, dW, db)
        backward_input(dZ)      -> dA_prev
        backward_weight(dZ)     -> (dW, db)

    A class writes `forward`, and `backward` or its two halves. A subclass of any layer may override them, and
    call `super().backward(dZ)` there. What the later class writes counts, and what is not written is made
    from what is. Halves that are made from a whole `backward` work in every schedule and split, but save no
    memory: `backward_input` computes dW and db, too, and leaves them in `cache`, where they take the place of
    A_prev and dZ until `backward_weight` returns them.

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

    `dZ` is the derivative of the cost by this layer's output and has the output's shape. Two rules
    make micro-batches work. A layer never divides by m: the loss has done that, so gradients of
    micro-batches simply add. And all that `backward` needs from `forward` lies in `cache`, one value
    that can be taken out and put back while other micro-batches pass through.

    After `backward_input`, `cache` holds only what `backward_weight` still reads next to its dZ. A layer
    whose `backward_input` has made dW and db already says so by `weight_after_input = True`: dZ need not
    be kept for it.

    The dtype of the input is the dtype of the result. A layer writes into no array that it was
    handed, or has returned; the input must stay unchanged until `backward`, because `cache` may
    refer to it. Gradients may be views, or arrays that the layer keeps: sums over micro-batches
    write into none of them.
    Whatever leaves a layer in a network, and each parameter, lies `in_one_piece`: a view is copied.

    `W` and `b` are None in a layer without parameters, and then `dW` and `db` are; None from a
    `backward_weight` keeps a parameter as it is. A layer made of `layers` has tuples of theirs instead.

    Without any number being computed, methods tell what a forward will do: `output_shape(shape)`,
    `parameter_shapes()` and `macs(shape)`. Where A_prev or A is a pair of arrays, so is its shape, and its
    derivative.

    What other rooms must know of a layer, it says itself, in the attributes below. `LAYERS` registers it.

    Before a forward, a network says whether it is in `training`, after how many updates (`step`), and which
    position in the mini-batch the first sample of A_prev has (`first_sample`).
    """

    W = None
    b = None
    cache = None
    arrays = ("W", "b")  # what `copy` converts
    decays = ("W",)      # the parameters that have weight decay, too, where an optimizer's is `weights_only`
    takes = "numbers"    # or "tokens"
    alone_per_sample = True  # whether a sample's A depends on that sample alone
    drawn = ()           # other arrays that a checkpoint needs: those that `initialize` has drawn
    layers = ()          # the layers that this one is made of
    fork = join = None   # the name of the skip connection that leaves or enters here, see `Fork` and `Join`
    tie = None           # layers with the same `tie` share one W
    statistics = None    # what a forward in training has counted, for `commit` at the end of the mini-batch
    training, step, first_sample = True, 0, 0
    index = None         # in its network's list, as errors name it; layers within a layer have its own
    recomputes = None    # whether its backward makes a part of the cache again; None: it cannot
    exchanges = False, False  # whether forward and backward_input are programs, which talk to other devices
    over_copies = False       # whether it talks to the same layer of other replicas, and not to other shards
    splits: ClassVar = {}  # how devices may share its work, see `part`
    can_overflow = True  # whether finite numbers may become too large in a forward
    weight_after_input = False  # whether backward_weight reads what backward_input has left, and no dZ

    def __init_subclass__(cls, **options):
        """Make `backward` from the halves that this class writes, or the halves from its `backward`."""
        super().__init_subclass__(**options)
        writers = _writers(cls)
        if writers == _writers(cls.__mro__[1]):
            return  # the base has them all
        whole, *halves = map(cls.__mro__.index, writers)
        older = [half for half, place in zip(HALVES, halves, strict=True) if place > whole]
        made = {}
        if min(halves) < whole:
            made["backward"] = _whole_of(cls)
        if older:
            of_whole = _halves_of(writers[0], are_both=len(older) == 2)
            made |= {half: of_whole[half] for half in older}
        if len(older) == 2:
            cls.weight_after_input = True
        elif hasattr(super(cls, cls).backward_input, "is_made") and "weight_after_input" not in vars(cls):
            cls.weight_after_input = False  # the base's halves were made, but this class writes one
        for name, method in made.items():
            method.is_made = True
            setattr(cls, name, method)

    @property
    def has_parameters(self):
        """Whether the layer, or one that it is made of, has a W or a b, drawn already."""
        if self.layers:
            return bool(leaves((self.W, self.b)))
        return self.W is not None or self.b is not None

    def initialize(self, rng, dtype=np.float64):
        """Draw W, if it is still missing, from `rng`, a `numpy.random.Generator`; b then is 0."""
        shape_of_W, shape_of_b = self.parameter_shapes()
        if shape_of_W is not None and self.W is None:
            self.W = self.draw(rng).reshape(shape_of_W).astype(dtype)
        if shape_of_b is not None and self.b is None:
            self.b = np.full(shape_of_b, constant(0, self.W), self.W.dtype)

    def draw(self, rng):
        """W in float64, in any shape of as many numbers."""
        raise to_be_written(self, "Layer", "draw(self, rng)", "W in float64")

    def forward(self, A_prev):
        raise to_be_written(self, "Layer", "forward(self, A_prev)", "A")

    def backward(self, dZ):
        """Return (dA_prev, dW, db) for dZ, the gradient of the cost with respect to A."""
        raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")

    def backward_input(self, dZ):
        """Return dA_prev, the first half of a backward."""
        raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")

    def backward_weight(self, dZ):
        """Return (dW, db), the second half of a backward."""
        if self.parameter_shapes() == (None, None):
            return None, None
        raise to_be_written(self, "Layer", "backward_weight(self, dZ)", "(dW, db)")

    def output_shape(self, shape):
        """The shape of A for an A_prev of `shape`, samples included; `ValueError` if that does not fit."""
        return shape

    def parameter_shapes(self):
        """The shapes of `(W, b)`, known before they are drawn; None for one that the layer does not have.

        Written by layers that leave W to `initialize`; those that the constructor has set have their shapes.
        """
        return tuple(None if array is None else array.shape for array in (self.W, self.b))

    def macs(self, shape):
        """Multiply-accumulates in the products of a forward for an A_prev of `shape`.

        Elementwise work is not counted.
        """
        return 0

    def copy(self, convert=lambda array: array.copy()):
        """A layer of the same kind with converted parameters, `convert(W)` and `convert(b)`, and no cache.

        `layer.copy(np.float32)` changes the dtype, `layer.copy(minipipe.exact.rational)` makes the
        parameters exact.
        """
        twin = copy.copy(self)
        twin.layers = tuple(layer.copy(convert) for layer in self.layers)
        twin.cache = twin.statistics = None
        for name in self.arrays:
            value = getattr(self, name)
            setattr(twin, name, None if value is None else converted(value, convert))
        return twin

    def part(self, how: str, rank: int, size: int) -> "Layer":
        """Return what one of `size` devices has of this layer, where they share its work as `how` says.

            "outputs"  all have A_prev, and each makes its own units of A
            "inputs"   each has its own units of A_prev and makes a summand of A; b is added to the sum
            "units"    each makes its own units of A from the same units of A_prev
            "heads"    all have A_prev, and each makes a summand of A
            "tokens"   as "heads": each knows its own tokens, and has zeros for the others

        Units, or channels, are the entries along axis 0. `splits` has an entry for each `how` that the layer
        allows: a dictionary of the axes along which W and b are cut. In a layer made of `layers`, the entry
        says of each of them how that one is split.

        The part is a copy with cut parameters. A class that has sizes in other attributes adapts them.
        """
        part, axes = copy.copy(self), self.splits[how]
        part.cache = part.statistics = None
        for name in ("W", "b"):
            array = getattr(self, name)
            is_there = array is not None and name in axes
            setattr(part, name, own_part(array, axes[name], rank, size) if is_there else None)
        return part

    def unrolled(self, name: str) -> tuple["Layer", ...] | None:
        """Return consecutive layers that compute the same, or None if there are none.

        name: that of a skip connection, if there is one among them.
        """
        return None

    def synchronised(self) -> "Layer | None":
        """Return this layer as all copies of a network together compute it, or None if it has no such form.

        Asked where a sample's A depends on other samples.
        """
        return None

    def cached(self, dZ, shape_of_input: Callable | None = None):
        """Return `cache`, if there is one and `dZ` has the shape of A, which broadcasting would not check.

        A layer without W and b has no second half that would read its cache again, so the cache is dropped.

        Args:
            dZ: the gradient with respect to A, an array or a pair of arrays.
            shape_of_input: a function of the cache that returns the shape of A_prev; left out, the cache
                is an array of that shape.
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

    def check_forward(self, left):
        """Raise `RuntimeError` if `left`, which a forward leaves for the backward, is None."""
        if left is None:
            where = "" if self.training else " in training"
            raise RuntimeError(
                f"{self!r}: backward needs the cache of a forward{where}: call forward(A_prev) first"
            )

    def checked_input(self, A_prev: np.ndarray) -> tuple:
        """Return the shape of A, if A_prev fits this layer and the parameters have been drawn."""
        shape = self.output_shape(A_prev.shape)
        if self.W is None or self.b is None:  # missing, or the layer has none
            for value, needed in zip((self.W, self.b), self.parameter_shapes()):
                if value is None and needed is not None:
                    raise RuntimeError(
                        f"{self!r} has no parameters yet: call initialize(rng), or put it into a Sequential"
                    )
        return shape

    def check_dZ(self, dZ, shape: tuple):
        """Raise `ValueError` unless dZ, an array or a pair of them, has the shape of A."""
        if shape_of(dZ) != shape:
            raise ValueError(
                f"{self!r}: dZ has shape {shape_of(dZ)}, but the output had shape {shape}: "
                "pass the derivative of the cost by that output"
            )

    def checked_parameter(self, name, value, shape=None):
        """Return the parameter `name` as an array of floats or fractions, or None.

        value: numbers that the user has given, or None.
        shape: what it must be; left out, that of any array, but not of a single number.

        Raises `ValueError` for another shape, and for what is not a finite real number.
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


def named(owner):
    """Return what errors call a layer, with its place in a network, or a loss."""
    return repr(owner) if getattr(owner, "index", None) is None else f"layer {owner.index}, {owner!r}"


def finite(owner, numbers, what):
    """Return `numbers`, an array, if they are finite; raise the error of `overflow` if not."""
    if not is_finite(numbers):
        raise overflow(owner, numbers, what)
    return numbers


def overflow(owner, numbers, what):
    """Return the error for numbers that are not finite.

    Args:
        owner: the layer or loss that has computed them.
        numbers: an array, or a tuple of arrays.
        what: what the error calls them, such as "its output".
    """
    dtype = next(array.dtype for array in leaves(numbers) if not is_finite(array))
    return FloatingPointError(
        f"{named(owner)}: {what} is not finite, since {dtype} ends at {float(np.finfo(dtype).max):.2g}: "
        "use smaller numbers as data, a lower learning_rate or wider floats"
    )


def every_layer(layers):
    """Yield each layer, and after it those that it is made of, at any depth."""
    for layer in listed("layers", layers, least=0):
        if not hasattr(layer, "layers"):
            raise ValueError(f"{shown(layer)} is not a layer: pass layer objects, such as ReLU()")
        yield layer
        yield from every_layer(layer.layers)


def checked_layers(layers):
    """The layers of a network as a list; `ValueError` for none, and for what is not a layer."""
    layers = listed("layers", layers)
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise ValueError(
                f"layers[{index}] is {shown(layer)}: pass a layer object, such as Linear(2, 3) or ReLU()"
            )
    return layers


def as_dtype_of(data: np.ndarray, parameter: np.ndarray) -> np.ndarray:
    """Return the parameter in the dtype of the data, which is that of the result.

    Only integers take on the dtype of the parameter.
    """
    if data.dtype == parameter.dtype or data.dtype.kind in "iub":
        return parameter
    return parameter.astype(data.dtype)
