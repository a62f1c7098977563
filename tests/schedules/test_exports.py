"""A schedule as PyTorch's table and a run as a Chrome trace: what was there comes back equal."""

import json
import math
import os
import re
import warnings
from fractions import Fraction
from itertools import product

import pytest
from cases import valid_schedules
from hypothesis import given, settings, strategies as st

import minipipe as mp
from minipipe.order import Schedule, ScheduleError, ScheduleWarning, in_copies, with_recompute
from minipipe.plots.boxes import spans_and_exchanges
from minipipe.schedules import build, interleaved_one_f_one_b

# ScheduleDualPipeV of PyTorch 2.13 with 2 ranks and 4 micro-batches, as its _dump_csv writes it
PYTORCHS_DUALPIPEV = (
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,"
    "0I2,0W2,0I3,0W3\r\n"
    "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,"
    "2I3,1I3,2W3,1W3\r\n"
)


def back(schedule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScheduleWarning)  # of those with replicas of the network
        table = schedule.to_csv()
    return Schedule.from_csv(table, schedule.n_microbatches, schedule.name, schedule.copy_of)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_any_schedule_is_equal_after_a_round_trip(data, K, M):
    schedule = data.draw(valid_schedules(K, M))
    assert back(schedule) == schedule


def test_a_table_with_overlaps_that_pytorch_has_written():
    schedule = Schedule.from_csv(PYTORCHS_DUALPIPEV)
    assert schedule.faults() == [] and schedule.placement == [0, 1, 1, 0] and schedule.n_microbatches == 4
    assert str(schedule).splitlines()[0].split()[9:11] == ["0F3&3B1", "3F2&0B0"]
    assert back(schedule) == schedule
    rows = [row.replace(",,", ",").strip(",") for row in schedule.to_csv().splitlines()]
    assert rows == PYTORCHS_DUALPIPEV.split()


@pytest.mark.parametrize("schedule", [
    *(build(name, K, M) for name in ("chimera", "dualpipe") for K, M in [(2, 4), (4, 8), (4, 12)]),
    in_copies(build("gpipe", 1, 6), 3), in_copies(build("zb-v", 4, 4), 2),
    Schedule.from_text(["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"], copy_of=[0, 1]),
], ids=lambda schedule: f"{schedule.name} {len(schedule.devices)} {schedule.n_microbatches}")
def test_copies_of_the_network_are_read_off_the_table(schedule):
    words = f"{schedule.name!r} has {schedule.n_copies} replicas, and PyTorch has one"
    with pytest.warns(ScheduleWarning, match=re.escape(words)) as caught:
        table = schedule.to_csv()
    assert [warning.filename for warning in caught] == [__file__]
    assert Schedule.from_csv(table, name=schedule.name) == schedule
    assert Schedule.from_csv(table, schedule.n_microbatches, schedule.name, schedule.copy_of) == schedule


@pytest.mark.parametrize("table", [
    "0F0,0B0,0F1\n1F0,1B0,1F1,1B1,0B1",            # a backward on another device than its forward
    "0F0,0B0\n1F0,1B0,0F1,1F1,1B1,0B1",            # stage 1 is in one place for both
    "0F0,1F1,1B1,0B0\n0F1,0B1",                     # a stage is missing
])
def test_an_incomplete_replica_is_a_fault(table):
    faults = Schedule.from_csv(table).faults()
    assert any("is on devices 0, 1: a stage's parameters are on one device only, unless there are replicas"
               in fault and "say so by copy_of" in fault for fault in faults)


def test_the_number_of_micro_batches_that_is_asked_for_stays():
    assert Schedule.from_csv("0F0,0B0\n0F1,0B1", microbatches=3).n_microbatches == 3


