"""The programs on MPI ranks: the bits of the cluster, in seconds; every mistake ends the job in a sentence.

What runs on the ranks is in `mpi_runs.py`; each test starts that by `mpiexec`.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from minipipe.cluster import COMPUTE
from minipipe.engines.gathering import merged
from minipipe.engines.packing import in_pieces, pack, unpack
from minipipe.layers.normalization import Moments

RUNS = Path(__file__).parent / "mpi_runs.py"
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
MISSING = [name for name, found in (("mpi4py", find_spec("mpi4py")), ("mpiexec", MPIEXEC)) if not found]
REASON = f"no {' and no '.join(MISSING)}: in a virtual environment, pip install minipipe[mpi]"
on_ranks = pytest.mark.skipif(bool(MISSING), reason=REASON)
SOON = 10  # seconds in which a job with a mistake is over


def start(n_ranks, *command, **variables):
    path = os.pathsep.join([str(RUNS.parents[1]), os.environ.get("PYTHONPATH", "")])  # for the helpers
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
    return subprocess.Popen(
        [MPIEXEC, "-n", str(n_ranks), sys.executable, *map(str, command)], env=settings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def succeed(n_ranks, name, *arguments, seconds=300):
    process = start(n_ranks, "-m", "mpi4py", RUNS, name, *arguments)
    out, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors[-3000:]
    return out


def fail(n_ranks, *command, **variables):
    """(the exit status, the lines on stderr) of a job that is over soon; one rank alone has said them."""
    process, begin = start(n_ranks, *command, **variables), time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() < begin + SOON + 5, errors  # 5 to start
    assert "Traceback" not in errors
    assert errors.count("minipipe: error:") <= 1
    return process.returncode, [line for line in errors.splitlines() if line and "Abort(" not in line]


@on_ranks
@pytest.mark.parametrize("n_ranks", [pytest.param(2, marks=pytest.mark.slow), 3,
                                     pytest.param(4, marks=pytest.mark.slow)])
def test_every_schedule_has_the_bits_of_the_cluster(n_ranks):
    """In every mode of recomputation; J, gradients, parameters, statistics, the trace without its times."""
    assert int(succeed(n_ranks, "schedules").split()[0]) >= 14


@on_ranks
@pytest.mark.parametrize("n_ranks", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_copies_and_streams_have_the_bits_of_the_cluster(n_ranks):
    """All-reduces and updates in the order and outside, all algorithms, buckets, and without a flush."""
    assert int(succeed(n_ranks, "copies").split()[0]) >= 18


@on_ranks
def test_gradients_are_clipped_by_the_norm_over_all_ranks():
    succeed(3, "clipped")


@on_ranks
@pytest.mark.parametrize("n_ranks, n_runs", [(2, 9), pytest.param(3, 9, marks=pytest.mark.slow), (4, 15)])
def test_copies_with_parts_of_the_parameters_have_the_bits_of_the_cluster(n_ranks, n_runs):
    """ZeRO 1 to 3, with what is remembered of all parts; buckets; synchronised batch norm."""
    assert int(succeed(n_ranks, "zero").split()[0]) == n_runs


@on_ranks
@pytest.mark.parametrize("n_ranks, n_runs", [(2, 6), pytest.param(4, 12, marks=pytest.mark.slow)])
def test_layers_in_parts_have_the_bits_of_the_cluster(n_ranks, n_runs):
    assert int(succeed(n_ranks, "shards").split()[0]) == n_runs


@on_ranks
@pytest.mark.parametrize("n_ranks, n_runs", [(3, 9), pytest.param(4, 11, marks=pytest.mark.slow)])
def test_servers_and_clients_have_the_bits_of_the_cluster(n_ranks, n_runs):
    assert int(succeed(n_ranks, "servers").split()[0]) == n_runs


@on_ranks
@pytest.mark.parametrize("name, n_ranks", [("schedules", 2), ("copies", 4)])
@pytest.mark.slow
def test_nothing_relies_on_messages_that_mpi_stores(name, n_ranks):
    succeed(n_ranks, "synchronous", name)


@on_ranks
@pytest.mark.parametrize("name, n_ranks", [("copies", 2), pytest.param("zero", 3, marks=pytest.mark.slow)])
def test_arrays_that_are_sent_without_a_copy_have_the_bits_of_the_cluster(name, n_ranks):
    """Each by itself, behind a message that says what it is; MPI stores none of them."""
    succeed(n_ranks, "in_pieces", name)


@on_ranks
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_programs_of_any_kind_run_on_ranks(n_ranks):
    """Lanes, any source, values of all kinds; what nobody receives, although MPI stores nothing."""
    succeed(n_ranks, "requests")


@on_ranks
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_a_training_goes_on_from_ranks_to_copies_to_one_device(n_ranks, tmp_path):
    succeed(n_ranks, "checkpoints", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["net.npz"]


@on_ranks
def test_clocks_that_run_apart_are_read_as_one():
    succeed(4, "clocks")


# What goes wrong


@on_ranks
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_exception_on_any_rank_ends_all_with_its_message(rank):
    words = ["minipipe: error: integer division or modulo by zero"]
    assert fail(3, RUNS, "broken", "exception", rank) == (2, words)


@on_ranks
def test_an_error_that_nobody_expects_is_named():
    status, (line,) = fail(2, RUNS, "broken", "bug", 1)
    assert status == 2 and line == "minipipe: error: TypeError: 'NoneType' object is not callable"


@on_ranks
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_is_killed_ends_all(rank):
    assert fail(3, RUNS, "broken", "killed", rank)[0] not in (0, None)


@on_ranks
def test_one_rank_speaks_for_all():
    assert fail(4, RUNS, "everywhere") == (2, ["minipipe: error: everybody says this"])


@on_ranks
@pytest.mark.parametrize("name, words", [
    ("endless", "device 0 waits for news from device 1: for more than 0.5 seconds"),
    ("silent", "device 0 waits for news from device 1: for more than 0.5 seconds"),
    ("forgetful", "rank 0 waits for the other ranks in collecting the gradients for more than 0.5 seconds"),
])
def test_a_rank_that_waits_for_ever_is_told_what_for(name, words):
    status, (line,) = fail(2, RUNS, name, MINIPIPE_PATIENCE="0.5")
    assert status == 2 and words in line


@on_ranks
@pytest.mark.parametrize("name, n_ranks, words", [
    ("deadlocked", 2, "1B0"),
    ("other_data", 3, "ranks 0 and 2 differ in the mini-batches: run one program with the same arguments"),
    ("in_rational_numbers", 2, "numbers of object have no fixed size, so processes cannot send them"),
    ("twice", 2, "device 0 sends news to device 1 twice: name each message once"),
    ("split_with_updates", 2, "layers in several parts are updated by step(optimizer): leave optimizer out"),
    ("in_ticks", 2, "mpi know seconds, not ticks"),
    ("too_few", 3, "4 devices need a process each, but 3 processes have been started: begin the command with "
     "mpiexec -n 4"),
])
def test_what_cannot_run_is_refused_on_one_rank_alone(name, n_ranks, words):
    status, lines = fail(n_ranks, RUNS, name)
    assert status == 2 and words in "\n".join(lines) and lines[0].startswith("minipipe: error:")


@on_ranks
def test_ctrl_c_ends_all():
    process = start(2, RUNS, "endless")
    time.sleep(4)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() < begin + SOON and process.returncode != 0 and "Traceback" not in errors


# The command line


@on_ranks
def test_the_command_trains_on_ranks_and_compares(tmp_path):
    picture = tmp_path / "both.png"
    process = start(2, "-m", "minipipe", "mpi", "--size", "32", "--epochs", "2", "--output", picture)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "2 processes, 8 micro-batches, schedule 1f1b" in out and out.count("test accuracy") == 1
    assert "float32, m = 256: equal (==)" in out and "measured / simulated" in out
    assert out.count("device 1  ") == 2 and picture.stat().st_size > 10_000


@on_ranks
def test_the_command_trains_layers_in_parts(tmp_path):
    sizes = ["--size", "16", "--epochs", "1", "--shards", "2", "--micro-batches", "4"]
    process = start(4, "-m", "minipipe", "mpi", *sizes, "--output", tmp_path / "measured.png")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "4 processes, 4 micro-batches" in out and "equal (==)" in out and out.count("device 3") == 1


@on_ranks
def test_the_command_trains_copies(tmp_path):
    sizes = ["--size", "16", "--epochs", "1", "--replicas", "2", "--micro-batches", "4"]
    command = ["-m", "minipipe", "mpi", *sizes, "--schedule", "gpipe", "--output", tmp_path / "both.png"]
    process = start(4, *command)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "4 processes, 8 micro-batches, schedule gpipe in 2 copies" in out and "equal (==)" in out


@on_ranks
@pytest.mark.parametrize("arguments, words", [
    (["--epochs", "x"], "argument --epochs: invalid int value: 'x'"),
    (["--schedule", "nope"], "unknown schedule 'nope'"),
    (["--replicas", "2"], "--replicas 2 cannot share 3 devices evenly: use a divisor of 3"),
    (["--shards", "2"], "--shards 2 cannot share 3 devices evenly: use a divisor of 3"),
    (["--batch-size", "4"], "exceeds --batch-size 4"),
])
def test_a_wrong_argument_is_said_once(arguments, words):
    status, lines = fail(3, "-m", "minipipe", "mpi", *arguments)
    assert status == 2 and words in lines[-1] and len([line for line in lines if "error" in line]) == 1


@on_ranks
def test_without_mpiexec_the_command_says_what_to_type():
    command = [sys.executable, "-m", "minipipe", "mpi", "--size", "32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "mpiexec -n 4 python3 -m minipipe mpi --size 32" in done.stderr


@pytest.mark.skipif(find_spec("mpi4py") is not None, reason="mpi4py is installed")
def test_without_mpi_the_command_says_what_to_install():
    command = [sys.executable, "-m", "minipipe", "mpi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and 'pip install "minipipe[mpi]"' in done.stderr and "\n" == done.stderr[-1]


# Messages


def test_a_value_arrives_as_it_was():
    value = {"a": [np.arange(6).reshape(3, 2)[::-1].T, np.float32(0.1), 1e300, float("inf")], (0, 1): None,
             3: Moments(2, np.ones(1), np.zeros(0)), "b": (True, False, -5, "text")}
    packed = pack(value, note=["label", 7])
    assert_as_it_was(value, packed, *unpack(packed.copy()))
    header, *pieces = in_pieces(value, note=["label", 7])
    rest = iter(pieces)
    again = unpack(header.copy(), lambda n_bytes: next(rest).copy())
    assert_as_it_was(value, header, *again)
    assert [len(piece) for piece in pieces] == [48, 4, 8, 0] and next(rest, None) is None


def assert_as_it_was(value, packed, again, note):
    assert note == ["label", 7] and list(again) == list(value)
    array, small, large, infinite = again["a"]
    assert np.array_equal(array, [[4, 2, 0], [5, 3, 1]])
    assert array.flags.c_contiguous and array.flags.writeable
    assert small == np.float32(0.1) and type(small) is np.float32 and (large, infinite) == (1e300, np.inf)
    assert type(again[3]) is Moments and again[3].M2.shape == (0,) and again["b"] == value["b"]
    assert not any(np.shares_memory(packed, part) for part in (value["a"][0], value[3].mean))


@pytest.mark.parametrize("change, words", [
    (lambda packed: packed[:-8], "needs .* bytes, but .* arrived"),
    (lambda packed: np.append(packed, np.zeros(8, np.uint8)), "says that it has .* bytes, but .* arrived"),
    (lambda packed: packed[:12], "12 bytes arrived that are no message of minipipe"),
    (lambda packed: packed[::-1].copy(), "are no message of minipipe"),
    (lambda packed: np.zeros(64, np.uint8), "64 bytes arrived that are no message of minipipe"),
])
def test_bytes_that_are_something_else_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        unpack(change(pack([np.ones(4)], "F0")))


@pytest.mark.parametrize("value, words", [
    (np.array([1, None]), "numbers of object have no fixed size"), ({1}, "not a set"),
    (np.array(["a"]), "have no fixed size"),
])
def test_what_has_no_bytes_is_refused(value, words):
    with pytest.raises((TypeError, ValueError), match=words):
        pack(value)


def test_a_clock_that_is_a_little_wrong_lets_no_message_arrive_before_it_was_sent():
    """The receiver's clock is behind by 0.1, more than the message took."""
    def half(spans, sent, received, finished):
        tables = {"spans": spans, "sent": sent, "received": received, "waited": [], "finished": finished}
        return {name: np.array(table, float) for name, table in tables.items()} | {"labels": [("m", None)]}

    halves = [half([(0, 0, 5, 6)], [(0, 1, 6, 8, 0)], [], [(0, 6)]),
              half([(1, 0, 5.5, 6.5)], [], [(0, 0, 5.9, 6.1, 1)], [(1, 6.5)])]
    record = merged(halves, [(0, COMPUTE), (1, COMPUTE)], [1, 1], {})
    label, source, to, sent, arrived, received, n_bytes, lane, to_lane = record.messages
    assert (label, source, to, n_bytes, lane, to_lane) == ("m", 0, 1, 8, 0, 1)
    assert (sent, arrived) == (1, 1) and sent <= arrived <= received
