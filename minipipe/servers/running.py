"""Programs on an engine: the cluster, threads or MPI ranks."""

from types import SimpleNamespace

from ..arrays import computing, overflow_refused
from ..checks import one_of
from ..cluster import Cluster, checked_ports
from ..cluster.links import check_link, links_between
from ..engines import Mpi, Threads, check_size, world
from ..engines.packing import pack
from ..parallel.options import CLUSTER, ENGINES, MPI


class Runner:
    """Runs programs, one for each device, on one of three engines.

    engine: "cluster", simulated devices under one clock; "threads" of this computer; or "mpi", processes that
        `mpiexec` has started. On the last two, time is measured in seconds.
    link, ports: of the messages on the cluster, as for `Cluster`.
    n_devices: how many devices there are.

    Raises `ValueError` for an engine, a link or ports that do not fit these devices.
    """

    def __init__(self, engine, link, ports, devices):
        self._engine = one_of("engine", engine, ENGINES)
        check_link(link)
        links_between(link, devices)
        self._link, self._ports = link, checked_ports(ports, devices)
        if engine == MPI:
            check_size(world(), devices)

    def run(self, programs, names, data):
        """Run the programs to their end, and return the `Trace`.

        names: what pictures call the devices.
        data: arrays that all MPI ranks must have in common.
        """
        with computing(), overflow_refused():
            if self._engine == MPI:
                driver = Mpi(programs)
                driver.run({"data": pack(data)})
            else:
                driver = Threads(programs)
                if self._engine == CLUSTER:
                    driver = Cluster(programs, link=self._link, ports=self._ports)
                driver.run()
            trace = driver.trace
        trace.names = names
        return trace

    def from_device(self, device, owner, attributes):
        """Return an object with these attributes of `owner`, as they are on `device`.

        With MPI, the rank of that device broadcasts them. Otherwise that is `owner` itself.
        """
        if self._engine != MPI:
            return owner
        values = {name: getattr(owner, name) for name in attributes}
        return SimpleNamespace(**world().broadcast(values, device, "bringing the weights together"))
