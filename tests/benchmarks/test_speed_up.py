"""What the benchmarks measure on two devices, here with small layers: that they measure, not how fast."""

import pytest
from benchmarks import run, speed_up
from benchmarks.rows import ROWS
from benchmarks.speed_up import CASES, missing
from engines.jobs import on_ranks

OURS = [row for row in ROWS if not row.in_both]
ENGINES = [case[-2:] for case in CASES]
SIZE = 16


@pytest.mark.skipif(missing("threads") is not None, reason="no second core")
@pytest.mark.parametrize("case, engine", [pair for pair in ENGINES if pair[1] != "mpi"])
def test_threads_are_measured_beside_one_device(case, engine):
    ours, beside, ratio = speed_up.speed_up(case, engine, SIZE)(3, 1)
    assert ours > 0 and beside > 0 and 0.01 < ratio < 1000


@pytest.mark.skipif(missing("threads") is not None, reason="no second core")
def test_a_graph_that_copies_meanwhile_is_measured():
    ours, beside, ratio = speed_up.copying(3, 1, SIZE)
    assert ours > 0 and beside > 0 and 0.01 < ratio < 1000


@pytest.mark.slow
@on_ranks
@pytest.mark.skipif(missing("mpi") is not None, reason="no second core")
@pytest.mark.parametrize("case, engine", [pair for pair in ENGINES if pair[1] == "mpi"])
def test_ranks_are_measured_beside_one_device(case, engine):
    ours, beside, ratio = speed_up.speed_up(case, engine, SIZE)(3, 1)
    assert ours > 0 and beside > 0 and 0.01 < ratio < 1000


def test_runs_take_turns_and_the_ratio_is_that_of_the_pairs(monkeypatch):
    """Ratios 2, 1/2 and 2, after a first pair to warm up; those of the medians would be 1."""
    times, order = iter([9, 9, 1, 2, 4, 2, 2, 4]), []
    monkeypatch.setattr(speed_up, "alone", lambda case, size: "one")
    monkeypatch.setattr(speed_up, "together", lambda case, engine, size: "two")
    monkeypatch.setattr(speed_up, "milliseconds", lambda run, X, Y: order.append(run) or next(times))
    assert speed_up.measured("pipeline", "threads", 3, SIZE) == (2, 2, 2)
    assert order == ["one", "two"] * 4


@pytest.mark.parametrize("cores, mpiexec, engine, words", [
    ({0}, "/bin/mpiexec", "threads", "no second core"), ({0}, "/bin/mpiexec", "mpi", "no second core"),
    ({0, 1}, None, "mpi", "no MPI"), ({0, 1}, None, "threads", None),
])
def test_what_is_missing_is_said_in_the_row(cores, mpiexec, engine, words, monkeypatch):
    monkeypatch.setattr(speed_up.os, "sched_getaffinity", lambda process: cores, raising=False)
    monkeypatch.setattr(speed_up, "mpiexec", lambda: mpiexec)
    assert missing(engine) == words
    if words is not None:
        found = speed_up.speed_up("pipeline", engine, SIZE)(1, 1)
        line = run._line(OURS[1], found)
        assert found == words and words in line and line.startswith(OURS[1].what) and line.endswith(">= 0.56")


def test_rows_name_the_smallest_ratio_that_is_possible():
    """(M + K - 1) / (K M) for 1F1B; with late W, a device idles for one F and one I of 8 (F + I + W)."""
    assert [row.bound for row in OURS] == [9 / 16, 9 / 16, 26 / 48, 26 / 48, *[1 / 2] * 5]
