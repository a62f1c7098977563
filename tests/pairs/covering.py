"""Rows in which each pair of values of two options occurs, unless minipipe refuses it.

A row starts from a pair that has not run yet, and what that needs; then option after option takes the value
with the most pairs that have not run yet, and that minipipe does not refuse: a greedy covering array.
"""

import random
from collections import Counter
from itertools import combinations

from pairs.outcomes import outcome
from settings import ASYNCHRONOUS, OPTIONS, filled, layers_of, network

SEEDS = 1000  # of weights and data
LARGE = 32    # rows above this `size` are not grown
AT_CALLS = ("dtype", "grain", "samples", "checkpoint", "engine", "how")  # what may be refused after the door
TRAINS = {"how": "train", "updates": "order"}
COPIES = {"D": 2, "M": 2}
ZERO = COPIES | {"updates": "order"}
NEEDS = {  # (option, value): values of other options without which it is refused
    **{("D", D): {"M": D} for D in (2, 3)},
    **{("zero", level): ZERO for level in (1, 2, 3)},
    **{("buckets", size): COPIES for size in (64, "ddp")},
    ("sync_batch_norm", True): COPIES | {"network": "normal"},
    ("sequence", True): {"network": "tokens", "T": 2},
    ("rows", True): {"network": "image", "T": 2},
    ("recompute", "selective"): {"network": "tokens"},
    ("M", 3): {"D": 3},
    ("how", "train"): TRAINS,
    ("checkpoint", True): {"dtype": "float64"},
    **{("schedule", name): {"K": 2, "M": 4 if name.startswith("dualpipe") else 2}
       for name in OPTIONS["schedule"] if name not in ("1f1b", "data-parallel")},
    **{("schedule", name): TRAINS | {"K": 2, "M": 1 if name != "pipedream-2bw" else 2}
       for name in ASYNCHRONOUS},
}


def pairs_of(row):
    """Return the pairs ((option, value), (option, value)) in a row."""
    return list(combinations([(name, row[name]) for name in OPTIONS], 2))


def all_pairs():
    """Return each pair of values of two options."""
    return [((a, x), (b, y)) for a, b in combinations(OPTIONS, 2) for x in OPTIONS[a] for y in OPTIONS[b]]


def refusal(row):
    """Return the sentence with which the network of a row is refused, or None."""
    try:
        layers, loss, _ = layers_of(row)
        network(row, layers, loss)
    except ValueError as error:
        return str(error)
    return None


def beginnings(pair):
    """Yield rows with this pair and the needs of its values, of the one or the other first, or of neither."""
    of_both = [NEEDS.get(part, {}) for part in pair]
    both = of_both[0] | of_both[1]
    more = [both | {"M": M} for M in (4, 6, 12)]  # two copies, two directions: some orders need many
    fewer = [both | few for few in ({"D": 1}, {"K": 1}, {"schedule": "chimera", "D": 1, "K": 2, "M": 2})]
    fewer.append(both | {"schedule": "data-parallel"})  # whose copies may have unequal work
    for needs in (both, of_both[1] | of_both[0], *more, *of_both, {}, *fewer):
        yield filled(needs | dict(pair))


def grown(row, pair, wanted, rng):
    """Return `row` with other options at values that make many of the pairs in `wanted`."""
    fixed = dict(pair)
    for name in rng.sample([*OPTIONS], len(OPTIONS)):
        if name in fixed:
            continue
        scores = {value: rng.random() + sum(two in wanted for two in pairs_with(row, name, value))
                  for value in OPTIONS[name]}
        for value in sorted(scores, key=scores.get, reverse=True)[:3]:
            changed = row | {name: value}
            if value == row[name] or not (size(changed) > LARGE or refusal(changed)):
                row = changed
                break
    return row | {"seed": rng.randrange(SEEDS)}


def size(row):
    """Return how much work a row is, about."""
    slow = 3 if row["dtype"] == "rational" else 1
    slow *= 4 if row["network"] == "tokens" else 1
    return row["D"] * row["T"] * row["K"] * row["M"] * slow


def pairs_with(row, name, value):
    """Return the pairs in `row` of this option at this value."""
    order = [*OPTIONS]
    place = order.index(name)
    before, after = ([(other, row[other]) for other in part] for part in (order[:place], order[place + 1:]))
    return [(other, (name, value)) for other in before] + [((name, value), other) for other in after]


def covered(seed, run=outcome, pairs=None):
    """Return ({pair: in how many rows it ran}, {pair: the sentence that refuses it}, rows that ran).

    run: what returns the `Outcome` of a row, or raises `Wrong`.
    """
    rng, ran, refused, rows = random.Random(seed), Counter(), {}, []
    pairs = all_pairs() if pairs is None else pairs
    wanted = set(pairs)
    for pair in rng.sample(pairs, len(pairs)):
        if pair not in wanted:
            continue
        for row in candidates(pair, wanted, rng):
            if run(row).refusal is None:
                rows.append(row)
                ran.update(pairs_of(row))
                wanted.difference_update(pairs_of(row))
                break
        else:
            start = next(beginnings(pair))
            refused[pair] = refusal(start) or run(start).refusal
            wanted.discard(pair)
    return ran, {pair: sentence for pair, sentence in refused.items() if pair not in ran}, rows


def candidates(pair, wanted, rng):
    """Yield rows with this pair that the door lets in, fuller ones first."""
    for start in beginnings(pair):
        if not refusal(start):
            row = grown(start, pair, wanted, rng)
            yield row
            yield row | {name: start[name] for name in AT_CALLS if name not in dict(pair)}
            yield start


def drawn(rng):
    """Return a row in which a few options, with their needs, have random values."""
    names = {"network", "dtype", *rng.sample([*OPTIONS], rng.randint(2, 6))}
    values = {name: rng.choice(OPTIONS[name]) for name in OPTIONS if name in names}
    needs = {}
    for pair in values.items():
        needs |= NEEDS.get(pair, {})
    return filled(needs | values | {"seed": rng.randrange(SEEDS)})
