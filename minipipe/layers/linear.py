"""The fully connected layer."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Shape, row_sums
from ..checks import checked_name, shown, truth, whole_number
from .layer import LAYERS, Layer, as_dtype_of, he


@LAYERS(examples=lambda: [(Linear(4, 3), (4,)), (Linear(1, 1), (1,)), (Linear(4, 3), (4, 3))])
class Linear(Layer):
    """Z = W A_prev + b,  W (n, n_prev), b (n, 1), A_prev (n_prev, m), Z (n, m).

    Args:
        n_prev: rows of A_prev.
        n: rows of Z.
        initialization: draws W, as `initialization(rng, n_prev, n)`; b starts at 0.
        W, b: the parameters themselves, if they are given.
        tie: a name; layers of a network with the same `tie` share one W.
        bias: whether b is added.

    A_prev may have further axes, as in (n_prev, T, m): then the same W and b act at
    each of their positions.

    Backward, for dZ (n, m), the gradient of the cost J with respect to Z. One entry is
    Z[i, k] = sum_j W[i, j] A_prev[j, k] + b[i], so by the chain rule

        dA_prev[j, k] = sum_i W[i, j] dZ[i, k]        dA_prev = W^T dZ       (n_prev, m)
        dW[i, j]      = sum_k dZ[i, k] A_prev[j, k]   dW      = dZ A_prev^T  (n, n_prev)
        db[i]         = sum_k dZ[i, k]                db      = row sums     (n, 1)

    The sums over k run over samples. That is why the gradients of micro-batches add up.

    Raises `ValueError` for parameters of other shapes. Source: Rumelhart, Hinton,
    Williams 1986.

    >>> layer = Linear(2, 1, W=[[1.0, 2.0]], b=[[0.5]])
    >>> A_prev = np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 1.0]])     # three samples
    >>> layer.forward(A_prev)
    array([[1.5, 2.5, 5.5]])
    >>> dA_prev, dW, db = layer.backward(np.array([[1.0, 1.0, 1.0]]))
    >>> dW, db
    (array([[4., 2.]]), array([[3.]]))
    """

    splits: ClassVar[Mapping] = {"outputs": {"W": 0, "b": 0}, "inputs": {"W": 1}}

    def __init__(
        self, n_prev: int, n: int, initialization: Callable = he, W: ArrayLike | None = None,
        b: ArrayLike | None = None, tie: str | None = None, bias: bool = True,
    ):
        self.n_prev, self.n = whole_number("n_prev", n_prev, 1), whole_number("n", n, 1)
        if not callable(initialization):
            raise ValueError(f"initialization={shown(initialization)} must be a function, such as he")
        self.initialization, self.tie = initialization, None if tie is None else checked_name("tie", tie)
        self.W = copy.copy(self.checked_parameter("W", W, (self.n, self.n_prev)))
        bias = truth("bias", bias)
        if b is not None and not bias:
            raise ValueError("b is given, but bias=False says that there is none: leave one of them out")
        self.bias, self.b = bias, copy.copy(self.checked_parameter("b", b, (self.n, 1)))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return self.initialization(rng, self.n_prev, self.n)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        shape = self.checked_input(A_prev)
        self.cache = A_prev
        Z = as_dtype_of(A_prev, self.W) @ A_prev.reshape(self.n_prev, -1)
        if self.b is not None:
            Z += as_dtype_of(A_prev, self.b)
        return Z.reshape(shape)

    def backward(self, dZ: np.ndarray) -> tuple:
        # Linear's halves, not self's: a subclass may make its halves from super().backward
        return Linear.backward_input(self, dZ), *Linear.backward_weight(self, dZ)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        A_prev = self.cached(dZ)
        return (as_dtype_of(dZ, self.W).T @ dZ.reshape(self.n, -1)).reshape(A_prev.shape)

    def backward_weight(self, dZ: np.ndarray) -> tuple:
        A_prev, dZ = self.cached(dZ).reshape(self.n_prev, -1), dZ.reshape(self.n, -1)
        return dZ @ A_prev.T, None if self.b is None else row_sums(dZ)

    def part(self, how: str, rank: int, size: int) -> Linear:
        part = super().part(how, rank, size)
        (part.n, part.n_prev), part.bias = part.W.shape, part.b is not None
        return part

    def output_shape(self, shape: Shape) -> Shape:
        if not shape[1:] or shape[0] != self.n_prev:
            raise self.misfit(f"({self.n_prev}, m)", shape)
        return self.n, *shape[1:]

    def parameter_shapes(self) -> tuple:
        return (self.n, self.n_prev), (self.n, 1) if self.bias else None

    def macs(self, shape: Shape) -> int:
        return self.n * math.prod(shape)
