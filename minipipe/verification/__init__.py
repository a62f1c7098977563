"""Is the pipeline's gradient the full batch's? Three verdicts on exactness, and `check`, which calls them.

`check(layer, shape)` tries what a layer promises, and names the likely mistake where it
breaks a promise; so for losses, optimizers, networks and schedules. What it compares
with the full batch, it compares as the verdicts do:

`equals_full_batch(pipe, X, Y)`: equal with `==`, in rational numbers, or in floats that
need no rounding. `equals_same_groups(pipe, X, Y)`: the same, compared with a plain loop
over the micro-batches: for BatchNorm. `same_bits(pipe, X, Y)`: on any floats, equal to
the same micro-batches on one device.

What they compare is returned by `against_full_batch`, `against_same_groups` and
`against_one_device`. How far floats are from the full batch, `last_places_apart`
reports.
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
