"""The programs on MPI ranks: the bits of the cluster, in seconds; every mistake ends the job in a sentence.

What runs on the ranks is in `mpi_checks.py` and `mpi_mistakes.py`. One job runs all checks with the same
number of ranks, see `jobs.py`.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from engines.jobs import MISTAKES, SOON, answers, fail, on_ranks, once, start

from minipipe.cli import train
from minipipe.cli.main import RANK_0_GRACE, main
from minipipe.cluster import COMPUTE
from minipipe.engines.mpi import RankRecord, merged


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def answer_of_ranks(request, check, n_ranks, tmp_path_factory):
    """Return a function of what `check` returned on `n_ranks` ranks, which fails as the check has failed.

    The first test that asks for it runs the checks of all.
    """
    tests = [item.callspec.params for item in request.session.items if "answer_of_ranks" in item.fixturenames]
    checks = dict.fromkeys(test["check"] for test in tests if test["n_ranks"] == n_ranks)
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # shared by all workers
    value, errors = once(folder, f"{n_ranks} ranks", lambda: answers(checks, n_ranks))[check]

    def found():
        assert not errors, errors[-3000:]
        return value
    return found


@on_ranks
@pytest.mark.parametrize("check, n_ranks, n_runs", [
    ("schedules never", 2, 14), *(slow("schedules", n_ranks, 14) for n_ranks in (2, 3, 4)),
    slow("copies", 2, 18), slow("copies", 3, 18), slow("copies", 4, 18),
    ("zero", 2, 9), slow("zero", 3, 9), slow("zero", 4, 15),
    ("shards", 2, 9), slow("shards", 4, 18),
    slow("synchronous schedules", 2, 14), slow("synchronous copies", 4, 18),
    ("in_pieces copies", 2, 18), slow("in_pieces zero", 3, 9),
    *(slow("pairs 30", n_ranks, 12) for n_ranks in (2, 3, 4)),
])
def test_ranks_have_the_bits_of_the_cluster(check, n_ranks, n_runs, answer_of_ranks):
    """n_runs: how many there are at least."""
    assert answer_of_ranks() >= n_runs


@on_ranks
@pytest.mark.parametrize("check, n_ranks", [("clipped", 3), ("fractions", 2), ("requests", 3)])
def test_programs_of_any_kind_run_on_ranks(check, n_ranks, answer_of_ranks):
    assert answer_of_ranks() is None


@on_ranks
@pytest.mark.parametrize("check, n_ranks", [("checkpoints", 2), slow("checkpoints", 4)])
def test_a_training_resumes_on_ranks_replicas_and_one_device(check, n_ranks, answer_of_ranks):
    assert answer_of_ranks() == ["net.npz"]


# What goes wrong


@on_ranks
@pytest.mark.parametrize("check, n_ranks, words", [
    ("refusal deadlocked", 2, "1B0"),
    ("refusal other_data", 3, "ranks 0 and 2 differ in the mini-batches: run one program with the same"),
    ("refusal in_ticks", 2, "mpi know seconds, not ticks"),
    ("refusal too_few", 3,
     "4 devices need a process each, but 3 processes have been started: begin the command with mpiexec -n 4"),
    ("refusal silent", 2, ": for more than 0.5 seconds"),
])
def test_a_program_that_cannot_run_fails_on_every_rank(check, n_ranks, words, answer_of_ranks):
    assert all(words in sentence for sentence in answer_of_ranks())


@on_ranks
@pytest.mark.parametrize("check, n_ranks, n_differences", [
    row for of, n in [("network", 11), ("training", 10), ("program", 10)]
    for row in [(f"differences {of}", 2, n), slow(f"differences {of}", 3, n)]
])
def test_differences_between_ranks_are_named_on_every_rank(check, n_ranks, n_differences, answer_of_ranks):
    assert answer_of_ranks() == n_differences


@on_ranks
@pytest.mark.parametrize("check, n_ranks", [("failed_runs", 2), slow("failed_runs", 3)])
def test_all_ranks_can_continue_after_a_run_that_failed_on_one(check, n_ranks, answer_of_ranks):
    assert answer_of_ranks() is None


@on_ranks
@pytest.mark.parametrize("what, status, words", [
    slow("raises", 2, 'raise KeyError("a mistake of one rank")'),
    slow("fails in a layer", 2, 'raise KeyError("a mistake of one rank")'),
    slow("exits", 2, "the program of rank 1 has ended, and rank 0 waits for it in the begin of a run"),
    slow("is stopped", 130, "minipipe: stopped"),
])
def test_an_error_exit_or_ctrl_c_of_one_rank_ends_the_job(what, status, words):
    """Also without `-m mpi4py`."""
    process, begin = start(2, MISTAKES, "script", what), time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() < begin + SOON and process.returncode == status
    assert errors.count(words) == 1


@on_ranks
@pytest.mark.parametrize("rank", [slow(0), 1, slow(2)])
def test_an_exception_on_any_rank_ends_the_job_with_its_text(rank):
    words = ["minipipe: error: integer division or modulo by zero"]
    assert fail(3, MISTAKES, "broken", "exception", rank) == (2, words)


@on_ranks
@pytest.mark.parametrize("rank", [slow(0), 1, slow(2)])
def test_a_killed_rank_ends_the_job(rank):
    assert fail(3, MISTAKES, "broken", "killed", rank)[0] not in (0, None)


@on_ranks
@pytest.mark.parametrize("n_ranks, mistake, patience, sentence", [
    slow(2, ["broken", "bug", 1], 60, "TypeError: 'NoneType' object is not callable"),
    (3, ["everywhere"], 60, "everybody says this"),
    slow(2, ["endless"], 0.5, "device 0 waits for news from device 1: for more than 0.5 seconds"),
    (2, ["forgetful"], 0.5,
     "rank 0 waits for the other ranks in collecting the gradients of network 1 for more than 0.5"),
    (2, ["twice"], 60, "device 0 sends news to device 1 twice: name each message once"),
])
def test_one_rank_prints_the_error_that_ends_the_job(n_ranks, mistake, patience, sentence):
    status, (line,) = fail(n_ranks, MISTAKES, *mistake, MINIPIPE_PATIENCE=str(patience))
    assert status == 2 and line.startswith(f"minipipe: error: {sentence}")


@on_ranks
def test_ctrl_c_ends_all_ranks():
    process = start(2, MISTAKES, "endless")
    assert process.stdout.readline() == "it begins\n"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() < begin + SOON and process.returncode != 0 and "Traceback" not in errors


# The command line


@on_ranks
@pytest.mark.parametrize("check, n_ranks, words", [
    ("command", 2, "measured / simulated"),
    slow("command --shards 2", 4, "4 processes: 1 replicas x 2 shards x 2, 4 micro-batches"),
    slow("command --replicas 2 --schedule gpipe", 4, "x 2, 4 micro-batches, schedule gpipe in 2 copies"),
])
def test_the_command_trains_on_ranks_and_compares(check, n_ranks, words, answer_of_ranks):
    out = answer_of_ranks()
    assert words in out and out.count("test accuracy") == 1 and f"\ndevice {n_ranks - 1}" in out
    assert "float32, m = 256: equal (==)" in out


def test_only_rank_0_prints_an_error_in_the_arguments(monkeypatch, capsys):
    """Other ranks are silent, and leave it time to speak before they end the job."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    said = {}
    for rank in "01":
        monkeypatch.setenv("PMI_RANK", rank)
        with pytest.raises(SystemExit) as ended:
            main(["--engine", "mpi", "--epochs", "x"])
        assert ended.value.code == 2
        said[rank] = capsys.readouterr()
    assert "argument --epochs: 'x' is not a whole number" in said["0"].err
    assert (said["1"].out, said["1"].err) == ("", "")
    assert slept == [RANK_0_GRACE]


