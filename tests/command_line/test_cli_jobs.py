"""The main job and the table of proofs, as a user meets them."""

import re
import time

import pytest
from command_line.test_cli import mine, run  # noqa: F401
from pitfalls.bugs import BUGS

from minipipe.cli import check, train
from minipipe.cli.check import Run
from minipipe.schedules import SCHEDULES, names_having
from minipipe.verification.examples import EXAMPLES

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
    n_names = len(names_having(flush=True, late_w=False))
    assert f"the bits of {n_names} schedules and of one device are equal (==)" in out
    assert float(re.search(r"at most (\S+) units in the last place", out)[1]) < 100
    assert "device 3  ......F0B0--F1B1--" in out and "makespan                                33 ticks" in out
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize("name", [
    name if name in ("zb-v", "pipedream") else pytest.param(name, marks=SLOW) for name in SCHEDULES.load()
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


def test_a_schedule_of_ones_own_trains(capsys, tmp_path, mine):  # noqa: F811
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
    assert "device 0  F0" in out and picture.read_bytes().startswith(PNG)
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


# The table of proofs.

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
