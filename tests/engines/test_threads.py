"""The programs on threads: the bits of the cluster, in seconds, and a trace that all readers understand."""

import _thread
import json
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
from engines import on_engines
import pytest
from compared import assert_same, parameters
from hypothesis import given, settings
from engines.on_engines import LOSS, assert_can_be_read, mini_batch, network, work
from ticks.programs import settings_of_runs
from sampling import one_in

import minipipe as mp
from minipipe import plots
from minipipe.cli import train
from minipipe.cli.main import main
from minipipe.cluster import (
    ANY, Compute, DeadlockError, Link, Receive, Send, Trace, UnreceivedError, describe_path,
)
from minipipe.cluster.record import Record
from minipipe.engines import Threads
from minipipe.order import Action
from minipipe.schedules import build

LAYERS = network()
pair = partial(on_engines.pair, "threads", layers=LAYERS)


def deadlock(run):
    """Return the sentence that says who waits for whom, or None."""
    try:
        run()
    except DeadlockError as error:
        return str(error)
    return None


# Random programs


@settings(max_examples=50)
@given(settings_of_runs(with_ports=False))
def test_random_programs_give_the_same_on_threads_and_cluster(setting):
    """The same work and messages, the same deadlocks; and the trace can be explained."""
    setting.link, has_any = Link(), "ANY" in repr(setting) or "any device" in repr(setting)
    cluster, threads = setting.cluster(), Threads(setting.generators())
    on_cluster, on_threads = deadlock(cluster.run), deadlock(threads.run)
    assert on_cluster == on_threads or (has_any and on_cluster and on_threads)
    if on_cluster is None:
        assert threads.done
        assert work(cluster.trace)[0] == work(threads.trace)[0]
        assert_can_be_read(threads.trace)


def test_a_message_is_recorded_before_it_is_received(monkeypatch):
    """The receiver asks after 0.02 seconds; the sender has the lock, and takes 0.1 to write it down."""
    sends = Record.sends

    def slowly(*args):
        time.sleep(0.1)
        return sends(*args)

    def left():
        yield Send("news", None, to=1)

    def right():
        yield Compute("other work", time.sleep, 0.02)
        yield Receive("news", source=0)

    monkeypatch.setattr(Record, "sends", slowly)
    assert_can_be_read(Threads([left(), right()]).run())


@pytest.mark.parametrize("case", one_in(3, [
    ([], "simulated with measured costs and links"),
    (["-K", "2", "-D", "2", "--schedule", "gpipe"], "schedule gpipe in 2 copies"),
    (["-K", "2", "-T", "2"], "4 threads: 1 replicas x 2 shards x 2, 4 micro-batches, schedule 1f1b"),
]))
def test_the_command_trains_on_threads_and_shows_the_run(case, tmp_path, capsys, monkeypatch):
    options, words = case
    monkeypatch.setattr(train, "N_RUNS", 3)
    sizes = ["-M", "4", "--size", "16", "--epochs", "1"]
    assert main(["--engine", "threads", *sizes, *options, "--output", str(tmp_path / "both.png")]) == 0
    out = capsys.readouterr().out
    assert words in out and "float32, m = 256: equal (==)" in out and "seconds, a device computes" in out
    assert (tmp_path / "both.png").stat().st_size > 10_000


@pytest.mark.parametrize("wrong", ["J", "gradients"])
def test_the_command_fails_where_threads_and_cluster_differ(wrong, tmp_path, capsys, monkeypatch):
    def off_by_one(pipe, X, Y, run=mp.Parallel.forward_backward):
        return run(pipe, X, Y) + (pipe.trace.unit == "ticks")  # of the cluster

    if wrong == "J":
        monkeypatch.setattr(mp.Parallel, "forward_backward", off_by_one)
    else:
        monkeypatch.setattr(train, "leaves", lambda gradients: [gradients[0][0] + np.random.random()])
    monkeypatch.setattr(train, "N_RUNS", 1)
    sizes = "-K 2 -M 2 --size 16 --epochs 1 --batch-size 64"
    assert main(["--engine", "threads", *sizes.split(), "--output", str(tmp_path / "both.png")]) == 1
    assert "float32, m = 64: DIFFERENT\n" in capsys.readouterr().out


def test_measured_and_simulated_times_print_with_their_ratio(tmp_path, capsys):
    """GPipe, K = M = 2: 9 ticks, of which each device computes 6; with costs of 3/2, half as much again."""
    once, again = (mp.simulate(build("gpipe", 2, 2), mp.Costs(F=F, B=2 * F)) for F in (1, 1.5))
    train.show_runs({"first": once, "second": again}, tmp_path / "both.png")
    assert capsys.readouterr().out.endswith(
        f"\n{'first':46}9 ticks, a device computes for 6\n{'second':46}13.5 ticks, a device computes for 9\n"
        f"{'measured / simulated':46}1.500\nwritten: {tmp_path / 'both.png'}\n"
    )


