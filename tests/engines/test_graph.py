"""Calls recorded as tasks give the sequential program's numbers in every order that the graph allows.

Then list scheduling: published examples, bounds, and what it finds by itself that people wrote by hand:
overlap and delayed weight gradients.
"""

import random
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from compared import J_and_gradients, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import rational
from minipipe.graph import Graph, Task, list_schedule, schedule_of, training_tasks
from minipipe.graph.tasks import programs_of
from minipipe.order import peak_microbatches, with_all_reduce
from minipipe.schedules import data_parallel

SIZE = 12
views = st.builds(slice, st.integers(0, 5), st.integers(4, SIZE), st.integers(1, 3))
operations = st.sampled_from(
    ["add", "multiply", "shift", "reverse", "new", "into new", "join", "named", "double"]
)
step = st.tuples(operations, views, views, st.integers(0, 2), st.integers(0, 3))


def backwards(A):
    """A view of its argument, which a graph copies."""
    return A[::-1]


def joined(parts):
    return np.concatenate([parts[0], parts[1][0]])


def doubled(parts):
    parts[0][...] *= 2
    parts[1][0][...] -= 1


def performed(program, record, buffer):
    """A random program on views of one buffer: its calls go to `record(function, *args, **how)`.

    What calls return is used by later calls; the values of all of them are returned.
    """
    made = []
    for name, left, right, device, pick in program:
        target, source = buffer[left], buffer[right]
        n = min(len(target), len(source))
        target, source = target[:n], source[:n]
        if made and pick == 3:
            source = made[-1]
        if name in ("add", "multiply") and pick != 3:
            record(device, getattr(np, name), source, pick + 2, out=target)
        elif name == "shift" and pick != 3:
            record(device, np.copyto, target, source, writes=[target])
        elif name == "reverse":
            made.append(record(device, backwards, source))
        elif name == "join":
            made.append(record(device, joined, [target, (source,)]))
        elif name == "named":
            made.append(record(device, partial(np.add, target), 1, reads=[target]))
        elif name == "double" and pick != 3:
            record(device, doubled, [target, (source,)], writes=[target, source])
        elif name == "into new" and made:
            record(device, np.multiply, made[-1], 3, out=made[-1])
        else:
            made.append(record(device, np.sum, source))
            made[-1] = record(device, np.multiply, np.ones(2, int), made[-1])
    return made


def one_after_the_other(program, start):
    buffer = start.copy()

    def record(device, function, *args, out=None, **named):
        # NumPy itself takes care of an `out` that overlaps what is read
        result = function(*args) if out is None else function(*args, out=out)
        return out if out is not None else None if result is None else np.array(result)

    made = performed(program, record, buffer)
    return buffer, made


def recorded(program, start):
    graph, buffer = Graph(), start.copy()

    def record(device, function, *args, **how):
        return graph.call(function, *args, lane=device, **how)

    return graph, buffer, performed(program, record, buffer)


def assert_same_values(made, buffer, expected):
    assert_same((buffer, [later.value for later in made]), expected)


CHANCES = st.randoms(use_true_random=False)


@settings(max_examples=25)
@given(st.lists(step, min_size=1, max_size=7), CHANCES, st.booleans())
def test_every_legal_order_gives_the_numbers_of_the_program(program, chance, exact):
    """Random programs on overlapping views, with random priorities on both engines.

    At last any order of tasks after those that they come after, on any lanes: list scheduling chooses few.
    """
    start = np.arange(1.0, SIZE + 1)
    start = rational(start) if exact else start / 8
    expected = one_after_the_other(program, start)
    for engine in ("cluster", "threads"):
        graph, buffer, made = recorded(program, start)
        priority = list(range(len(graph.tasks)))
        chance.shuffle(priority)
        graph.run(engine, orders=list_schedule(graph.tasks, priority=priority).orders)
        assert_same_values(made, buffer, expected)
    graph, buffer, made = recorded(program, start)
    graph.run(orders=any_lanes(graph, chance))
    assert_same_values(made, buffer, expected)


