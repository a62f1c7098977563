"""The contract that every layer keeps."""

import copy

import numpy as np


class Layer:
    """One formula, forward and backward, without a loop over samples.

    Samples are the last axis: `A_prev` is `(n_prev, m)`, the output `A` is `(n, m)`.

        forward(A_prev)         -> A
        backward(dZ)            -> (dA_prev, dW, db)
        backward_input(dZ)      -> dA_prev
        backward_weight(dZ)     -> (dW, db)

    `dZ` is the derivative of the cost by this layer's output and has the output's shape. Two rules
    make micro-batches work. A layer never divides by m: the loss has done that, so gradients of
    micro-batches simply add. And all that `backward` needs from `forward` lies in `cache`, one value
    that can be taken out and put back while other micro-batches pass through.

    The dtype of the input is the dtype of the result. A layer writes into no array that it was
    handed; the input must stay unchanged until `backward`, because `cache` may refer to it.

    `W` and `b` are None in a layer without parameters, and `dW` and `db` then are None too.
    """

    W = None
    b = None
    cache = None

    def initialize(self, rng, dtype=np.float64):
        """Draw the parameters that are still missing from `rng`, a `numpy.random.Generator`."""

    def backward(self, dZ):
        return self.backward_input(dZ), *self.backward_weight(dZ)

    def backward_weight(self, dZ):
        return None, None

    def copy(self, convert=np.array):
        """A layer of the same kind with parameters `convert(W)` and `convert(b)`, and no cache.

        `layer.copy(np.float32)` changes the dtype, `layer.copy(minipipe.exact.rational)` makes the
        parameters exact.
        """
        twin = copy.copy(self)
        twin.cache = None
        twin.W = None if self.W is None else convert(self.W)
        twin.b = None if self.b is None else convert(self.b)
        return twin

    def cached(self, dZ, shape_of_output):
        """`cache`, after checking that there is one and that `dZ` has the output's shape."""
        if self.cache is None:
            raise RuntimeError(f"{self!r}: backward needs the cache of a forward: call forward(A_prev) first")
        if dZ.shape != shape_of_output(self.cache):
            raise ValueError(
                f"{self!r}: dZ has shape {dZ.shape}, but the output had shape {shape_of_output(self.cache)}: "
                "pass the derivative of the cost by that output"
            )
        return self.cache

    def __repr__(self):
        return f"{type(self).__name__}()"


def as_dtype_of(data, parameter):
    """The data decides the dtype of a result; only integers take on the parameter's."""
    return parameter if data.dtype.kind in "iub" else parameter.astype(data.dtype, copy=False)
