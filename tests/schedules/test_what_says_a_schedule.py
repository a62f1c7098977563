"""A schedule is whatever says one, and every door takes it: names, texts, files and functions."""

import json
import re
from dataclasses import fields
from functools import partial

import numpy as np
import pytest

import minipipe as mp
from minipipe.order import Action, Schedule, ScheduleError
from minipipe.schedules import build, gpipe, names_for, one_f_one_b, zero_bubble_v

LAYERS, LOSS = [mp.Linear(2, 2) for _ in range(8)], mp.MeanSquaredError()
GPIPE = gpipe(2, 3)


def in_tuples(device, K, M):
    return [("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]


def in_words(device, K, M):
    return [f"F{i}" for i in range(M)] + [f"{device}b{i}" for i in reversed(range(M))]


def in_numpy(device, K, M):
    stage = np.int64(device)
    return [("F", i) for i in np.arange(M)] + [("B", stage, i) for i in np.arange(M)[::-1]]


def as_a_generator(device, K, M, kinds="FB"):
    yield from in_tuples(device, K, M)


def of_all_devices(K, M):
    return gpipe(K, M)


def with_an_option(K, M, device=0):
    return gpipe(K, M)


def file(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


CODE = """orders = 2

def mine(device, K, M):
    return [("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]
"""
SAYS = {  # words -> (function of a folder that returns what says `GPIPE`, the name of what is made of it)
    "a name": (lambda folder: "G_Pipe", "gpipe"),
    "a schedule": (lambda folder: GPIPE, "gpipe"),
    "a text": (lambda folder: "F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0", "custom"),
    "as it prints": (lambda folder: str(GPIPE), "custom"),
    "a list of texts": (lambda folder: ["F0 F1 F2 B2 B1 B0"] * 2, "custom"),
    "a list of lists": (lambda folder: [in_tuples(device, 2, 3) for device in range(2)], "custom"),
    "a table": (lambda folder: file(folder, "mine.csv", GPIPE.to_csv()), "mine"),
    "a table, its path as text": (lambda folder: str(file(folder, "Mine.CSV", GPIPE.to_csv())), "Mine"),
    "a file of text": (lambda folder: file(folder, "mine.txt", f"{GPIPE}\n"), "mine"),
    "a function in a file": (lambda folder: f"{file(folder, 'code.py', CODE)}:mine", "mine"),
    "a function, tuples": (lambda folder: in_tuples, "in_tuples"),
    "a function, words": (lambda folder: in_words, "in_words"),
    "a function, NumPy": (lambda folder: in_numpy, "in_numpy"),
    "a generator": (lambda folder: as_a_generator, "as_a_generator"),
    "a partial": (lambda folder: partial(in_tuples), "custom"),
    "a function of all devices": (lambda folder: of_all_devices, "gpipe"),
    "a builder with an option": (lambda folder: with_an_option, "gpipe"),
    "a builder": (lambda folder: gpipe, "gpipe"),
}
SIZES = dict(devices=2, microbatches=3)
DOORS = {  # name -> function of what says a schedule
    "build": lambda what: build(what, **SIZES).devices,
    "build for stages": lambda what: build(what, stages=2, microbatches=3).devices,
    "Pipeline": lambda what: mp.Pipeline(LAYERS, LOSS, 2, 3, schedule=what).schedule.devices,
    "compare": lambda what: [*mp.compare(what, **SIZES).values()],
    "simulate": lambda what: mp.simulate(what, **SIZES),
    "check": lambda what: [mp.check(what, **SIZES)[place] for place in (0, 3, 4)],
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("says", SAYS)
def test_every_public_function_takes_it(says, door, tmp_path):
    assert DOORS[door](SAYS[says][0](tmp_path)) == DOORS[door](GPIPE)


@pytest.mark.parametrize("says", SAYS)
def test_a_built_schedule_has_a_name_and_python_numbers(says, tmp_path):
    what, name = SAYS[says][0](tmp_path), SAYS[says][1]
    schedule = build(what, **SIZES)
    assert (schedule.name, schedule.n_stages, schedule.n_microbatches) == (name, 2, 3)
    assert [*mp.compare(what, **SIZES)] == [name]
    assert {type(number) for _, part, _ in schedule.walk() for number in part[1:]} == {int}


def test_a_schedule_converts_numpy_numbers_to_python_numbers():
    orders = [[Action(kind, np.int64(0), i) for kind in "FB" for i in np.arange(2)]]
    of_numpy = np.int64(1), np.int64(2), "mine", np.array([0, 0]), np.array([[0, 0]])
    made = [getattr(Schedule(orders, *of_numpy), field.name) for field in fields(Schedule)]
    plain = [[["F", 0, 0], ["F", 0, 1], ["B", 0, 0], ["B", 0, 1]]]
    assert json.loads(json.dumps(made)) == [plain, 1, 2, "mine", [0, 0], [[0, 0]]]


@pytest.mark.parametrize("number", [np.bool_(False), False, 0.0, np.float64(0), "0", None], ids=repr)
def test_stage_and_micro_batch_of_an_action_are_whole_numbers(number):
    for place in ((number, 0), (0, number)):
        with pytest.raises(ScheduleError, match=r"an action: write whole numbers, as in Action\('F', 0"):
            Schedule([[Action("F", *place), Action("B", 0, 0)]], 1, 1)


def test_sizes_default_to_four_devices_and_eight_micro_batches():
    assert build("gpipe") == build(gpipe) == gpipe(4, 8) and build(in_tuples).devices == gpipe(4, 8).devices
    assert mp.simulate("gpipe") == mp.compare("gpipe")["gpipe"] == mp.simulate(gpipe(4, 8))
    assert build(GPIPE) is GPIPE and mp.compare(GPIPE, "1f1b")["gpipe"].n_devices == 2


def test_in_a_network_the_stages_share_the_devices():
    """Where a schedule puts v stages on a device, also one of a function: stages = v K."""
    def folded(device, K, M):
        there, back = ("F", device), ("B", device)
        deeper = 2 * K - 1 - device
        return [(*one, i) for i in range(M) for one in (there, ("F", deeper), ("B", deeper), back)]

    on_four = "zb-v", zero_bubble_v, lambda K, M: zero_bubble_v(K, M), folded
    for what, devices in (*((what, 4) for what in on_four), ("1f1b", 8), (one_f_one_b, 8)):
        pipe = mp.Pipeline(LAYERS, LOSS, 8, 8, schedule=what)
        assert (pipe.n_stages, len(pipe.schedule.devices)) == (8, devices), what
    assert len(names_for(stages=8, microbatches=8)) > len(names_for(stages=7, microbatches=8)) > 5


def test_a_function_may_go_on_without_a_flush():
    streams = [
        mp.Pipeline(LAYERS, LOSS, 2, 2, schedule=what)
        for what in ("pipedream-2bw", mp.schedules.pipedream_2bw,
                     lambda K, M: mp.schedules.pipedream_2bw(K, M, per_update=2))
    ]
    X = np.arange(8.0).reshape(2, 4) / 8
    costs = [pipe.train([(X, X)] * 3, mp.SGD(0.1)) for pipe in streams]
    assert costs[0] == costs[1] == costs[2]


def test_closed_forms_match_the_builder():
    """A function of yours has none, whatever it is called."""
    known = [mp.check(what) for what in ("ZB-V", zero_bubble_v)]
    assert repr(known[0]) == repr(known[1]) and all(verdict.holds for verdict in known[0])
    assert [verdict.holds for verdict in mp.check(in_tuples)] == [True, None, None, True, True]


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "chimera"])
def test_a_table_comes_back_equal_from_a_file_of_its_name(name, tmp_path, recwarn):
    schedule, path = build(name, 4, 8), tmp_path / f"{name}.csv"
    schedule.to_csv(path)
    assert Schedule.from_csv(path) == build(path) == build(str(path), 4, 8) == schedule
    assert Schedule.from_csv(path, name="mine").name == "mine"
    assert Schedule.from_csv(path.read_text()).name == "custom"


def lost(device, K, M):
    raise KeyError("lost")


@pytest.mark.parametrize("door", ["build", "Pipeline", "compare", "simulate", "check"])
def test_an_error_in_a_users_function_passes_through(door):
    with pytest.raises(KeyError, match="lost") as caught:
        DOORS[door](lost)
    assert caught.traceback[-1].name == "lost"


WRONG = [
    ("gpip", "unknown schedule 'gpip': did you mean 'gpipe'? there are naive, gpipe, "),
    *((what, f"{what!r} is not a schedule: pass a name, such as '1f1b'") for what in (3, [], [3])),
    (lambda device: [], "<lambda> takes other arguments: a schedule is a function (device, K, M) that"),
    (lambda *, device, K, M: [], "<lambda> takes other arguments: a schedule is a function"),
    (max, ": a schedule is a function (device, K, M) that returns the actions of a device, or a function"),
    (lambda device, K, M: None, "<lambda>(0, 2, 3) returns None: return the list of the actions of device 0"),
    (lambda K, M: [], "<lambda>(2, 3) returns []: a function (K, M) returns a Schedule, such as gpipe(K, M)"),
    (lambda device, K, M: ["F0", ("Q", 0)][:1 + device],
     "device 1: item 1 of <lambda>(1, 2, 3) is ('Q', 0), which is not an action: write (\"F\", 0) or "
     "\"F0\"; (\"F\", 2, 0) or \"2F0\" for stage 2; for F also B, I, W, R"),
    *((lambda device, K, M, item=item: [item], f"item 0 of <lambda>(0, 2, 3) is {item!r}, which is not an")
      for item in ("F", "B0 B1", 7, None, ("F",), ("F", -1), ("F", 0.5), ("F", True), ("F", "0"), [])),
    ("1f1", "unknown schedule '1f1': did you mean '1f1b'?"),
    ("0F0,0B0", "device 0: '0F0,0B0' is not an action: write F0, B0,"),
    ("F0 Fx", "device 0: 'Fx' is not an action: write F0, B0,"),
    ("none.csv", "cannot read none.csv: there is no such file; schedule.to_csv(path) writes one"),
    ("none.txt", "cannot read none.txt: there is no such file"),
    ("none.py:gpipe", "cannot read none.py: there is no such file"),
    ("F0 B0", "the schedule 'custom' has devices=1 and microbatches=1, not devices=2 and microbatches=3"),
]


@pytest.mark.parametrize("door", ["build", "compare", "simulate"])
@pytest.mark.parametrize("what, words", WRONG)
def test_values_that_are_not_schedules_are_refused_in_a_sentence(what, words, door):
    with pytest.raises(ValueError, match=re.escape(words)):
        DOORS[door](what)


@pytest.mark.parametrize("what", [None, 3, Schedule, mp.Linear, {"F0"}])
def test_check_says_what_it_takes(what):
    with pytest.raises(ValueError, match="must be a layer, a loss or an optimizer: pass an object"):
        mp.check(what)
    with pytest.raises(ValueError, match="devices and microbatches are those of a schedule: leave them out"):
        mp.check(mp.ReLU(), (3,), devices=2)


def test_a_file_of_code_is_told_its_functions(tmp_path):
    path = file(tmp_path, "code.py", CODE)
    for what in (f"{path}:gpipe", str(path)):
        with pytest.raises(ValueError, match=r"write .*code.py:NAME, and for NAME one of mine"):
            build(what)
    with pytest.raises(ValueError, match="is not the file of a schedule: pass a table, which ends in"):
        build(path)
    with pytest.raises(ValueError, match="2 is not a schedule"):
        build(f"{path}:orders")
    with pytest.raises(ScheduleError, match="it is a folder, name a file in it"):
        build(tmp_path.rename(tmp_path.with_suffix(".csv")))


def test_sizes_without_sense_are_refused():
    for sizes, words in (
        (dict(devices=0), "devices=0 must be at least 1"), (dict(stages=0), "stages=0 must be at least 1"),
        (dict(microbatches=2.5), "microbatches=2.5 must be a whole number"),
        (dict(devices=2, stages=2), "devices=2 and stages=2 say the same: leave one of them out"),
        (dict(devices=10**6), "exceeds the limit of 4,000,000"),
    ):
        for what in ("gpipe", in_tuples):
            with pytest.raises(ValueError, match=words):
                build(what, **sizes)
    with pytest.raises(ValueError, match="'zb-v' puts 2 stages on each device, which stages=5 does"):
        build(zero_bubble_v, stages=5)


def test_a_comparison_knows_ports():
    """The messages of both devices share one port, so they wait for each other."""
    narrow = mp.Port(1, sends=range(2))
    costs = mp.Costs(message_bytes=2)
    trace = mp.compare("gpipe", devices=2, microbatches=3, costs=costs, ports=narrow)["gpipe"]
    assert trace == mp.simulate("gpipe", costs, ports=narrow, devices=2, microbatches=3)
    assert trace.makespan > mp.compare("gpipe", devices=2, microbatches=3, costs=costs)["gpipe"].makespan
