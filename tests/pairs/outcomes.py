"""What becomes of a row: it runs, and all its numbers are right; or it is refused in a sentence; or wrong."""

import linecache
from typing import NamedTuple

import numpy as np
from pairs.reference import Loop
from settings import ASYNCHRONOUS, DEFAULTS, OPTIONS, filled, trained


NOT_IN_BITS = "place", "checkpoint", "engine", "links", "zero"
NOT_ALONG_THE_TREE = "cut", "buckets", "recompute"  # where stages or buckets are other ones, chunks are, too


class Wrong(AssertionError):
    """A row gives other numbers than it must, or an error that is not a sentence."""


class Outcome(NamedTuple):
    """`refusal` is the sentence, or None for a row that ran; `oracle` says what its numbers are equal to."""

    refusal: str | None
    oracle: str | None


def outcome(row):
    """Return the `Outcome` of a row; raise `Wrong`, with the row, for all else."""
    row, found = filled(row), {}
    try:
        trained(row, found)
    except ValueError as error:
        if not is_sentence(error) or (found and not row["checkpoint"]):
            raise Wrong(f"{shown(row)}\n{type(error).__name__}: {error}") from error
        return Outcome(str(error), None)
    except Exception as error:
        raise Wrong(f"{shown(row)}\n{type(error).__name__}: {error}") from error
    oracle, expected = oracle_of(row)
    for name, value in found.items():
        other = np.asarray(expected[name])
        if not np.array_equal(value, other) or np.asarray(value).dtype != other.dtype:
            raise Wrong(f"{shown(row)}\n{name} differs: found\n{value}\nexpected, by {oracle}\n{other}")
    return Outcome(None, oracle)


def is_sentence(error):
    """Return whether minipipe has raised the error itself, rather than Python or NumPy under it."""
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    line = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
    return line.lstrip().startswith("raise ")


def shown(row):
    """Return the row in code, without defaults: `outcome(...)` of it runs it again."""
    return repr({name: value for name, value in row.items() if value != DEFAULTS[name]})


def oracle_of(row):
    """Return (its name, {name: value}): of rational numbers by the plain loop, of floats the same bits.

    Where the bits are those of the samples' tree, `Sequential` has them. Where they depend on the order of
    sums, on T or on the groups of a synchronised batch norm, so has a row without what must not show in them.
    """
    if row["dtype"] == "rational":
        return "a plain loop", Loop(row).train()
    how = row["how"] if row["how"] == "fit" else "forward_backward"
    ordered = row["accumulate"] == "tree" and row["all_reduce"] == "owners"
    ordered = ordered and row["schedule"] not in ASYNCHRONOUS
    plainer = row | {"how": how, "updates": "step"}
    plainer["again"] = row["again"] or row["checkpoint"]  # as many calls
    plainer |= {name: OPTIONS[name][0] for name in NOT_IN_BITS + NOT_ALONG_THE_TREE * ordered}
    if row["schedule"] in ASYNCHRONOUS:
        return "a plainer row", trained(plainer | {"how": "train", "updates": "order"})
    if ordered and not row["sync_batch_norm"] and (row["grain"] or row["samples"] == "equal"):
        one = {"D": 1, "K": 1, "schedule": "gpipe"}
        if row["T"] == 1:
            one |= {"schedule": None, "grain": row["grain"] or 2}
            return "Sequential(grain)", trained(plainer | one)
        plainer |= one
    return "a plainer row", trained(plainer)