def any_lanes(graph, chance):
    """{lane: numbers of tasks} in an order that keeps to the edges, on three lanes."""
    left, lanes = set(range(len(graph.tasks))), {(device, "compute"): [] for device in range(3)}
    while left:
        ready = sorted(n for n in left if not left & set(graph.tasks[n].after))
        number = chance.choice(ready)
        left.remove(number)
        lanes[chance.choice(sorted(lanes))].append(number)
    return lanes


def test_a_recorded_call_gets_lists_of_arrays_as_tuples():
    """So a function cannot change the list without being noticed."""
    graph = Graph()
    graph.call(lambda parts: parts.append(1), [np.ones(1)])
    with pytest.raises(AttributeError, match="append"):
        graph.run()


def test_a_method_writes_its_object():
    graph, log = Graph(), []
    for number in range(3):
        graph.call(log.append, number)
    assert [task.after for task in graph.tasks] == [(), (0,), (0, 1)]
    graph.run()
    assert log == [0, 1, 2]


def test_the_result_of_a_recorded_call_is_a_copy():
    """Of an array in a list, of the object of a method, or of one that is named in reads."""
    class Holder:
        def __init__(self):
            self.values = [np.ones(2)]

        def first(self):
            return self.values[0][:1]

    A, holder, graph = np.ones(2), Holder(), Graph()
    made = {
        "in a list": graph.call(lambda parts: parts[0][:1], [A]),
        "in a tuple that is returned": graph.call(lambda array: (array[:1], 0), A)[0],
        "of an object": graph.call(holder.first),
        "named in reads": graph.call(lambda: A[:1], reads=[A]),
    }
    graph.run()
    for name, later in made.items():
        assert not any(np.shares_memory(later.value, array) for array in (A, *holder.values)), name


@given(st.lists(st.tuples(st.booleans(), views), max_size=12))
def test_a_task_waits_for_just_those_that_share_a_byte_with_it(accesses):
    """Of each pair with a byte in common and at least one write, the later one waits; no other pair does."""
    buffer, graph = np.zeros(SIZE), Graph()
    for writes, view in accesses:
        graph.call(len, **{"writes" if writes else "reads": [buffer[view]]})
    touched = [set(range(SIZE)[view]) for _, view in accesses]
    assert [set(task.after) for task in graph.tasks] == [
        {m for m in range(n) if touched[m] & touched[n] and (accesses[m][0] or accesses[n][0])}
        for n in range(len(accesses))
    ]


def test_calls_on_a_layer_and_on_its_arrays_wait_in_turn():
    """Its methods follow each other, and an update of its W waits for them."""
    layer, X = mp.Linear(2, 2, W=np.eye(2), b=np.zeros((2, 1))), np.ones((2, 3))
    graph = Graph()
    A = graph.call(layer.forward, X)
    dA = graph.call(layer.backward, A)
    graph.call(np.subtract, layer.W, dA[1], out=layer.W)
    other = graph.call(np.add, X, 1)
    assert [task.after for task in graph.tasks] == [(), (0,), (0, 1), ()]
    graph.run("threads", devices=2)
    assert np.array_equal(dA[1].value, np.full((2, 2), 3)) and np.array_equal(other.value, X + 1)
    assert np.array_equal(layer.W, np.eye(2) - 3)


def test_a_second_run_of_a_graph_makes_all_calls_again():
    graph, A = Graph(), np.ones(2)
    B = graph.call(np.multiply, A, 2)
    graph.call(np.add, A, B, out=A)
    for expected in (3, 9):
        graph.run()
        assert np.array_equal(A, [expected] * 2)


