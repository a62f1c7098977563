"""Ten published Transformers: their parameters, figure 13's optimum, and what an estimate would choose."""

import pytest

from minipipe.cli.main import main
from minipipe.papers import HARDWARE
from minipipe.papers.formulas import megatron_parameters
from minipipe.papers.narayanan import MEMORY, NODE, TABLE, S, V, choices, estimate


def test_the_sizes_of_the_rows_give_the_parameters_that_are_printed():
    assert len(TABLE) == 10
    for row in TABLE:
        billions = megatron_parameters(row.n_layers, row.h, V, S) / 1e9
        assert billions == pytest.approx(row.billions, abs=0.5 if row.billions > 1000 else 0.05)
        assert row.n_gpus % (row.T * row.P) == 0 and row.n_layers % row.P == 0 and row.n_heads % row.T == 0


@pytest.mark.parametrize("B, seconds", [
    (32, [16.8, 12.7, 10.8, 19.8, 29.3]), (128, [42.3, 38.5, 37.3, 74.2, 114.6]),
])
def test_figure_13_is_best_at_the_size_of_a_node(B, seconds):
    """Golden 26: 162 billion parameters on 64 GPUs."""
    found = [estimate(32, 20480, T, 64 // T, 1, 1, B).seconds for T in (2, 4, 8, 16, 32)]
    assert [round(time, 1) for time in found] == seconds and min(found) == found[2]


def test_the_estimate_of_what_they_chose_is_near_and_its_own_choice_no_slower():
    for row in TABLE:
        found = choices(row)
        theirs = [one for one in found if (one.T, one.P) == (row.T, row.P)]
        assert theirs and 0.8 < theirs[0].teraflops / row.teraflops < 1.26
        assert found[0].seconds <= theirs[0].seconds and found[0].n_bytes <= MEMORY
        assert found[0].T <= NODE and found[0].T * found[0].P * found[0].D == row.n_gpus
        if row.billions > 50:
            assert found[0].T == row.T == NODE
    tightest = min(one.n_bytes for one in choices(TABLE[-1]))
    assert choices(TABLE[-1], memory=tightest - 1) == []


def test_the_hardware_of_d2l_is_among_the_rows():
    assert HARDWARE["PCIe, PCIe GPU"].seconds(10**6) == pytest.approx(80e-6, rel=0.11)
    assert HARDWARE["PCIe, NVLink GPU"].seconds(10**6) == pytest.approx(30e-6, rel=0.18)
    assert HARDWARE["NVLink, one of a V100"].link().bandwidth == 18e9


def test_the_command_prints_them(capsys):
    assert main(["papers", "plans"]) == 0
    said = capsys.readouterr().out
    assert "1008B" in said and "T=8 P=64 D=6" in said