def test_all_views_of_a_measured_run_are_in_seconds():
    """No reader calls them ticks: text, pictures, explanation, critical path, page, Chrome's trace."""
    simulated, measured = pair(4, 8, "1f1b")
    X, Y = mini_batch(19)
    for pipe in (simulated, measured):
        pipe.forward_backward(X, Y)
    trace, ticked = measured.trace, simulated.trace
    assert_can_be_read(trace)
    assert "device 3" in trace.to_text() and "waits" in str(trace.explain())
    assert 0 < trace.makespan < 60 and 0 < trace.bubble("total") < 1
    assert (trace.unit, ticked.unit) == ("seconds", "ticks")
    words = repr(trace), str(trace.explain()), repr(trace.explain()), describe_path(
        trace.critical_path(), unit=trace.unit
    )
    assert all("seconds" in text and "tick" not in text for text in words)
    axes = trace.plot(arrows=True, critical_path=True)
    assert axes.get_xlabel() == "time (seconds)" and ticked.plot().get_xlabel() == "time (ticks)"
    page = trace.to_html()
    data = re.search(r'<script id="data" type="application/json">(.*)</script>', page)[1]
    shown = json.loads(data)
    assert shown["unit"] == "second" and "tick" not in data.replace('"ticks":[[', "")
    assert f"<dd>{trace.makespan:.6g} seconds</dd>" in page and "idle ticks" not in page
    chrome = trace.to_chrome_trace()
    assert chrome["otherData"]["second"] == "1 s"
    ends = [event["ts"] + event["dur"] for event in chrome["traceEvents"] if event["ph"] == "X"]
    last = 1e6 * max(span.end for span in trace.spans)
    assert abs(max(ends) - last) <= 0.0005 + 4 * 2**-53 * last  # half a nanosecond, and four roundings


def measured_trace(spans, n_devices=1):
    record = Record([(device, "compute") for device in range(n_devices)], [1] * n_devices, "seconds")
    for device, label, start, end in spans:
        record.spans += (device, label, start, end)
    record.finished = [max(end for *_, end in spans)] * n_devices
    return Trace(record)


def test_a_measured_timeline_fits_a_line_with_round_times():
    for makespan in (3e-7, 0.0123, 1, 7, 4000):
        ruler, row = plots.text(measured_trace([(0, Action("F", 0, 12), 0, makespan)])).splitlines()
        assert len(row) == 110 and 3 <= len(ruler.split()) <= 8


def test_a_simulation_and_a_measured_run_share_one_axis():
    simulated = mp.simulate(build("gpipe", 2, 2), mp.Costs(F=0.25, B=0.5, unit="seconds"))
    measured = measured_trace([(0, Action("F", 0, 0), 0, 1.5), (1, Action("F", 1, 0), 1, 3.5)], 2)
    figure = plots.compare({"simulated": simulated, "measured": measured})
    assert [ax.get_xlim() for ax in figure.axes] == [(0, 3.5)] * 2
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "time (seconds)"]
    titles = [ax.get_title("left") for ax in figure.axes]
    assert titles[0].startswith("simulated: 2.25 seconds") and titles[1].startswith("measured: 3.5 seconds")
    with pytest.raises(ValueError, match="simulated is in ticks, measured is in seconds: simulate with"):
        plots.compare({"simulated": mp.simulate(build("gpipe", 2, 2)), "measured": measured})


def test_a_simulation_with_measured_costs_is_in_seconds():
    costs = mp.measure(LAYERS[:2], LOSS, 2, mini_batch(4)[0], np.ones((8, 4), np.float32))
    assert mp.simulate(build("gpipe", 2, 2), costs).unit == costs.unit == "seconds"
    assert mp.simulate(build("gpipe", 2, 2)).unit == mp.Costs().unit == "ticks"
    with pytest.raises(ValueError, match="unit='hours' must be one of 'ticks', 'seconds'"):
        mp.Costs(unit="hours")
    with pytest.raises(ValueError, match="'unit=1' is not one cost"):
        mp.Costs.from_text("unit=1")


# What goes wrong


def test_a_timeout_names_the_waiting_and_the_working_device(monkeypatch):
    monkeypatch.setenv("MINIPIPE_PATIENCE", "0.3")
    end = threading.Event()

    def busy():
        yield Compute("endless work", end.wait)

    threads = Threads([waits_for("news", 1), busy()])
    words = "device 0 waits for news from device 1, device 1 works on endless work: for more than 0.3 seconds"
    with pytest.raises(TimeoutError, match=words):
        threads.run()
    end.set()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_seconds_of_patience_are_a_number_above_0(monkeypatch, text):
    monkeypatch.setenv("MINIPIPE_PATIENCE", text)
    with pytest.raises(ValueError, match=f"MINIPIPE_PATIENCE='{text}' must be seconds, a number above 0"):
        Threads([sends("a", 0)])


