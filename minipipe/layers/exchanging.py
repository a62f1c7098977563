"""Layers that exchange arrays with the other devices of a tensor-parallel group.

An array is *whole* if all devices have the same, *split* if each has its own part along
the axis of units, and *partial* if each has a summand of the whole. Each layer turns
one form into another, and its backward mirrors its forward:

    Copied     whole -> whole       forward: nothing        backward: all-reduce
    Summed     partial -> whole     forward: all-reduce     backward: nothing
    Gathered   split -> whole       forward: all-gather     backward: own part of dZ

Copied and Summed are the f and g of Megatron-LM. By the chain rule, an A that T devices
use has dA = the sum of the gradients through each of them, hence the all-reduce. After
Summed, all devices do the same work, so each has the whole gradient.

Source: Shoeybi et al. 2019, arXiv 1909.08053.
"""

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np

from ..arrays import Gradients, Tree, own_part, row_sums
from ..collectives import Group, all_gather, all_reduce
from .layer import Layer, as_dtype_of, finite


def join_group(owners: Iterable, group: Group) -> None:
    """Give the `Group` of devices `group` to those `owners` that exchange arrays."""
    for owner in owners:
        if True in owner.exchanges:
            owner.group = group


class Exchanging(Layer):
    """The base of these layers: a group of devices, no parameters and no cache."""

    group: Any = None  # the `Group` of the devices, set by a run

    def summed(self, A: Tree) -> Generator[Any, Any, np.ndarray]:
        """Compute the sum of all devices' `A` as a program, by an all-reduce."""
        return finite(self, (yield from all_reduce(self.group, A)), "the sum over the devices")


class Copied(Exchanging):
    """A = A_prev, whole. dA_prev = the sum of all devices' dZ (Megatron's f)."""

    exchanges = False, True
    can_overflow = False

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        return A_prev

    def backward_input(self, dZ: np.ndarray) -> Generator[Any, Any, np.ndarray]:
        return self.summed(dZ)


class Summed(Exchanging):
    """A = the sum of all devices' A_prev. dA_prev = dZ, whole (Megatron's g)."""

    exchanges = True, False

    def forward(self, A_prev: np.ndarray) -> Generator[Any, Any, np.ndarray]:
        return self.summed(A_prev)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return dZ


class Gathered(Exchanging):
    """A = all devices' A_prev, one above the other. dA_prev = own part of dZ."""

    exchanges = True, False

    def forward(self, A_prev: np.ndarray) -> Generator[Any, Any, np.ndarray]:
        return np.concatenate((yield from all_gather(self.group, A_prev)))

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return own_part(dZ, 0, self.group.rank, self.group.size)


class Bias(Layer):
    """A = A_prev + b, the last step of a layer that is split by its inputs.

    b (n, 1) or (n, 1, ..., 1); A_prev, A (n, ..., m). It comes after the sum over the
    devices, so that b is added once, and db is the same on all of them.

        db = sums of dZ over all axes but the first

    >>> layer = Bias(np.array([[10.0], [20.0]]))
    >>> layer.forward(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[11., 12.],
           [23., 24.]])
    """

    def __init__(self, b: np.ndarray):
        self.b = b

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.cache = A_prev.ndim
        return A_prev + as_dtype_of(A_prev, self.b).reshape(-1, *[1] * (self.cache - 1))

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return dZ

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        return None, row_sums(dZ.reshape(len(dZ), -1)).reshape(self.b.shape)

    def parameter_shapes(self) -> tuple:
        return None, self.b.shape

    def __repr__(self) -> str:
        return f"Bias of shape {self.b.shape}"
