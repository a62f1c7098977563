"""Skip connections by name between layers of a network's list, also across stages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Shape, Tree
from ..checks import checked_name, one_of
from .layer import LAYERS, Layer


class Pair(Layer):
    """forward(A_prev) -> (A_prev, A_prev).

    The cost depends on A_prev through both, so backward_input((dA, dS)) -> dA + dS.
    """

    can_overflow = False

    def forward(self, A_prev: np.ndarray) -> tuple:
        self.cache = A_prev.shape
        return A_prev, A_prev

    def backward_input(self, dZ: Tree) -> np.ndarray:
        self.cached(dZ, tuple)
        dA, dS = dZ
        return dA + dS

    def output_shape(self, shape: Shape) -> Shape:
        return shape, shape


@LAYERS(examples=lambda: [(Fork("skip"), (3, 5))])
class Fork(Pair):
    """Pass A_prev on to the next layer, and also to the `Join` of the same name.

    A = (A_prev, A_prev). The second waits for the Join, or is sent to its device. Each
    `name` has one Fork and one Join. Inside one layer, use `Residual` or `Concat`.

    >>> layer = Fork("detour")
    >>> A, S = layer.forward(np.array([[1.0]]))
    >>> layer.backward_input((np.array([[2.0]]), np.array([[0.5]])))
    array([[2.5]])
    """

    def __init__(self, name: str):
        self.fork = checked_name("name", name)

    def argument(self, name: str) -> Any:
        return self.fork


@LAYERS(examples=lambda: [(Join("skip"), ((3, 5), (3, 5))), (Join("skip", how="concat"), ((3, 5), (2, 5)))])
class Join(Layer):
    """Combine A_prev with S, the second output of the `Fork` with this name.

    Args:
        name: that of the Fork.
        how: "add" or "concat". In forward((A_prev, S)) -> A and backward_input(dZ) ->
            (dA_prev, dS):

        how="add"      A = A_prev + S, of one shape           dA_prev = dZ, dS = dZ
        how="concat"   A = A_prev above S, along axis 0       dA_prev, dS = rows of dZ

    >>> Join("detour").forward((np.array([[1.0]]), np.array([[2.0]])))
    array([[3.]])
    """

    def __init__(self, name: str, how: str = "add"):
        self.join, self.how = checked_name("name", name), one_of("how", how, ("add", "concat"))

    def argument(self, name: str) -> Any:
        return {"name": self.join, "how": self.how}[name]

    def forward(self, pair: Tree) -> np.ndarray:
        A_prev, S = pair
        self.cache = A_prev.shape, S.shape
        self.output_shape(self.cache)
        return A_prev + S if self.how == "add" else np.concatenate([A_prev, S])

    def backward_input(self, dZ: np.ndarray) -> tuple:
        shape, _ = self.cached(dZ, tuple)
        if self.how == "add":
            return dZ, dZ
        return dZ[:shape[0]].copy(), dZ[shape[0]:].copy()  # views would keep all of dZ

    def output_shape(self, shapes: Shape) -> Shape:
        shape, shape_of_skip = shapes
        first = 0 if self.how == "add" else 1  # the first axis that has to agree
        if shape[first:] != shape_of_skip[first:]:
            raise ValueError(
                f"{self!r}: A_prev has shape {shape}, and the skip connection {shape_of_skip}: "
                + ("make them equal" if self.how == "add" else "make all axes but the first equal")
            )
        return shape if self.how == "add" else (shape[0] + shape_of_skip[0], *shape[1:])


def skip_routes(layers: Sequence[Layer]) -> dict[str, tuple[int, int]]:
    """Return {name: (index of its Fork, index of its Join)} for skips among `layers`.

    Raise `ValueError` unless each name has one Fork and, after it, one Join.
    """
    forks: dict[str, int] = {}
    joins: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for kind, name, indices in (("Fork", layer.fork, forks), ("Join", layer.join, joins)):
            if name in indices:
                raise ValueError(f"layers {indices[name]} and {index} both are {kind}({name!r}): rename one")
            if name is not None:
                indices[name] = index
    for name in [*forks, *joins]:
        if name not in forks or name not in joins:
            there, missing = ("Fork", "Join") if name in forks else ("Join", "Fork")
            raise ValueError(f"{there}({name!r}) has no {missing}: add {missing}({name!r}) to the layers")
        if forks[name] > joins[name]:
            raise ValueError(f"Fork({name!r}) is layer {forks[name]}, after its Join, layer {joins[name]}")
    return {name: (forks[name], joins[name]) for name in forks}

