"""The table of benchmarks: what it measures, not how fast that is."""

import os
import sys

import pytest
from benchmarks import rows, run


@pytest.mark.slow
def test_the_table_has_every_row_with_or_without_pytorch(
    capsys, monkeypatch, tmp_path
):
    """One round of each row but those of two devices, which test_speed_up.py measures.

    The processes that measure find a PyTorch that cannot be imported.
    """
    (tmp_path / "torch.py").write_text("raise ImportError")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(run, "PATIENCE", 0)
    monkeypatch.setattr(run, "ROWS", [row for row in rows.ROWS if row.in_both])
    run.main()
    header, *lines, reason = capsys.readouterr().out.splitlines()[3:]
    assert header.split() == ["what", "ours", "beside", "ratio", "Zen", "bound"]
    assert [line[:67].rstrip() for line in lines] == [row.what for row in run.ROWS]
    for line, row in zip(lines, run.ROWS):
        ours, unit, *beside, ratio, zen, bound = line[67:].replace(">= ", "").split()
        assert float(ours) > 0
        assert unit == row.unit
        assert bound == ("-" if row.bound is None else f"{row.bound:.2f}")
        if row.beside == "PyTorch":
            assert beside == ["no", "PyTorch"] and ratio == zen == "-"
        else:
            assert " ".join(beside[:-2]) == row.beside and beside[-1] == row.unit
            assert float(ratio) > 0 and float(zen) > 0
            # memory does not depend on the kernels
            assert row.unit == "ms" or float(ratio) == float(zen) <= 2.2
    assert "PyTorch: it is not installed" in reason


def test_the_ratio_is_the_median_of_the_ratios_of_pairs(monkeypatch):
    """Ratios 1, 2, 1; the medians 4 and 2 would have given 2."""
    clock, order = iter([1, 1, 4, 2, 9, 9]), []
    monkeypatch.setattr(
        rows, "milliseconds", lambda run, in_a_row: order.append((run(), in_a_row)) or next(clock)
    )
    measure = rows.pairs(lambda: (lambda: "ours", lambda: "its"))
    assert measure(n_rounds=3, in_a_row=5) == (4, 2, 1)
    assert order == [("ours", 5), ("its", 5)] * 3
