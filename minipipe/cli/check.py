"""The command `check`: the faults of a schedule, or a table of proofs."""

from argparse import Namespace
from itertools import product
from typing import Any, NamedTuple

from ..cluster import ticks
from ..layers.attention import SELECTIVE
from ..order import peak_microbatches, simulate
from ..order.actions import listing
from ..order.names import is_name, names_having
from ..order.reading import build, names_for
from ..parallel import Parallel
from ..verification import check as report_of
from ..verification.examples import EXAMPLES, Verdicts, verdicts
from ..watching import say, with_progress
from .show import title_of

HEAD = """\
Each run: D copies of a network of K stages, each stage on T devices that share its layers, against the same
network and one full-width batch; J and every parameter.

  ==       equal in rational arithmetic (with BatchNorm, whose statistics are the micro-batches' own, to a
           plain loop over these instead of the full batch)
  dyadic   equal bits in float32 and float64 on numbers that need no rounding; - where exp or tanh must round
  bits     float32 and float64, any numbers: equal bits to GPipe on one device; - where layers are in parts,
           which add in another order
"""
ROW = "{:40}{:>6}{:>8}{:>8}{:>8}"
WORDS = {True: "yes", False: "NO", None: "-"}
STRENGTHS = "exact", "dyadic", "bits"


class Run(NamedTuple):
    """One run of the table, on m samples; M counts the micro-batches of all copies."""

    example: Any
    schedule: str = "1f1b"
    D: int = 1
    T: int = 1
    K: int = 2
    M: int = 3
    m: int = 8
    recompute: str = "never"

    def verdicts(self) -> Verdicts:
        """Return the `Verdicts` of this run."""
        example, schedule, D, T, K, M, m, recompute = self

        def of(layers):
            return Parallel(
                layers, example.loss, replicas=D, shards=T, stages=K, microbatches=M, schedule=schedule,
                recompute=recompute,
            )

        return verdicts(example, m, of, is_sharded=T > 1)

    def __str__(self):
        _, schedule, D, T, K, M, m, recompute = self
        return f"{self.example.name}: {schedule}, D={D} T={T} K={K} M={M} m={m}, recompute={recompute!r}"


def table() -> dict[str, list[Run]]:
    """Return {name of a row: its runs}: rows of schedules, networks and splits.

    3 and 5 micro-batches do not divide 8 samples; a power of 2 keeps dyadic numbers
    exact.
    """
    linear, conv, attention = EXAMPLES[0], EXAMPLES[1], EXAMPLES[-1]
    rows = {}
    sizes = [(4, 5), (2, 3), (4, 4), (2, 4)]
    of_sizes = {(K, M): names_for(stages=K, microbatches=M) for K, M in sizes}
    for name in names_having(flush=True):
        sizes = [size for size, names in of_sizes.items() if name in names]
        (K, M), (K_last, M_last) = sizes[0], sizes[-1]
        rows[name] = [
            Run(linear, name, K=K, M=M), Run(linear, name, K=K_last, M=M_last, recompute="always"),
            Run(conv, name, K=K, M=M),
        ]
    for example in EXAMPLES:
        modes = ["never", "always", *([SELECTIVE] if example is attention else [])]
        # batch norm needs micro-batches of at least 2 samples, for a variance
        M = 3 if example.has_batch_norm else 5
        rows[example.name] = [
            Run(example, name, K=K, M=M, recompute=mode)
            for name, K, mode in product(("1f1b", "zb-h1"), (1, 4), modes)
        ]
    for D, T in ((2, 1), (3, 1), (1, 2), (2, 2)):
        m = 8 << (D - 1).bit_length()
        rows[f"{D} replicas x {T} shards"] = [
            Run(example, D=D, T=T, K=2, M=2 * D, m=m) for example in (linear, conv, attention)
        ]
    return rows


def check(options: Namespace) -> int:
    """Print faults of the schedule in `options`, or proofs; return 1 if one fails."""
    if options.schedule is None:
        for name in ("devices", "microbatches", "most_alive"):  # the proofs have sizes of their own
            if getattr(options, name) is not None:
                given = f"--{name.replace('_', '-')} {getattr(options, name)}"
                raise ValueError(f"{given} belongs to a schedule: name one, such as check 1f1b {given}")
        return prove()
    schedule = build(options.schedule, options.devices, options.microbatches)
    print(f"{title_of(schedule)}, {len(schedule.devices)} devices")
    faults = schedule.faults(options.most_alive)
    if faults:
        print(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}:\n{listing(faults)}")
        return 1
    trace = simulate(schedule)
    peaks = " ".join(map(str, peak_microbatches(trace)))
    print(f"no faults: {ticks(trace.makespan)} ticks with F=1,B=2; peak micro-batches per device: {peaks}")
    by_name = is_name(options.schedule)  # its formulas are compared, too
    K, M = len(schedule.devices), schedule.n_microbatches
    report = report_of(options.schedule if by_name else schedule, devices=K, microbatches=M)
    print(report.details())
    return 0 if report else 1


def prove() -> int:
    """Print the table row by row, and all runs that fail; return 1 if one does."""
    print(f"{HEAD}\n{ROW.format('', 'runs', '==', 'dyadic', 'bits')}", flush=True)
    n_runs, failed = 0, []
    for name, runs in with_progress(list(table().items()), "rows"):
        found = [run.verdicts() for run in runs]
        columns = [[getattr(one, strength) for one in found] for strength in STRENGTHS]
        worst = [WORDS[False if False in column else True if True in column else None] for column in columns]
        say(ROW.format(name, len(runs), *worst))
        n_runs += len(runs)
        failed += [run for run, one in zip(runs, found, strict=True) if not one.good]
    for run in failed:
        print(f"NO: {run}")
    print(f"\n{n_runs - len(failed)} of {n_runs} runs hold in every strength")
    return 1 if failed else 0
