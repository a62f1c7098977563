"""Devices in nodes: how many, what joins them, and what each of them has."""

from dataclasses import dataclass

from ..arguments import argument
from ..checks import function, listed, real_number
from ..cluster import Link
from ..cluster.links import checked_ports
from ..parallel import in_nodes


@dataclass(frozen=True)
class Nodes:
    """A cluster, as far as a plan needs to know it.

    n_nodes, n_devices: how many nodes, and how many devices in each; they are numbered node by node.
    inside, between: the `Link` of two devices in one node, and in two; None where there are no two.
    memory: bytes of each device.
    seconds: a function (multiply-accumulates) -> time of a forward on a device; left out, one unit for each.
    ports: what several links have to share, see `Port`.
    speeds: of each device in all nodes, if they are unequal: 2 takes half of what `seconds` says.

    >>> Nodes(2, 8, Link(latency=1), Link(latency=10), memory=2**30).size
    16
    """

    n_nodes: int = 1
    n_devices: int = 1
    inside: Link | None = None
    between: Link | None = None
    memory: float = float("inf")
    seconds: object = float
    ports: tuple = ()
    speeds: tuple = ()

    def __post_init__(self):
        argument("n_nodes", self.n_nodes)
        argument("n_devices", self.n_devices)
        argument("Nodes.memory", self.memory)
        function("seconds", self.seconds)
        object.__setattr__(self, "ports", tuple(checked_ports(self.ports, self.size)))
        speeds = [real_number("speeds", speed, above=0) for speed in listed("speeds", self.speeds, least=0)]
        if speeds and len(speeds) != self.size:
            raise ValueError(
                f"speeds has {len(speeds)} numbers for {self.size} devices: give one for each, or none"
            )
        object.__setattr__(self, "speeds", tuple(speeds) if set(speeds) != {1} else ())
        joined = ("inside", self.n_devices, "devices in a node"), ("between", self.n_nodes, "nodes")
        for name, n, of in joined:
            link = getattr(self, name)
            if n > 1 and not isinstance(link, Link):
                raise ValueError(
                    f"this cluster has {n} {of} and no link between them: give it {name}=Link(latency, "
                    "bandwidth), or Link() for one that takes no time"
                )

    @property
    def size(self):
        """How many devices there are in all."""
        return self.n_nodes * self.n_devices

    def links(self):
        """{(source, to): Link}, those that take time."""
        if self.size == 1:
            return {}
        inside, between = self.inside or Link(), self.between or Link()
        links = in_nodes(self.size, self.n_devices, inside, between)
        return {pair: link for pair, link in links.items() if link != Link()}
