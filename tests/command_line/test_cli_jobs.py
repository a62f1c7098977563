"""The commands that train, prove and draw, as a user meets them."""

import re
import time

import pytest
from command_line.test_cli import run
from pitfalls.bugs import BUGS

from minipipe.cli import train
from minipipe.layers.recomputing import can_recompute
from minipipe.schedules import names_having
from minipipe.verification.examples import EXAMPLES

SLOW = pytest.mark.slow
PNG = b"\x89PNG"
ONE_OF_EACH = [  # without and with batch norm
    next(example for example in EXAMPLES if example.has_batch_norm == has) for has in (False, True)
]


@SLOW
def test_the_main_job_trains_proves_and_draws(capsys, tmp_path):
    """As a user starts it, but for a fifth of the epochs: at least 94 % of the test digits, in under 45
    seconds of CPU time. The proof and the picture come first, three epochs are shown, and a next command.
    """
    picture = tmp_path / "run.png"
    begin = time.process_time()
    status, out, _ = run(capsys, f"--epochs 6 --output {picture}")
    assert status == 0 and time.process_time() - begin < 45
    assert re.findall(r"epoch (\d)/6 .* s left", out) == ["1", "3", "6"] and len(out.splitlines()) <= 40
    places = [out.index(part) for part in (
        "equal (==)", "One micro-batch at a time, it would take 96 ticks, 75 % idle", "written: ", "epoch ",
        "test accuracy", "next: python3 -m minipipe compare naive",
    )]
    assert places == sorted(places)
    naive, own = re.findall(r"device 3  (.*)", out)
    assert naive.startswith("......F0B0--......") and len(naive) == len(own)
    assert out.count("idle, of all") == 1
    assert float(out.split("test accuracy ")[1].split(" %")[0]) >= 94
    assert "rational numbers, m = 11 in 8 ragged micro-batches: equal (==); only exp and log are round" in out
    n_names = len(names_having(flush=True, late_w=False))
    assert f"the bits of {n_names} schedules and of one device are equal (==)" in out
    assert "device 3  ......F0B0--F1B1--" in out and "makespan                                33 ticks" in out
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize("devices, split, words", [
    (2, "", "2 devices"),
    (2, "--replicas 2 --shards 2", "8 devices: 2 replicas x 2 shards x 2"),
    pytest.param(1, "--replicas 2", "2 devices: 2 replicas x 1 shards x 1", marks=SLOW),
    pytest.param(1, "--shards 2", "2 devices: 1 replicas x 2 shards x 1", marks=SLOW),
])
def test_the_main_job_splits_data_layers_and_network(
    capsys, tmp_path, monkeypatch, devices, split, words
):
    """All come to the same test accuracy in this epoch, prove their gradients and draw the run."""
    monkeypatch.setattr(train, "LAYER_SIZES", (64, 16, 16, 16, 10))  # fractions take long in larger ones
    picture = tmp_path / "run.png"
    sizes = f"--devices {devices} --micro-batches 2 --epochs 1"
    status, out, _ = run(capsys, f"{sizes} {split} --output {picture}")
    assert status == 0 and f"{words}, 2 micro-batches" in out
    assert out.split("test accuracy ")[1].split(" %")[0] == "54.72"
    assert "equal (==); only exp and log are rounded" in out
    assert ("schedules and of one device are equal (==)" in out) == ("--shards" not in split)
    assert "device 0  F0" in out and picture.read_bytes().startswith(PNG)
    assert ("One micro-batch at a time" in out) == (not split), "as many devices as stages"


def one_device(monkeypatch, sizes, schedules):
    """`verify` tries these schedules alone, with one device a stage."""
    for name, value in dict(PIPELINE_SIZES=[sizes], VERIFIED_SCHEDULES=schedules, SPLITS=[]).items():
        monkeypatch.setattr(f"minipipe.cli.verify.{name}", value)


def n_modes(example):
    """Never, always; and within attention, where that is."""
    return 2 + can_recompute(example.layers)


@pytest.mark.parametrize(
    "room, verdict, answer, words",
    [
        ("train", "same_bits", False, "gradients WRONG"),
        ("train", "share_of_bound", 1.5, "gradients WRONG"),
        ("train", "equals_full_batch", False, "m = 3 in 2 ragged micro-batches: DIFFERENT"),
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
    monkeypatch.setattr("minipipe.cli.verify.EXAMPLES", ONE_OF_EACH)
    one_device(monkeypatch, (1, 1, 8), ["gpipe"])
    monkeypatch.setattr("minipipe.cli.train.fit", lambda *args, **options: None)
    monkeypatch.setattr("minipipe.cli.train.print_trace", lambda trace: None)
    monkeypatch.setattr("minipipe.cli.train.save_timeline", lambda trace, path, title: print(title))
    job = {"train": f"--epochs 1 --micro-batches 2 --output {tmp_path / 'x.png'}", "verify": "verify"}[room]
    status, out, _ = run(capsys, job)
    assert status == 1 and words in out
    assert room == "verify" or "gradients WRONG" in out


@SLOW
def test_verify_sums_up_each_schedule_and_can_show_all_runs(capsys, monkeypatch):
    one_device(monkeypatch, (4, 3, 8), ["1f1b", "zb-v"])
    linear = [example for example in EXAMPLES if example.name.startswith("Linear")]
    n_runs = sum(map(n_modes, EXAMPLES))
    for options, n_rows in [("", 0), ("--all", len(linear) * 2 * 2)]:
        status, out, _ = run(capsys, f"verify {options}")
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
    monkeypatch.setattr("minipipe.cli.verify.RECOMPUTE_CASES", ["never"])
    status, out, _ = run(capsys, "verify")
    found = [line[:22].rstrip() + ":" + " ".join(line[22:].split()[:4])
             for line in out.splitlines() if line.endswith(" %")]
    assert status == 0 and found == [
        "gpipe:1 yes yes yes", "1f1b-late-w:1 yes yes yes", "1f1b:2 yes yes yes",
        "1 replicas x 1 shards:2 yes yes yes", "3 replicas x 1 shards:1 yes yes yes",
        "2 replicas x 2 shards:1 yes yes -",
    ]
    status, out, _ = run(capsys, "verify --replicas 2 --shards 3 --all")
    row = "Linear ReLU, mean squared error     gpipe           2  3  2  6  16  never        yes     yes     -"
    assert status == 0 and row in out and "1 of 1 runs hold" in out


def test_verify_fails_with_a_bug_in(capsys, monkeypatch):
    """With BatchNorm, the reference has the same loss, and the bug with it."""
    BUGS["gradient_scale"](monkeypatch)
    monkeypatch.setattr("minipipe.cli.verify.EXAMPLES", ONE_OF_EACH)
    one_device(monkeypatch, (2, 3, 8), ["gpipe"])
    status, out, _ = run(capsys, "verify")
    failing = [line for line in out.splitlines() if " NO " in line and line.startswith(ONE_OF_EACH[0].name)]
    assert len(failing) == 2 and "gpipe                      4      NO" in out
    assert status == 1 and "2 of 4 runs" in out
