"""`minipipe verify`: layers x schedules x K x M x ragged x recompute.

Each of these runs has a verdict for each strength of exactness, and each schedule a row that sums them up.
"""

from functools import partial
from itertools import product

from ..layers.recomputing import SELECTIVE, can_recompute
from ..pipeline import Pipeline
from ..schedules import BUILDERS, names_for_stages
from ..verification.examples import EXAMPLES, verdicts
from ..watching import say, with_progress

PURPOSE = "prove many combinations equal to the full batch, as a table"
EPILOG = """examples:
  python3 -m minipipe verify
  python3 -m minipipe verify --all
"""
SIZES = [(1, 4, 8), (2, 3, 8), (2, 4, 8), (4, 2, 8), (4, 5, 8)]  # K, M, m; 3 and 5 do not divide 8

HEAD = """\
Each run: one network in one pipeline against the same network and one full-width batch; J and every
parameter.

  ==       equal in rational arithmetic (with BatchNorm, whose statistics are the micro-batches' own, to a
           plain loop over these instead of the full batch)
  dyadic   equal bits in float32 and float64 on numbers that need no rounding; - where exp or tanh must round
  bits     float32 and float64, any numbers: equal bits to GPipe on one device
  bound    float32 and float64, any numbers: largest difference to the full batch, in % of what rounding can
           explain; - where no bound is derived
"""
COLUMNS = "{:36}{:12}{:>3}{:>3}{:>3}  {:11}{:>5}{:>8}{:>6}{:>8}"
OF_ALL = "{:16}{:>6}{:>8}{:>8}{:>8}{:>9}"

MODES = "never", "always", SELECTIVE
WORDS = {True: "yes", False: "NO", None: "-"}


def add_options(parser):
    parser.add_argument("--all", action="store_true", help="a row for each run, not only for those that fail")


def run(options):
    print(HEAD, flush=True)
    by_schedule, shown = {}, False
    for example, name, sizes, recompute in with_progress(_runs(), "runs"):
        K, M, m = sizes
        pipeline_of = partial(
            Pipeline, loss=example.loss, n_stages=K, n_microbatches=M, schedule=name, recompute=recompute
        )
        found = verdicts(example, m, pipeline_of)
        by_schedule.setdefault(name, []).append(found)
        if options.all or not found.good:
            if not shown:
                heads = "network", "schedule", "K", "M", "m", "recompute", "==", "dyadic", "bits", "bound"
                say(COLUMNS.format(*heads))
            shown = True
            say(_row(example.name, name, *sizes, recompute, found))
    print("\n" * shown + OF_ALL.format("schedule", "runs", "==", "dyadic", "bits", "bound"))
    for name, found in by_schedule.items():
        print(_row_of_schedule(name, found))
    everything = [found for of_schedule in by_schedule.values() for found in of_schedule]
    holding = sum(found.good for found in everything)
    print(f"\n{holding} of {len(everything)} runs hold in every strength")
    return 0 if holding == len(everything) else 1


def _runs():
    """[(example, name of a schedule, (K, M, m), mode of recomputation)]"""
    return [
        (example, name, (K, M, m), mode)
        for example, name, (K, M, m), mode in product(EXAMPLES, BUILDERS, SIZES, MODES)
        if name in names_for_stages(K, M)
        and not (M > m // 2 and example.has_batch_norm)  # of one sample, batch norm has no variance
        and (mode != SELECTIVE or can_recompute(example.layers))
    ]


def _row(network, schedule, K, M, m, recompute, found):
    """One line of the table. found: `Verdicts`."""
    words = [WORDS[verdict] for verdict in (found.exact, found.dyadic, found.bits)]
    bound = "-  " if found.share is None else f"{100 * found.share:.2f} %"
    line = COLUMNS.format(network, schedule, K, M, m, recompute, *words, bound)
    return f"{line}  ragged" if m % M else line.rstrip()


def _row_of_schedule(name, found):
    """The line of a schedule. found: the `Verdicts` of its runs, of which the worst counts."""
    columns = [[getattr(one, strength) for one in found] for strength in ("exact", "dyadic", "bits")]
    worst = [WORDS[False if False in column else True if True in column else None] for column in columns]
    share = max(one.share or 0 for one in found)
    return OF_ALL.format(name, len(found), *worst, f"{100 * share:.2f} %")