def test_tasks_of_two_devices_run_at_once_and_a_chain_does_not():
    graph, X = Graph(), np.ones(3)
    for device in (0, 1):
        graph.call(np.sum, X, ticks=4, lane=device)
        graph.call(np.sum, X, ticks=1, lane=device)
    found = list_schedule(graph.tasks)
    assert graph.run().makespan == found.makespan == found.bound == 5
    assert graph.run(orders={(0, "compute"): range(4)}).makespan == 10


@pytest.mark.parametrize("engine", ["cluster", "threads"])
def test_a_call_that_writes_what_it_only_reads_is_refused(engine):
    graph, A = Graph(), np.zeros(2)
    graph.call(np.copyto, A, np.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        graph.run(engine)
    assert not A.any()


CIRCLE = [Task("a", after=(2,)), Task("b", after=(0,)), Task("c", after=(1,)), Task("d", after=(2,))]


@pytest.mark.parametrize("wrong, words", [
    (lambda graph, later: later.value, "not been made yet"),
    (lambda graph, later: np.asarray(later), "this array is not computed: pass it to graph.call"),
    (lambda graph, later: list(later), r"later\[0\]"),
    (lambda graph, later: graph.call("add"), "must be a function"),
    (lambda graph, later: graph.run(orders={(0, "compute"): []}), "each of the 1 tasks once"),
    (lambda *_: list_schedule([Task("x", -1)]), "at least 0"),
    (lambda *_: list_schedule([Task("x", lane="gpu")]), "use a device, 0, 1"),
    (lambda *_: list_schedule([Task("x", after=(3,))]), "use numbers of tasks"),
    (lambda *_: list_schedule([Task("x", after=(0,))]), "in a circle: x -> x"),
    (lambda *_: list_schedule([Task("x")], priority=[1]), "once"),
    (lambda *_: list_schedule([Task("x", lane=2)], 2), "use devices=3"),
    (lambda *_: list_schedule([Task("x", (1, 2))]), r"task 'x': ticks=\(1, 2\) must be a number"),
    (lambda *_: training_tasks([1, 1], [1, 1], [1]), "W has 1 numbers for 2 layers"),
    (lambda *_: list_schedule(CIRCLE), "tasks wait for each other in a circle: a -> c -> b -> a"),
])
@pytest.mark.filterwarnings("error")
def test_wrong_uses_of_a_graph_raise_an_error_with_a_remedy(wrong, words):
    graph = Graph()
    later = graph.call(np.add, np.ones(2), 1)
    with pytest.raises((ValueError, RuntimeError, TypeError), match=words):
        wrong(graph, later)


# List scheduling

TICKS = [3, 2, 2, 2, 4, 4, 4, 4, 9]
AFTER = {9: (1,), 5: (4,), 6: (4,), 7: (4,), 8: (4,)}


def graham(less=0, after=AFTER):
    return [Task(f"T{n}", TICKS[n - 1] - less, tuple(b - 1 for b in after.get(n, ()))) for n in range(1, 10)]


def listed(n_devices, order=range(1, 10), **how):
    return list_schedule(graham(**how), n_devices, [n - 1 for n in order]).makespan


def test_the_lower_bound_counts_paths_before_and_after_a_lane():
    """Lane 1 cannot begin before 1, has 13 ticks to do, and 2 follow its last task at the least."""
    tasks = [
        Task("a", 1, (), 0), Task("e", 4, (0,), 0), Task("b", 7, (0,), 1), Task("c", 6, (1,), 1),
        Task("d", 2, (2,), 2), Task("f", 4, (3,), 2),
    ]
    assert list_schedule(tasks).bound == 1 + 13 + 2


def test_list_scheduling_shows_grahams_anomalies():
    """Golden 28: more devices, shorter tasks, fewer dependencies and another list are all slower."""
    assert listed(3) == 12
    assert listed(3, [1, 2, 4, 5, 6, 3, 9, 7, 8]) == 14
    assert listed(4) == 15
    assert listed(3, less=1) == 13
    assert listed(3, after={n: before for n, before in AFTER.items() if n not in (5, 6)}) == 16
    assert list_schedule(graham(), 3).makespan == 12        # the longest path first


@pytest.mark.parametrize("compute, copy", [(2, 1), (1, 2)])
def test_copies_to_the_host_overlap_with_computing(compute, copy):
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


def test_list_schedule_equals_a_plain_loop_within_its_bounds():
    chance = random.Random(0)
    for _ in range(120):
        tasks = random_tasks(chance, chance.randint(1, 12))
        found = list_schedule(tasks, 3)
        starts, makespan = slow_list_schedule(tasks, 3)
        trace = found.run()
        assert {span.label.text: span.start for span in trace.spans} == dict(zip(map(str, range(99)), starts))
        assert trace.makespan == found.makespan == makespan >= found.bound


def test_all_priorities_keep_lower_and_grahams_upper_bound():
    """All priorities of 6 tasks; longest path first within (2 - 1/p) of the best of them."""
    chance = random.Random(1)
    for _ in range(5):
        tasks = [task._replace(lane=None) for task in random_tasks(chance, 6)]
        makespans = [list_schedule(tasks, 2, order).makespan for order in permutations(range(6))]
        best = min(makespans)
        assert list_schedule(tasks, 2).bound <= best and max(makespans) <= (2 - 1 / 2) * best


def test_an_empty_graph_takes_no_time():
    found = list_schedule([])
    assert (found.makespan, found.bound) == (0, 0)


def exposed(b, c):
    """Of all-reduces of c ticks behind backwards of b, the last layer first: the formula."""
    n = len(b)
    ready = [sum(b[layer:]) for layer in range(n)]
    return max(ready[layer] + sum(c[:layer + 1]) for layer in range(n)) - sum(b)


@pytest.mark.parametrize("c, golden", [(1, 1), (2, 2), (3, 6)])
def test_the_all_reduce_overlaps_with_the_backward(c, golden):
    """Golden 13, and the order in which DistributedDataParallel begins its all-reduces."""
    tasks = training_tasks([1] * 4, [2] * 4, all_reduce=[c] * 4)
    found = list_schedule(tasks)
    assert found.makespan - 12 == golden == exposed([2] * 4, [c] * 4)
    begun = [tasks[number].name.stage for number in found.orders[0, "communication"]]
    by_hand = with_all_reduce(data_parallel(2, 2, 4)).devices[0]
    assert begun == [action.stage for action in by_hand if action.kind == "A"] == [3, 2, 1, 0]


@pytest.mark.parametrize("K, M", [(3, 6), (4, 8), (6, 12)])
def test_list_scheduling_delays_weight_gradients_as_zb_h2(K, M):
    """Input gradients first, then forwards: ZB-H2's makespan in its memory; and the gradients are right."""
    tasks = training_tasks([1] * K, [1] * K, [1] * K, M, range(K), rooms=[2 * K - 1] * K)
    first = sorted(range(len(tasks)), key=lambda n: ("IFW".index(tasks[n].name[0]), tasks[n].name[2]))
    found = list_schedule(tasks, priority=first)
    assert found.makespan == mp.simulate(mp.schedules.build("zb-h2", K, M), mp.Costs(F=1, B=2)).makespan
    assert found.makespan == found.bound == 3 * M + K - 1
    schedule = schedule_of(found)
    trace = mp.simulate(schedule, mp.Costs(F=1, B=2))
    assert trace.makespan == found.makespan and max(peak_microbatches(trace)) == 2 * K - 1
    assert list_schedule(tasks).makespan < mp.simulate(mp.schedules.build("1f1b", K, M)).makespan

    layers, X = [mp.Linear(3, 3) for _ in range(K)], np.arange(3.0 * M).reshape(3, M)
    pipe = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, schedule=schedule)
    one = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, schedule="gpipe")
    assert_same(J_and_gradients(pipe, X, X), J_and_gradients(one, X, X))
