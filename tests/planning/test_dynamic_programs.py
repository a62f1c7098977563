"""PipeDream's and Alpa's dynamic programs find what a search through all plans finds."""

import random
from fractions import Fraction
from itertools import combinations, product
from math import inf

import pytest

from minipipe.planning.dynamic_programs import meshed_stages, replicated_stages


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
    found = replicated_stages(T, a, w, 4, 4)
    assert found == ([(2, 3), (1, 1)], Fraction(8, 3))
    assert found.time == min(slowest_part(plan, T, a, w, 4) for plan in plans)


def test_pipedreams_program_equals_the_search_through_all_plans():
    """Random networks of up to 5 layers on up to 5 devices, in fractions."""
    chance = random.Random(0)
    for _ in range(400):
        n_layers, n_devices = chance.randint(1, 5), chance.randint(1, 5)
        T, a, w = ([chance.randint(low, 9) for _ in range(n_layers)] for low in (1, 0, 0))
        bandwidth = chance.randint(1, 6)
        found = replicated_stages(T, a, w, bandwidth, n_devices)
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


def test_alpas_program_equals_the_search_through_all_plans_with_memory():
    """Random networks; a stage keeps one micro-batch for each stage from it to the end."""
    chance, n_without = random.Random(1), 0
    for _ in range(400):
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
    assert 20 < n_without < 200
