"""Forward and backward through consecutive layers, as networks and stages do it.

Both are programs, that is generators. They yield an `Exchange` where a layer needs
other devices, and are resumed with its result. No other module makes the inputs and
outputs of layers contiguous (`in_one_piece`).
"""

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Tree, is_finite
from ..checks import without_return
from .layer import Layer, named, overflow, pairs_of_layers


def prepare_forward(layers: Iterable[Layer], training: bool, step: int = 0, first_sample: int = 0) -> None:
    """Tell a flat list of `layers` what the next forward is for.

    Args:
        layers: a flat list, as `every_layer` gives.
        training: whether the network trains; otherwise it predicts.
        step: the number of updates so far.
        first_sample: the position in the mini-batch of the first sample of A_prev.
    """
    for layer in layers:
        layer.training, layer.step, layer.first_sample = training, step, first_sample


def in_one_piece(A: Tree) -> Tree:
    """Return `A`, or a copy if its memory layout is not that of a new array.

    Args:
        A: an array; None; or a tuple or list of arrays, of which a tuple is returned.

    BLAS may round a product of the same numbers differently in another memory layout.
    Arrays from messages and files have the layout of new ones. If all arrays have it,
    the bits do not depend on how a network is cut or copied, or whether it comes from a
    file.

    >>> row = np.ones((1, 3))
    >>> in_one_piece(row) is row, row.T.strides, in_one_piece(row.T).strides
    (True, (8, 24), (8, 8))
    """
    if A is None:
        return None
    if type(A) in (tuple, list):
        return tuple(map(in_one_piece, A))
    # strides, not flags: NumPy takes an axis of length 1 for contiguous whatever its stride is, BLAS does not
    if A.strides == _strides(A.shape, A.dtype.itemsize):
        return A
    # `ascontiguousarray` leaves such an axis as it is; only a new shape gives it the stride of a new array
    return np.ascontiguousarray(A, like=A).reshape(-1).reshape(A.shape)


@cache
def _strides(shape, itemsize):
    """Return the strides of a new array."""
    return tuple(itemsize * math.prod(shape[axis + 1:]) for axis in range(len(shape)))


def handed_on(layer: Layer, A_prev: Tree) -> Tree:
    """Return the output of `layer` for `A_prev`, contiguous.

    Raise `FloatingPointError` if it overflows.
    """
    A = in_one_piece(layer.forward(A_prev))
    if A is None:
        raise without_return(layer, "forward", "A")
    if layer.can_overflow and not is_finite(A):
        raise overflow(layer, A, "its output")
    return A


class Exchange(NamedTuple):
    """A request of a layer or loss that needs other devices in the middle of its work.

    Args:
        layer: that layer or loss.
        program: a generator of `Send`, `Receive` and `Compute`; it returns the output.
        value: the layer's input.
    """

    layer: object
    program: Generator
    value: object


def forward_program(
    layers: Sequence[Layer], A: Tree, skips: dict, call: Callable = handed_on
) -> Generator[Exchange, Any, Any]:
    """Yield each `Exchange`, and return A after consecutive layers.

    Args:
        layers: the layers, in order.
        A: the input of the first.
        skips: {name: the output of a Fork for its Join}, which Forks fill and Joins
            empty.
        call: `call(layer, A_prev)` returns A of a layer that needs no other device.
            With `layer.output_shape` in it, shapes pass through the layers instead of
            arrays.
    """
    for layer in layers:
        if layer.join is not None:
            A = A, skips.pop(layer.join)
        if layer.exchanges[0]:
            A = yield Exchange(layer, layer.forward(A), A)
        else:
            A = call(layer, A)
        if layer.fork is not None:
            A, skips[layer.fork] = A  # a Fork returns a pair
    return A


