"""PipeDream's and Alpa's programs find the best of all plans; and what Narayanan et al. chose is near it."""

import random
from fractions import Fraction
from itertools import combinations, product
from math import inf

import pytest
from sampling import one_in

from minipipe.cli.main import main
from minipipe.papers import HARDWARE
from minipipe.papers.formulas import EqualLayers, all_dimensions, megatron_parameters
from minipipe.papers.narayanan import MEMORY, NODE, TABLE, S, V, choices, estimate, teraflops
from minipipe.planning.profiles import meshed_stages, partition_with_replicas


def compositions(total, n_parts, parts):
    """All tuples of n_parts numbers out of `parts` with this sum."""
    return [one for one in product(parts, repeat=n_parts) if sum(one) == total]


def all_plans(n_layers, n_devices, sizes):
    """[(layers, devices) of each stage] for every plan that uses all devices."""
    return [
        list(zip([end - start for start, end in zip((0, *cuts), (*cuts, n_layers))], meshes))
        for n_stages in range(1, min(n_layers, n_devices) + 1)
        for cuts in combinations(range(1, n_layers), n_stages - 1)
        for meshes in compositions(n_devices, n_stages, sizes)
    ]


def slowest_part(plan, T, a, w, bandwidth):
    start, parts = 0, []
    for count, m in plan:
        end = start + count
        exchange = Fraction(4 * (m - 1), m) * sum(w[start:end]) / bandwidth
        parts.append(max(sum(T[start:end]), exchange) / Fraction(m))
        if end < len(T):
            parts.append(Fraction(2 * a[end - 1]) / bandwidth)
        start = end
    return max(parts)


def test_pipedreams_example():
    """Golden 23."""
    T, a, w = (4, 4, 2), (8, 4, 1), (1, 1, 30)
    plans = all_plans(3, 4, range(1, 5))
    assert len(plans) == 10
    assert slowest_part([(3, 4)], T, a, w, 4) == 6              # pure data parallelism
    found = partition_with_replicas(T, a, w, 4, 4)
    assert found == ([(2, 3), (1, 1)], Fraction(8, 3))
    assert found.time == min(slowest_part(plan, T, a, w, 4) for plan in plans)


def test_pipedreams_program_equals_the_search_through_all_plans():
    """Random networks of up to 5 layers on up to 5 devices, in fractions."""
    chance = random.Random(0)
    for _ in range(150):
        n_layers, n_devices = chance.randint(1, 5), chance.randint(1, 5)
        T, a, w = ([chance.randint(low, 9) for _ in range(n_layers)] for low in (1, 0, 0))
        bandwidth = chance.randint(1, 6)
        found = partition_with_replicas(T, a, w, bandwidth, n_devices)
        plans = all_plans(n_layers, n_devices, range(1, n_devices + 1))
        assert found.time == min(slowest_part(plan, T, a, w, bandwidth) for plan in plans)
        assert found.time == slowest_part(found.stages, T, a, w, bandwidth)
        assert sum(m for _, m in found.stages) == n_devices


def whole_time(plan, stage_time, M):
    start, times = 0, []
    for place, (count, size) in enumerate(plan):
        times.append(stage_time(start, start + count, size, len(plan) - 1 - place))
        start += count
    return sum(times) + (M - 1) * max(times) if inf not in times else inf


def test_alpas_example():
    """Golden 24."""
    work = (6, 2, 4, 4)

    def stage_time(first, end, d, n_behind):
        return Fraction(sum(work[first:end]), d) + d - 1

    plans = all_plans(4, 4, (1, 2, 4))
    assert len(plans) == 14
    found = meshed_stages(stage_time, 4, 4, 4)
    assert found == ([(2, 2), (2, 2)], 25) and min(whole_time(plan, stage_time, 4) for plan in plans) == 25


def test_alpas_program_equals_the_search_with_memory():
    """Random networks; a stage keeps one micro-batch for each stage from it to the end."""
    chance, n_without = random.Random(1), 0
    for _ in range(150):
        n_layers, n_devices, M = chance.randint(1, 5), chance.randint(1, 5), chance.randint(1, 6)
        work, kept = ([chance.randint(1, 9) for _ in range(n_layers)] for _ in range(2))
        limit = chance.choice([inf, chance.randint(4, 30)])

        def stage_time(first, end, d, n_behind, work=work, kept=kept, limit=limit):
            if (n_behind + 1) * sum(kept[first:end]) > limit * d:
                return inf
            return Fraction(sum(work[first:end]), d) + d - 1

        plans = all_plans(n_layers, n_devices, (1, 2, 4))
        expected = min((whole_time(plan, stage_time, M) for plan in plans), default=inf)
        if expected == inf:
            n_without += 1
            with pytest.raises(ValueError, match=f"no cut of {n_layers} layers fits {n_devices} devices"):
                meshed_stages(stage_time, n_layers, n_devices, M)
            continue
        found = meshed_stages(stage_time, n_layers, n_devices, M)
        assert found.time == expected == whole_time(found.stages, stage_time, M)
    assert 8 < n_without < 75


# Narayanan et al.: ten published Transformers


def test_the_sizes_of_rows_give_the_printed_parameters():
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


def test_an_estimate_of_their_smallest_row_by_hand():
    """24 layers of h = 2304, T = 2, P = 3, D = 4, 2 of 512 sequences at a time: M = 64, 8 layers a stage.

    Each of the two times and of the bytes has some ten factors, each rounded once.
    """
    h, parameters = 2304, megatron_parameters(24, 2304, V, S) / 24
    found = estimate(24, h, T=2, P=3, D=4, b=2, B=512)
    layer = 2 / 2 * 96 * 2048 * h**2 / 156e12 + 2 * 1 / 2 * 2 * 6 * 2 * 2048 * h / 300e9
    time = (64 + 3 - 1) * 8 * layer + 2 * 3 / 4 * 8 / 2 * 2 * parameters / 300e9
    n_bytes = 8 * (16 / 2 * parameters + 3 * 2 * 2 * 2048 * h) + 2 / 2 * 34 * 2048 * h
    assert found[:5] == (4, 2, 3, 64, 2)
    assert found[5:] == pytest.approx((time, n_bytes), rel=20 * 2**-53)


@pytest.mark.parametrize("row", one_in(3, TABLE))
def test_the_estimate_of_their_choice_is_near_and_ours_no_slower(row):
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
def test_less_memory_turns_copies_into_shards_then_stages(limit, n_fit, best):
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