@on_ranks
@pytest.mark.slow
@pytest.mark.parametrize("arguments, words", [
    (["--epochs", "x"], "argument --epochs: 'x' is not a whole number"),
    (["--schedule", "nope"], "unknown schedule 'nope'"),
])
def test_a_wrong_argument_ends_a_job_with_one_message(arguments, words):
    """On a busy computer, rank 0 may start later than the others wait for it: then it says nothing."""
    status, lines = fail(3, "-m", "minipipe", "--engine", "mpi", *arguments)
    errors = [line for line in lines if "error" in line]
    assert status == 2 and len(errors) <= 1 and all(words in line for line in errors)


@pytest.mark.parametrize("arguments, words", [
    (["-D", "2"], "-D 2 -T 1 -K 1 are 2 devices, but mpiexec has started 3 processes: type mpiexec -n 2"),
    (["-T", "2", "-K", "3"], "are 6 devices, but mpiexec has started 3 processes: type mpiexec -n 6 python3"),
    (["--batch-size", "4"], "exceeds --batch-size 4"),
    (["--schedule", "pipedream"], "measures one mini-batch, and 'pipedream' goes on without an end of one"),
])
def test_mpi_options_that_do_not_fit_are_refused(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(train, "world", lambda: SimpleNamespace(size=3, rank=0, job=nullcontext))
    assert main(["--engine", "mpi", *arguments]) == 2
    assert words in capsys.readouterr().err


@on_ranks
def test_without_mpiexec_the_error_has_the_command_to_type():
    command = [sys.executable, "-m", "minipipe", "--engine", "mpi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "mpiexec -n 4 python3 -m minipipe --engine mpi" in done.stderr


@pytest.mark.skipif(find_spec("mpi4py") is not None, reason="mpi4py is installed")
def test_without_mpi_the_error_names_what_to_install():
    command = [sys.executable, "-m", "minipipe", "--engine", "mpi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "pip install mpi4py mpich" in done.stderr and "\n" == done.stderr[-1]


# Clocks


def test_a_trace_of_ranks_is_in_the_time_of_the_first_to_begin():
    """On one computer; on two, each begins at 0, and no message is received before it is sent."""
    lanes = [(0, COMPUTE), (1, COMPUTE)]
    for node, delay, sent, arrived, received in (("a", 0.25, 1, 1, 1.25), ("b", 0, 0.75, 0.75, 0.75)):
        sender, receiver = (RankRecord(lanes, [1, 1]) for _ in lanes)
        row = sender.sends("m", 0, 1, 1.0, 8, 0)
        receiver.taken += (0, row, 0.5, received - delay, 1)
        receiver.waited += (1, 0.25, received - delay, 0, row)
        sender.finished[0] = receiver.finished[1] = 2.0
        record = merged([("a", 5.0, sender), (node, 5.25, receiver)])
        assert record.messages == ["m", 0, 1, sent, arrived, received, 8, 0, 1]
        assert record.waits == [1, 0.25 + delay, received, row] and record.finished == [2.0, 2.0 + delay]
