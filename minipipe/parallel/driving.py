"""Programs on an engine: the cluster, threads or MPI ranks."""

from types import SimpleNamespace

from ..arrays import computing, overflow_refused
from ..cluster import Cluster
from ..engines import Mpi, Threads, world
from ..engines.packing import pack
from ..order import Costs
from .options import CLUSTER, MPI


def checked_machine(machine, n_devices):
    """Return `machine`, if it can run these devices; raise `ValueError` if not, or if it has costs."""
    machine.check(n_devices)
    if machine.costs != Costs():
        raise ValueError(
            f"costs={machine.costs} are of the actions of stages: say in pace how long the work takes"
        )
    return machine


def run_programs(machine, programs, alike, names):
    """Run programs to their end, and return the `Trace`.

    machine: the `Machine`.
    alike: arrays that all MPI ranks must have in common.
    names: what pictures call the devices.
    """
    with computing(), overflow_refused():
        if machine.engine == MPI:
            driver = Mpi(programs)
            driver.run({"data": pack(alike)})
        else:
            driver = Threads(programs)
            if machine.engine == CLUSTER:
                driver = Cluster(programs, link=machine.link, ports=machine.ports)
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
