"""What cannot be is refused in a sentence that says what was met, what is allowed and what to type.

First methods, limits, and what does not fit each other; then each rule of `minipipe.parallel.options`, by a
network that breaks it.
"""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_refused
from doors.test_doors import BANANA, LAYERS, LOSS, X, Y, carried, network, pipeline, simulated, stream

import minipipe as mp
from minipipe.checks import whole_number
from minipipe.collectives import (
    Group, all_gather, all_reduce, reduce_scatter,
)
from minipipe.order import (
    Schedule, best_schedule, greedy_schedule, in_copies, in_segments, with_updates, with_zero,
)
from minipipe.parallel import in_buckets
from minipipe.parallel.options import REFUSALS
from minipipe.partitioning import loads
from minipipe.schedules import build, data_parallel, gpipe

# --- sentences

TRACE = mp.simulate(gpipe(2, 2))


def counted_trace():
    net = pipeline(count_bytes=True)
    net.forward_backward(X, Y)
    return net.trace


def run(program):
    return mp.cluster.Cluster([program(Group(rank, range(2))) for rank in range(2)]).run()


REFUSED = [  # (call, words of the sentence)
    (lambda: mp.Parallel(LAYERS, LOSS, replicas=2, schedule="zb-v"),
     "'zb-v' puts 2 stages on each device, which stages=1"),
    (lambda: mp.Parallel(LAYERS, LOSS, replicas=2, microbatches=3, schedule="gpipe"),
     "3 micro-batches over 2 replicas of 1 stage: use a multiple of 2"),
    (lambda: with_zero(data_parallel(2, 3, stages=2), 3),
     "devices 0, 1 have 4, 2 gathers of stage 0: all start each of them together"),
    (lambda: mp.TensorParallel(LAYERS, LOSS, 20), "shards=20 splits none of these 3 layers: use fewer"),
    (lambda: mp.servers.mini_batches(X, np.ones((1, 9)), 2, n=3),
     "X of shape (2, 4) and Y of shape (1, 9): give"),
    (lambda: loads([1, 2, 3], [1, 1]),
     "counts=(1, 1) adds up to 2 layers, but costs has 3: give each layer a"),
    (lambda: mp.plots.timeline(gpipe(1, 1)),
     "is not a Trace: take the trace of a network, or simulate(schedule)"),
    (lambda: mp.Pad(1), "widths=1 must be a list, even of one: [1]"),
    (lambda: mp.Pad(["ab"]), "widths[0]='ab' must be a list of whole numbers"),
    (lambda: mp.Parallel(LAYERS, LOSS, stages=[2, 1]),
     "stages=[2, 1] must be a whole number, or Cut([2, 1])"),
    (lambda: mp.Pipeline(LAYERS, LOSS, 2, 2, engine="thread"), "engine='thread' must be one of 'cluster',"),
    (lambda: mp.Parallel(LAYERS, LOSS, dtype="foo"), "dtype='foo' is not known"),
    (lambda: mp.SGD(math.inf), "learning_rate=inf must be finite"),
    (lambda: mp.Adam(betas=(0.9, 0.9, 0.9)), "betas has 3 numbers: pass a pair"),
    (lambda: mp.Schedule.from_text([None]), "lines=[None] must be texts, one per device"),
    (lambda: mp.Schedule.from_text(3), "lines=3 must be a list"),
    (lambda: best_schedule(2, 2, costs=3), "costs=3 must be Costs(F=..., B=...)"),
    (lambda: with_updates("gpipe"), "schedule='gpipe' is not a Schedule: pass one"),
    (lambda: mp.Schedule([[3]], 1, 1), "3 is not an action: use Schedule.from_text"),
    (lambda: stream(np.array(3)), "batches must be a list of pairs (X, Y)"),
    (lambda: network().step("sgd"), "optimizer is 'sgd': pass an object, such as SGD("),
    (lambda: network().train(X, Y), "pass an object, such as SGD(learning_rate=0.1), or one of a subclass"),
    (lambda: mp.Pipeline(LOSS, LAYERS, 2, 2), "pass a list of layers, then a loss object"),
    (lambda: mp.compare(["1f1b", "gpipe"]), "with a line for each device: type compare('1f1b', 'gpipe')"),
    (lambda: mp.simulate("1f1b").plot("a.png"), "ax='a.png' is not matplotlib axes: save('a.png') writes"),
    (lambda: pipeline(schedule=with_updates(gpipe(2, 2))).train([(X, Y)], "sgd"), "optimizer is 'sgd': pass"),
    (lambda: pipeline(schedule=with_updates(gpipe(2, 2))).start(X, Y, 3), "optimizer is 3: pass an object"),
    (lambda: network().train([(X, Y)], mp.SGD(0.1), clip=-1), "clip=-1 must be above 0"),
    (lambda: pipeline(schedule=with_updates(gpipe(2, 2))).train([(X, Y)], mp.SGD(0.1), clip=10**5000),
     "clip=a number of too many digits to be shown with the order of 'gpipe+updates', whose devices"),
    (lambda: pipeline().train([], mp.SGD(0.1)), "0 mini-batches: pass a list of at least 1 pair (X, Y)"),
    (lambda: BANANA.encode(3), "text=3 must be a str"),
    (lambda: BANANA.split(1.5), "test_share=1.5 must be at least 0 and at most 1"),
    (lambda: BANANA.split([1]), "test_share=[1] must be a number"),
    (lambda: mp.exact.rational([None]), "holds what is not a number"),
    (lambda: mp.Costs.from_text(3), "costs=3 must be a text"),
    (lambda: TRACE.bubble(np.ones(2)), "bubble of array([1., 1.])"),
    (lambda: LOSS.forward(3, Y), "A=array(3) is one number"),
    (lambda: LOSS.forward(Y, mp.ReLU()), "Y holds ReLU() at"),
    (lambda: LOSS.forward(Y, Y, 2.5), "m=2.5 must be a whole number"),
    (lambda: TRACE.spans_of(0.0), "device=0.0 is not one"),
    (lambda: counted_trace().peak_bytes("gradient"), "kinds has 'gradient', but this run counted 'caches'"),
    (lambda: counted_trace().peak_bytes(["caches", 3]), "kinds has 3, but this run counted"),
    (lambda: mp.Parallel(LAYERS, LOSS, ports=[3]), "ports has 3: pass a list of Port("),
    (lambda: in_copies(gpipe(2, 4), 2, per=3), "per=3 does not divide the 4 micro-batches of 'gpipe'"),
    (lambda: TRACE.spans_of(0, np.ones(2)), "device 0 has no lane array("),
    (lambda: LOSS.forward(np.float32, Y), "A holds <class"),
    (lambda: LOSS.forward(Y, Y, 10**400), "m=1000000...0000... must be at most 1e+100"),
    (lambda: mp.accuracy([[1.0, 0.0]], [[1, 0]]), "accuracy compares two arrays"),
    (lambda: in_buckets([1], (1, 2, 3)), "caps has 3 numbers: pass a pair"),
    (lambda: Group(2, [0, 1]), "rank=2 is not in the group of 2: ranks count"),
    (lambda: run(lambda group: all_reduce(group, {1})), "{1} is neither a number nor"),
    (lambda: run(lambda group: all_reduce(group, np.array([None]))), "array([None], dtype=object) is"),
    (lambda: run(lambda group: reduce_scatter(group, 3)), "values=3 must be a list"),
    (lambda: run(lambda group: all_gather(group, (x for x in ()))), "cannot be sent, because cannot pickle"),
    (lambda: mp.save("a.npz", LAYERS), "ReLU(), Linear(3, 1)] is not a network"),
    (lambda: mp.Join("a", np.ones(2)), "how=array([1., 1.])"),
    (lambda: mp.Sums(buckets=np.ones(2)), "buckets=array("),
    (lambda: with_zero(data_parallel(2, 2), True), "zero=True must be 1, 2 or 3"),
    (lambda: whole_number("m", 10**5000, most=5),
     "m=a number of too many digits to be shown must be at most 5"),
    (lambda: mp.Schedule.from_csv(3), "source=3 must be a path, or the table as text"),
    (lambda: mp.Schedule.from_text([f"F{10**10}"]), "is not an action"),
]


