"""List scheduling: published examples, bounds, and what it finds by itself that people wrote by hand:
overlap and delayed weight gradients.
"""

import random
from itertools import permutations

import numpy as np
import pytest
from compared import J_and_gradients, assert_same

import minipipe as mp
from minipipe.graph import Task, list_schedule, schedule_of, training_tasks
from minipipe.graph.tasks import programs_of
from minipipe.order import peak_microbatches, with_all_reduce
from minipipe.schedules import data_parallel

TICKS = [3, 2, 2, 2, 4, 4, 4, 4, 9]
AFTER = {9: (1,), 5: (4,), 6: (4,), 7: (4,), 8: (4,)}


def graham(less=0, after=AFTER):
    return [Task(f"T{n}", TICKS[n - 1] - less, tuple(b - 1 for b in after.get(n, ()))) for n in range(1, 10)]


def listed(n_devices, order=range(1, 10), **how):
    return list_schedule(graham(**how), n_devices, [n - 1 for n in order]).makespan


def test_the_busiest_lane_has_a_way_there_and_a_way_on():
    """Lane 1 cannot begin before 1, has 13 ticks to do, and 2 follow its last task at the least."""
    tasks = [
        Task("a", 1, (), 0), Task("e", 4, (0,), 0), Task("b", 7, (0,), 1), Task("c", 6, (1,), 1),
        Task("d", 2, (2,), 2), Task("f", 4, (3,), 2),
    ]
    assert list_schedule(tasks).bounds == (15, 8, 1 + 13 + 2)
    assert list_schedule([*tasks, Task("g", 3)]).bounds == (15, 9, 16)
    assert list_schedule([Task("g", 4)]).bounds == (4, 4, 0)


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
    assert found.run().makespan == 101
    one = {(0, "compute"): [i for pair in zip(range(n), range(n, 2 * n)) for i in pair]}
    assert mp.cluster.Cluster(programs_of(tasks, one)).run().makespan == n * (compute + copy) == 150


def random_tasks(chance, n):
    lanes, tasks = [None, None, 0, 1, (0, "link")], []
    for i in range(n):
        after = {chance.randrange(i) for _ in range(chance.randint(0, 2))} if i else ()
        twice = [*after, *after][:3]  # a task may be named twice
        tasks.append(Task(i, chance.randint(0, 6), tuple(twice), chance.choice(lanes)))
    return tasks


def slow_list_schedule(tasks, n_devices):
    """The same, tick by tick, in the plainest way; each task comes after some of those before it."""
    ranks = [task.ticks for task in tasks]
    for number in reversed(range(len(tasks))):
        after = [n for n, task in enumerate(tasks) if number in task.after]
        ranks[number] += max((ranks[n] for n in after), default=0)
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
        found = list_schedule(tasks, 3)
        starts, makespan = slow_list_schedule(tasks, 3)
        trace = found.run()
        assert {span.label.text: span.start for span in trace.spans} == dict(zip(map(str, range(99)), starts))
        assert trace.makespan == found.makespan == makespan >= found.bounds.best


def test_bounds_hold_for_the_best_order_and_graham_for_the_worst():
    """All priorities of 6 tasks; longest path first within (2 - 1/p) of the best of them."""
    chance = random.Random(1)
    for _ in range(5):
        tasks = [task._replace(lane=None) for task in random_tasks(chance, 6)]
        makespans = [list_schedule(tasks, 2, order).makespan for order in permutations(range(6))]
        bounds = list_schedule(tasks, 2).bounds
        assert bounds.best <= min(makespans) and max(makespans) <= (2 - 1 / 2) * min(makespans)


def test_an_empty_graph_takes_no_time():
    found = list_schedule([])
    assert (found.makespan, found.bounds.best) == (0, 0)


def exposed(b, c):
    """Of all-reduces of c ticks behind backwards of b, the last layer first: the formula."""
    n = len(b)
    ready = [sum(b[layer:]) for layer in range(n)]
    return max(ready[layer] + sum(c[:layer + 1]) for layer in range(n)) - sum(b)


@pytest.mark.parametrize("c, golden", [(1, 1), (2, 2), (3, 6)])
def test_the_exchange_of_gradients_hides_behind_the_backward(c, golden):
    """Golden 13, and the order in which DistributedDataParallel begins its all-reduces."""
    tasks = training_tasks([1] * 4, [2] * 4, all_reduce=[c] * 4)
    found = list_schedule(tasks)
    assert found.makespan - 12 == golden == exposed([2] * 4, [c] * 4)
    begun = [tasks[number].name.stage for number in found.orders[0, "communication"]]
    by_hand = with_all_reduce(data_parallel(2, 2, 4)).devices[0]
    assert begun == [action.stage for action in by_hand if action.kind == "A"] == [3, 2, 1, 0]


@pytest.mark.parametrize("K, M", [(3, 6), (4, 8), (6, 12)])
def test_weight_gradients_are_put_off_by_themselves(K, M):
    """Input gradients first, then forwards: ZB-H2's makespan in its memory; and the gradients are right."""
    tasks = training_tasks([1] * K, [1] * K, [1] * K, M, range(K), rooms=[2 * K - 1] * K)
    first = sorted(range(len(tasks)), key=lambda n: ("IFW".index(tasks[n].name[0]), tasks[n].name[2]))
    found = list_schedule(tasks, priority=first)
    assert found.makespan == mp.simulate(mp.schedules.build("zb-h2", K, M), mp.Costs(F=1, B=2)).makespan
    assert found.makespan == found.bounds.best == 3 * M + K - 1
    schedule = schedule_of(found)
    trace = mp.simulate(schedule, mp.Costs(F=1, B=2))
    assert trace.makespan == found.makespan and max(peak_microbatches(trace)) == 2 * K - 1
    assert list_schedule(tasks).makespan < mp.simulate(mp.schedules.build("1f1b", K, M)).makespan

    layers, X = [mp.Linear(3, 3) for _ in range(K)], np.arange(3.0 * M).reshape(3, M)
    pipe = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, schedule=schedule)
    one = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, schedule="gpipe")
    assert_same(J_and_gradients(pipe, X, X), J_and_gradients(one, X, X))


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="W has 1 numbers for 2 layers"):
        training_tasks([1, 1], [1, 1], [1])
