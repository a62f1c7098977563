"""What every schedule with a name must hold, and what it states about itself against what is counted.

A new schedule is found here by its decorator. `-k its-name` runs its own tests.
"""

import re
import warnings
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from asynchronous.by_the_rule import by_the_rule, per_update
from compared import (
    assert_same, assert_same_bits, parameters,
)
from sampling import one_in

import minipipe as mp
from minipipe.checks import spelled
from minipipe.cluster import ports
from minipipe.order import Schedule, ScheduleError, ScheduleWarning, peak_microbatches, with_recompute
from minipipe.schedules import (
    SCHEDULES, build, is_name, name_of, names_for, names_having,
)
from minipipe.site.writing import page_of_schedule, words_of

FACTS = SCHEDULES.facts
EVERY = pytest.mark.parametrize("name", SCHEDULES)
SIZES = tuple(
    (K, M) for K in range(1, 5) for M in sorted({1, 2, K, K + 1, 2 * K - 1, 2 * K, 3 * K})
)
MORE = tuple((K, M) for K in range(2, 5) for M in (*range(1, 2 * K + 2), 4 * K - 1, 4 * K))
LARGER = tuple(
    (K, M) for K in range(5, 9) for M in sorted({1, K - 1, K, K + 1, 2 * K - 1, 2 * K, 4 * K})
)
# F, I and W of a device: a form that holds for unequal ones must tell them apart, so these come first
COSTS = [(4, 2, 1), (3, 1, 2), (2, 2, 1), (1, 1, 1)]
MESSAGES = 0, Fraction(1, 4), 4  # ticks of a message: a quarter of a tick on the way, the rest latency


@cache
def orders_of(name, sizes=SIZES):
    """{(K, M): schedule} for all of these sizes for which there is one."""
    orders = {}
    for K, M in sizes:
        try:
            orders[K, M] = build(name, K, M)
        except ValueError:
            continue
    return orders


def sizes_of(name):
    """The smallest of these sizes with M >= 2K, on 2 devices and on 4."""
    sizes = [(K, M) for K, M in orders_of(name) if M >= 2 * K]
    found = [min((size for size in sizes if size[0] == K), default=None) for K in (2, 4)]
    return [size for size in found if size]


@EVERY
def test_each_size_gives_a_sound_order_or_says_which_does(name):
    assert_sound(name, SIZES)
    assert sizes_of(name), f"{name} is a schedule for none of {SIZES}"


def assert_sound(name, sizes):
    orders = orders_of(name, sizes)
    for K, M in sizes:
        if (K, M) in orders:
            order = orders[K, M]
            assert order.faults() == with_recompute(order).faults() == [], (K, M)
            assert (order.name, order.n_microbatches) == (name, M)
            continue
        with pytest.raises(ValueError) as refused:
            build(name, K, M)
        remedy = re.search(r"use (?:at least )?(\d+)", str(refused.value))
        assert remedy, f"K={K}, M={M}: {refused.value!r} does not say which number to use instead"
        instead = int(remedy[1])
        others = [(K, instead), (instead, 2 * instead)]  # another M, or another K
        assert any(exists(name, *size) for size in others), f"K={K}, M={M}: {refused.value}"


def exists(name, K, M):
    try:
        return bool(build(name, K, M))
    except ValueError:
        return False


@EVERY
def test_its_orders_have_the_stated_facts(name):
    facts = FACTS[name]
    for (K, M), order in orders_of(name).items():
        assert (len(order.devices), order.n_stages) == (K, K * facts.stages_per_device)
        assert order.n_copies == (facts.copies if M > 1 else 1)
        assert ("U" not in order.kinds) == facts.flush
    assert re.search(r"\d{4}|^no known paper$", facts.source), f"{facts.source!r} names no year"


@EVERY
def test_a_schedule_name_is_found_in_any_spelling_and_by_other_names(name):
    """One rule for `build`, networks, `compare` and `check`: case, spaces, "_" and "-" do not matter."""
    for other in name.upper(), name.replace("-", "_"), name.replace("-", " ").title(), name.replace("-", ""):
        assert name_of(other) == name and is_name(other), other
    assert build(name.upper(), 2, 4) == build(name, 2, 4)
    for other, source in FACTS[name].also.items():
        assert source and spelled(other, SCHEDULES) is None, f"{other!r} is one of our names"
        assert name_of(other.lower()) == name and is_name(other)
        assert mp.compare(other, devices=4, microbatches=4).keys() == {name}


