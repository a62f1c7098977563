"""A table of the shapes, parameters, multiply-accumulates and bytes of a network."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .arrays import Shape, known_dtype
from .checks import shown, whole_numbers
from .layers.layer import Layer, checked_layers
from .layers.skips import skip_routes
from .layers.through import forward_through

LONGEST_NAME = 52
HEADINGS = ("layer", "output", "parameters", "MACs", "bytes")
WITH_COMMAS = "{:,}".format


class LayerRow(NamedTuple):
    """The row of one layer, for one sample.

    Args:
        name: the layer's repr.
        output_shape: the shape of its output; for a pair of arrays, a pair of shapes.
        parameters: the number of entries in W and b together.
        macs: the multiply-accumulates in the products of a forward.
        n_bytes: the bytes of the output, which a cut after this layer would send.
    """

    name: str
    output_shape: tuple
    parameters: int
    macs: int
    n_bytes: int


@dataclass(frozen=True, repr=False)
class Description:
    """The result of `describe`: a row for each layer, and sums; str() is the table."""

    rows: tuple
    input_shape: tuple
    dtype: np.dtype

    parameters = property(lambda self: sum(row.parameters for row in self.rows))
    macs = property(lambda self: sum(row.macs for row in self.rows))
    n_bytes = property(lambda self: sum(row.n_bytes for row in self.rows))

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("", *HEADINGS), ("", "input", str(self.input_shape), "", "", "")]
        lines += [
            (str(index), _short(row.name), str(row.output_shape), *map(WITH_COMMAS, row[2:5]))
            for index, row in enumerate(self.rows)
        ]
        lines.append(("", "total", "", *map(WITH_COMMAS, (self.parameters, self.macs, self.n_bytes))))
        widths = [max(map(len, column)) for column in zip(*lines)]
        aligned = [
            f"{index:>{widths[0]}}  {name:<{widths[1]}}  {shape:<{widths[2]}}  "
            + "  ".join(f"{number:>{width}}" for number, width in zip(numbers, widths[3:]))
            for index, name, shape, *numbers in lines
        ]
        note = f"MACs and bytes are those of one sample, in {self.dtype}."
        return "\n".join([*(line.rstrip() for line in aligned), note])

    __repr__ = __str__


def describe(
    layers: Sequence[Layer], input_shape: tuple[int, ...], dtype: DTypeLike = np.float32
) -> Description:
    """Return what each of `layers` will need for inputs of `input_shape`.

    Args:
        layers: a list of layers. No parameters are drawn and no arrays made, so the
            network may be larger than the computer's memory.
        input_shape: the shape of one sample, without the samples axis.
        dtype: the dtype of the inputs, for the bytes.

    Returns a `Description`, with `rows`, `parameters`, `macs` and `n_bytes`. A W that
    several layers share is counted at the first of them; a layer made of layers is one
    row. Raises `ValueError` with the index of the first layer that does not fit.

    >>> from minipipe.layers import Linear, ReLU
    >>> describe([Linear(64, 32), ReLU(), Linear(32, 10)], (64,))
       layer           output  parameters   MACs  bytes
       input           (64,)
    0  Linear(64, 32)  (32,)        2,080  2,048    128
    1  ReLU()          (32,)            0      0    128
    2  Linear(32, 10)  (10,)          330    320     40
       total                        2,410  2,368    296
    MACs and bytes are those of one sample, in float32.
    """
    layers, dtype = checked_layers(layers), known_dtype(dtype)
    skip_routes(layers)
    if not isinstance(input_shape, tuple) or not input_shape:
        raise ValueError(
            f"input_shape={shown(input_shape)} must be the shape of one sample, "
            "a tuple such as (64,) or (3, 32, 32)"
        )
    input_shape = whole_numbers("input_shape", input_shape, 1)
    rows: list[LayerRow] = []
    parameters = parameters_of_layers(layers)

    def add_row(layer, shape):
        index = len(rows)
        try:
            output_shape = layer.output_shape(shape)
        except ValueError as error:
            raise ValueError(f"layers[{index}], {_short(repr(layer))}, does not fit: {error}") from error
        sample = without_samples(output_shape)
        n_bytes = _count(sample) * dtype.itemsize
        rows.append(LayerRow(repr(layer), sample, parameters[index], layer.macs(shape), n_bytes))
        return output_shape

    forward_through(layers, (*input_shape, 1), {}, call=add_row)
    return Description(tuple(rows), input_shape, dtype)


def parameters_of_layers(layers: Sequence[Layer]) -> list[int]:
    """Return the number of parameters of each of `layers`; a shared W counts once."""
    counts, ties = [], set()
    for layer in layers:
        W, b = map(_count, layer.parameter_shapes())
        counts.append(b if layer.tie in ties else W + b)
        ties |= {layer.tie} - {None}
    return counts


def without_samples(shape: Shape) -> Shape:
    """Return `shape`, or each of a tuple of shapes, without its last axis."""
    return shape[:-1] if _is_plain(shape) else tuple(map(without_samples, shape))


def _count(shapes):
    """Return the number of entries of arrays with these nested shapes; None has 0."""
    if not shapes:
        return 0
    return math.prod(map(int, shapes)) if _is_plain(shapes) else sum(map(_count, shapes))


def _is_plain(shape):
    """Tell whether `shape` is that of one array, not a tuple of shapes."""
    return isinstance(shape[0], Integral)


def _short(name):
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME - 3] + "..."
