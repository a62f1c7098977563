"""The table of benchmarks, here with small layers: what it measures, not how fast that is."""

import pytest
from benchmarks import run
from benchmarks.run import CASES, ROWS, missing
from engines.jobs import on_ranks

ON_TWO = ROWS[-len(CASES):]
ENGINES = [case[-2:] for case in CASES]
SIZE = 16


@pytest.mark.skipif(missing("threads") is not None, reason="no second core")
def test_threads_are_measured_beside_one_device():
    for case, engine in [pair for pair in ENGINES if pair[1] != "mpi"]:
        ours, beside, ratio = run.speed_up(case, engine, SIZE)(3, 1)
        assert ours > 0 and beside > 0 and 0.01 < ratio < 1000


@pytest.mark.slow
@on_ranks
@pytest.mark.skipif(missing("mpi") is not None, reason="no second core")
@pytest.mark.parametrize("case, engine", [pair for pair in ENGINES if pair[1] == "mpi"])
def test_ranks_are_measured_beside_one_device(case, engine):
    ours, beside, ratio = run.speed_up(case, engine, SIZE)(3, 1)
    assert ours > 0 and beside > 0 and 0.01 < ratio < 1000


def test_runs_take_turns_and_the_ratio_is_that_of_the_pairs(monkeypatch):
    """Ratios 2, 1/2 and 2, after a first pair to warm up; those of the medians would be 1."""
    times, order = iter([9, 9, 1, 2, 4, 2, 2, 4]), []
    monkeypatch.setattr(run, "alone", lambda case, size: "one")
    monkeypatch.setattr(run, "together", lambda case, engine, size: "two")
    monkeypatch.setattr(run, "seen_by_a_clock", lambda run, X, Y: order.append(run) or next(times))
    assert run.measured("pipeline", "threads", 3, SIZE) == (2, 2, 2)
    assert order == ["one", "two"] * 4


@pytest.mark.parametrize("cores, mpiexec, engine, words", [
    ({0}, "/bin/mpiexec", "threads", "no second core"), ({0}, "/bin/mpiexec", "mpi", "no second core"),
    ({0, 1}, None, "mpi", "no MPI"), ({0, 1}, None, "threads", None),
])
def test_a_row_says_what_the_computer_lacks(cores, mpiexec, engine, words, monkeypatch):
    monkeypatch.setattr(run.os, "sched_getaffinity", lambda process: cores, raising=False)
    monkeypatch.setattr(run, "mpiexec", lambda: mpiexec)
    assert missing(engine) == words
    if words is not None:
        found = run.speed_up("pipeline", engine, SIZE)(1, 1)
        line = run._line(ON_TWO[1], found)
        assert found == words and line.startswith(ON_TWO[1].what)
        assert words in line and line.endswith(">= 0.56")


def test_rows_name_the_smallest_ratio_that_is_possible():
    """(M + K - 1) / (K M) for 1F1B."""
    assert [row.bound for row in ON_TWO] == [9 / 16, 9 / 16, *[1 / 2] * 3]


@pytest.mark.slow
def test_the_table_has_every_row(capsys, monkeypatch):
    """One round of each row but those of two devices, which are measured above."""
    monkeypatch.setattr(run, "PATIENCE", 0)
    monkeypatch.setattr(run, "ROWS", ROWS[:-len(ON_TWO)])
    run.main()
    header, *lines = capsys.readouterr().out.splitlines()[2:]
    assert header.split() == ["what", "ours", "beside", "ratio", "bound"]
    assert [line[:67].rstrip() for line in lines] == [row.what for row in run.ROWS]
    for line, row in zip(lines, run.ROWS):
        ours, unit, *beside, ratio, bound = line[67:].replace(">= ", "").split()
        assert float(ours) > 0 and unit == "ms"
        assert bound == ("-" if row.bound is None else f"{row.bound:.2f}")
        assert " ".join(beside[:-2]) == row.beside and beside[-1] == "ms" and float(ratio) > 0


def test_the_ratio_is_the_median_of_the_ratios_of_pairs(monkeypatch):
    """Ratios 1, 2, 1; the medians 4 and 2 would have given 2."""
    clock, order = iter([1, 1, 4, 2, 9, 9]), []
    monkeypatch.setattr(
        run, "milliseconds", lambda run, in_a_row: order.append((run(), in_a_row)) or next(clock)
    )
    measure = run.pairs(lambda: (lambda: "ours", lambda: "its"))
    assert measure(n_rounds=3, in_a_row=5) == (4, 2, 1)
    assert order == [("ours", 5), ("its", 5)] * 3