def backward_program(
    layers: Sequence[Layer], dA: Tree, skips: dict, wants_dX: bool, then: Callable
) -> Generator[Exchange, Any, Any]:
    """Yield each `Exchange`, and return dX of consecutive layers; drop their caches.

    Args:
        layers: the layers in order, after a forward.
        dA: the gradient with respect to the output of the last.
        skips: {name: gradient with respect to the input of a Join from its Fork}, which
            Joins fill and Forks empty.
        wants_dX: whether dX is needed. If not, it is None, and nothing is computed
            before the first layer with parameters.
        then: `then(index, half)` is called for each layer with parameters, from the
            last to the first, with the result of `put_aside`.
    """
    first = 0 if wants_dX else first_with_parameters(layers)
    for layer in layers[:first]:
        layer.cache = None
    dA = in_one_piece(dA)
    for index in range(len(layers) - 1, first - 1, -1):
        layer, dZ = layers[index], dA
        if layer.fork is not None:
            dZ = dA, skips.pop(layer.fork)
        if layer.exchanges[1]:
            dA = in_one_piece((yield Exchange(layer, layer.backward_input(dZ), dZ)))
        elif index > first or wants_dX or layer.weight_after_input:  # the last trait: this call makes dW, too
            dA = in_one_piece(layer.backward_input(dZ))
        else:
            dA = None
        if dA is None and index > first:
            raise without_return(layer, "backward_input", "dA_prev")
        half = put_aside(layer, dZ)
        if half is not None:
            then(index, half)
        if layer.join is not None:
            dA, skips[layer.join] = dA
    return dA if wants_dX else None


def resumed(program: Generator, answer: Any, *held: Any) -> tuple:
    """Resume a program; return (its next `Exchange`, None), or (None, its result).

    `answer` is the result of the `Exchange` before, None at first. `held` are the input
    arrays, not used here: as arguments of a `Compute`, their bytes are counted.
    """
    try:
        return program.send(answer), None
    except StopIteration as end:
        return None, end.value


def run_alone(program: Generator) -> Any:
    """Run the `program` of layers on one device; return its result."""
    exchange, result = resumed(program, None)
    if exchange is not None:
        raise RuntimeError(f"{exchange.layer!r} needs other devices, but runs on one here: use Parallel")
    return result


def forward_through(layers: Sequence[Layer], A: Tree, skips: dict, call: Callable = handed_on) -> Tree:
    """Return A after `layers` on one device.

    A, `skips` and `call` are those of `forward_program`.
    """
    return run_alone(forward_program(layers, A, skips, call))


def backward_through(layers: Sequence[Layer], dA: Tree, skips: dict, wants_dX: bool = False) -> tuple:
    """Return (dX, gradients) of `layers` on one device.

    dA, `skips` and `wants_dX` are those of `backward_program`.
    """
    # a layer without parameters keeps this: None, or tuples of None
    gradients = pairs_of_layers(layers)

    def differentiate(index, half):
        gradients[index] = weight_gradients(layers[index], half)

    return run_alone(backward_program(layers, dA, skips, wants_dX, differentiate)), gradients


def first_with_parameters(layers: Sequence[Layer]) -> int:
    """Return the index of the first of `layers` with parameters, or their count."""
    for index, layer in enumerate(layers):
        if layer.has_parameters:
            return index
    return len(layers)


def put_aside(layer: Layer, dZ: Tree) -> tuple | None:
    """Take the cache out of `layer` after backward_input; return (dZ, cache).

    dZ is None if backward_weight does not read it. Without parameters, return None:
    backward_weight has nothing to do.
    """
    cache, layer.cache = layer.cache, None
    if not layer.has_parameters:
        return None
    return None if layer.weight_after_input else dZ, cache


def weight_gradients(layer: Layer, half: tuple | None) -> tuple:
    """Return (dW, db) of `layer` from `half`, the result of `put_aside`."""
    if half is None:
        return layer.W, layer.b  # None, or tuples of None
    dZ, layer.cache = half
    gradients = layer.backward_weight(dZ)
    layer.cache = None
    try:
        dW, db = gradients
    except (TypeError, ValueError):
        raise without_return(layer, "backward_weight", "dW, db", gradients) from None
    if layer.arrays:  # a layer made of layers has none: its layers have been checked one by one
        for name, parameter, gradient in (("W", layer.W, dW), ("b", layer.b, db)):
            # no function calls here: this runs for each layer and micro-batch
            if gradient is None:
                if parameter is not None and hasattr(layer.backward_weight, "is_made"):
                    raise ValueError(
                        f"{named(layer)} has returned None for d{name}, but it has a {name}: return its "
                        f"gradient; if {name} is to stay, write a backward_weight that returns None for it"
                    )
            elif parameter is None or gradient.shape != parameter.shape:
                shape = None if parameter is None else parameter.shape
                raise ValueError(
                    f"{named(layer)} has returned a d{name} of shape {gradient.shape}, but its {name} has "
                    f"{shape}: make them equal"
                )
    return in_one_piece(dW), in_one_piece(db)
