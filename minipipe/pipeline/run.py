"""One run of an order: its stages on their devices, the mini-batches, and the cluster that has the clock."""

import copy

from ..blas import computing
from ..cluster import Compute
from ..engines import Threads
from ..functions import overflow_refused
from ..schedules.rules import works_on
from .grains import in_grains, side_by_side
from .holdings import Holdings, joined
from .machine import THREADS
from .program import cluster_of, programs_of
from .wires import MAIN


class Run:
    """Mini-batches on their way through the stages of a network, by the order of a schedule.

    wires: the `Wires` of the `Schedule`.
    stages: those of the network, which copy 0 works with; other copies get twins of them.
    line: the `MicroBatches`.
    optimizers: one for each stage, of which it gets a copy, if the order updates them; or None.
    ties: {name: the `Tied` layers}.
    machine: the `Machine`.
    memory: what an equal run has held, so that this one need not count; None: count.
    """

    def __init__(self, wires, stages, line, optimizers, ties, machine, memory=None):
        order = wires.schedule
        self._wires, self._line, self._recomputed = wires, line, order.recomputed
        self.stages = _on_devices(stages, order.placements)
        for (index, _), stage in self.stages.items():
            if optimizers is None:
                stage.begin(line.n_grains, machine.accumulate)
            else:
                versions = order.versions[index] if order.versions else [0] * order.n_microbatches
                wanted = [version for version, grains in zip(versions, line.grains) for _ in grains]
                stage.begin(line.n_grains, machine.accumulate, wanted, copy.deepcopy(optimizers[index]))
        if machine.engine == THREADS:
            programs = programs_of(order, wires, self._perform, self.stages, ties, machine.all_reduce)
            self.cluster = Threads(programs, shares=order.stages_on)
            return
        holdings = None if memory is not None else self._holdings(len(order.devices))
        self.cluster = cluster_of(
            order, machine.costs, machine.link, wires, self._perform, self.stages, ties, holdings,
            machine.memory_limit, memory, machine.all_reduce, machine.ports,
        )

    def to_the_end(self):
        """Run all programs to their end. If that fails, the parameters are those before the run."""
        self.or_restore(self.cluster.run)

    def tick(self):
        """Move every device by one tick; returns whether there is more to do. If that fails, as above."""
        self._check_not_failed()
        return self.or_restore(self.cluster.tick)

    def check(self):
        """`RuntimeError` unless the run has come to its end."""
        self._check_not_failed()
        if not self.cluster.done:
            raise RuntimeError("the mini-batch is not finished: call tick() until it returns False")

    def or_restore(self, go_on):
        """What `go_on()` returns; if it fails, so has the run, and the parameters are those before it."""
        try:
            with computing(), overflow_refused():
                return go_on()
        except BaseException as error:
            self.cluster.failure = error
            self.restore()
            raise

    def restore(self):
        """Leave the stages as they were before the run."""
        for stage in self.stages.values():
            stage.restore()

    def _check_not_failed(self):
        if self.cluster.failure is not None:
            raise RuntimeError(
                f"the mini-batch has stopped with an error ({self.cluster.failure!r}): start it again"
            )

    def _perform(self, action, inputs):
        """For `program`: an action is one Compute."""
        given = [(arrived.pop(MAIN, None), arrived) for arrived in inputs]
        results = yield Compute(action, self._work, action.parts, given)
        return [skips | {MAIN: outgoing} for outgoing, skips in results]

    def _work(self, parts, given):
        """[(outgoing, skips)] of the parts of an action, from the (incoming, skips) of each."""
        return [self._work_on(part, *inputs) for part, inputs in zip(parts, given, strict=True)]

    def _work_on(self, part, incoming, skips):
        """(outgoing, skips) of one part of an action, for which its stage takes one grain after the other."""
        line, (kind, index, i) = self._line, part
        stage = self.stages[index, self._wires.device(index, i)]
        if kind == "U":
            stage.update(line.grains[i][-1])
            return None, {}
        if kind == "W*" and line.grain is None:
            stage.late_weight_gradients()
            return None, {}
        grains = [j for microbatch in works_on(part) for j in line.grains[microbatch]]
        if len(grains) == 1:
            return self._work_on_grain(stage, part, grains[0], incoming, skips)
        edges = line.edges(grains)
        given = zip(grains, in_grains(incoming, edges), in_grains(skips, edges))
        outgoing, skips = zip(*[self._work_on_grain(stage, part, *of_one) for of_one in given])
        return side_by_side(outgoing), side_by_side(skips)

    def _work_on_grain(self, stage, part, j, incoming, skips):
        origin, labels = self._line.origins[j], None if stage.loss is None else self._line.labels[j]
        if part.kind == "F":
            A_prev = self._line.take_inputs(j) if stage.index == 0 else incoming
            return stage.forward(j, A_prev, skips, origin, labels, part[1:] in self._recomputed)
        if part.kind == "B":
            return stage.backward(j, incoming, skips)
        if part.kind == "I":
            return stage.backward_input(j, incoming, skips)
        if part.kind == "R":
            stage.recompute(j, origin, labels)
        else:
            stage.backward_weight(j)  # with a W*, too: along the tree of the grains
        return None, {}

    def _holdings(self, n_devices):
        """For each device, a function that returns what the stages on it hold."""
        on_device = [[] for _ in range(n_devices)]
        for (_, device), stage in self.stages.items():
            on_device[device].append(Holdings(stage))
        return [joined(holdings) for holdings in on_device]


def _on_devices(stages, placements):
    """{(stage, device): the `Stage`}; copies of the network with a stage on one device share it."""
    placed = {(stage.index, placements[0][stage.index]): stage for stage in stages}
    for placement in placements[1:]:
        for stage in stages:
            place = stage.index, placement[stage.index]
            if place not in placed:
                placed[place] = stage.twin()
    return placed
