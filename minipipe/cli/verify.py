"""`minipipe verify`: layers x schedules x K x M x ragged x recompute, and the same split in other ways, too.

Each of these runs has a verdict for each strength of exactness, and each schedule and each split a row that
sums them up.
"""

from functools import partial
from itertools import product
from typing import NamedTuple

from ..layers.recomputing import SELECTIVE, can_recompute
from ..parallel import Parallel
from ..parallel.options import Memory, Split
from ..schedules import names_for_stages, names_having
from ..verification.checking import WORDS
from ..verification.examples import EXAMPLES, verdicts
from ..watching import say, with_progress
from .options import add_splits

PURPOSE = "prove many combinations equal to the full batch, as a table"
EPILOG = """examples:
  python3 -m minipipe verify
  python3 -m minipipe verify --all
  python3 -m minipipe verify --replicas 3 --shards 2
"""
# K, and of one copy M and m; 3 and 5 do not divide 8. A power of 2 keeps dyadic numbers exact
PIPELINE_SIZES = [
    (1, 4, 8), (2, 3, 8), (2, 4, 8), (4, 2, 8), (4, 5, 8),
]
VERIFIED_SCHEDULES = names_having(flush=True)
SPLITS = [(3, 1), (1, 2), (2, 2)]  # D, T; with one schedule and fewer sizes
OF_SPLITS = ["1f1b"], PIPELINE_SIZES[:2]

HEAD = """\
Each run: D copies of a network of K stages, each on T devices that share its layers, against the same network
and one full-width batch; J and every parameter.

  ==       equal in rational arithmetic (with BatchNorm, whose statistics are the micro-batches' own, to a
           plain loop over these instead of the full batch)
  dyadic   equal bits in float32 and float64 on numbers that need no rounding; - where exp or tanh must round
  bits     float32 and float64, any numbers: equal bits to GPipe on one device, with late W to that; - where
           layers are in parts, which add in another order
"""
ROW_FORMAT = "{:36}{:14}{:>3}{:>3}{:>3}{:>3}{:>4}  {:11}{:>5}{:>8}{:>6}"
OF_ALL = "{:22}{:>6}{:>8}{:>8}{:>8}"

RECOMPUTE_CASES = "never", "always", SELECTIVE


class VerifiedRun(NamedTuple):
    """One run of the table.

    M, m: micro-batches and samples of the whole mini-batch.
    mode: of recomputation.
    """

    example: object
    schedule: str
    D: int
    T: int
    K: int
    M: int
    m: int
    mode: str

    @property
    def split(self):
        """What its row in the second table begins with."""
        return f"{self.D} replicas x {self.T} shards"

    def verdicts(self):
        example, schedule, D, T, K, M, m, mode = self
        network = partial(
            Parallel, loss=example.loss, split=Split(D, T, K, M), schedule=schedule, memory=Memory(mode),
        )
        return verdicts(example, m, network, in_parts=T > 1)

    def row(self, found):
        """Return the line of this trial in the table. found: the `Verdicts`."""
        words = [WORDS[verdict] for verdict in (found.exact, found.dyadic, found.bits)]
        line = ROW_FORMAT.format(self.example.name, *self[1:], *words)
        return f"{line}  ragged" if self.m % self.M else line.rstrip()


def add_options(parser):
    parser.instead = "a layer, a network or a schedule of your own is checked in Python, help(minipipe.check)"
    parser.add_argument("--all", action="store_true", help="a row for each run, not only for those that fail")
    others = ", ".join(f"{D} x {T}" for D, T in SPLITS)
    add_splits(
        parser, "copies of the network in all runs; if this and T are 1, some runs follow with D x T = "
        f"{others}", "devices that share the work inside each layer, in all runs",
    )


def run(options):
    print(HEAD, flush=True)
    by_schedule, by_split, shown = {}, {}, False
    for trial in with_progress(_trials(options.replicas, options.shards), "runs"):
        found = trial.verdicts()
        by_schedule.setdefault(trial.schedule, []).append(found)
        by_split.setdefault(trial.split, []).append(found)
        if options.all or not found.good:
            if not shown:
                heads = "network", "schedule", "D", "T", "K", "M", "m", "recompute", "==", "dyadic", "bits"
                say(ROW_FORMAT.format(*heads))
            shown = True
            say(trial.row(found))
    for what, rows in (("schedule", by_schedule), ("split", by_split)):
        print("\n" + OF_ALL.format(what, "runs", "==", "dyadic", "bits"))
        for name, found in rows.items():
            print(_row_of_all(name, found))
    everything = [found for of_schedule in by_schedule.values() for found in of_schedule]
    holding = sum(found.good for found in everything)
    print(f"\n{holding} of {len(everything)} runs hold in every strength")
    return 0 if holding == len(everything) else 1


def _trials(D, T):
    """All `VerifiedRun`s with D copies on T shards; if that is one device a stage, those of `SPLITS`, too."""
    splits = [(D, T, VERIFIED_SCHEDULES, PIPELINE_SIZES)]
    if D == T == 1:
        splits += [(*split, *OF_SPLITS) for split in SPLITS]
    return [trial for split in splits for trial in _trials_of(*split)]


def _trials_of(D, T, schedules, sizes):
    return [
        VerifiedRun(example, schedule, D, T, K, D * M, m << (D - 1).bit_length(), mode)
        for example, schedule, (K, M, m), mode in product(EXAMPLES, schedules, sizes, RECOMPUTE_CASES)
        if _exists(schedule, D, K, M)
        and not (M > m // 2 and example.has_batch_norm)  # of one sample, batch norm has no variance
        and (mode != SELECTIVE or can_recompute(example.layers))
    ]


def _exists(schedule, D, K, M):
    return D == 1 if schedule in names_having(late_w=True) else schedule in names_for_stages(K, M)


def _row_of_all(name, found):
    """The line of a schedule or a split. found: the `Verdicts` of its runs, of which the worst counts."""
    columns = [[getattr(one, strength) for one in found] for strength in ("exact", "dyadic", "bits")]
    worst = [WORDS[False if False in column else True if True in column else None] for column in columns]
    return OF_ALL.format(name, len(found), *worst)
