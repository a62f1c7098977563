"""Random rows on MPI ranks, a device each; see `engines/mpi_checks.py`."""

from random import Random

from pairs.covering import drawn
from pairs.outcomes import outcome
from settings import layers_of, network

from minipipe.engines import world


def pairs(n):
    """Run n rows that need as many devices as there are ranks; return how many ran."""
    rng, rows = Random(world().size), []
    while len(rows) < int(n):
        row = drawn(rng) | {"checkpoint": False, "how": "forward_backward"}
        if n_devices(row) == world().size:
            rows.append(row | {"engine": "mpi"})
    return sum(outcome(row).refusal is None for row in rows)


def n_devices(row):
    """Return the devices of a row on the cluster; 0 if it is refused."""
    try:
        layers, loss, _ = layers_of(row)
        net = network(row, layers, loss)
    except ValueError:
        return 0
    return len(net.schedule.devices) * row["T"]
