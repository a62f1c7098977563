"""List scheduling: published examples, bounds, and what it finds by itself that people wrote by hand."""

import random
from itertools import permutations
from math import inf

import pytest

from minipipe.graph import Task, TaskGraph, earliest_finish, from_names, list_schedule, run_listed

TICKS = [3, 2, 2, 2, 4, 4, 4, 4, 9]
AFTER = {9: (1,), 5: (4,), 6: (4,), 7: (4,), 8: (4,)}


def graham(less=0, after=AFTER):
    return [Task(f"T{n}", TICKS[n - 1] - less, tuple(b - 1 for b in after.get(n, ()))) for n in range(1, 10)]


def listed(n_devices, order=range(1, 10), **how):
    return list_schedule(graham(**how), n_devices, [n - 1 for n in order]).makespan


def test_the_busiest_lane_has_a_way_there_and_a_way_on():
    """Lane 1 cannot begin before 1, has 13 ticks to do, and 2 follow its last task at the least."""
    tasks = {
        "a": (1, [], 0), "e": (4, ["a"], 0), "b": (7, ["a"], 1), "c": (6, ["e"], 1), "d": (2, ["b"], 2),
        "f": (4, ["c"], 2),
    }
    assert TaskGraph(from_names(tasks)).bounds() == (15, 8, 1 + 13 + 2)
    anywhere = from_names(tasks | {"g": ((6, 3, 9),)})  # the fastest of its devices counts, and no lane
    assert TaskGraph(anywhere).bounds() == (15, 9, 16)
    assert TaskGraph(from_names({"g": (4,)})).bounds() == (4, 4, 0)


def test_grahams_anomalies():
    """Golden 28: more devices, shorter tasks, fewer dependencies and another list are all slower."""
    assert listed(3) == 12
    assert listed(3, [1, 2, 4, 5, 6, 3, 9, 7, 8]) == 14
    assert listed(4) == 15
    assert listed(3, less=1) == 13
    assert listed(3, after={n: before for n, before in AFTER.items() if n not in (5, 6)}) == 16
    assert list_schedule(graham(), 3).makespan == 12        # the longest path first


@pytest.mark.parametrize("compute, copy", [(2, 1), (1, 2)])
def test_computing_while_copying(compute, copy):
    """Golden 27, D2L's experiment: 50 products, and copies of their results to the host."""
    n = 50
    tasks = [Task(f"product {i}", compute, (), 0) for i in range(n)]
    tasks += [Task(f"copy {i}", copy, (i,), (0, "copy")) for i in range(n)]
    found = list_schedule(tasks)
    assert found.makespan == compute + (n - 1) * max(compute, copy) + copy == 101
    assert run_listed(tasks, found.orders).makespan == 101
    one = {(0, "compute"): [i for pair in zip(range(n), range(n, 2 * n)) for i in pair]}
    assert run_listed([task._replace(lane=0) for task in tasks], one).makespan == n * (compute + copy) == 150


def random_tasks(chance, n):
    lanes, tasks = [None, None, 0, 1, (0, "link")], []
    for i in range(n):
        after = {chance.randrange(i) for _ in range(chance.randint(0, 2))} if i else ()
        tasks.append(Task(i, chance.randint(0, 6), tuple(after), chance.choice(lanes)))
    return tasks


def slow_list_schedule(tasks, n_devices, ranks):
    """The same, tick by tick, in the plainest way."""
    lanes = {(device, "compute") for device in range(n_devices)}
    lane_of = [task.lane if task.lane is None or isinstance(task.lane, tuple) else (task.lane, "compute")
               for task in tasks]
    lanes = sorted(lanes | {lane for lane in lane_of if lane})
    busy, ends, starts, now = {}, {}, {}, 0
    while len(ends) < len(tasks):
        again = True
        while again:
            again = False
            for lane in [lane for lane, (number, end) in busy.items() if end == now]:
                number, end = busy.pop(lane)
                ends[number] = end
            for lane in lanes:
                ready = [
                    (-ranks[n], n) for n, task in enumerate(tasks)
                    if n not in starts and all(b in ends for b in task.after)
                    and (lane_of[n] == lane or (lane_of[n] is None and lane[1] == "compute"))
                ]
                if lane not in busy and ready:
                    number = min(ready)[1]
                    starts[number] = now
                    busy[lane] = number, now + tasks[number].ticks
            again = any(end == now for _, end in busy.values())
        if busy:
            now = min(end for _, end in busy.values())
    return [starts[n] for n in range(len(tasks))], max(ends.values(), default=0)


def test_it_is_what_the_plainest_loop_does_and_keeps_every_bound():
    chance = random.Random(0)
    for _ in range(120):
        tasks = random_tasks(chance, chance.randint(1, 12))
        graph = TaskGraph(tasks, 3)
        found = list_schedule(tasks, 3)
        assert (found.starts, found.makespan) == slow_list_schedule(tasks, 3, graph.ranks)
        assert found.makespan >= found.bounds.best
        assert run_listed(tasks, found.orders).makespan == found.makespan
        heft = earliest_finish(tasks, 3)
        assert run_listed(tasks, heft.orders).makespan == heft.makespan >= heft.bounds.best


def test_bounds_hold_for_the_best_order_and_graham_for_the_worst():
    """All priorities of 6 tasks; longest path first within (2 - 1/p) of the best of them."""
    chance = random.Random(1)
    for _ in range(5):
        tasks = [task._replace(lane=None) for task in random_tasks(chance, 6)]
        makespans = [list_schedule(tasks, 2, order).makespan for order in permutations(range(6))]
        bounds = list_schedule(tasks, 2).bounds
        assert bounds.best <= min(makespans) and max(makespans) <= (2 - 1 / 2) * min(makespans)


def test_a_device_that_suits_a_task_is_worth_waiting_for():
    """D2L's CPU beside a GPU: greedy lists give the CPU work, HEFT gives it only what ends earlier there."""
    tasks = [Task(f"product {i}", (1, 10)) for i in range(4)] + [Task("load", (9, 2))]
    assert list_schedule(tasks, 2).makespan == 12 and earliest_finish(tasks, 2).makespan == 4


def test_an_empty_graph_takes_no_time():
    found = list_schedule([])
    assert (found.makespan, found.bounds.best) == (0, 0) and from_names({}) == [] and found.makespan < inf
