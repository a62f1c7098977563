"""Published results, as data with their sources, and the same results by simulation.

tables: the cells of GPipe's tables 1 to 4. `python3 figures/draw.py tables` prints them
    next to those of this package, and Zero Bubble's.
devices: the accelerators of the tables; and latencies and bandwidths, each of which
    gives a `Link`.
gpipe: table 1 by `describe` and a run without values, tables 2 and 3 by `simulate`.

What comes out: GPipe's "3.5 times on four times the devices" is 6.3/1.8, and 3.52 here.
All cells of its table 3 are met within 5 %, with one free number (the share of its peak
speed that a P100 reaches) and one choice (when it recomputes). 12 of table 2's 18 cells
are missed: AmoebaNet-D by -26 to +71 %, the Transformer by -13 to -37 % where M is 1 or
4, since batch sizes were adjusted and stages were not equal in time; its row M = 32 is
met within 5 %. Table 1's parameters are met within 3 %; its activation memory is not:
32 to 52 % less is counted here with GPipe, 2.8 and 5.8 times as much without.
"""

from .devices import HARDWARE, P100, TPU_V2, TPU_V3, Accelerator, Hardware
from .gpipe import Compared, Computed, equal_stages, table_1, table_2, table_3
from .tables import ACCURACIES, TABLE_1, TABLE_2, TABLE_3, text_of_hardware

__all__ = [
    "ACCURACIES", "Accelerator", "Compared", "Computed", "HARDWARE", "Hardware", "P100", "TABLE_1",
    "TABLE_2", "TABLE_3", "TPU_V2", "TPU_V3", "equal_stages", "table_1",
    "table_2", "table_3", "text_of_hardware",
]
