"""Check W and b: when a network is made, and when a user assigns new ones."""

import operator
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..arrays import as_floats, leaves
from ..state import Lock
from ..ties import check_tied_weights
from .layer import Layer, named
from .through import in_one_piece


def take_over(layers: Iterable[Layer], copies: Iterable[Layer], dtype: np.dtype | None = None) -> np.dtype:
    """Turn the W and b of a network's layers into arrays, and return its dtype.

    Args:
        layers: the user's layers, a flat list; `ValueError` if one layer object with
            parameters is in two places, since its copies would train apart.
        copies: the network's copies of them, in the same order, which get the arrays.
        dtype: the floats that the user wants, or None; fractions stay fractions.
    """
    met: dict[int, Layer] = {}
    found: list[np.dtype] = []
    for layer, own in zip(layers, copies, strict=True):
        for name in [name for name in ("W", "b") if name in own.arrays]:
            array = own.checked_parameter(name, getattr(own, name))
            setattr(own, name, array)
            found += [] if array is None else [array.dtype]
        first = met.setdefault(id(layer), own)
        if first is not own and leaves(first.parameter_shapes()):
            raise ValueError(
                f"layers {first.index} and {own.index} are one object, {layer!r}, whose copies would train "
                "apart: make an object for each place, with tie='a name' for each if they shall share one W"
            )
    common = np.result_type(*found or [np.dtype(np.float64)])
    return common if dtype is None or common.hasobject else dtype


class Parameters:
    """The arrays of a network's layers, and whether the user has assigned new ones.

    Args:
        layers: the network's layers, initialized, a flat list with those inside others.
        network: the network's own list of layers.
        ties: {name: indices in `network` of the layers that share a W}.
        dtype: the dtype of the network.
        lock: the network's lock, which an update holds.
    """

    def __init__(
        self, layers: Iterable[Layer], network: Sequence[Layer], ties: Mapping[str, Sequence[int]],
        dtype: np.dtype, lock: Lock,
    ):
        self._network, self._ties, self._dtype, self._lock, self._places = network, ties, dtype, lock, []
        for layer in layers:
            stated = dict(zip("Wb", layer.parameter_shapes())) if layer.arrays else {}
            for name in layer.arrays:
                array, shape = getattr(layer, name), stated.get(name)
                if array is not None:
                    shape = array.shape if shape is None else tuple(shape)
                self._places.append((layer, name, None if array is None else shape))
        self._known = [None] * len(self._places)
        self.check()

    def check(self) -> None:
        """Convert arrays assigned since the last check; they must fit."""
        if all(map(operator.is_, self._arrays(), self._known)):
            return
        new, tied = [], set()
        with self._lock:
            for (layer, name, shape), array, known in zip(self._places, self._arrays(), self._known):
                if array is not known:
                    new.append((layer, name, self._checked(layer, name, shape, array)))
                    tied.add(layer.tie)
            for place in new:
                setattr(*place)
            for tie in self._ties.keys() & tied:
                check_tied_weights(self._network, self._ties[tie])
            self.keep()

    def keep(self) -> None:
        """Accept the layers' arrays without a check: an update has made them."""
        self._known = self._arrays()

    def _arrays(self):
        return [getattr(layer, name) for layer, name, _ in self._places]

    def _checked(self, layer, name, shape, array):
        """Return `array`, assigned to `layer.name`, as the network keeps it."""
        if name not in ("W", "b"):  # statistics may have any shape, and be whole numbers
            is_of_floats = array is not None and array.dtype.kind == "f"
            return in_one_piece(as_floats(name, array, self._dtype) if is_of_floats else array)
        if (array is None) != (shape is None):
            if array is None:
                what, remedy = "no", f"make it an array of shape {shape}"
            else:
                what, remedy = "a", "make it in __init__, or write parameter_shapes and draw for it"
            raise ValueError(f"{named(layer)} has {what} {name} now, unlike before: {remedy}")
        array = layer.checked_parameter(name, array, shape)
        if array is None:
            return None
        return in_one_piece(as_floats(f"{name} of layer {layer.index}", array, self._dtype))
