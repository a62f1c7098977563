"""The commands that train, prove and draw, as a user meets them."""

import re
import time
from pathlib import Path

import pytest
from command_line.test_cli import run
from matplotlib.figure import Figure
from pitfalls.bugs import BUGS

import minipipe as mp
from minipipe.cli import server, train
from minipipe.layers.recomputing import can_recompute
from minipipe.models import mlp
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


@pytest.fixture
def saved_as_a_word(monkeypatch):
    """Saving takes longer than these runs do."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: path.write_text("drawn"))


@pytest.mark.parametrize("words, sentences", [
    ("server --mode async --slow 1=4 --gradients 26",
     ["4 workers, mode async, 26 updates of 32 samples", "worker 0  0@0--", "staleness",
      "makespan                 8 ticks", "idle, worker by worker   0 % 0 % 0 % 0 %"]),
    ("server --workers 2 --backups 1 --slow 1=5/2 --gradients 12",
     ["mode sync, 6 updates of 64 samples", "thrown away, too late    3 gradients",
      "makespan                 7.5 ticks", "idle, worker by worker   20 % 0 %"]),
    ("server --mode hogwild --update-ticks 1 --gradients 8", ["over others' writes      6 updates\n"]),
    ("server --mode ssp --bound 1 --workers 2 --threads --gradients 6",
     ["repeated on the cluster, in the order of arrival: the same bits", "time (s)"]),
    ("server --servers 2 --bandwidth 65536 --latency 0.5 --gradients 4",
     # half of 68,904 bytes four times, there and back
     ["server 1", "\n       3.603 ", "makespan                 6.20557 ticks"]),
    ("federated --clients 100 --fraction 0.1 --epochs 1 --skewed --rounds 2",
     ["digits of 1 to 3 classes each; 10 in a round, 1 passes\n\nround   1   10 of 10   J ",
      "95 % not reached in 2 rounds; the best is ",
      "sent: 384,800 bytes to the clients, 384,800 bytes back"]),  # 4,810 numbers of 4 bytes
    ("federated --secure --drop-out 0.2 --epochs 1 --rounds 2 --target 20",
     ["20 clients with 71 to 72 digits of 10 to 10 classes each; 4 in a round", "20 % reached in round 1\n",
      "sent: 76,960 bytes to the clients, 153,952 bytes back"]),  # 4,811 of 8 bytes, with how many samples
])
def test_servers_and_clients_train_and_say_what_happened(
    capsys, monkeypatch, tmp_path, saved_as_a_word, words, sentences
):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, words)
    assert status == 0 and all(sentence in out for sentence in sentences), out
    assert "written: " in out and Path(out.split()[-1]).read_text() == "drawn"


def test_a_server_scores_its_weights_and_counts_the_staleness(capsys, tmp_path, saved_as_a_word):
    """3, 6, 9, 13, 16, 19, 22 and 26 updates are made after so many ticks; every second is scored.

    Worker 1 is four times as slow: 10 and 12 updates late. Of the others, the first three are 0, 1 and 2
    late, 21 are 2 late, and 5 of them one more, by an update of worker 1: 72 in all.
    """
    command = f"server --mode async --slow 1=4 --gradients 26 --output {tmp_path / 'run.png'}"
    _, out, _ = run(capsys, command)
    table = out.split("time (ticks)  test error\n")[1].split("\n\n")[0]
    rows = [line.removesuffix(" %").split() for line in table.splitlines()]
    assert [int(time) for time, _ in rows] == [0, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7, 8, 8]
    X, Y = (part.astype("float32") for part in mp.datasets.digits().test)
    untrained = mp.Sequential(mlp(server.LAYER_SIZES), mp.SoftmaxCrossEntropy(), dtype="float32")
    assert rows[0][1] == f"{100 * (1 - mp.accuracy(untrained.predict(X), Y)):.2f}"
    assert f"staleness                mean {72 / 26:.2f}, at most 12\n" in out


def test_workers_in_step_have_the_rate_of_all_together(capsys, tmp_path, saved_as_a_word):
    """An update of two workers is that of one device with twice the rate and twice the samples."""
    command = f"server --workers 2 --gradients 2 --learning-rate 0.3 --output {tmp_path / 'run.png'}"
    _, out, _ = run(capsys, command)
    train, (X, Y) = ([part.astype("float32") for part in pair] for pair in mp.datasets.digits())
    net = mp.Sequential(mlp(server.LAYER_SIZES), mp.SoftmaxCrossEntropy(), dtype="float32")
    net.forward_backward(*mp.servers.mini_batches(*train, 64, 1, 0)[0])
    net.step(mp.SGD(0.6))
    assert f"\n           1{100 * (1 - mp.accuracy(net.predict(X), Y)):10.2f} %\n" in out


@pytest.mark.parametrize("command", ["server --gradients 4", "federated --clients 20 --epochs 1 --rounds 1"])
def test_servers_and_clients_are_drawn(capsys, tmp_path, command):
    picture = tmp_path / "run.png"
    assert run(capsys, f"{command} --output {picture}")[0] == 0
    assert picture.read_bytes().startswith(PNG)
