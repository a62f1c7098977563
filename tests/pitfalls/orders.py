"""Bugs in schedules, in what is said of them, and in how layers are shared out, each with its check."""

from dataclasses import replace

import minipipe as mp
from minipipe.order import Action, Schedule, faults, peak_microbatches, schedule
from minipipe.order.schedule import make_schedule
from minipipe.partitioning import loads, solvers
from minipipe.schedules import SCHEDULES, bidirectional, build


def missing_and_phantom_actions(monkeypatch):
    """The last device of 1F1B lists its forwards as 1..M instead of 0..M-1."""
    right = SCHEDULES["1f1b"]

    def wrong(n_stages, n_microbatches):
        devices = right(n_stages, n_microbatches).devices
        last = tuple(Action(kind, s, i + 1 if kind == "F" else i) for kind, s, i in devices[-1])
        return Schedule((*devices[:-1], last), n_stages, n_microbatches, "1f1b")

    monkeypatch.setitem(SCHEDULES, "1f1b", wrong)


def check_missing_and_phantom_actions():
    for order in build("1f1b", 4, 6).devices:
        assert sorted((kind, i) for kind, _, i in order) == [(kind, i) for kind in "BF" for i in range(6)]
    table = "F0 F1 B0 B1", "F1 B0 F2 B1"
    faults = mp.Schedule.from_text(table, microbatches=2).faults()
    for words in ("1F0 (missing)", "1F2 is unknown"):
        assert any(words in fault for fault in faults)


def duplicated_action_passes(monkeypatch):
    """The validator compares sets, so an action that is listed twice is accepted."""

    def of_sets(checked, *limits):
        devices = tuple(tuple(dict.fromkeys(order)) for order in checked.devices)
        return faults.faults(Schedule(devices, checked.n_stages, checked.n_microbatches))

    monkeypatch.setattr(schedule, "faults", of_sets)


def check_duplicated_action_passes():
    faults = mp.Schedule.from_text(["F0 F0 B0", "F0 B0"]).faults()
    assert faults == ["device 0: 0F0 is done already (duplicated): once is enough"]


def deadlock_passes(monkeypatch):
    """Each device's order is checked by itself, never how the devices wait for each other."""
    def of_each_device(checked, *limits):
        return [fault for fault in faults.faults(checked, *limits) if not fault.startswith("deadlock")]

    monkeypatch.setattr(schedule, "faults", of_each_device)


def check_deadlock_passes():
    faults = mp.Schedule.from_text(["F0 B0 F1 B1", "F1 B1 F0 B0"]).faults()
    assert len(faults) == 1 and "device 0 cannot start 0B0 before 1B0 on device 1" in faults[0]
    assert "device 1 cannot start 1F1 before 0F1 on device 0" in faults[0]


def hang_when_M_is_less_than_K(monkeypatch):
    """The warm-up does not stop at M, so a device waits for micro-batches that do not exist."""

    def for_many_microbatches(n_stages, n_microbatches):
        def order(device):
            warm_up = n_stages - device - 1
            actions = [("F", i) for i in range(warm_up)]
            for i in range(n_microbatches - warm_up):
                actions += [("F", warm_up + i), ("B", i)]
            actions += [("B", i) for i in range(n_microbatches - warm_up, n_microbatches)]
            return [Action(kind, device, i) for kind, i in actions]

        return make_schedule("1f1b", n_stages, n_microbatches, order)

    monkeypatch.setitem(SCHEDULES, "1f1b", for_many_microbatches)


def check_hang_when_M_is_less_than_K():
    for K in range(2, 6):
        for M in range(1, K):
            assert build("1f1b", K, M).faults() == []
            assert mp.simulate(build("1f1b", K, M)).makespan == 3 * (M + K - 1)


