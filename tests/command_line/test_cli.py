"""The commands for schedules, the main job and the table of proofs, as a user meets them."""

import json
import re
import shlex
import time

import pytest
from pitfalls.bugs import BUGS

import minipipe as mp
from minipipe.cli import check, train
from minipipe.cli.check import Run
from minipipe.cli.main import main
from minipipe.cluster import ticks
from minipipe.order.searching import Found
from minipipe.schedules import SCHEDULES, build, interleaved_one_f_one_b, names_having
from minipipe.verification.examples import EXAMPLES

MINE = '''
from beside import count


def tuples(device, K, M):
    return [("F", i) for i in range(count(M))] + [("B", i) for i in range(M)]


def strings(device, K, M):
    return [f"F{i}" for i in range(M)] + [f"B{i}" for i in range(M)]


def forgets(device, K, M):
    return [("F", i) for i in range(M)]


def unfinished(device, K, M):
    raise NotImplementedError("write it in notebook 08")


def divides(device, K, M):
    return [("F", i) for i in range(M // 0)]


def misspells(device, K, M):
    return [("F", i) for i in rnage(M)]
'''


def run(capsys, words):
    """Run these words of a shell; return (exit status, what was printed, what was complained about)."""
    try:
        status = main(shlex.split(words))
    except SystemExit as exit:
        status = exit.code
    return status, *capsys.readouterr()


@pytest.fixture
def mine(tmp_path):
    """Return a file with functions of (device, K, M), which imports one that lies beside it."""
    (tmp_path / "beside.py").write_text("def count(M):\n    return M\n")
    (tmp_path / "my_pipeline.py").write_text(MINE)
    return tmp_path / "my_pipeline.py"


# show

def test_show_reads_every_option_of_schedule_and_machine(capsys, tmp_path):
    """GPipe with K = M = 2 and latency 3: (M + K - 1)(F + B) + 2 (K - 1) 3 ticks.

    If 8 bytes occupy a link for 2 ticks, F1 leaves at 5 and arrives at 8, the two B of device 1 end at 13,
    and those of device 0 at 13 + 2 + 3 + 2: B1 has left by then. With sends that block, device 0 sends F0,
    then F1, and device 1 B1, then B0.
    """
    (tmp_path / "mine.csv").write_text("0F0,0F1,,0B1,0B0\n,1F0,1F1,1B1,1B0\n")
    (tmp_path / "mine.txt").write_text("F0 F1 B1 B0\nF0 F1 B1 B0\n\n")
    for options, title, makespan in [
        (f"{tmp_path / 'mine.csv'}", "mine", 9 + 6),
        (f"{tmp_path / 'mine.txt'}", "mine", 9 + 6),
        ("GPIPE -K 2 -M 2", "gpipe", 9 + 6),
        ("--devices 2 --microbatches=2 gpipe", "gpipe", 9 + 6),
        (f"{tmp_path / 'mine.csv'} --costs F=1,B=2,message_bytes=8 --bandwidth 4", "mine", 20),
        (f"{tmp_path / 'mine.txt'} --blocking", "mine", 9 + 6 + 3 + 3),
        (f"{tmp_path / 'mine.csv'} --recompute", "mine+recompute", 9 + 6 + 2),
    ]:
        status, out, _ = run(capsys, f"show {options} --latency 3")
        assert status == 0 and out.startswith(f"{title}, 2 stages, 2 micro-batches\n"), out
        assert f"makespan                                {makespan} ticks" in out, out
        assert "device 1  " in out and "peak micro-batches per device           2 2" in out


def test_show_explains_idle_time_and_the_critical_path(capsys):
    status, out, _ = run(capsys, "show gpipe -K 2 -M 2 --latency 1 --explain")
    trace = mp.simulate(build("gpipe", 2, 2), link=mp.Link(latency=1))
    assert status == 0 and str(trace.explain()) in out and "work 9 + links 2 = 11 ticks" in out
    shares = [line.split()[-2] for line in out.partition("called the bubble")[2].splitlines() if " %" in line]
    assert shares == [f"{100 * float(trace.bubble(of)):.2f}" for of in ("total", "ideal", "span", "worst")]
    assert "critical path" not in run(capsys, "show gpipe -K 2 -M 2")[1]


