"""`minipipe verify`: layers x schedules x K x M x ragged x recompute.

Each row has a verdict for each strength of exactness.
"""

from functools import partial
from itertools import product

from ..pipeline import Pipeline
from ..schedules import BUILDERS, names_for_stages
from ..verification.examples import EXAMPLES, verdicts

PURPOSE = "prove many combinations equal to the full batch, as a table"
EPILOG = """example:
  python3 -m minipipe verify
"""
SIZES = [(1, 4, 8), (2, 3, 8), (2, 4, 8), (4, 2, 8), (4, 5, 8)]  # K, M, m; 3 and 5 do not divide 8

HEAD = """\
Each row: one network in one pipeline against the same network and one full-width batch; J and every
parameter.

  ==       equal in rational arithmetic (with BatchNorm, whose statistics are the micro-batches' own, to a
           plain loop over these instead of the full batch)
  dyadic   equal bits in float32 and float64 on numbers that need no rounding; - where exp or tanh must round
  bits     float32 and float64, any numbers: equal bits to GPipe on one device
  bound    float32 and float64, any numbers: largest difference to the full batch, in % of what rounding can
           explain; - where no bound is derived
"""
COLUMNS = "{:36}{:12}{:>3}{:>3}{:>3}  {:11}{:>5}{:>8}{:>6}{:>8}"

WORDS = {True: "yes", False: "NO", None: "-"}


def add_options(parser):
    """There are none."""


def run(options):
    print(HEAD)
    print(COLUMNS.format("network", "schedule", "K", "M", "m", "recompute", "==", "dyadic", "bits", "bound"))
    failures = n_rows = 0
    for example, name, (K, M, m), recompute in product(EXAMPLES, BUILDERS, SIZES, (False, True)):
        one_sample_each = M > m // 2  # in some micro-batch, which then has no variance
        if name not in names_for_stages(K, M) or (one_sample_each and example.has_batch_norm):
            continue
        pipeline_of = partial(
            Pipeline, loss=example.loss, n_stages=K, n_microbatches=M, schedule=name, recompute=recompute
        )
        found = verdicts(example, m, pipeline_of)
        print(_row(example.name, name, K, M, m, recompute, found), flush=True)
        failures += not found.good
        n_rows += 1
    print(f"\n{n_rows - failures} of {n_rows} rows hold in every strength")
    return 1 if failures else 0


def _row(network, schedule, K, M, m, recompute, found):
    """One line of the table. found: `Verdicts`."""
    words = [WORDS[verdict] for verdict in (found.exact, found.dyadic, found.bits)]
    bound = "-  " if found.share is None else f"{100 * found.share:.2f} %"
    line = COLUMNS.format(network, schedule, K, M, m, "yes" if recompute else "no", *words, bound)
    return f"{line}  ragged" if m % M else line.rstrip()
