"""Rows in which each pair of values of two options occurs, and `tests/pairs.md`, the table of what they gave.

    python3 tests/pairs/table.py                            # write the table
    python3 tests/pairs/table.py --random 20000 --seed 1    # run random settings, which no table names

A row starts from a pair that has not run yet, and what that needs; then option after option takes the value
with the most pairs that have not run yet, and that minipipe does not refuse: a greedy covering array.
"""

import argparse
import random
import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pairs.outcomes import Wrong, outcome
from settings import ASYNCHRONOUS, OPTIONS, filled, layers_of, network

from minipipe.engines import world

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
    ("recompute", "selective"): {"network": "tokens"},
    ("M", 3): {"D": 3},
    ("how", "train"): TRAINS,
    ("checkpoint", True): {"dtype": "float64"},
    **{("schedule", name): {"K": 2, "M": 4 if name.startswith("dualpipe") else 2}
       for name in OPTIONS["schedule"] if name not in ("1f1b", "data-parallel")},
    **{("schedule", name): TRAINS | {"K": 2, "M": 1 if name != "pipedream-2bw" else 2}
       for name in ASYNCHRONOUS},
}
FILE = Path(__file__).parents[1] / "pairs.md"
NEVER = re.compile("|".join([  # words of the sentences for pairs that no rebuild will bring together
    "a multiple of", "even number of", "stages on each device", "too few", "each copy needs at least one",
    "rational numbers cannot be written", "threads know seconds", "selective recomputation is for",
    "updates weights under way", "owns a part of the sum", "LA.* with weights_only", "need a flush",
    "to keep its bits", "over . shards", "makes an update after each", "exchange statistics", "per_update=",
    "in training got", "no replica to share",
]))
HEAD = """# Every pair of options

Written by `python3 tests/pairs/table.py`, and compared by `tests/pairs/test_pairs.py`. A setting is a row of
values, one for each of the {n} options of `tests/settings.py`; two of them are a pair. A pair *ran* if a
setting with it had exactly the numbers that it must have, through two updates or more. A pair is *refused* if
minipipe raises a sentence for each setting with it that was tried. Nothing is wrong in silence.

{pairs} pairs of values: {ran} ran, {refused} are refused, 0 are wrong.

## Pairs of options

How many pairs of values ran; behind a +, how many are refused.

"""


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


def text_of(refused):
    """Return the table in Markdown, where all pairs ran but {pair: the sentence that refuses it}."""
    names, refused = [*OPTIONS], {pair: refused[pair] for pair in all_pairs() if pair in refused}
    counts = {pair: [0, 0] for pair in combinations(names, 2)}
    for (a, _), (b, _) in all_pairs():
        counts[a, b][0] += 1
    for (a, _), (b, _) in refused:
        counts[a, b][0] -= 1
        counts[a, b][1] += 1
    parts = [HEAD.format(n=len(names), pairs=len(all_pairs()), ran=len(all_pairs()) - len(refused),
                         refused=len(refused))]
    parts.append("| | " + " | ".join(map(str, range(1, len(names)))) + " |\n")
    parts.append("|" + " --- |" * len(names) + "\n")
    for place, name in enumerate(names):
        cells = [_cell(counts[other, name]) for other in names[:place]] + [""] * (len(names) - 1 - place)
        parts.append(f"| {place + 1} {name} | " + " | ".join(cells) + " |\n")
    for title, is_never in (("Never together", True), ("Refused for now", False)):
        some = {pair: text for pair, text in refused.items() if bool(NEVER.search(text)) == is_never}
        parts.append(f"\n## {title}: {len(some)} pairs\n" + "".join(_groups(some)))
    return "".join(parts)


def _cell(counts):
    n_ran, n_refused = counts
    return f"{n_ran}+{n_refused}" if n_refused else str(n_ran)


def _groups(refused):
    """Yield a part for each sentence, those that differ only in numbers and names as one."""
    groups = {}
    for pair, sentence in refused.items():
        line = " ".join(sentence.split())
        groups.setdefault(re.sub(r"'[^']*'|\d+|\[.*?\]", "#", line)[:60], []).append((pair, line))
    for _, found in sorted(groups.items()):
        places = {}  # (option, value, other option) -> its values
        for ((a, x), (b, y)), _ in found:
            places.setdefault((a, x, b), []).append(y)
        of_options = {}  # (option, other option, its values) -> values of the option
        for (a, x, b), ys in places.items():
            of_options.setdefault((a, b, tuple(sorted(ys, key=OPTIONS[b].index))), []).append(x)
        yield f"\n> {min(sentence for _, sentence in found)}\n\n"
        for (a, b, ys), xs in of_options.items():
            yield f"- {a} {_listed(xs, a)} x {b} {_listed(ys, b)}\n"


def _listed(values, name):
    return ", ".join(map(str, sorted(values, key=OPTIONS[name].index)))


def run_random(n, seed):
    """Run n random rows; print what is wrong, and the counts; return how many are wrong."""
    rng, counts, ran = random.Random(seed), Counter(), Counter()
    for number in range(1, n + 1):
        row = drawn(rng)
        try:
            result = outcome(row)
            counts["refused" if result.refusal else f"ran, equal to {result.oracle}"] += 1
            ran.update(() if result.refusal else pairs_of(row))
        except Wrong as error:
            counts["wrong"] += 1
            print(error, flush=True)
        if number % 1000 == 0 or number == n:
            print(f"seed {seed}, {number} settings: {dict(counts)}, {len(ran)} pairs ran", flush=True)
    return counts["wrong"]


def pairs(n):
    """Run n random rows on as many MPI ranks as they need devices; return how many ran."""
    rng, rows = random.Random(world().size), []
    while len(rows) < int(n):
        row = drawn(rng) | {"checkpoint": False, "how": "forward_backward"}
        if n_devices(row) == world().size:
            rows.append(row | {"engine": "mpi"})
    return sum(outcome(row).refusal is None for row in rows)


def n_devices(row):
    """Return the devices of a row on the cluster; 0 if it is refused."""
    try:
        layers, loss, _ = layers_of(row)
        net = network(row, layers, loss)
    except ValueError:
        return 0
    return len(net.schedule.devices) * row["T"]


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random", type=int, metavar="N", help="run N random settings, and write nothing")
    arguments = parser.parse_args()
    if arguments.random:
        sys.exit(run_random(arguments.random, arguments.seed) > 0)
    FILE.write_text(text_of(covered(arguments.seed)[1]))
    print(f"{FILE} is written")


if __name__ == "__main__":
    main()
