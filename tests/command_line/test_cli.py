"""The command line as a user meets it: what it prints, what it writes, and how it answers a mistake."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compared import parameters

import minipipe as mp
from minipipe.cli import bench, benchmarks, train
from minipipe.cli.fit import bytes_from
from minipipe.cli.main import COMMANDS, command_line, main
from minipipe.cluster import ticks
from minipipe.interrupted import STATUS
from minipipe.layers.recomputing import can_recompute
from minipipe.planning import simulate_in_shards
from minipipe.schedules import build, in_copies, names_having, with_all_reduce
from minipipe.schedules.searching import Found
from minipipe.verification.examples import EXAMPLES

SLOW = pytest.mark.slow


def run(capsys, *arguments):
    """(exit status, what was printed, what was complained about)"""
    try:
        status = main(list(arguments))
    except SystemExit as exit:
        status = exit.code
    return status, *capsys.readouterr()


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("minipipe.cli.explain.run", stopped)
    assert run(capsys, "explain") == (STATUS, "", "minipipe: stopped\n")


def test_the_main_job_trains_proves_and_draws(capsys, tmp_path):
    """As a user starts it, but for a fifth of the epochs: at least 94 % of the test digits, in under 45
    seconds of CPU time.
    """
    picture = tmp_path / "run.png"
    begin = time.process_time()
    status, out, _ = run(capsys, "--epochs", "6", "--output", str(picture))
    assert status == 0 and time.process_time() - begin < 45
    assert out.count("epoch ") == 6 and "s left" in out
    assert float(out.split("test accuracy ")[1].split(" %")[0]) >= 94
    assert (
        "rational numbers, m = 11 in 8 ragged micro-batches: "
        "equal (==); only exp and log are rounded, once each"
        in out
    )
    n_names = len(names_having(flush=True, late_w=False))
    assert f"the bits of {n_names} schedules and of one device are equal (==)" in out
    assert "device 3  ......F0B0--F1B1--" in out and "makespan                                33 ticks" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("split, devices", [
    (["--devices", "2", "--replicas", "2", "--shards", "2"], "8 devices: 2 replicas x 2 shards x 2"),
    pytest.param(["--devices", "1", "--replicas", "4"], "4 devices: 4 replicas x 1 shards x 1", marks=SLOW),
    pytest.param(["--devices", "1", "--shards", "2"], "2 devices: 1 replicas x 2 shards x 1", marks=SLOW),
])
def test_the_main_job_splits_the_data_the_layers_and_the_network(capsys, tmp_path, split, devices):
    """All come to the same test accuracy in this epoch, and prove their gradients."""
    status, out, _ = run(capsys, *split, "--epochs", "1", "--output", str(tmp_path / "run.png"))
    assert status == 0 and devices in out
    assert out.split("test accuracy ")[1].split(" %")[0] == "79.44"
    assert "equal (==); only exp and log are rounded" in out
    assert ("schedules and of one device are equal" in out) == ("--shards" not in split)


@SLOW  # eight trainings
def test_trained_parameters_have_the_bits_of_one_device_for_all_splits_with_as_many_shards(
    capsys, tmp_path, monkeypatch
):
    """Copies and stages change no bit in two epochs of digits; shards change bits, but no score."""
    trained, scores, fit = {}, set(), train.fit

    def fit_and_keep(net, *args, **options):
        fit(net, *args, **options)
        trained[split] = tuple(array.tobytes() for array in parameters(net.layers).values())

    monkeypatch.setattr("minipipe.cli.train.fit", fit_and_keep)
    monkeypatch.setattr("minipipe.cli.train._prove", lambda *args: True)
    splits = [(1, 1, 1), (4, 1, 1), (1, 1, 4), (2, 1, 2), (1, 2, 1), (2, 2, 2), (4, 2, 1), (1, 2, 4)]
    for split in splits:
        D, T, K = map(str, split)
        status, out, _ = run(
            capsys, "--replicas", D, "--shards", T, "--devices", K, "--epochs", "2", "--output",
            str(tmp_path / "run.png"),
        )
        assert status == 0
        scores.add(out.split("test accuracy ")[1].split(" %")[0])
    assert len(scores) == 1 and len(set(trained.values())) == 2
    assert all((trained[split] == trained[1, split[1], 1]) for split in splits)


def test_a_wrong_gradient_makes_the_main_job_say_so_and_fail(capsys, tmp_path, monkeypatch):
    from pitfalls.bugs import BUGS

    BUGS["unequal_microbatches"](monkeypatch)
    status, out, _ = run(
        capsys, "--epochs", "1", "--micro-batches", "2", "--output", str(tmp_path / "run.png")
    )
    assert status == 1 and "m = 3 in 2 ragged micro-batches: DIFFERENT" in out


def one_device(monkeypatch, sizes, schedules):
    """`verify` tries these schedules alone, with one device a stage."""
    for name, value in dict(SIZES=[sizes], NAMES=schedules, SPLITS=[]).items():
        monkeypatch.setattr(f"minipipe.cli.verify.{name}", value)


def n_modes(example):
    """Never, always; and within attention, where that is."""
    return 2 + can_recompute(example.layers)


@pytest.mark.parametrize(
    "room, verdict, answer, words",
    [
        ("train", "same_bits", False, "gradients WRONG"),
        ("train", "share_of_bound", 1.5, "gradients WRONG"),
        ("train", "equals_full_batch", False, "gradients WRONG"),
        ("verify", "same_bits", False, "\n0 of 4 runs hold"),
        ("verify", "share_of_bound", 1.5, "\n2 of 4 runs hold"),      # without a bound: batch norm's
        ("verify", "equals_full_batch", False, "\n2 of 4 runs hold"),  # batch norm's, without that claim
        ("verify", "equals_same_groups", False, "\n2 of 4 runs hold"),
    ],
)
def test_each_single_negative_verdict_makes_the_command_fail(
    capsys, tmp_path, monkeypatch, room, verdict, answer, words
):
    """On two networks, one with batch norm, each with and without recomputation."""
    def judge(pipe, X, Y):
        pipe.forward_backward(X, Y)
        return answer

    verdicts = {"same_bits": True, "share_of_bound": 0.5, "equals_full_batch": True}
    if room == "verify":
        verdicts["equals_same_groups"] = True
    module = {"train": "minipipe.cli.train", "verify": "minipipe.verification.examples"}[room]
    for name, good in verdicts.items():
        judged = judge if name == verdict else lambda pipe, X, Y, good=good: good
        monkeypatch.setattr(f"{module}.{name}", judged)
    two = [next(example for example in EXAMPLES if example.has_batch_norm == has) for has in (False, True)]
    monkeypatch.setattr("minipipe.cli.verify.EXAMPLES", two)
    one_device(monkeypatch, (1, 1, 8), ["gpipe"])
    monkeypatch.setattr("minipipe.cli.train.print_trace", lambda trace: None)
    monkeypatch.setattr("minipipe.cli.train.save", lambda trace, path, title: print(title))
    arguments = (
        ["--epochs", "1", "--micro-batches", "2", "--output", str(tmp_path / "x.png")]
        if room == "train"
        else ["verify"]
    )
    status, out, _ = run(capsys, *arguments)
    assert status == 1 and words in out


def test_timeline_draws_any_schedule(capsys, tmp_path):
    picture = tmp_path / "t.svg"
    status, out, _ = run(
        capsys, "timeline", "--schedule", "1f1b", "--devices", "3", "--micro-batches", "5", "--costs",
        "F=2,B=3", "--recompute", "--latency", "0.5", "--output", str(picture),
    )
    assert status == 0
    assert "1f1b+recompute, 3 stages, 5 micro-batches" in out
    assert "<svg" in picture.read_text()
    status, out, _ = run(
        capsys, "timeline", "--order", "F0 F1 B0 B1", "F0 B0 F1 B1", "--output", str(picture)
    )
    assert status == 0
    assert "device 1  ..F0B0--F1B1--.." in out
    assert "peak micro-batches per device           2 1" in out


def test_timeline_reads_every_option_of_the_hardware_and_a_table(capsys, tmp_path):
    """GPipe with K = M = 2 and latency 3: (M + K - 1)(F + B) + 2 (K - 1) 3 ticks.

    If 8 bytes occupy a link for 2 ticks, F1 leaves at 5 and arrives at 8, the two B of device 1 end at 13,
    and those of device 0 at 13 + 2 + 3 + 2: B1 has left by then.
    """
    picture, table = str(tmp_path / "t.png"), tmp_path / "mine.csv"
    table.write_text("0F0,0F1,,0B1,0B0\n,1F0,1F1,1B1,1B0\n")
    for options, makespan in [
        (["--csv", str(table), "--latency", "3"], 9 + 6),
        (["--schedule", "gpipe", "--devices", "2", "--micro-batches", "2", "--latency", "3"], 9 + 6),
        (
            ["--csv", str(table), "--costs", "F=1,B=2,message_bytes=8", "--bandwidth", "4", "--latency", "3"],
            20,
        ),
        # device 0 sends F0, then F1; device 1 B1, then B0
        (["--csv", str(table), "--latency", "3", "--blocking"], 9 + 6 + 3 + 3),
    ]:
        status, out, _ = run(capsys, "timeline", *options, "--output", picture)
        assert status == 0 and f"makespan                                {makespan} ticks" in out, options
    assert out.startswith("gpipe, ") or out.startswith("mine, 2 stages, 2 micro-batches\n")


def test_timeline_compare_explain_and_export_split_samples_and_layers(capsys, tmp_path):
    """2 copies of 2 stages, each on 2 devices."""
    setting = [
        "--devices", "2", "--micro-batches", "4", "--replicas", "2", "--shards", "2", "--exchanges", "1",
        "--costs", "F=1,B=2,A=3", "--latency", "1",
    ]
    order = with_all_reduce(in_copies(build("gpipe", 2, 2), 2))
    trace = simulate_in_shards(order, 2, mp.Costs(A=3), mp.Link(1), exchanges=1)
    assert trace.n_devices == 8
    makespan = ticks(trace.makespan)
    name = "gpipe in 2 copies+all-reduce, 2 stages, 4 micro-batches, 2 copies of the network, 2 shards of"
    status, out, _ = run(
        capsys, "timeline", "--schedule", "gpipe", *setting, "--output", str(tmp_path / "t.svg")
    )
    assert status == 0 and name in out and f"makespan                                {makespan} ticks" in out
    status, out, _ = run(capsys, "explain", "--schedule", "gpipe", *setting)
    assert status == 0 and f"{name} each stage: {makespan} ticks" in out and str(trace.explain()) in out
    status, out, _ = run(capsys, "compare", "gpipe", *setting, "--output", str(tmp_path / "c.svg"))
    assert status == 0 and "8 devices: 2 replicas x 2 shards x 2, 4 micro-batches" in out
    assert f"gpipe     {makespan:>9}" in out
    status, out, _ = run(capsys, "export", "--schedule", "gpipe", *setting, "--format", "text")
    assert status == 0 and out == f"{trace.to_text()}\n"


def test_compare_draws_the_schedules_below_each_other(capsys, tmp_path):
    picture = tmp_path / "c.svg"
    status, out, _ = run(
        capsys, "compare", "gpipe", "1f1b", "--devices", "2", "--micro-batches", "2", "--output", str(picture)
    )
    assert status == 0 and "<svg" in picture.read_text() and f"written: {picture}" in out


def test_compare_has_a_row_for_each_schedule_with_devices_that_do_the_same_work(
    capsys, tmp_path, monkeypatch
):
    """The makespans and peaks of K = 4, M = 8 in the papers' units, where stages of two on a device are half
    as long.
    """
    monkeypatch.setattr("minipipe.cli.compare.compare", lambda traces: print("drawn:", *traces))
    monkeypatch.setattr("minipipe.cli.compare.write", lambda figure, path: None)
    mine = tmp_path / "mine.csv"
    mine.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(
        capsys, "compare", "naive", "gpipe", "interleaved", "zb-v", str(mine), "--costs", "F=1,I=1,W=1"
    )
    rows = {
        words[0]: words[1:] for line in out.splitlines()[3:8] if (words := line.replace(" %", "").split())
    }
    assert status == 0
    assert "idle/total  idle/ideal  idle in span   worst span" in out
    assert f"drawn: naive gpipe interleaved zb-v {mine}" in out
    assert rows == {
        "naive": ["96", "75.00", "300.00", "73.77", "75.00", "1", "48"],  # (K - 1)/K and K - 1
        "gpipe": ["33", "27.27", "37.50", "15.79", "27.27", "8", "48"],  # (K - 1)/(M + K - 1) and (K - 1)/M
        "interleaved": ["28.5", "15.79", "18.75", "8.57", "15.79", "5.5", "112"],
        "zb-v": ["25.5", "5.88", "6.25", "0.00", "0.00", "4", "96"],
        str(mine): ["33", "27.27", "37.50", "15.79", "27.27", "4", "48"],
    }
    status, _, complaint = run(capsys, "compare", "gpipe", str(mine), "--devices", "2")
    assert (
        status == 2
        and "has 4 devices and 8 micro-batches, the others 2 and 8: pass --devices 4 --micro-batches 8"
        in complaint
    )


def test_explain_says_the_causes_and_the_critical_path(capsys):
    status, out, _ = run(
        capsys, "explain", "--schedule", "gpipe", "--devices", "2", "--micro-batches", "2", "--latency", "1"
    )
    trace = mp.simulate(build("gpipe", 2, 2), link=mp.Link(latency=1))
    assert status == 0 and str(trace.explain()) in out and "work 9 + links 2 = 11 ticks" in out
    status, out, _ = run(
        capsys, "explain", "--schedule", "1f1b", "--devices", "2", "--micro-batches", "3", "--latency", "1",
        "--most-alive", "2",
    )
    assert status == 0
    assert str(mp.simulate(build("1f1b", 2, 3), link=mp.Link(latency=1)).explain(most_alive=2)) in out


def test_search_proves_its_schedule_or_says_that_it_did_not(capsys, tmp_path, monkeypatch):
    """(M + K - 1)(F + B) = 18 ticks for 1F1B, K = 3, M = 4, in its memory."""
    table = tmp_path / "best.csv"
    status, out, _ = run(
        capsys, "search", "--devices", "3", "--micro-batches", "4", "--most-alive", "3", "2", "1", "--output",
        str(table),
    )
    best = mp.Schedule.from_csv(table)
    assert status == 0
    assert "proved: no schedule takes fewer than 18 ticks" in out
    assert "peak micro-batches per device           3 2 1" in out
    assert mp.simulate(best).makespan == 18 and mp.simulate(best).to_text() in out
    out = run(
        capsys, "search", "--devices", "2", "--halves", "--most-alive", "2", "--latency", "1", "--costs",
        "F=1,I=1,W=1",
    )[1]
    assert "I0" in out and "W0" in out and "peak micro-batches per device           2 " in out
    # the latency counts in both
    assert (
        out.split("makespan")[1].split()[0]
        == out.split("proved: no schedule takes fewer than ")[1].split()[0]
    )
    monkeypatch.setattr("minipipe.cli.search.best_schedule", lambda *sizes: Found(best, 18, 17.5, False, 5))
    out = run(capsys, "search")[1]
    assert (
        "not proved: 18 ticks is the best found, and none takes fewer than 17.5; "
        "5 partial schedules looked at"
        in out
    )
    monkeypatch.undo()
    out = run(
        capsys, "search", "--greedy", "--devices", "8", "--micro-batches", "16", "--most-alive", "8", "7",
        "6", "5", "4", "3", "2", "1",
    )[1]
    # (M + K - 1)(F + B), as 1F1B; device 0 is there from the first tick to the last
    assert "longest span of a device                69 ticks, and its actions take 48 at most" in out
    assert "makespan                                69 ticks" in out and "made by rules, or by name" in out
    status, _, complaint = run(capsys, "search", "--most-nodes", "0")
    assert status == 2 and "most_nodes=0 must be at least 1" in complaint


def test_search_for_the_longest_span_with_several_stages_a_device_and_with_less_kept_for_w(capsys):
    """Four devices that never wait after their first action take M (F + I + W) = 24 ticks each."""
    span = "longest span of a device                24 ticks, and its actions take 24 at most"
    search = "search", "--greedy", "--halves"
    out = run(capsys, *search, "--objective", "span", "--most-alive", "8", "--kept-for-W", "0.25")[1]
    assert span in out and "proved: no schedule has a shorter longest span" in out
    out = run(capsys, *search, "--objective", "span", "--most-alive", "2")[1]
    assert "proved" not in out and "only a search could say" in out
    out = run(capsys, *search, "--in-a-v")[1]
    assert "8 stages" in out and "makespan                                25.5 ticks" in out      # as ZB-V
    out = run(capsys, "search", "--greedy", "--stages-per-device", "2")[1]
    assert "makespan                                28.5 ticks" in out                # as interleaved 1F1B
    for option in ("--in-a-v",), ("--stages-per-device", "2"), ("--objective", "span"), ("--kept-for-W", "0"):
        status, _, complaint = run(capsys, "search", "--halves", *option)
        assert status == 2 and " ".join(option)[:10] in complaint and "add --greedy" in complaint


LENET = (
    "fit", "--model", "lenet5()", "--input", "1", "28", "28", "--batch", "64", "--schedules", "gpipe", "1f1b",
    "--accumulate", "tree",
)


def test_fit_counts_and_times_the_precision_that_is_asked_for(capsys):
    peaks, speeds = {}, {}
    for precision in ("float32", "mixed"):
        more = "--memory", "1GiB", "--devices", "2", "--device", "A100", "--precision", precision
        _, out, _ = run(capsys, *LENET, *more, "--micro-batches", "4", "--recompute", "never")
        assert f"A100, 1.00 GiB a device, rmsprop, {precision}, gradients along the tree\n" in out
        peak = {"float32": "19.5", "mixed": "312"}[precision]
        assert f"at 44% of a peak of {peak} TFLOP/s (A100), and the links" in out
        row = next(line for line in out.splitlines() if line.startswith("      ")).split()
        peaks[precision], speeds[precision] = bytes_from("".join(row[5:7])), float(row[4].replace(",", ""))
    assert 0.5 < peaks["mixed"] / peaks["float32"] < 1  # its optimizer state is as large, and longer
    assert 10 < speeds["mixed"] / speeds["float32"] < 16


@pytest.mark.slow
def test_fit_names_what_fits_and_what_would(capsys):
    """On one device the lowest peak is 1.09 MiB, on two 1015.29 KiB: the limits between, above and below."""
    status, out, _ = run(capsys, *LENET, "--memory", "1MiB", "--devices", "1", "2")
    assert status == 0 and "61,706 parameters, 416,520 multiply-accumulates a sample" in out
    one, two = (line.split() for line in out.splitlines() if line.startswith("      "))
    assert one[:4] == ["1", "2", "1f1b", "sqrt"] and one[5:7] == ["1.09", "MiB"]
    assert " ".join(one[9:]) == "does not fit; this is the lowest"
    assert two[:4] == ["2", "2", "1f1b", "never"] and two[5:7] == ["1015.29", "KiB"]
    assert (
        "the fastest that fits: 1f1b on 2 devices, "
        "2 micro-batches, recompute never, accumulate tree\n"
        "layers of each stage, a stage on each device: 4 9\n"
        in out
    )
    assert "rmsprop, float32, gradients along the tree\n" in out
    status, out, _ = run(capsys, *LENET[:-2], "--memory", "1MiB", "--devices", "2")
    assert status == 0 and "rmsprop, float32, gradients in one running buffer\n" in out
    assert " 734.68 KiB      189.01 KiB\n" in out and "up to so many more inside a layer's action" in out
    assert "recompute never, accumulate running\n" in out
    status, out, _ = run(capsys, *LENET, "--memory", "500 KB", "--devices", "1", "2")
    remedy = "give each device 1015.29 KiB, which is the lowest on 2 devices, or try more devices"
    assert status == 1 and f"nothing fits: {remedy}" in out
    status, out, _ = run(
        capsys, "fit", "--memory", "1MiB", "--model", "mlp([10, 20, 5])", "--input", "10", "--schedules",
        "zb-v", "gpipe",
    )
    # of 1 2 4 8: 3 layers
    assert status == 0 and [line.split()[0] for line in out.splitlines() if line.startswith("      ")] == [
        "1",
        "2",
    ]
    status, out, _ = run(capsys, *LENET, "--memory", "1015.3KiB", "--devices", "2", "--optimizer", "adam")
    assert status == 1
    speeds = [
        float(
            run(
                capsys, *LENET, "--memory", "1GB", "--devices", "2", "--micro-batches", "4", "--device",
                "P100", *link,
            )[1]
            .splitlines()[5]
            .split()[4]
            .replace(",", "")
        )
        for link in ((), ("--bandwidth", "1e9"), ("--bandwidth", "1e9", "--latency", "1"))
    ]
    assert speeds[0] > speeds[1] > speeds[2]


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_an_exported_table_with_two_copies_is_valid(capsys, tmp_path, name):
    table = str(tmp_path / "two.csv")
    status, out, err = run(capsys, "export", "--schedule", name, "--output", table)
    assert (status, out) == (0, f"written: {table}\n")
    assert err == (f"minipipe: note: the schedule {name!r} has 2 copies of the network, and PyTorch has one: "
                   "it can read this table, but not run it\n")
    for options in [], ["--copy-of", *map(str, build(name, 4, 8).copy_of)]:
        status, out, err = run(capsys, "validate", table, *options)
        assert status == 0 and err == ""
        assert out.startswith("two, 4 stages, 8 micro-batches, 2 copies of the network, 4 devices\nvalid: ")
    assert run(capsys, "timeline", "--csv", table, "--output", str(tmp_path / "two.png"))[0] == 0


def test_a_table_with_communication_is_read_with_a_note(capsys, tmp_path):
    table = tmp_path / "comms.csv"
    table.write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    status, out, err = run(capsys, "validate", str(table))
    assert status == 0 and "valid: T = 6 ticks" in out
    assert err.startswith("minipipe: note: cells of communication are left out: 1 SEND_F, 1 RECV_B, 1 RECV_F")


def test_validate_says_valid_or_all_faults(capsys, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(capsys, "validate", str(table), "--micro-batches", "8", "--most-alive", "4")
    assert status == 0 and "valid: T = 33 ticks with F=1,B=2; peak micro-batches per device: 4 3 2 1" in out
    status, out, _ = run(capsys, "validate", str(table), "--most-alive", "2")
    assert status == 1
    assert "2 faults:\n- device 0: with 0F2, 3 micro-batches are alive at once, above the limit of 2" in out
    status, out, _ = run(capsys, "validate", str(table), "--micro-batches", "9")
    assert status == 1 and out.count("8 (missing)") == 8
    table.write_text("".join(f"{s}F0," * 30 + "\n" for s in range(2)))
    status, out, _ = run(capsys, "validate", str(table), "--micro-batches", "99")
    assert status == 1 and "\n396 faults:\n" in out and out.endswith("\n- and 376 more, of these kinds\n")
    table.write_text("0F0,0X0\n0Y0,\n")
    status, _, complaint = run(capsys, "validate", str(table))
    assert status == 2
    assert "malformed cells: 2" in complaint
    assert "row 2 (rank 1), column 1: '0Y0'" in complaint


@pytest.mark.slow
def test_export_writes_each_format_and_prints_what_is_text(capsys, tmp_path):
    schedule = build("zb-v", 2, 3)
    options = ["--schedule", "zb-v", "--devices", "2", "--micro-batches", "3"]
    assert run(capsys, "export", *options, "--format", "csv") == (0, schedule.to_csv(), "")
    assert (
        run(capsys, "export", *options, "--format", "text", "--costs", "F=2")[1]
        == mp.simulate(schedule, mp.Costs(F=2)).to_text() + "\n"
    )
    table, page, picture = tmp_path / "x.csv", tmp_path / "x.json", tmp_path / "x.pdf"
    for path in (table, page, picture):
        assert run(capsys, "export", *options, "--output", str(path), "--tick", "2 s", "--latency", "0.5")[
            :2
        ] == (0, f"written: {path}\n")
    assert table.read_text() == schedule.to_csv() and picture.read_bytes().startswith(b"%PDF")
    assert json.loads(page.read_text()) == mp.simulate(schedule, link=mp.Link(latency=0.5)).to_chrome_trace(
        tick="2 s"
    )
    page = mp.simulate(schedule).to_html(title="zb-v, 4 stages, 3 micro-batches")
    assert run(capsys, "export", *options, "--format", "html")[1] == page and page.startswith(
        "<!doctype html>"
    )
    assert run(capsys, "export", "--csv", str(table), "--format", "csv")[1] == schedule.to_csv()


@SLOW
def test_verify_sums_up_each_schedule_and_shows_all_runs_if_asked(capsys, monkeypatch):
    one_device(monkeypatch, (4, 3, 8), ["1f1b", "zb-v"])
    linear = [example for example in EXAMPLES if example.name.startswith("Linear")]
    n_runs = sum(map(n_modes, EXAMPLES))
    for options, n_rows in [([], 0), (["--all"], len(linear) * 2 * 2)]:
        status, out, _ = run(capsys, "verify", *options)
        rows = [line for line in out.splitlines() if " %" in line and line.startswith("Linear")]
        assert status == 0 and len(rows) == n_rows and " NO" not in out
        of_schedules = [line.split()[:5] for line in out.splitlines() if line.startswith(("1f1b", "zb-v"))]
        assert of_schedules == [[name, str(n_runs), "yes", "yes", "yes"] for name in ("1f1b", "zb-v")]
        assert out.endswith(f"\n\n{2 * n_runs} of {2 * n_runs} runs hold in every strength\n")


def test_verify_splits_samples_and_layers_too_and_knows_late_w(capsys, monkeypatch):
    """Where layers are in parts, the bits are others; late W has one copy of the network."""
    monkeypatch.setattr("minipipe.cli.verify.EXAMPLES", EXAMPLES[:1])
    one_device(monkeypatch, (2, 3, 8), ["gpipe", "1f1b-late-w"])
    monkeypatch.setattr("minipipe.cli.verify.SPLITS", [(3, 1), (2, 2)])
    monkeypatch.setattr("minipipe.cli.verify.OF_SPLITS", (["1f1b"], [(2, 3, 8)]))
    monkeypatch.setattr("minipipe.cli.verify.MODES", ["never"])
    status, out, _ = run(capsys, "verify")
    found = [line[:22].rstrip() + ":" + " ".join(line[22:].split()[:4])
             for line in out.splitlines() if line.endswith(" %")]
    assert status == 0 and found == [
        "gpipe:1 yes yes yes", "1f1b-late-w:1 yes yes yes", "1f1b:2 yes yes yes",
        "1 replicas x 1 shards:2 yes yes yes", "3 replicas x 1 shards:1 yes yes yes",
        "2 replicas x 2 shards:1 yes yes -",
    ]
    status, out, _ = run(capsys, "verify", "--replicas", "2", "--shards", "3", "--all")
    row = "Linear ReLU, mean squared error     gpipe           2  3  2  6  16  never        yes     yes     -"
    assert status == 0 and row in out and "1 of 1 runs hold" in out


def test_verify_fails_with_a_bug_in(capsys, monkeypatch):
    from pitfalls.bugs import BUGS

    BUGS["gradient_scale"](monkeypatch)
    one_device(monkeypatch, (2, 3, 8), ["gpipe"])
    status, out, _ = run(capsys, "verify")
    # with BatchNorm, the reference has the same loss
    holding = sum(n_modes(example) for example in EXAMPLES if example.has_batch_norm)
    n_runs = sum(map(n_modes, EXAMPLES))
    names = tuple(example.name for example in EXAMPLES)
    failing = [line for line in out.splitlines() if " NO " in line and line.startswith(names)]
    assert len(failing) == n_runs - holding and f"gpipe                     {n_runs}      NO" in out
    assert status == 1 and f"{holding} of {n_runs} runs" in out


@SLOW
def test_figures_are_made_by_one_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("minipipe.cli.output.DOTS_PER_INCH", 20)  # nobody looks at them here
    status, _, _ = run(capsys, "figures", "--folder", str(tmp_path / "figures"))
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    kept = {path.name for path in (Path(__file__).parents[2] / "figures").iterdir()}
    assert status == 0 and names == kept - {"error_against_batch_size.png"}  # which `batch-size` draws


@SLOW
def test_bench_prints_one_table_with_every_row_and_without_pytorch_says_why_there_is_no_ratio(
    capsys, monkeypatch, tmp_path
):
    """One round of each. The processes that measure find a PyTorch that cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(bench, "PATIENCE", 0)
    monkeypatch.setattr(bench, "ROWS", [row for row in benchmarks.ROWS if row.in_both])  # two devices: below
    status, out, _ = run(capsys, "bench")
    header, *rows, reason = out.splitlines()[2:]
    assert status == 0 and header.split() == ["what", "ours", "beside", "ratio", "Zen", "asked"]
    assert [row[:67].rstrip() for row in rows] == [row.what for row in bench.ROWS]
    for line, row in zip(rows, bench.ROWS):
        ours, unit, *beside, ratio, zen, asked = line[67:].replace("<= ", "").split()
        assert float(ours) > 0
        assert unit == row.unit
        assert asked == ("-" if row.asked is None else f"{row.asked:.2f}")
        if row.beside == "PyTorch":
            assert beside == ["no", "PyTorch"] and ratio == zen == "-"
        else:
            assert " ".join(beside[:-2]) == row.beside and beside[-1] == row.unit
            assert float(ratio) > 0 and float(zen) > 0
            # memory does not depend on the kernels
            assert row.unit == "ms" or float(ratio) == float(zen) <= row.asked
    assert "PyTorch: it is not installed" in reason