def dropped_micro_batches(monkeypatch):
    """A schedule in two directions cuts M into units of K, and forgets what is left."""
    right = bidirectional.chimera

    def of_whole_units(n_devices, n_microbatches):
        units = right(n_devices, max(n_devices, n_microbatches // n_devices * n_devices))
        copy_of = right(n_devices, n_microbatches).copy_of
        return replace(units, n_microbatches=n_microbatches, copy_of=copy_of)

    monkeypatch.setitem(SCHEDULES, "chimera", of_whole_units)


def check_dropped_micro_batches():
    """Chimera with a last unit that is smaller: nothing is missing."""
    for K, M in [(2, 4), (4, 6), (4, 10), (6, 2)]:
        assert build("chimera", K, M).faults() == []


def three_bubbles_one_name(monkeypatch):
    """Whichever bubble is asked for, the answer is idle / ideal time."""
    bubble = mp.Trace.bubble
    monkeypatch.setattr(mp.Trace, "bubble", lambda self, of: bubble(self, "ideal"))


def check_three_bubbles_one_name():
    """GPipe, K = 4, M = 8, F = 1, B = 2: 9 ticks idle of 33; of 24; and within each device's own span."""
    trace = mp.simulate(build("gpipe", 4, 8))
    own = sum(3 * 8 + 3 * (3 - r) for r in range(4))
    assert [trace.bubble(of) for of in ("total", "ideal", "span")] == [9 / 33, 9 / 24, 18 / own]


def one_f_one_b_has_a_smaller_bubble(monkeypatch):
    """GPipe is compared with 1F1B at twice as many micro-batches, "since there is memory for them"."""
    right = SCHEDULES["1f1b"]
    monkeypatch.setitem(
        SCHEDULES, "1f1b", lambda n_devices, n_microbatches: right(n_devices, 2 * n_microbatches)
    )


def check_one_f_one_b_has_a_smaller_bubble():
    """At equal K and M only the memory is smaller: a comparison at different M started the myth."""
    for K, M in [(2, 2), (4, 8), (4, 3), (8, 16)]:
        gpipe, one_f_one_b = mp.simulate(build("gpipe", K, M)), mp.simulate(build("1f1b", K, M))
        assert gpipe.bubble("total") == one_f_one_b.bubble("total")
        assert max(peak_microbatches(one_f_one_b)) == min(M, K) <= max(peak_microbatches(gpipe)) == M


def the_picture_is_not_the_run(monkeypatch):
    """The bubble is printed from the formula, whatever the run's idle time was."""

    def formula(self, of):
        n_microbatches = len(self.spans_of(0)) // 2
        return (self.n_devices - 1) / (n_microbatches + self.n_devices - 1)

    monkeypatch.setattr(mp.Trace, "bubble", formula)


def check_the_picture_is_not_the_run():
    from matplotlib.figure import Figure

    trace = mp.simulate(build("gpipe", 3, 4), mp.Costs(F=[1, 5, 1], B=[2, 4, 2]))
    idle = sum(span.end - span.start for span in trace.idle)
    assert trace.bubble("total") == idle / (3 * trace.makespan) != 2 / 6
    ax = trace.plot(ax=Figure().add_subplot())
    drawn = [path.get_extents() for collection in ax.collections for path in collection.get_paths()]
    assert sorted((round(box.y0 + 0.4), box.x0, box.x1) for box in drawn) == sorted(
        (span.device, span.start, span.end) for span in trace.spans
    )


def balancing_by_shifted_costs(monkeypatch):
    """The smallest cost is subtracted from all costs before they are balanced, so stages of many layers
    look light.
    """
    sums = solvers.sums
    monkeypatch.setattr(solvers, "sums", lambda costs: sums([cost - min(costs) for cost in costs]))


def check_balancing_by_shifted_costs():
    """Three layers each have 30 and 32; shifted to 0, 0, 0, 0, 1, 1 they would be cut into [5, 1],
    with 51 and 11.
    """
    costs = [10, 10, 10, 10, 11, 11]
    assert max(loads(costs, mp.partition([mp.ReLU()] * 6, 2, by=costs))) == 32
    assert max(loads(costs, [5, 1])) == 51