BEGINNINGS = {
    "png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "HTML": b"<!doctype html>", "gif": b"GIF8",
    "csv": b"0F0,", "json": b"{", "txt": b"0F0 ",
}


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_show_writes_what_the_ending_says(capsys, tmp_path, ending):
    path = tmp_path / f"run.{ending}"
    path.write_text("old")
    status, out, err = run(capsys, f"show zb-v -K 2 -M 2 --output {path}")
    assert (status, err) == (0, "") and out.endswith(f"written: {path}\n")
    assert path.read_bytes().startswith(BEGINNINGS[ending]) and len(list(tmp_path.iterdir())) == 1
    if ending == "json":
        assert json.loads(path.read_text()) == mp.simulate(build("zb-v", 2, 2)).to_chrome_trace()
    if ending in ("csv", "txt"):
        again = run(capsys, f"show {path}")[1]
        assert again.partition("\n\n")[2] == out.partition("\n\n")[2].partition("written")[0], "the same run"


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_a_file_with_two_copies_of_the_network_can_be_shown_again(capsys, tmp_path, name):
    table, lines = tmp_path / "two.csv", tmp_path / "two.txt"
    status, _, err = run(capsys, f"show {name} --output {table}")
    assert status == 0 and run(capsys, f"show {name} --output {lines}")[0] == 0
    assert err == (f"minipipe: note: the schedule {name!r} has 2 replicas, and PyTorch has one: "
                   "it can read this table, but not run it\n")
    for path in (table, lines):
        status, out, err = run(capsys, f"check {path} --microbatches 8")
        assert status == 0 and err == ""
        assert out.startswith("two, 4 stages, 8 micro-batches, 2 copies of the network, 4 devices\nno faults")


def test_each_device_has_as_many_stages_as_were_asked_for(capsys):
    deep = interleaved_one_f_one_b(4, 8, v=3)
    status, out, _ = run(capsys, "show interleaved --stages-per-device 3")
    assert status == 0 and mp.simulate(deep).to_text() in out and "12 stages" in out
    status, out, _ = run(capsys, "compare 1f1b interleaved --stages-per-device 3")
    assert status == 0 and str(mp.compare("1f1b", deep)) in out


@pytest.mark.parametrize("name", ["tuples", "strings"])
def test_a_function_in_a_file_is_a_schedule(capsys, mine, name):
    status, out, _ = run(capsys, f"show {mine}:{name} -K 2 -M 3")
    assert status == 0 and out.startswith(f"{name}, 2 stages, 3 micro-batches\n")
    assert mp.simulate(build("gpipe-fifo", 2, 3)).to_text() in out
    status, out, _ = run(capsys, f"compare gpipe {mine}:{name} -K 2 -M 3")
    assert status == 0 and re.search(rf"^{name} +12 ", out, re.MULTILINE)
    status, out, _ = run(capsys, f"check {mine}:{name} -K 2 -M 3")
    assert status == 0 and "no faults: 12 ticks" in out


# compare

def test_compare_has_a_row_for_each_schedule_of_the_same_work(capsys, tmp_path):
    """The makespans and peaks of K = 4, M = 8 in the papers' units, where stages of two on a device are half
    as long.
    """
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(capsys, f"compare naive gpipe interleaved zb-v {table} --costs F=1,I=1,W=1")
    rows = {
        words[0]: words[1:] for line in out.splitlines()[3:8] if (words := line.replace(" %", "").split())
    }
    assert status == 0
    assert out.splitlines()[2].split() == ["schedule", "makespan", "idle", "peak", "messages"]
    assert rows == {
        "naive": ["96", "75.00", "1", "48"],  # (K - 1)/K
        "gpipe": ["33", "27.27", "8", "48"],  # (K - 1)/(M + K - 1)
        "interleaved": ["28.5", "15.79", "5.5", "112"],
        "zb-v": ["25.5", "5.88", "4", "96"],
        "mine": ["33", "27.27", "4", "48"],
    }