def test_the_ratio_is_the_median_of_the_ratios_of_pairs_measured_in_turns(monkeypatch):
    """Ratios 1, 2, 1; the medians 4 and 2 would have given 2."""
    clock, order = iter([1, 1, 4, 2, 9, 9]), []
    monkeypatch.setattr(
        benchmarks, "milliseconds", lambda run, in_a_row: order.append((run(), in_a_row)) or next(clock)
    )
    measure = benchmarks.pairs(lambda: (lambda: "ours", lambda: "its"))
    assert measure(n_rounds=3, in_a_row=5) == (4, 2, 1)
    assert order == [("ours", 5), ("its", 5)] * 3


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--schedule", "1f1"], "unknown schedule '1f1': did you mean '1f1b'?"),
        (["--devices", "9"], "n_stages=9 does not fit 7 layers: use 1 to 7 stages"),
        (["--micro-batches", "0"], "n_microbatches=0 must be at least 1"),
        (["--micro-batches", "40"], "--micro-batches 40 exceeds --batch-size 32: use at most that many"),
        (["--learning-rate", "0"], "learning_rate=0.0 must be above 0"),
        (["--epochs", "0"], "n_epochs=0"),
        (["--output", "nowhere/t.png"], "there is no folder nowhere"),
        (["--output", "t.xyz"], "its name must end in one of"),
        (["--output", "."], "it is a folder"),
        (["timeline", "--latency", "inf"], "latency=inf must be finite"),
        (["timeline", "--costs", "F=1,Q=2"], "'Q=2' is not one cost of F, B, R, I, W"),
        (["timeline", "--costs", "F=x"], "'x' is not a number"),
        (["timeline", "--costs", "F=nan"], "stage 0: F=nan must be above 0 ticks"),
        (["timeline", "--latency", "-1"], "latency=-1"),
        (["timeline", "--order", "F0 B1"], "device 0 never does 0B0 (missing)"),
        (["timeline", "--output", "nowhere/t.png"], "there is no folder nowhere"),
        (["timeline", "--costs", "F=-1"], "stage 0: F=-1 must be above 0 ticks"),
        (["timeline", "--devices", "0"], "n_devices=0 must be at least 1"),
        (["timeline", "--latency", "nan"], "latency=nan must be at least 0"),
        (
            ["timeline", "--bandwidth", "3"],
            "--bandwidth 3 slows nothing down while messages have 0 bytes: add message_bytes to --costs",
        ),
        (["timeline", "--costs", "message_bytes=8", "--bandwidth", "0"], "bandwidth=0 must be above 0"),
        (["timeline", "--order", "F0 B0", "--devices", "1"], "--devices 1 has no place beside --order"),
        (
            ["timeline", "--order", "F0 B0", "--copy-of", "1"],
            "copy_of=(1,) leaves copy 0 without micro-batches",
        ),
        (
            ["timeline", "--order", "F0 B0", "--copy-of", "0", "1"],
            "copy_of=(0, 1) must have a copy, 0, 1, ..., for each of the 1 micro-batches",
        ),
        (
            ["explain", "--most-alive", "0"],
            "most_alive=0 on device 0 lets no micro-batch through: use at least 1",
        ),
        (["timeline", "--copy-of", "0"], "--copy-of is for a schedule of your own"),
        (["timeline", "--csv", "nowhere.csv"], "cannot read nowhere.csv: there is no such file"),
        (["validate", "."], "cannot read .: it is a folder"),
        (["validate", os.devnull], "the table has no actions: write one row per device"),
        (["compare", "gpipe", "1f1"], "1f1: unknown schedule '1f1': did you mean '1f1b'?"),
        (["compare", "interleaved", "--micro-batches", "9"], "interleaved: n_microbatches=9 makes"),
        (
            ["compare", "interleaved", "--costs", "F=1/1/1/2"],
            "interleaved: F has 4 costs for 8 stages: give one number, or one per stage",
        ),
        (["fit", "--memory", "8XB"], "--memory '8XB' is not a size: write 8GiB"),
        (["fit", "--memory", "-1"], "--memory '-1' is not a size"),
        (["fit", "--memory", "0"], "memory_limit=0 must be above 0"),
        (
            ["fit", "--memory", "1GiB", "--model", "alexnet()"],
            "minipipe.models has amoebanet_d, lenet5, mlp, resnet, transformer, but no alexnet",
        ),
        (["fit", "--memory", "1GiB", "--model", "mlp"], "--model 'mlp' is not a call"),
        (
            ["fit", "--memory", "1GiB", "--model", "amoebanet_d(18)"],
            "missing 1 required positional argument: 'D'",
        ),
        (["fit", "--memory", "1GiB", "--model", "amoebanet_d(18, 9)"], "D=9 filters must be a multiple of 8"),
        (
            ["fit", "--memory", "1GiB", "--input", "1", "28", "28"],
            "layers[0], Conv2d(3, 52, 3, stride=2, padding=1, bias=False), does not fit",
        ),
        (
            ["fit", "--memory", "1GiB", "--model", "mlp([3, 2])"],
            "--input is missing: give the shape of one sample for mlp",
        ),
        (
            ["fit", "--memory", "1GiB", "--model", "mlp(3, 2)"],
            "sizes=3 must be a list of whole numbers",
        ),
        (["fit", "--memory", "1GiB", "--devices", "99"], "n_devices=99 does not fit 28 layers: use 1 to 28"),
        (["fit", "--memory", "1GiB", "--schedules", "gpip"], "must be a list of names out of naive, gpipe"),
        (
            ["fit", "--memory", "1GiB", "--schedules", "all", "gpip"],
            "must be a list of names out of naive, gpipe",
        ),
        (
            ["fit", "--memory", "1GiB", "--micro-batches", "3"],
            "n_microbatches=3 does not divide batch_size=128: use 1",
        ),
        (["export"], "does not say what to write: use --format with one of csv, chrome, html, text"),
        (["timeline", "--replicas", "3"], "--replicas 3 cannot share 8 micro-batches evenly: use a"),
        (["explain", "--shards", "0"], "n_shards=0 must be at least 1"),
        (["timeline", "--shards", "2", "--exchanges", "-1"], "exchanges=-1 must be at least 0"),
        (["compare", "1f1b-late-w", "--replicas", "2"], "1f1b-late-w: the schedule '1f1b-late-w' has late W"),
        (["export", "--output", "x.foo"], "--output x.foo does not say what to write"),
        (["export", "--format", "png"], "add --output schedule.png"),
        (["export", "--format", "png", "--output", "x.svg"], "its name must end in one of .png"),
        (["export", "--format", "csv", "--recompute"], "for which PyTorch's table has no cell"),
        (["export", "--format", "chrome", "--tick", "1 h"], "tick='1 h' is not a length of time"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence_with_status_2_before_any_work(capsys, arguments, words):
    status, out, complaint = run(capsys, *arguments)
    assert status == 2 and words in complaint and complaint.startswith("minipipe: error: ")
    assert "epoch " not in out and "Traceback" not in complaint


def test_options_in_front_of_a_command_are_not_ignored_in_silence(capsys):
    status, _, complaint = run(capsys, "--devices", "2", "timeline")
    assert status == 2 and "the options of a command come after its name" in complaint


def test_unknown_commands_and_options_have_status_2(capsys):
    assert run(capsys, "timelin")[0] == 2 and run(capsys, "--speed")[0] == 2


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_help_shows_examples_that_the_parser_takes(capsys, command):
    status, out, _ = run(capsys, *command, "--help")
    lines = [line.partition("python3 -m minipipe") for line in out.splitlines()]
    lines = [words for before, found, words in lines if found and before.startswith("  ")]
    assert status == 0 and "example" in out and lines
    for words in lines:
        command_line().parse_args(shlex.split(words.split("      ")[0]))


def test_two_schedules_at_once_are_refused(capsys):
    status, _, complaint = run(capsys, "timeline", "--schedule", "gpipe", "--csv", "x.csv")
    assert status == 2 and "not allowed with" in complaint


def test_python_m_minipipe_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "minipipe", "timeline", "--schedule", "x"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("minipipe: error: unknown schedule 'x'")


def test_fit_takes_a_latency_without_a_bandwidth(capsys):
    """It was left out then: 2 devices were as fast as without, and -1 was taken."""
    arguments = (*LENET, "--memory", "1GiB", "--devices", "2", "--micro-batches", "2")
    assert main([*arguments, "--latency", "0"]) == main([*arguments]) == 0
    free, alike = capsys.readouterr().out.split("lenet5()")[1:]
    assert free == alike
    assert main([*arguments, "--latency", "1"]) == 0
    assert free != capsys.readouterr().out.split("lenet5()")[1]
    assert main([*arguments, "--latency", "-1"]) == 2
    assert "latency=-1.0 must be at least 0 ticks" in capsys.readouterr().err
