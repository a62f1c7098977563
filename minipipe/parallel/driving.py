"""Programs on an engine: the cluster, threads or MPI ranks."""

from types import SimpleNamespace

from ..blas import computing
from ..checks import one_of
from ..cluster import Cluster, links_between
from ..engines import Mpi, Threads, check_size, world
from ..engines.packing import pack
from ..functions import overflow_refused
from ..pipeline.machine import ENGINES, MPI, THREADS


def checked_engine(engine, link, n_devices):
    """`engine`, if it is the name of one that can run these devices with this link; `ValueError` if not."""
    links_between(link, n_devices)
    if one_of("engine", engine, ENGINES) == MPI:
        check_size(world(), n_devices)
    return engine


def run_programs(engine, programs, link, ports, alike, names):
    """Run programs to their end, and return the `Trace`.

    alike: arrays that all MPI ranks must have in common.
    names: what pictures call the devices.
    """
    with computing(), overflow_refused():
        if engine == MPI:
            driver = Mpi(programs)
            driver.run({"data": pack(alike)})
        else:
            driver = Threads(programs) if engine == THREADS else Cluster(programs, link=link, ports=ports)
            driver.run()
        trace = driver.trace
    trace.names = names
    return trace


def shared(engine, device, owner, names):
    """An object with these attributes of `owner`, as they are on `device`: on MPI, other ranks get them."""
    if engine != MPI:
        return owner
    values = {name: getattr(owner, name) for name in names}
    return SimpleNamespace(**world().broadcast(values, device, "bringing the weights together"))