def test_cells_of_communication_are_left_out_with_a_note():
    table = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD"
    words = "left out: 1 UNSHARD, 1 SEND_F, 1 RECV_B, 2 REDUCE_GRAD, 1 RESHARD, 1 RECV_F, 1 SEND_B; stages"
    with pytest.warns(ScheduleWarning, match=words) as caught:
        assert Schedule.from_csv(table) == Schedule.from_text(["F0 B0", "F0 B0"])
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-v"])
def test_cells_match_a_run_in_which_each_action_takes_one_tick(name):
    schedule = build(name, 4, 6)
    trace = mp.simulate(schedule, mp.Costs(**{kind: [1] * schedule.n_stages for kind in "FBIW"}))
    rows = [line.split(",") for line in schedule.to_csv().splitlines()]
    assert {len(row) for row in rows} == {trace.makespan}
    cells = [(device, step, cell) for device, row in enumerate(rows) for step, cell in enumerate(row) if cell]
    assert cells == sorted((span.device, span.start, str(span.label)) for span in trace.spans)


def test_a_table_can_be_a_file_as_spreadsheets_leave_it(tmp_path):
    schedule, path = build("1f1b", 2, 3), tmp_path / "a,b.csv"
    assert path.write_text(schedule.to_csv()) and Schedule.from_csv(path, name="1f1b") == schedule
    written = tmp_path / "c.csv"
    assert schedule.to_csv(written) is None and written.read_text() == schedule.to_csv()
    assert Schedule.from_csv(str(written), name="1f1b") == schedule
    text = "\ufeff" + ' "0F0" ,None, 0B0,\r\n'.replace(' "', '"') + "\r\n"
    path.write_text(text, encoding="utf-8")
    assert str(Schedule.from_csv(path)) == "device 0: 0F0 0B0"
    path.write_bytes(b"\xff\xd8,\xff")
    with pytest.raises(ScheduleError, match="is not a text file"):
        Schedule.from_csv(path)


def test_all_malformed_cells_are_named_at_once():
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_csv("0F0,0Q0,,0B0\n,1F,(1F0;1I0)OVERLAP_F_B,0F0x,(0B0)OVERLAP_F_B,0R0,-1F0")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        "malformed cells: 7; write 2F0, 2B0, 2I0 or 2W0 for stage 2 and micro-batch 0, (0F1;3B0)OVERLAP_F_B"
    )
    assert lines[1:] == [
        "- row 1 (rank 0), column 2: '0Q0' is not an action (and 5 more like it)",
        "- row 2 (rank 1), column 3: '(1F0;1I0)OVERLAP_F_B' is not one forward with one backward B",
    ]


@pytest.mark.parametrize("text, words", [
    ("\n", "the table has no actions"), (",,\n,", "the table has no actions"),
    ('0F0,"' + "x" * 200_000, "not a table"),
])
def test_texts_that_are_not_tables_of_actions_are_refused(text, words):
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_csv(text)
    assert words in str(caught.value)


def test_actions_without_a_cell_in_pytorchs_table_are_not_written(tmp_path):
    with pytest.raises(ScheduleError, match=r"'gpipe\+recompute' recomputes \(0R1\).*torch.utils.checkpoint"):
        with_recompute(build("gpipe", 2, 2)).to_csv(tmp_path / "x.csv")
    with pytest.raises(ScheduleError, match=r"updates weights on the way \(0U0\)"):
        Schedule.from_text(["F0 B0 U0 F1 B1 U1"], versions=[(0, 1)]).to_csv()
    with pytest.raises(ScheduleError, match="deadlock"):
        Schedule.from_text(["F0 B0 F1 B1", "F1 F0 B0 B1"]).to_csv(tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())


