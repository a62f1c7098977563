"""A sweep of hostile values over every argument of every public callable.

A call works, or an error says why not: ours, or Python's or NumPy's own about the value that was handed in.
It never hangs, and never fails inside at an object that nobody has handed in. A count or a size that is no
whole number of at least 0 is always refused.
"""

import contextlib
import inspect
import io
import signal
import warnings
from collections import Counter

import pytest
from doors.good import LOSS, example, layers, nodes, parameters_of, public

import minipipe as mp
from minipipe import planning
from minipipe.collectives import Group

NAMES = [name for name, entry in public().items() if parameters_of(entry)]
HOSTILE = {  # made anew each time
    "None": lambda: None, "a word": lambda: "nonsense", "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"), "-1": lambda: -1, "0": lambda: 0, "2.5": lambda: 2.5,
    "True": lambda: True, "[]": list, "[None]": lambda: [None], "a dict": lambda: {1: 2},
    "a class": lambda: mp.Link, "an object": object, "a layer": lambda: mp.Linear(2, 3),
}
COUNTS = {
    "K", "M", "N", "batch_size", "d", "devices", "epochs", "groups", "in_channels", "microbatches",
    "most_nodes", "n_classes", "n_groups", "n_heads", "n_layers", "n_places", "n_prev", "n_tokens",
    "node_size", "out_channels", "per", "prefetch", "replicas", "rounds", "seed", "shards", "stages", "width",
}
NO_COUNTS = ["a word", "NaN", "infinity", "-1", "2.5", "[None]", "a class", "an object", "a layer"]
PARTS_OF_EPOCHS = {"ConstantWarmUp.epochs", "GradualWarmUp.epochs"}  # may be 2.5
NETWORKS = {  # a class of options -> a function that makes a network, or an estimate, with one of them
    mp.Cut: lambda cut: mp.Parallel(layers(), LOSS, stages=cut),
    mp.Sums: lambda sums: mp.Parallel(layers(), LOSS, replicas=2, sums=sums),
    planning.Choice: lambda choice: planning.estimate(planning.MODELS["gpt2-xl"], nodes(), 32, choice),
}
SECONDS = 20
ELSEWHERE = {
    ("write_site", "notebooks", "None"),  # writes all reference pages, as tests/pictures does
    # the names of a trace: one for each device, or none
    ("lane_name", "names", "a dict"), ("describe_path", "names", "a dict"),
    ("describe_path", "names", "[None]"),
}


class Hang(BaseException):
    """Raised by the alarm in a call that takes too long."""


def stop(*_):
    raise Hang


def call(entry, arguments, parameters):
    """Call `entry`, and do what its result is for: run a program, enter a context, make a network."""
    several = [name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL]
    named = {name: value for name, value in arguments.items() if name not in several}
    before = [named.pop(name) for name in [*parameters] if several and name in named]
    result = entry(*before, *arguments.get(*several, ()), **named) if several else entry(**named)
    if inspect.isgenerator(result) and "group" in arguments:
        mp.cluster.Cluster([result, entry(**arguments | {"group": Group(1, [0, 1])})]).run()
    elif inspect.isgenerator(result):
        list(result)
    elif isinstance(result, contextlib.AbstractContextManager):
        with result:
            pass
    elif type(result) in NETWORKS:
        NETWORKS[type(result)](result)


def is_about(error, value):
    """Return whether an error without a sentence of ours is Python's own about what was handed in."""
    handed_in = [value, *(value if isinstance(value, (list, dict)) else ())]
    if isinstance(error, AttributeError):
        return any(error.obj is one or type(error.obj) is type(one) for one in handed_in)
    return not isinstance(error, (KeyError, IndexError, UnboundLocalError, RecursionError, MemoryError))


def fault_of(name, target, what):
    """Return (what is wrong with a call in which one argument is hostile, or None; what it got)."""
    entry, value = public()[name], HOSTILE[what]()
    parameters = parameters_of(entry)
    good = {key: example(name, parameter) for key, parameter in parameters.items()}
    arguments = {key: make() for key, make in good.items() if make is not None and key != target}
    is_several = parameters[target].kind is inspect.Parameter.VAR_POSITIONAL
    arguments[target] = (value,) if is_several else value
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call(entry, arguments, parameters)
    except Hang:
        return "hangs", "hang"
    except Exception as error:
        return None if is_about(error, value) else f"{type(error).__name__}: {error}", "refused"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    is_count = target in COUNTS and f"{name}.{target}" not in PARTS_OF_EPOCHS and what in NO_COUNTS
    return "is accepted in silence" if is_count else None, "worked"


def swept(names, values):
    """Return ([what is wrong], {what calls got: how many}) of these values for all arguments."""
    faults, counts = [], Counter()
    for name in names:
        for target in parameters_of(public()[name]):
            for what in [what for what in values if (name, target, what) not in ELSEWHERE]:
                fault, got = fault_of(name, target, what)
                counts[got] += 1
                if fault is not None:
                    faults.append(f"{name}({target}={what}) {fault}")
    return faults, counts


@pytest.fixture
def alarm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a hostile path may be written to
    before = signal.signal(signal.SIGALRM, stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    signal.signal(signal.SIGALRM, before)


def test_every_argument_that_must_be_given_has_a_good_example():
    for name in NAMES:
        for parameter in parameters_of(public()[name]).values():
            has_default = parameter.default is not parameter.empty
            assert has_default or example(name, parameter) is not None, f"{name}: {parameter.name}"


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])  # one for each of two cores
def test_no_hostile_value_is_taken_in_silence(half, alarm):
    faults, counts = swept(NAMES[half::2], HOSTILE)
    assert not faults and counts["refused"] > counts["worked"] > 500, "\n".join(faults)
