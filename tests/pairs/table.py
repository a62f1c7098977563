"""Write `tests/pairs.md`, the table of all pairs of values; or run random settings.

    python3 tests/pairs/table.py                            # the table
    python3 tests/pairs/table.py --random 20000 --seed 1    # what no table names
"""

import argparse
import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from pairs.covering import all_pairs, covered, drawn, pairs_of
from pairs.outcomes import Wrong, outcome
from settings import OPTIONS

FILE = Path(__file__).parents[1] / "pairs.md"
NEVER = re.compile("|".join([  # words of the sentences for pairs that no rebuild will bring together
    "a multiple of", "even number of", "stages on each device", "too few", "each copy needs at least one",
    "rational numbers cannot be written", "threads know seconds", "selective recomputation is for",
    "updates weights under way", "owns a part of the sum", "LA.* with weights_only", "need a flush",
    "to keep its bits", "over . shards", "makes an update after each", "the copies meet", "per_update=",
    "in training got", "nobody to share",
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
    rng, counts, ran = Random(seed), Counter(), Counter()
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
