"""What a search for the best way to train has found."""

from typing import NamedTuple

from ..order import Costs, Schedule
from ..parallel import Parallel
from ..parallel.options import Cut, Machine, Split, Sums, Weights


class Plan(NamedTuple):
    """A way to train on a cluster, and what a run of it takes.

    n_replicas, n_devices: D copies of the network, on so many devices each.
    n_shards: T, the devices that share the work inside each layer.
    n_microbatches: M, of the whole mini-batch.
    schedule, recompute: by name. Where a device has a whole copy, there is nothing to schedule: each of its
        micro-batches goes forward and back in turn, whatever the name.
    zero: 0; or 1, 2 or 3, where each copy updates a part of the parameters, see `with_zero`.
    partition: the number of layers of each stage.
    costs: of the stages.
    order: the `Schedule` of all devices, with the exchanges between the copies.
    links, ports: between the devices; device t of group k of copy d is number t + T (k + K d).
    makespan: of a mini-batch, in the unit of the costs.
    peak_bytes: on the device that holds most, at the start or the end of an action.
    shares: {"computing", "bubble", "exchange"}: the parts of the makespan in which the busiest device
        computes, in which it waits for others of its copy, and which the exchanges of copies and shards add.
    accumulate, precision: as in `Setting`.
    """

    n_replicas: int
    n_devices: int
    n_shards: int
    n_microbatches: int
    schedule: str
    recompute: str
    zero: int
    partition: list
    costs: Costs
    order: Schedule
    links: dict
    ports: tuple
    makespan: float
    peak_bytes: int
    shares: dict
    accumulate: str
    precision: str

    @property
    def bound_by(self):
        """What takes most of the makespan beside computing; "computing", where that is 0.9 or more of it."""
        if self.shares["computing"] >= 0.9:
            return "computing"
        return max(("bubble", "exchange"), key=self.shares.get)

    def pipeline(self, layers, loss, seed=0, dtype="float32", engine="cluster"):
        """The network that trains so; its trace has the makespan and, once updated, the peak.

        layers, loss: those that the plan was made for.
        seed, dtype: as for `Weights`.
        engine: as for `Machine`.
        """
        stages = Cut(self.partition)
        split = Split(self.n_replicas, self.n_shards, stages, self.n_microbatches, "tp-pp-dp")
        machine = Machine(engine, self.costs, self.links, self.ports)
        return Parallel(
            layers, loss, split, self.order, sums=Sums(self.accumulate), on=machine,
            weights=Weights(seed, dtype),
        )

    def __str__(self):
        zero = f", ZeRO-{self.zero}" if self.zero else ""
        copies = "1 copy" if self.n_replicas == 1 else f"{self.n_replicas} copies"
        shards = "" if self.n_shards == 1 else f", {self.n_shards} shards"
        if self.n_devices == self.n_shards and len(self.partition) > 1:
            shards += f", {len(self.partition)} buckets"
        return (
            f"{copies} on {self.n_devices} {'device' if self.n_devices == 1 else 'devices'}{shards}, "
            f"{self.n_microbatches} micro-batches, {self.schedule}, recompute {self.recompute}{zero}"
        )


class Plans(NamedTuple):
    """The plans that fit, the fastest first, and what was done to find them.

    found: a list of `Plan`s.
    n_settings: how many settings there are.
    n_too_large: those left out because a part of their bytes alone exceeds the memory.
    n_simulated: those of which a whole run was simulated.
    not_tried: sentences about what no setting has.
    """

    found: list
    n_settings: int
    n_too_large: int
    n_simulated: int
    not_tried: list

    @property
    def best(self):
        """The fastest `Plan`."""
        return self.found[0]

    def __str__(self):
        rows = ["copies  devices each  shards  stages  micro-batches  schedule     recompute  ZeRO  bound "
                "by       makespan     peak bytes"]
        for plan in self.found:
            rows.append(
                f"{plan.n_replicas:6}  {plan.n_devices:12}  {plan.n_shards:6}  {len(plan.partition):6}  "
                f"{plan.n_microbatches:13}  "
                f"{plan.schedule:<11}  {plan.recompute:<9}  {plan.zero or '-':>4}  "
                f"{plan.bound_by:<9}  {float(plan.makespan):12.6g}  {plan.peak_bytes:13,}"
            )
        n_slower = self.n_settings - self.n_too_large - self.n_simulated
        rows.append(
            f"of {self.n_settings:,} settings, {self.n_simulated:,} were simulated, {self.n_too_large:,} are "
            f"too large for the memory, and {n_slower:,} no faster by a lower bound"
        )
        return "\n".join([*rows, *(f"not tried: {sentence}" for sentence in self.not_tried)])