GPIPE = build("gpipe", 2, 2)
WRITERS = {  # how a file is called -> what writes it
    "a.csv": GPIPE.to_csv,
    **{f"a.{ending}": lambda path: mp.simulate(GPIPE).save(path) for ending in ("jpg", "html")},
    "net.npz": lambda path: mp.save(path, mp.Sequential([mp.Linear(2, 1)], None)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file(name, tmp_path):
    """The error names the file that the user has named. A .jpg is the hard case: Pillow writes a half."""
    resource = pytest.importorskip("resource")
    (tmp_path / name).write_text("old")
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        with pytest.raises(OSError) as error:
            WRITERS[name](tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert error.value.filename == str(tmp_path / name)
    assert (tmp_path / name).read_text() == "old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    GPIPE.to_csv(tmp_path / "pipe")
    assert os.read(reader, 1000).decode() == GPIPE.to_csv() and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_name_of_many_bytes_can_be_written(tmp_path):
    path = tmp_path / f"{'計' * 80}.csv"  # 244 of 255 bytes
    GPIPE.to_csv(path)
    assert Schedule.from_csv(path, name="gpipe") == GPIPE


RUNS = {
    "gpipe": lambda: mp.simulate(build("gpipe", 4, 3), mp.Costs(F=1, B=2), mp.Link(latency=2)),
    "recompute": lambda: mp.simulate(with_recompute(build("1f1b", 3, 4))),
    "halves": lambda: mp.simulate(build("zb-v", 4, 4), mp.Costs(F=0.5, I=0.5, W=0.5), mp.Link(latency=0.25)),
    "overlap": lambda: mp.simulate(Schedule.from_csv(PYTORCHS_DUALPIPEV)),
    "updates": lambda: mp.simulate(Schedule.from_text(["F0 B0 U0 F1 B1 U1"] * 2, versions=[(0, 1)] * 2)),
    "labels": lambda: mp.cluster.Cluster([ring(0), ring(1)], duration=lambda label: 1.5).run(),
}


def ring(device):
    """A program with a message before its first work, and one after its last."""
    yield mp.cluster.Send("early", None, to=1 - device)
    yield mp.cluster.Receive("early", source=1 - device)
    yield mp.cluster.Compute("add")
    yield mp.cluster.Send("sum", None, to=1 - device)
    yield mp.cluster.Receive("sum", source=1 - device)
    yield mp.cluster.Compute("store")
    yield mp.cluster.Send("late", None, to=1 - device)
    yield mp.cluster.Receive("late", source=1 - device)


def events(chrome, *kinds):
    return [event for event in chrome["traceEvents"] if event["ph"] in kinds]


@pytest.mark.parametrize("run", RUNS)
def test_a_chrome_trace_has_the_boxes_of_the_run_to_scale(run):
    trace = RUNS[run]()
    chrome = json.loads(json.dumps(trace.to_chrome_trace()))
    boxes = events(chrome, "X")
    drawn = sorted((box["tid"] - 1, box["name"], box["ts"], box["ts"] + box["dur"]) for box in boxes)
    assert drawn == sorted(
        (span.device, str(span.label), 1000 * span.start, 1000 * span.end) for span in trace.spans
    )
    busy = [sum(box["dur"] for box in boxes if box["tid"] == device + 1) for device in range(trace.n_devices)]
    assert busy == [1000 * ticks for ticks in trace.busy_ticks()]
    times = [event["ts"] for event in chrome["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] >= 0
    assert max(box["ts"] + box["dur"] for box in boxes) == 1000 * trace.makespan
    assert chrome["otherData"] == {
        "tick": "1 ms", "microseconds per tick": 1000, "makespan in ticks": trace.makespan,
    }


def in_ticks(trace, per_tick=1):
    """Return the Chrome trace with `per_tick` in the place of the 1000 microseconds of a tick."""
    chrome = json.loads(json.dumps(trace.to_chrome_trace()))
    for event in chrome["traceEvents"]:
        for name in ("ts", "dur"):
            if name in event:
                event[name] = event[name] * per_tick / 1000
    return chrome


@pytest.mark.parametrize("run", RUNS)
def test_arrows_lead_from_the_sender_s_work_to_the_receiver_s(run):
    trace = RUNS[run]()
    chrome = in_ticks(trace, per_tick=10)
    arrows = {}
    for event in events(chrome, "s", "f"):
        arrows.setdefault(event["id"], []).append(event)
    # "early" and "late" have no box at one end
    assert len(arrows) == len(trace.messages) - 4 * (run == "labels")

    def box_around(event):
        place = event["pid"], event["tid"]
        boxes = [box for box in events(chrome, "X") if (box["pid"], box["tid"]) == place]
        [box] = [box for box in boxes if box["ts"] < event["ts"] < box["ts"] + box["dur"]]
        return box

    found = []
    for first, last in arrows.values():
        assert (first["ph"], last["ph"], first["bp"], last["bp"]) == ("s", "f", "e", "e")
        assert first["name"] == last["name"] and first["ts"] < last["ts"]
        sender, receiver = box_around(first), box_around(last)
        found.append((first["name"], sender["ts"] + sender["dur"], receiver["ts"]))
        if run != "labels":
            stage, microbatch = int(first["name"][0]), int(first["name"][2:])
            assert microbatch in numbers(sender, "micro-batch") & numbers(receiver, "micro-batch")
            assert stage in numbers(sender, "stage")
    assert sorted(found) == sorted(
        (str(message.label), 10 * message.sent, 10 * message.received) for message in trace.messages
        if run != "labels" or message.label == "sum"
    )


def test_boxes_touch_in_whole_nanoseconds_where_spans_do():
    """Perfetto reads ts and dur as whole nanoseconds each, and drops a box that begins within another."""
    odd = Fraction(1, 3), Fraction(22, 7), 0.1, math.pi, 1e-5
    schedules = interleaved_one_f_one_b(4, 4, 3), build("dualpipe", 4, 8)
    for F, B, schedule in product(odd, odd[:3], schedules):
        trace = mp.simulate(schedule, mp.Costs(F=F, B=B, message_bytes=1), mp.Link(F / 7, bandwidth=3))
        chrome = json.loads(json.dumps(trace.to_chrome_trace()))
        for device in range(4):
            spans, end, last = [each for each in spans_and_exchanges(trace) if each.device == device], 0, 0
            boxes = [box for box in events(chrome, "X") if box["tid"] == device + 1]
            for span, box in zip(spans, boxes, strict=True):
                begin, length = (math.floor(1000 * box[key] + 0.5) for key in ("ts", "dur"))
                assert begin == end if span.start == last else begin >= end, (schedule.name, F, B, span)
                end, last = begin + length, span.end
        times = [1000 * event["ts"] for event in events(chrome, "X", "s", "f")]
        assert all(abs(time - round(time)) < 1e-3 for time in times), (schedule.name, F, B)


def numbers(box, key):
    """The stages or micro-batches of a box, of both its parts if it has two."""
    places = [box["args"], *box["args"].values()]
    return {place[key] for place in places if isinstance(place, dict) and key in place}


def test_devices_are_threads_with_names():
    chrome = RUNS["gpipe"]().to_chrome_trace()
    names = {(event["tid"], event["name"]): event["args"] for event in events(chrome, "M")}
    assert names[2, "thread_name"] == {"name": "device 1"}
    assert names[4, "thread_sort_index"] == {"sort_index": 4}
    assert len({event["id"] for event in events(chrome, "s")}) == len(events(chrome, "s")) > 0


def test_memory_is_a_counter_where_it_was_counted(tmp_path):
    X, Y = (part[:, :4] for part in mp.datasets.digits().train)
    pipe = mp.Pipeline([mp.Linear(64, 10), mp.ReLU()], mp.SoftmaxCrossEntropy(), 2, 2, count_bytes=True)
    pipe.forward_backward(X, Y)
    pipe.trace.save(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text()) == pipe.trace.to_chrome_trace()
    chrome = in_ticks(pipe.trace)
    for device in range(2):
        counts = [event for event in events(chrome, "C") if event["name"] == f"memory of device {device}"]
        curve = [(event["ts"], event["args"]["bytes"]) for event in counts]
        assert curve == pipe.trace.memory(device)
    assert not events(RUNS["gpipe"]().to_chrome_trace(), "C")