def test_compare_takes_the_sizes_of_a_file_and_refuses_others(capsys, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 2, 3).to_csv())
    status, out, _ = run(capsys, f"compare gpipe {table}")
    assert status == 0 and out.startswith("2 devices, 3 micro-batches, costs of a device F=1,B=2\n")
    status, _, complaint = run(capsys, f"compare gpipe {table} -K 4")
    assert status == 2 and "has devices=2, not devices=4: pass devices=2, or leave it" in complaint


def test_compare_all_runs_what_sizes_allow_and_names_the_rest(capsys):
    status, out, _ = run(capsys, "compare ALL -K 3 -M 4")
    rows = re.findall(r"^(\S+) +[\d.]+ +[\d.]+ %", out, re.MULTILINE)
    refused = re.findall(r"^left out: ([\w-]+): .+", out, re.MULTILINE)
    assert status == 0 and {*rows, *refused} == {*SCHEDULES} and not {*rows} & {*refused}
    assert "chimera" in refused and "1f1b" in rows


def test_compare_draws_if_asked_to(capsys, tmp_path):
    picture = tmp_path / "both.svg"
    status, out, _ = run(capsys, f"compare 1F1B,ZBV -K 2 -M 2 --output {picture}")
    assert status == 0 and out.endswith(f"written: {picture}\n") and "<svg" in picture.read_text()


@pytest.mark.parametrize("words, theirs, ours", [
    ("compare gpipe {} -K 2 -M 2", "dapple", "1f1b"), ("show {} -K 2", "Interleaved-1F1B", "interleaved"),
    ("check {} -K 2 -M 2", "ZBVZeroBubble", "zb-v"),
])
def test_other_names_of_the_field_are_taken(capsys, words, theirs, ours):
    wanted, found = (run(capsys, words.format(name)) for name in (ours, theirs))
    assert wanted == found and found[0] == 0


# check

