"""Ten published Transformers: their parameters, figure 13's optimum, and what an estimate would choose."""

from fractions import Fraction
from math import inf

import pytest
from sampling import one_in

from minipipe.cli.main import main
from minipipe.papers import HARDWARE
from minipipe.papers.dimensions import EqualLayers, all_dimensions
from minipipe.papers.formulas import megatron_parameters
from minipipe.papers.narayanan import MEMORY, NODE, TABLE, S, V, choices, estimate, teraflops


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
    found = [estimate(32, 20480, T, 64 // T, 1, 1, B).time for T in (2, 4, 8, 16, 32)]
    assert [round(time, 1) for time in found] == seconds and min(found) == found[2]


@pytest.mark.parametrize("row", one_in(3, TABLE))
def test_the_estimate_of_what_they_chose_is_near_and_its_own_choice_no_slower(row):
    found = choices(row)
    theirs = [one for one in found if (one.T, one.P) == (row.T, row.P)]
    assert theirs and 0.8 < teraflops(row, theirs[0]) / row.teraflops < 1.26
    assert found[0].time <= theirs[0].time and found[0].n_bytes <= MEMORY
    assert found[0].T <= NODE and found[0].T * found[0].P * found[0].D == row.n_gpus
    if row.billions > 50:
        assert found[0].T == row.T == NODE
    tightest = min(one.n_bytes for one in found)
    assert choices(row, memory=tightest - 1) == []


TOY = EqualLayers(8, work=3, exchanged=4, gradients=8, state=32, whole=Fraction(1, 2), parted=Fraction(1, 2))


@pytest.mark.parametrize("limit, n_fit, best", [
    (inf, 40, (4, 1, 2, 4, 1, 63, 136)), (100, 30, (2, 2, 2, 8, 1, 64, 70)),
    (60, 16, (1, 2, 4, 16, 1, Fraction(133, 2), 38)),
])
def test_less_memory_turns_copies_into_shards_and_then_into_stages(limit, n_fit, best):
    """Golden 25: 8 layers, 16 samples, two nodes of 4; D, T, P, M, b, time and bytes of the fastest."""
    found = all_dimensions(TOY, 16, 8, 4, Fraction(1, 16), Fraction(1, 2), limit)
    assert len(found) == n_fit and found[0] == best


def test_what_takes_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="gradients=-1 must be at least 0"):
        all_dimensions(TOY._replace(gradients=-1), 16, 8, 4, 1, 1)
    with pytest.raises(ValueError, match="n_devices=0"):
        all_dimensions(TOY, 16, 0, 4, 1, 1)


def test_the_hardware_of_d2l_is_among_the_rows():
    """1 MB takes 80 and 30 us: one digit is printed, of the bytes without the latency."""
    for name, printed in (("PCIe, PCIe GPU", 80), ("PCIe, NVLink GPU", 30)):
        row = HARDWARE[name]
        assert round(10**6 / row.bandwidth * 1e6, -1) == printed
        assert row.seconds(10**6) == 5e-6 + 10**6 / row.bandwidth
    assert HARDWARE["NVLink, one of a V100"].link().bandwidth == 18e9


@pytest.mark.slow
def test_the_command_prints_them(capsys):
    assert main(["papers", "plans"]) == 0
    said = capsys.readouterr().out
    assert "1008B" in said and "T=8 P=64 D=6" in said