def test_an_exception_in_one_program_stops_all_and_is_raised():
    _, measured = pair(4, 8, "1f1b")
    X, Y = mini_batch(19)
    measured.forward_backward(X, Y)
    before = parameters(measured.layers)
    broken = measured.stages[2]
    broken.backward = None
    begin = time.monotonic()
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        measured.forward_backward(X, Y)
    assert time.monotonic() - begin < 10
    del broken.backward
    J = measured.forward_backward(X, Y)
    simulated, _ = pair(4, 8, "1f1b")
    simulated.forward_backward(X, Y)
    assert np.isfinite(J)
    assert_same(parameters(measured.layers), before)


def test_ctrl_c_stops_all_threads():
    def left():
        yield Compute("work", _thread.interrupt_main)
        yield Receive("news", 1)

    def right():
        yield Compute("long work", time.sleep, 0.5)
        yield Compute("never", time.sleep, 60)

    threads, begin = Threads([left(), right()]), time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() < begin + 30  # no work begins any more
    assert isinstance(threads.failure, KeyboardInterrupt) and not threads.done


def test_threads_keep_the_callers_numpy_errstate():
    def program():
        yield Compute("overflow", np.multiply, np.float32(1e30), np.float32(1e30))

    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        Threads([program()]).run()


def waits_for(label, source):
    yield Receive(label, source)


def sends(label, to, times=1):
    for _ in range(times):
        yield Send(label, None, to)


@pytest.mark.parametrize("programs, error, words", [
    ([waits_for("a", 1), waits_for("b", 0)], DeadlockError,
     "device 0 waits for a from device 1, device 1 waits for b from device 0: a cycle"),
    ([waits_for("a", 1), sends("b", 0)], DeadlockError, "device 1 has finished without sending it"),
    ([waits_for("a", ANY), sends("b", 0)], DeadlockError, "nobody sends that any more"),
    ([waits_for("a", 2), sends("b", 0)], ValueError, "from device 2: devices are 0..1"),
    ([sends("a", 2), sends("b", 0)], ValueError, "sends a to device 2: devices are 0..1"),
    ([sends("a", 1, 2), sends("b", 0)], ValueError, "sends a to device 1 twice: name each message once"),
    ([{"compute": waits_for("a", 1), "other": waits_for("a", 1)}, waits_for("b", 0)], ValueError,
     "two lanes of device 0 wait for a"),
    ([iter([1]).__iter__()], ValueError, "to run: give it a generator"),
    ([(x for x in [1])], TypeError, "yielded 1: yield Compute, Send or Receive"),
    ([waits_for("a", 1), sends("a", 0), sends("b", 0)], UnreceivedError, "device 2 has sent b to device 0"),
])
def test_threads_refuse_the_programs_that_the_cluster_refuses(programs, error, words):
    with pytest.raises(error, match=words):
        Threads(programs).run()


def test_programs_on_threads_run_only_once():
    threads = Threads([waits_for("a", 1), sends("a", 0)])
    threads.run()
    with pytest.raises(RuntimeError, match="have been run"):
        threads.run()


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine='gpu' must be one of 'cluster', 'threads', 'mpi'"):
        mp.Parallel([mp.Linear(1, 1)], mp.MeanSquaredError(), engine="gpu")


def test_threads_have_no_ticks():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, engine="threads")
    for run in (lambda: pipe.start(*mini_batch(13)), pipe.tick):
        with pytest.raises(ValueError, match="threads know seconds, not ticks: use forward_backward"):
            run()


# What a layer needs for a moment is freed after it, and stays with the process

PROGRAM = """
import ctypes, resource
import numpy as np
from minipipe.cluster import Compute
from minipipe.engines.threads import Threads

if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit("no setting")

def micro_batch():
    return [np.ones(2**17) for _ in range(16)]  # 1 MiB each

def faults():
    for _ in range(3):
        micro_batch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    micro_batch()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def nothing():
    yield Compute("F0", lambda: None)

by_default = faults()
RUN
print(by_default, faults())
"""
AGAIN = """
import minipipe as mp
pipe = mp.Pipeline([mp.Linear(1, 1)], mp.MeanSquaredError(), 1, 1)
for _ in range(2):
    pipe.forward_backward(np.ones((1, 1)), np.ones((1, 1)))
"""


@pytest.mark.skipif(not find_spec("resource"), reason="no operating system that counts page faults")
@pytest.mark.parametrize("run", [
    pytest.param("Threads([nothing()]).run()", id="threads"),
    pytest.param(AGAIN, id="a mini-batch again", marks=pytest.mark.slow),
])
def test_freed_memory_is_reused_without_new_page_faults(run):
    """What a micro-batch has freed is there for the next, once threads have run, or a mini-batch again."""
    program = PROGRAM.replace("RUN", run)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stderr.strip() == "no setting":
        pytest.skip("this C library has no such setting")
    by_default, kept = map(int, done.stdout.split())
    assert by_default > 1000 and kept < 100, done.stderr  # of 4,096 pages
