"""Verdicts on whether gradients are those of the full batch, and `check`.

`check(layer, shape)` tests what a layer must do, and names the likely mistake; it also
takes losses, optimizers and schedules. The verdicts on a network:

- `equals_full_batch(pipe, X, Y)`: `==` in rational numbers, or in floats that need no
  rounding.
- `equals_same_groups(pipe, X, Y)`: the same, compared with a plain loop over the
  micro-batches, for BatchNorm.
- `same_bits(pipe, X, Y)`: on any floats, equal to the same micro-batches on one device.

`against_full_batch`, `against_same_groups` and `against_one_device` return what they
compare; `last_places_apart` reports how far floats are from the full batch.
"""

from .checking import check
from .verdicts import (
    against_full_batch, against_one_device, against_same_groups, equals_full_batch, equals_same_groups,
    last_places_apart, same_bits,
)

__all__ = [
    "against_full_batch", "against_one_device", "against_same_groups", "check", "equals_full_batch",
    "equals_same_groups", "last_places_apart", "same_bits",
]
