"""Forward and backward through consecutive layers, as networks and stages do it.

Some layers talk to other devices in the middle of a forward or a backward. So the way through the layers is a
program itself: it yields an `Exchange`, and is resumed with what has come of it.
"""

import numpy as np

from ..checks import is_finite, without_return
from .exchange import Exchange
from .layer import overflow


def prepare_forward(layers, training, step=0, first_sample=0):
    """Say to `layers` what the next forward is.

    layers: a flat list, as `every_layer` gives.
    training: whether the network trains; otherwise it predicts.
    step: how many updates there have been.
    first_sample: the position in the mini-batch of the first sample of A_prev.
    """
    for layer in layers:
        layer.training, layer.step, layer.first_sample = training, step, first_sample


def in_one_piece(A):
    """`A`, or a copy of it if it is a view with gaps; so of each array in a tuple; None stays None.

    BLAS rounds a product of the same numbers differently where they lie differently. Across a cut they arrive
    in one piece, as every message does; so whatever a layer hands on is in one piece, too.
    """
    if isinstance(A, tuple):
        return tuple(map(in_one_piece, A))
    return A if A is None or A.flags.c_contiguous else np.ascontiguousarray(A, like=A)


def handed_on(layer, A_prev):
    """The output of `layer`, in one piece; `FloatingPointError` if it overflows."""
    A = in_one_piece(layer.forward(A_prev))
    if A is None:
        raise without_return(layer, "forward", "A")
    if layer.can_overflow and not is_finite(A):
        raise overflow(layer, A, "its output")
    return A


def alone(program):
    """What a way through layers returns, none of which communicates; `RuntimeError` if one does."""
    try:
        exchange = next(program)
    except StopIteration as end:
        return end.value
    raise RuntimeError(
        f"{exchange.layer!r} talks to other devices, but here it is alone: "
        "run it with TensorParallel or Hybrid"
    )


def forward_through(layers, A, skips, call=handed_on):
    """A after consecutive layers, none of which communicates. Arguments as for `forward_program`."""
    return alone(forward_program(layers, A, skips, call))


def forward_program(layers, A, skips, call=handed_on):
    """A program that yields each `Exchange`, and returns A after consecutive layers.

    layers: a list of them.
    A: what goes into the first.
    skips: {name: what a Fork has put aside}, which Forks fill and Joins empty.
    call: what happens at each layer; with `layer.output_shape(A)` instead of `handed_on`, shapes go the same
        way.
    """
    for layer in layers:
        if layer.join is not None:
            A = A, skips.pop(layer.join)
        if layer.exchanges[0]:
            A = yield Exchange(layer, layer.forward(A), A)
        else:
            A = call(layer, A)
        if layer.fork is not None:
            A, skips[layer.fork] = A
    return A


def backward_through(layers, dA, skips, wants_dX=False):
    """(dX, gradients) of consecutive layers, whose caches are gone then.

    layers, dA, skips, wants_dX: as in `backward_input_program`. None of the layers communicates.
    """
    # Right for layers without parameters: None, or tuples of None
    gradients = [(layer.W, layer.b) for layer in layers]

    def differentiate(index, half):
        gradients[index] = weight_gradients(layers[index], half)

    return alone(backward_input_program(layers, dA, skips, wants_dX, differentiate)), gradients


def backward_input_program(layers, dA, skips, wants_dX, then):
    """A program that yields each `Exchange`, and returns dX of consecutive layers.

    layers: a list of them, after a forward.
    dA: the derivative by the output of the last.
    skips: {name: derivative by what the Fork of that name has put aside}, which Joins fill and Forks empty.
    wants_dX: if not, dX is None, and nothing is computed below the first layer with parameters.
    then: `then(index, half)` is called for each layer with parameters, from the last to the first, with what
        it has `put_aside` for them.
    """
    first = 0
    if not wants_dX:
        first = first_with_parameters(layers)
        for layer in layers[:first]:
            layer.cache = None
    dA = in_one_piece(dA)
    for index in range(len(layers) - 1, first - 1, -1):
        layer, dZ = layers[index], dA
        if layer.fork is not None:
            dZ = dA, skips.pop(layer.fork)
        if layer.exchanges[1]:
            dA = yield Exchange(layer, layer.backward_input(dZ), dZ)
        elif index > first or wants_dX or layer.weight_after_input:
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


def first_with_parameters(layers):
    """The index of the first of `layers` that has any; without one, how many layers there are."""
    return next((index for index, layer in enumerate(layers) if layer.has_parameters), len(layers))


def put_aside(layer, dZ):
    """(dZ, cache): what is kept of a layer between the halves of its backward, which then has no cache.

    dZ is None where backward_weight does not read it, and all of it for a layer without parameters.
    """
    cache, layer.cache = layer.cache, None
    if not layer.has_parameters:
        return None
    return None if layer.weight_after_input else dZ, cache


def weight_gradients(layer, half):
    """(dW, db) of a layer, from what `put_aside` has returned."""
    if half is None:
        return layer.W, layer.b  # None, or tuples of None
    dZ, layer.cache = half
    gradients = layer.backward_weight(dZ)
    if gradients is None:
        raise without_return(layer, "backward_weight", "dW, db")
    layer.cache = None
    return gradients