@EVERY
def test_closed_forms_equal_counted_ticks_and_memory(name):
    """With the first of the costs for which its form holds, each time the messages are as long."""
    for (K, M), order in orders_of(name).items():
        for c in MESSAGES:
            holding = [costs for costs in COSTS if FACTS[name].ticks(K, M, *costs, c) is not None]
            assert_counted(order, K, M, *(holding or COSTS)[0], c)


@pytest.mark.slow
@EVERY
def test_more_sizes_are_sound_and_take_what_closed_forms_say(name):
    assert_sound(name, MORE)
    for (K, M), order in orders_of(name, SIZES + MORE + LARGER).items():
        for F, I, W in COSTS:
            for c in MESSAGES:
                assert_counted(order, K, M, F, I, W, c)


def assert_counted(order, K, M, F, I, W, c=0):
    """Compare makespan and peaks of a simulated run with the closed forms, if these hold."""
    name = order.name
    ticks, peaks = FACTS[name].ticks(K, M, F, I, W, c), FACTS[name].peaks(K, M)
    if c and ticks is None:
        return
    machine = dict(link=mp.Link(c - Fraction(1, 4)), ports=ports(K, 4)) if c else {}
    trace = mp.simulate(order, mp.Costs(F=F, B=I + W, I=I, W=W, message_bytes=1), **machine)
    if ticks is not None:
        assert trace.makespan == ticks, f"makespan of {name}: K={K}, M={M}, F={F}, I={I}, W={W}, c={c}"
    if peaks is not None:
        counted = peak_microbatches(trace)
        assert (counted if len(peaks) == K else [max(counted)]) == peaks, f"alive: {name}, K={K}, M={M}"


@EVERY
def test_a_closed_form_holds_for_equal_passes_and_large_m(name):
    """F = I = W and M = 4K, on 2 devices and on 4; a form that holds nowhere would never be counted."""
    facts = FACTS[name]
    for K in (2, 4):
        assert facts.makespan is None or facts.ticks(K, 4 * K) is not None, f"makespan of {name}, K={K}"
        assert facts.alive is None or facts.peaks(K, 4 * K) is not None, f"alive of {name}, K={K}"


def test_closed_forms_hold_with_messages_and_a_w_of_any_length():
    """1F1B waits for 2 (K - 1)/K of a message with each micro-batch, and the other three only at the ends."""
    for K, M, c, ticks in [(4, 16, 0.5, 71), (4, 16, 1, 85), (8, 32, 0.25, 134)]:
        assert FACTS["1f1b"].ticks(K, M, c=c) == ticks
        assert mp.simulate(build("1f1b", K, M), mp.Costs(), mp.Link(c)).makespan == ticks
    for name in "naive", "gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "interleaved", "zb-h1":
        assert FACTS[name].ticks(4, 8, c=0.5) is not None, name
    assert FACTS["1f1b"].ticks(1, 8, c=9) == FACTS["zb-v"].ticks(1, 8, c=9) == 24, "no messages on one device"
    assert FACTS["zb-v"].ticks(4, 8, c=9) is FACTS["zb-h1"].ticks(4, 8, 1, 1, 2, c=9) is None
    assert FACTS["interleaved"].ticks(4, 8, 5, 1, 1, c=1) is None, "ports take 81 ticks, not 80.5"
    for costs in product([1, Fraction(3, 2), 4], repeat=3):
        for K, M in (2, 1), (3, 2), (4, 9):
            assert_counted(build("zb-h1", K, M), K, M, *costs)
            assert FACTS["zb-h1"].ticks(K, M, *costs) is not None


# Runs with numbers


LAYERS = [
    mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 4), mp.Sigmoid(), mp.Linear(4, 3), mp.ReLU(), mp.Linear(3, 3),
    mp.Linear(3, 2),
]
LOSS = mp.MeanSquaredError()