def test_impossible_arguments_raise_a_readable_error():
    assert_refused(REFUSED)


LOADED_TWICE = """
import importlib, sys
import minipipe as one
one.compare("gpipe"), [getattr(one, name) for name in one.__all__]  # all rooms are loaded
for name in [name for name in sys.modules if name.partition(".")[0] == "minipipe"]:
    del sys.modules[name]
other = importlib.import_module("minipipe")
for mp, old in (other, one), (one, other):
    net = mp.Sequential([mp.Linear(3, 3)], None)
    refusals = {
        "a layer": lambda: mp.Sequential([old.Linear(3, 3)], None),
        "a layer of two": lambda: mp.layers.Residual(old.Linear(3, 3)),
        "an optimizer": lambda: mp.ParameterServer(net.layers, mp.MeanSquaredError(), 2).train(
            [([[1.0]] * 3, [[1.0]] * 3)], old.SGD(0.1)),
        "a network": lambda: mp.save("net.npz", old.Sequential([old.Linear(3, 3)], None)),
        "a state": lambda: net.resume(old.Sequential([old.Linear(3, 3)], None).state()),
        "a schedule": lambda: mp.simulate(old.Schedule.from_text("F0 B0")),
        "costs": lambda: mp.simulate("gpipe", old.Costs()),
        "a link": lambda: mp.simulate("gpipe", link=old.Link(latency=1)),
        "a link of two": lambda: mp.simulate("gpipe", link={(0, 1): old.Link(latency=1)}),
        "a trace": lambda: mp.plots.timeline(old.simulate("gpipe")),
        "sums": lambda: mp.Pipeline(net.layers, None, 1, 1, sums=old.Sums()),
    }
    for name, door in refusals.items():
        try:
            door()
            print(name, "is taken")
        except ValueError as error:
            if " of a minipipe that was loaded twice (restart the kernel)" not in str(error):
                print(name, error)
"""


