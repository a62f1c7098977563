"""The picture of seven schedules on one time axis, and the film of one of them."""

from minipipe import Link, simulate
from minipipe.plots import compare
from minipipe.schedules import build

K, M = 4, 8
ZOO = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved 1F1B",
    "chimera": "Chimera",
    "zb-h1": "ZB-H1",
    "zb-v": "ZB-V",
    "dualpipe": "DualPipe, overlaps not faster",
}


def zoo():
    """Return a `Figure` of seven schedules on one time axis."""
    return compare({label: run_of(name, K, M) for name, label in ZOO.items()})


def film():
    """Return the `Trace` of 1F1B, which is saved as a film."""
    return run_of("1f1b", K, M)


def run_of(name, n_devices, n_microbatches, link=Link()):
    """Return the `Trace` of the schedule `name` at standard costs, with `link`.

    n_devices, n_microbatches: K and M.
    """
    return simulate(build(name, n_devices, n_microbatches), link=link)
