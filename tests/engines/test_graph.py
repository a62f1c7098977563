"""Calls recorded as tasks give the sequential program's numbers in every order that the graph allows."""

from functools import partial

import numpy as np
import pytest
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import rational
from minipipe.graph import Graph, Task, list_schedule

SIZE = 12
views = st.builds(slice, st.integers(0, 5), st.integers(4, SIZE), st.integers(1, 3))
operations = st.sampled_from(["add", "multiply", "shift", "reverse", "new", "into new"])
step = st.tuples(operations, views, views, st.integers(0, 2), st.integers(0, 3))


def shifted(A):
    """A view of its argument, which a graph copies."""
    return A[::-1]


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
            made.append(record(device, shifted, source))
        elif name == "into new" and made:
            record(device, np.multiply, made[-1], 3, out=made[-1])
        else:
            made.append(record(device, np.sum, source))
            made[-1] = record(device, np.multiply, np.ones(2, int), made[-1])
    return made


def one_after_the_other(program, start):
    buffer = start.copy()

    def record(device, function, *args, out=None, writes=()):
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


def ends(parts):
    """Views of its arguments in a list, which a graph copies."""
    return [parts[0][:1], (parts[-1][-1:],)]


def total(parts):
    return parts[0].sum() + parts[1][0].sum()


def doubled(parts):
    parts[0][...] *= 2
    parts[1][0][...] -= 1


NESTED = {  # name: (function, args, more) for two arrays of one shape and a `Later`
    "concatenate": lambda a, b, later: (np.concatenate, ([a, b],), {}),
    "stack": lambda a, b, later: (np.stack, ((a, b),), {}),
    "a later in a list": lambda a, b, later: (total, ([a, (later,)],), {}),
    "named in reads": lambda a, b, later: (partial(np.add, a), (b,), dict(reads=[a])),
    "views in a list": lambda a, b, later: (ends, ([a, b],), {}),
    "written in a list": lambda a, b, later: (doubled, ([a, (b,)],), dict(writes=[a, b])),
}


nested_step = st.tuples(st.sampled_from(sorted(NESTED)), views, views, st.integers(0, 2))


@settings(max_examples=30)
@given(st.lists(nested_step, min_size=2, max_size=5), CHANCES)
def test_arrays_in_lists_and_tuples_are_read_and_written(program, chance):
    """In every legal order, on the cluster and on threads, with the numbers of the program."""
    def performed(buffer, call):
        made = [np.ones(1)]
        for name, left, right, device in program:
            n = min(len(buffer[left]), len(buffer[right]))
            function, args, how = NESTED[name](buffer[left][:n], buffer[right][:n], made[-1])
            made.append(call(device, function, args, **how))
            if name.startswith(("written", "views")):
                made[-1:] = []
        return made[1:]

    def now(device, function, args, **how):
        return function(*args)

    expected = np.arange(1.0, SIZE + 1)
    values = performed(expected, now)
    for engine in ("cluster", "threads"):
        graph, buffer = Graph(), np.arange(1.0, SIZE + 1)

        def record(device, function, args, **how):
            return graph.call(function, *args, lane=device, **how)

        made = performed(buffer, record)
        priority = chance.sample(range(len(graph.tasks)), len(graph.tasks))
        graph.run(engine, orders=list_schedule(graph.tasks, priority=priority).orders)
        assert_same(buffer, expected, f"the buffer of {engine}")
        assert_same([later.value for later in made], values, f"what the calls on {engine} return")


def test_a_list_of_arrays_is_handed_on_as_a_tuple():
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


def test_what_a_call_returns_is_no_view_of_what_it_reads():
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


def test_the_three_kinds_of_edges():
    graph, A, B = Graph(), np.zeros(2), np.zeros(2)
    graph.call(np.add, A, 1, out=B)          # 0
    graph.call(np.add, B, 1)                 # 1 reads what 0 wrote
    graph.call(np.add, A, 2, out=A)          # 2 writes what 0 read
    graph.call(np.copyto, B, A, writes=[B])  # 3 writes what 0 wrote and 1 read, reads what 2 wrote
    assert [task.after for task in graph.tasks] == [(), (0,), (0,), (0, 1, 2)]
    columns = np.zeros((2, 2))
    for column in (0, 1):                    # their bounds overlap, and they share no byte
        graph.call(np.add, columns[:, column], 1, out=columns[:, column])
    assert [task.after for task in graph.tasks[4:]] == [(), ()]


def test_a_layer_is_one_thing_with_what_it_holds():
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


def test_a_second_run_makes_the_calls_again():
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
    assert graph.run().makespan == found.makespan == found.bounds.best == 5
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
    (lambda graph, later: np.asarray(later), "not there yet"),
    (lambda graph, later: list(later), r"later\[0\]"),
    (lambda graph, later: graph.call("add"), "must be a function"),
    (lambda graph, later: graph.run(orders={(0, "compute"): []}), "each of the 1 tasks once"),
    (lambda *_: list_schedule([Task("x", -1)]), "at least 0"),
    (lambda *_: list_schedule([Task("x", lane="gpu")]), "use a device, 0, 1"),
    (lambda *_: list_schedule([Task("x", after=(3,))]), "use numbers of tasks"),
    (lambda *_: list_schedule([Task("x", after=(0,))]), "in a circle: x -> x"),
    (lambda *_: list_schedule([Task("x")], priority=[1]), "once"),
    (lambda *_: list_schedule([Task("x", lane=2)], 2), "use 3"),
    (lambda *_: list_schedule([Task("x", (1, 2))]), r"task 'x': ticks=\(1, 2\) must be a number"),
    (lambda *_: list_schedule(CIRCLE), "tasks wait for each other in a circle: a -> c -> b -> a"),
])
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_handed_over_is_said(wrong, words):
    graph = Graph()
    later = graph.call(np.add, np.ones(2), 1)
    with pytest.raises((ValueError, RuntimeError, TypeError), match=words):
        wrong(graph, later)