@pytest.mark.slow  # a process of its own
def test_an_object_of_another_import_is_refused_as_such():
    """A notebook has it after `del sys.modules[...]` or `importlib.reload`: "Linear(3, 3) is not a layer"."""
    done = subprocess.run([sys.executable, "-c", LOADED_TWICE], capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_for_a_seed_is_refused():
    """NumPy goes round in a circle with it, until the interpreter has no stack left."""
    seed = np.matrix([[1, 2]])
    assert_refused([(call, "seed=matrix([[1, 2]]) must be a whole number") for call in (
        lambda: mp.servers.clients_of(X, X, 2, seed=seed),
        lambda: mp.Sequential([mp.ReLU()], None, seed),
    )])


def test_numbers_that_would_make_the_clock_infinite_are_refused():
    out_of_reach = [1e308, 5e-324, Fraction(1, 10**400)]
    for far in (*out_of_reach, 10**400, math.inf, math.nan, -1, True):
        words = "=... is out of reach" if far in out_of_reach else "must be"
        assert_refused([(call, words) for call in (
            lambda: simulated(mp.Costs(F=far)),
            lambda: simulated(mp.Costs(B=[far, 1, 1, 1])),
            lambda: simulated(mp.Costs(message_bytes=far)),
            lambda: mp.Link(latency=far),
            lambda: mp.cluster.Cluster([(mp.cluster.Compute(k, ticks=far) for k in range(2))]).run(),
            lambda: carried(far, 1),
        )])
        if far != math.inf:
            bandwidths = lambda: mp.Link(bandwidth=far), lambda: mp.Port(far, [0])
            assert_refused([(call, f"bandwidth...{words}") for call in bandwidths])


def test_a_limit_of_memory_is_a_number_of_bytes_everywhere():
    for limit in ("1", [1], math.nan, 0, -1, True):
        assert_refused([
            (lambda: mp.Parallel(LAYERS, LOSS, memory_limit=limit),
             "^memory_limit=... must be ...above 0 bytes"),
            (
                lambda: mp.cluster.Cluster([], holdings=[], memory_limit=limit),
                "^memory_limit=... must be ...above 0"
            ),
        ])


def test_a_schedule_that_would_fill_the_memory_is_refused():
    orders = [
        lambda: build("gpipe", 10**6, 10**6), lambda: gpipe(4, 10**8),
        lambda: build("pipedream", 10**4, 10**4), lambda: build("zb-v", 2 * 10**3, 10**4),
        lambda: greedy_schedule(10**4, 10**4), lambda: best_schedule(10**4, 10**4),
        lambda: in_copies(gpipe(2, 2), 10**7), lambda: in_segments(gpipe(2, 2), 10**7),
    ]
    too_long = "a schedule of ... actions exceeds the limit of 4,000,000: use"
    assert_refused([(call, too_long) for call in orders])


def test_huge_rational_numbers_have_a_repr_and_a_refusal():
    huge = mp.exact.Rational(10**5000)
    assert repr(huge) == "Rational(a number of 16610 bits, over one of 1)"
    functions = huge.exp, (-huge).log, (-huge).sqrt
    assert_refused([(function, "of Rational(a number of 16610 bits") for function in functions])


def test_a_schedule_without_micro_batches_or_stages_is_faulty():
    for sizes in ((1, 0), (0, 1), (1, -1), (1.5, 1), (1, "2"), (None, 1)):
        (fault,) = mp.Schedule((), *sizes).faults()
        assert fault.startswith("a schedule needs at least 1 stage and 1 micro-batch, in whole numbers, not ")


# --- options that do not go together

WIDE = [mp.Linear(2, 4), mp.ReLU(), mp.Linear(4, 2)]
TIED = [mp.Linear(2, 2, tie="W"), mp.Tanh(), mp.Linear(2, 2, tie="W")]
COPIES, STAGES = dict(replicas=2), dict(stages=2)
SYNC = mp.Sums(sync_batch_norm=True)


def parallel(split, schedule="1f1b", layers=WIDE, **options):
    return mp.Parallel(layers, LOSS, **split, schedule=schedule, **options)


# PipeDream's replicated stages: each copy of stage 0 has a device, and both share that of stage 1
FIRST_STAGE_TWICE = Schedule.from_text(
    ["0F0 0F2 0B0 0B2", "0F1 0F3 0B1 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"], copy_of=(0, 1, 0, 1)
)

BROKEN = {  # name of a rule -> (a call that breaks it, words of its sentence)
    "schedule, replicas": (
        lambda: parallel(dict(replicas=2, stages=2, microbatches=4), gpipe(2, 4)),
        "the order of 'gpipe' has 1 copies of the network on 2 devices, which are not 2 replicas: pass the "
        "order of one replica",
    ),
    "bytes, engine": (
        lambda: parallel(STAGES, memory_limit=100, engine="threads"),
        "engine='threads' cannot count bytes: leave out count_bytes and memory_limit, or use engine=",
    ),
    "grain, accumulate": (
        lambda: parallel(STAGES, sums=mp.Sums("running", grain=2)),
        "grain=2 needs accumulate='tree', not 'running', to keep its bits",
    ),
    "grain, all_reduce": (
        lambda: parallel(COPIES, sums=mp.Sums(all_reduce="ring", grain=2)),
        "grain=2 needs all_reduce='owners', not 'ring', to keep its bits",
    ),
    "grain, sync_batch_norm": (
        lambda: parallel(COPIES, sums=mp.Sums(grain=2, sync_batch_norm=True)),
        "sync_batch_norm=True with grain=2: replicas exchange statistics in each micro-batch, not in each",
    ),
    "replicas, sync_batch_norm": (
        lambda: parallel(dict(replicas=2, microbatches=3), sums=SYNC),
        "sync_batch_norm=True with 3 micro-batches over 2 replicas: they exchange statistics in each "
        "micro-batch, so use a multiple of 2",
    ),
    "copies, sync_batch_norm": (
        lambda: parallel(dict(microbatches=4), data_parallel(2, 4), sums=SYNC),
        "sync_batch_norm=True with the 2 copies of the network in 'data-parallel': it only synchronises",
    ),
    "schedule, sync_batch_norm": (
        lambda: parallel(STAGES, "pipedream", sums=SYNC),
        "sync_batch_norm=True with 'pipedream', which has no flush: statistics of different weights",
    ),
    "zero, all_reduce": (
        lambda: parallel(COPIES, zero=1, sums=mp.Sums(all_reduce="ring")),
        "all_reduce='ring', but with zero, or an S in the order, each device owns a part of the sum: use "
        "'owners'",
    ),
    "zero, microbatches": (
        lambda: parallel(dict(replicas=2, microbatches=3), zero=3),
        "zero=3 with 3 micro-batches over 2 replicas: all of them gather parameters for each",
    ),
    "zero, copies": (
        lambda: parallel(dict(stages=2, microbatches=4), FIRST_STAGE_TWICE, zero=1),
        "zero=1 with 'custom', in which some stages are on one device only",
    ),
    "schedule, ties": (
        lambda: parallel(STAGES, "pipedream", TIED),
        "tie='W': tied weights need a flush, which the order of 'pipedream' does not have on each device",
    ),
    "schedule, zero": (
        lambda: parallel(STAGES, "pipedream", zero=1),
        "the order of 'pipedream' has its own sums or updates: leave out zero",
    ),
}


def test_each_rule_has_a_network_that_breaks_it():
    assert list(BROKEN) == [name for name, *_ in REFUSALS]


def test_options_that_break_a_rule_are_refused_by_its_sentence():
    assert_refused(BROKEN.values())


def test_copies_that_are_not_replicas_are_refused():
    """Backwards of the second copy come in another order than its forwards; or only some stages have one."""
    other = Schedule.from_text(["0F0 0F1 0B0 0B1", "0F2 0F3 0B3 0B2"], 4, copy_of=(0, 0, 1, 1))
    two_stages = dict(replicas=2, stages=2, microbatches=4)
    assert_refused([
        (lambda: parallel(dict(replicas=2, microbatches=4), other, sums=SYNC),
         "one order for all replicas"),
        (lambda: parallel(two_stages, FIRST_STAGE_TWICE),
         "2 copies of the network on 3 devices, which are not 2 replicas"),
    ])