def mini_batch(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((3, m)), rng.standard_normal((2, m))


def pipeline(name, K, M, layers=LAYERS, **options):
    n_stages = K * SCHEDULES.facts[name].stages_per_device
    return mp.Pipeline(layers, LOSS, n_stages, M, schedule=name, **options)


WITHOUT = pytest.mark.parametrize("name", names_having(flush=False))


@pytest.mark.parametrize("name, recompute", one_in(2, names_having(flush=True), ["never", "always"]))
def test_a_run_has_the_bits_of_gpipe(name, recompute):
    K, M = sizes_of(name)[-1]
    pipe = pipeline(name, K, M, recompute=recompute, dtype=np.float32)
    X, Y = (A.astype(np.float32) for A in mini_batch(2 * M + 1))
    assert_same_bits(pipe, X, Y)
    assert pipe.schedule.name.startswith(name)


@WITHOUT
@pytest.mark.parametrize("engine", ["cluster", "threads"])
def test_a_run_without_a_flush_uses_the_versions_of_its_order(name, engine):
    """A plain loop over mini-batches, whose layers are those after as many updates as `versions` says."""
    K, optimizer = 4, mp.SGD(0.125, momentum=0.5)
    n = per_update(name, K)
    batches = [mini_batch(m) for m in (8, 8, 9, 11, 8, 8, 8, 8)]
    pipe = pipeline(name, K, n, engine=engine)
    costs = pipe.train(batches, deepcopy(optimizer))
    versions = build(name, K, n * len(batches)).versions
    partition = [len(stage.layers) for stage in pipe.stages]
    expected, layers = by_the_rule(
        LAYERS, LOSS, partition, batches, optimizer, n, lambda K, stage, t: versions[stage][n * t]
    )
    assert_same((costs, parameters(pipe.layers)), (expected, parameters(layers)))


# What is written and shown


@EVERY
def test_it_is_equal_after_a_round_trip_through_its_text(name):
    for order in orders_of(name).values():
        again = Schedule.from_text(str(order), order.n_microbatches, name, order.copy_of, order.versions)
        assert again == order


@EVERY
def test_it_is_equal_after_a_round_trip_through_pytorchs_table(name):
    for order in orders_of(name).values():
        if order.asynchronous:
            with pytest.raises(ScheduleError):
                order.to_csv()
            continue
        if not FACTS[name].flush:  # of one device or one mini-batch: the table leaves out a U at the end
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScheduleWarning)  # PyTorch has one copy of the network
            table = order.to_csv()
        assert Schedule.from_csv(table, order.n_microbatches, name, order.copy_of) == order


@EVERY
def test_the_site_has_its_page_with_an_idea_a_rule_and_a_source(name):
    (page, row), words = page_of_schedule(name), words_of(name)
    assert all([*words.values()][:3]) and all(part in page for part in words.values())
    assert re.search("Makespan|makespan|ticks", words["rule"])
    assert name in row


def test_the_package_exports_every_builder():
    for builder in SCHEDULES.values():
        name = builder.__name__
        assert name in mp.schedules.__all__ and getattr(mp.schedules, name) is builder, name


def test_a_schedule_of_a_notebook_works_by_its_name(monkeypatch):
    """Its cell may run again."""
    monkeypatch.setattr(SCHEDULES, "facts", dict(SCHEDULES.facts))
    monkeypatch.setitem(SCHEDULES, "mine", None)
    del SCHEDULES["mine"]  # and monkeypatch deletes what takes its place
    for _ in range(2):
        @SCHEDULES("mine", makespan=None, alive=lambda K, M, device: M, source="no known paper")
        def of_a_notebook(n_devices, n_microbatches):
            return replace(mp.schedules.gpipe(n_devices, n_microbatches), name="mine")

    assert mp.schedules.build("mine", stages=2, microbatches=4).name == "mine" and "mine" in names_for(2, 4)
    assert_same_bits(pipeline("mine", 2, 4), *mini_batch(9))
    assert FACTS["gpipe"].ticks(2, 4) == 15 and SCHEDULES.facts["mine"].ticks(2, 4) is None


def test_every_idea_is_its_own():
    ideas = [words_of(name)["idea"] for name in SCHEDULES]
    assert len(set(ideas)) == len(ideas)