def test_check_says_that_a_schedule_is_right_or_all_of_its_faults(capsys, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(build("1f1b", 4, 8).to_csv())
    status, out, _ = run(capsys, f"check {table} --microbatches 8 --most-alive 4")
    assert status == 0 and "no faults: 33 ticks with F=1,B=2; peak micro-batches per device: 4 3 2 1" in out
    assert "yes its gradients are the full batch's, in fractions (==)" in out
    status, out, _ = run(capsys, f"check {table} --most-alive 2")
    assert status == 1
    assert "2 faults:\n- device 0: with 0F2, 3 micro-batches are alive at once, above the limit of 2" in out
    status, _, complaint = run(capsys, f"check {table} --microbatches 9")
    assert status == 2 and "has microbatches=8, not microbatches=9" in complaint
    table.write_text("".join("".join(f"{s}F{i}," for i in range(99)) + "\n" for s in range(2)))
    status, out, _ = run(capsys, f"check {table}")
    assert status == 1 and "\n198 faults:\n" in out and "more like it)" in out
    table.write_text("0F0,0X0\n0Y0,\n")
    status, _, complaint = run(capsys, f"check {table}")
    assert status == 2 and "malformed cells: 2" in complaint
    assert "row 1 (rank 0), column 2: '0X0' is not an action (and 1 more like it)" in complaint


def test_check_compares_a_named_schedule_with_its_formulas(capsys):
    status, out, _ = run(capsys, "check 1F1B -K 2 -M 3")
    assert status == 0 and "counted 12 ticks, the formula gives 12" in out and "5 of 5 checks passed" in out


def test_check_runs_a_function_and_says_what_it_forgets(capsys, mine):
    status, out, _ = run(capsys, f"check {mine}:forgets -K 2 -M 2")
    assert status == 1 and "4 faults:\n- device 0 never does 0B0 (missing)" in out


def test_a_table_with_communication_is_read_with_a_note(capsys, tmp_path):
    table = tmp_path / "comms.csv"
    table.write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    status, out, err = run(capsys, f"check {table}")
    assert status == 0 and "no faults: 6 ticks" in out
    assert err.startswith("minipipe: note: cells of communication are left out: 1 SEND_F, 1 RECV_B, 1 RECV_F")


# search

def test_search_proves_its_schedule_or_says_that_it_did_not(capsys, tmp_path, monkeypatch):
    """(M + K - 1)(F + B) = 18 ticks for 1F1B, K = 3, M = 4, in its memory."""
    table = tmp_path / "best.csv"
    status, out, _ = run(capsys, f"search -K 3 -M 4 --most-alive 3 2 1 --output {table}")
    best = mp.Schedule.from_csv(table)
    assert status == 0
    of_all = "no schedule with whole backwards and one stage a device takes fewer than"
    assert f"proved: {of_all} 18 ticks, in this memory (" in out
    assert "peak micro-batches per device           3 2 1" in out
    assert mp.simulate(best).makespan == 18 and mp.simulate(best).to_text() in out
    hint = "\nbackwards split into I and W may be faster: add --halves\n"
    assert hint in out
    out = run(capsys, "search -K 2 --halves --most-alive 2 --latency 1 --costs F=1,I=1,W=1")[1]
    assert "I0" in out and "W0" in out and "peak micro-batches per device           2 " in out
    found, proved = (out.split(words)[1].split()[0] for words in ("makespan", "takes fewer than "))
    assert found == proved, "the latency counts in both"
    assert "no schedule with backwards in halves and one stage a device" in out and hint not in out
    monkeypatch.setattr(
        "minipipe.cli.show.best_schedule", lambda *sizes, **given: Found(best, 18, 17.5, False, 5)
    )
    out = run(capsys, "search")[1]
    assert f"not proved: 18 ticks is the best found, and {of_all} 17.5; 5 partial schedules" in out


def test_search_by_rules_takes_many_devices_and_several_stages(capsys):
    out = run(capsys, "search --greedy -K 8 -M 16 --most-alive 8 7 6 5 4 3 2 1")[1]
    # (M + K - 1)(F + B), as 1F1B
    assert "makespan                                69 ticks" in out and "made by rules, or by name" in out
    out = run(capsys, "search --greedy --stages-per-device 2 --halves")[1]
    named = ticks(mp.simulate(build("interleaved", 4, 8)).makespan)
    assert "8 stages" in out and float(re.search(r"makespan +([\d.]+)", out)[1]) <= float(named)


# the main job

SLOW = pytest.mark.slow
PNG = b"\x89PNG"


@SLOW
def test_the_main_job_trains_proves_and_draws(capsys, tmp_path):
    """As a user starts it, but for a third of the epochs: at least 90 % of the test digits, in under 45
    seconds of CPU time. The proof and the picture come first, three epochs are shown, and a next command.
    """
    picture = tmp_path / "run.png"
    begin = time.process_time()
    status, out, _ = run(capsys, f"--epochs 6 --output {picture}")
    assert status == 0 and time.process_time() - begin < 45
    assert re.findall(r"epoch (\d)/6 .* s left", out) == ["1", "3", "6"] and len(out.splitlines()) <= 41
    places = [out.index(part) for part in (
        "equal (==)", "One micro-batch at a time, it would take 96 ticks, 75 % idle", "written: ", "epoch ",
        "test accuracy", "next: python3 -m minipipe compare naive",
    )]
    assert places == sorted(places)
    naive, own = re.findall(r"device 3  (.*)", out)
    assert naive.startswith("......F0B0--......") and len(naive) == len(own)
    assert out.count("idle, of all") == 1
    assert float(out.split("test accuracy ")[1].split(" %")[0]) >= 90
    assert "rational numbers, m = 11 in 8 ragged micro-batches: equal (==); only exp and log are round" in out
    n_names = len(names_having(flush=True))
    assert f"the bits of {n_names} schedules and of one device are equal (==)" in out
    assert float(re.search(r"at most (\S+) units in the last place", out)[1]) < 100
    assert "device 3  ......F0B0--F1B1--" in out and "makespan                                33 ticks" in out
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize("name", [
    name if name == "pipedream" else pytest.param(name, marks=SLOW) for name in SCHEDULES.load()
])
def test_every_schedule_trains_with_the_default_sizes(capsys, tmp_path, monkeypatch, name):
    """Four devices, the default network and the default number of micro-batches."""
    monkeypatch.setattr(train, "names_for", lambda **sizes: [])  # its own bits are compared all the same
    status, out, _ = run(capsys, f"--schedule {name} --epochs 1 --output {tmp_path / 'run.png'}")
    assert status == 0 and "\n4 devices, " in out and f"By the schedule {name}:" in out
    assert "device 3" in out and "test accuracy" in out
    has_flush = name in names_having(flush=True)
    assert ("the bits of 1 schedules and of one device are equal (==)" in out) == has_flush
    assert (f"No proof: {name} updates weights while" in out) != has_flush


@pytest.mark.slow
def test_a_custom_schedule_trains(capsys, tmp_path, mine):
    status, out, _ = run(capsys, f"--schedule {mine}:tuples --epochs 1 -K 2 --output {tmp_path / 'run.png'}")
    assert status == 0 and "By the schedule tuples:" in out and "of one device are equal (==)" in out


def test_without_a_flush_updates_follow_each_other_and_learn(capsys, tmp_path):
    status, out, _ = run(capsys, f"--schedule pipedream --epochs 8 --output {tmp_path / 'run.png'}")
    assert status == 0 and "8 micro-batches" not in out and "B0-UF4" in out
    assert re.findall(r"epoch (\d)/8 ", out) == ["1", "4", "8"]
    assert float(out.split("test accuracy ")[1].split(" %")[0]) >= 75


@pytest.mark.parametrize("split, words", [
    ("-K 2", "2 devices"),
    ("-D 2 -T 2 -K 2", "8 devices: 2 replicas x 2 shards x 2"),
    pytest.param("--replicas 2 -K 1", "2 devices: 2 replicas x 1 shards x 1", marks=SLOW),
    pytest.param("--shards 2 -K 1", "2 devices: 1 replicas x 2 shards x 1", marks=SLOW),
])
def test_the_main_job_splits_data_layers_and_network(capsys, tmp_path, split, words):
    """All come to the same test accuracy in this epoch, prove their gradients and draw the run."""
    picture = tmp_path / "run.png"
    status, out, _ = run(capsys, f"{split} -M 2 --epochs 1 --size 16 --output {picture}")
    assert status == 0 and f"{words}, 2 micro-batches" in out
    assert out.split("test accuracy ")[1].split(" %")[0] == "39.17"
    assert "equal (==); only exp and log are rounded" in out
    has_shards = "-T" in split or "--shards" in split
    assert ("schedules and of one device are equal (==)" in out) != has_shards
    assert re.search("^device 0.*  F0", out, re.MULTILINE) and picture.read_bytes().startswith(PNG)
    assert ("One micro-batch at a time" in out) == (split == "-K 2"), "as many devices as stages"


@pytest.mark.parametrize("verdict, words", [
    ("same_bits", "schedules and of one device are DIFFERENT"),
    ("equals_full_batch", "m = 3 in 2 ragged micro-batches: DIFFERENT"),
])
def test_each_single_negative_verdict_makes_the_main_job_fail(capsys, tmp_path, monkeypatch, verdict, words):
    saved = []
    for name in ("same_bits", "equals_full_batch"):
        monkeypatch.setattr(train, name, lambda pipe, X, Y, good=name != verdict: good)
    monkeypatch.setattr("minipipe.cluster.Trace.save", lambda trace, path, title: saved.append(title))
    status, out, _ = run(capsys, f"-K 2 -M 2 --epochs 1 --size 16 --output {tmp_path / 'x.png'}")
    assert status == 1 and words in out
    assert saved == ["1f1b: 2 micro-batches of digits, gradients WRONG"]


# check, without a file: the table of proofs

@SLOW
def test_the_table_of_proofs_has_every_claim_in_ten_seconds(capsys, monkeypatch):
    """A row for each schedule with a flush, each network and each split; the first one before the others."""
    shown, begin = [], time.process_time()

    def say(line):
        shown.append((line, time.process_time() - begin))

    monkeypatch.setattr(check, "say", say)
    status, out, _ = run(capsys, "check")
    assert status == 0 and time.process_time() - begin < 30  # 5 s of a fast processor
    assert shown[0][1] < shown[-1][1] / 5
    names = [line[:40].strip() for line, _ in shown]
    splits = [f"{D} replicas x {T} shards" for D, T in ((2, 1), (3, 1), (1, 2), (2, 2))]
    assert names == [*names_having(flush=True), *(example.name for example in EXAMPLES), *splits]
    verdicts = {line[:40].strip(): line[40:].split()[1:] for line, _ in shown}
    assert verdicts["1f1b"] == verdicts["3 replicas x 1 shards"] == ["yes", "yes", "yes"]
    assert verdicts["2 replicas x 2 shards"] == ["yes", "yes", "-"]
    assert verdicts[EXAMPLES[-1].name] == ["yes", "-", "yes"]
    n_runs = sum(map(len, check.table().values()))
    assert out.endswith(f"\n\n{n_runs} of {n_runs} runs hold in every strength\n")


def test_the_runs_of_the_table_cover_what_it_claims():
    runs = [run for row in check.table().values() for run in row]
    assert {run.schedule for run in runs} == {*names_having(flush=True)}
    assert {run.example.name for run in runs} == {example.name for example in EXAMPLES}
    assert {run.recompute for run in runs} == {"never", "always", "selective"}
    for example in EXAMPLES:
        of_example = [run for run in runs if run.example is example]
        assert {run.K for run in of_example} >= {1, 4}
        assert any(run.m % run.M for run in of_example), "ragged micro-batches"


@pytest.mark.parametrize("verdict, words", [
    ("same_bits", "0 of 2 runs"), ("equals_full_batch", "1 of 2 runs"), ("equals_same_groups", "1 of 2 runs"),
])
def test_each_single_negative_verdict_makes_the_table_fail(capsys, monkeypatch, verdict, words):
    """Of two networks, one with batch norm, which is compared with a loop."""
    plain, normal = (
        next(example for example in EXAMPLES if example.has_batch_norm == has) for has in (False, True)
    )
    for name in ("same_bits", "equals_full_batch", "equals_same_groups"):
        monkeypatch.setattr(
            f"minipipe.verification.examples.{name}", lambda pipe, X, Y, good=name != verdict: good
        )
    monkeypatch.setattr(check, "table", lambda: {"both": [Run(plain), Run(normal)]})
    status, out, _ = run(capsys, "check")
    assert status == 1 and f"\n{words} hold" in out and "NO: " in out and " NO" in out


def test_a_run_with_a_bug_is_named(capsys, monkeypatch):
    BUGS["gradient_scale"](monkeypatch)
    monkeypatch.setattr(check, "table", lambda: {"1f1b": [Run(EXAMPLES[0]), Run(EXAMPLES[0], "gpipe")]})
    status, out, _ = run(capsys, "check")
    assert status == 1 and "1f1b                                         2      NO" in out
    assert f"NO: {EXAMPLES[0].name}: gpipe, D=1 T=1 K=2 M=3 m=8, recompute='never'\n" in out
