"""What trainings show: ticks, messages and bytes of the last mini-batch; and their numbers, to be compared.

A case is a row of `settings` as text, without its defaults, such as "D=2 K=2 zero=1"; or the name of a
checkpoint that an earlier version has written: it is read, and the training goes on.
"""

import re
import sys
from ast import literal_eval
from functools import cache
from pathlib import Path

import numpy as np
from goldens.traces import lines_of
from settings import (
    DEFAULTS, HOW, OPTIONS, arrays_of, batches_of, filled, layers_of, loaded, memories_of, network,
    optimizer_of, run,
)

import minipipe as mp

ALWAYS = {"M": 4, "n_updates": 3, "optimizer": "momentum"}
SPLITS = [  # a device, copies, stages, shards, and several of them
    {}, {"D": 2, "schedule": "data-parallel"}, {"K": 2}, {"T": 2}, {"D": 2, "K": 2}, {"T": 2, "K": 2},
    {"D": 2, "T": 2, "K": 2},
]
BETWEEN_COPIES = ("buckets", "all_reduce")  # nothing is exchanged without copies
OF_NETWORKS = {  # options that only some networks have
    "sync_batch_norm": ("normal", "image normal"),
    "zero": ("perceptron", "image"),
}
ALONE = {  # schedules that update weights under way
    "pipedream": {"M": 1, "how": "train", "updates": "order"},
    "pipedream-vertical": {"M": 1, "how": "train", "updates": "order"},
    "pipedream-2bw": {"how": "train", "updates": "order"},
}
WITH = {"zero": {"updates": "order"}}  # what an option needs
TOKENS = {"network": "tokens", "n_updates": 2}  # their fractions grow long
ELSEWHERE = (*ALWAYS, "network", "dtype", "schedule", "D", "T", "K", "engine", "checkpoint")
IN_NO_TICK = ("weights_only", "clip", "how", "again")  # nor in a byte: `pairs` has these
FOLDER = Path(__file__).parent / "files"
FILES = {
    "pipeline.npz": "K=3 dtype=float64 ties=True dropout=True optimizer=adam",
    "copies.npz": "D=2 K=2 dtype=float64 network=image zero=2 updates=order",
    "shards.npz": "T=2 dtype=float64 network=tokens optimizer=adamw",
    "normal.npz": "dtype=float32 network=image+normal optimizer=rmsprop",
}
STEPS = {"float64": 2**30, "float32": 2**10}  # in one unit: far above what another processor rounds otherwise


def cases():
    """Return the rows that minipipe does not refuse."""
    return [row for row in _rows() if _is_taken(row)]


def _is_taken(case):
    try:
        _run(case)
    except ValueError:
        return False
    return True


def floats(rows):
    """Return `rows` in floats, whose bits are only compared with those of an earlier commit."""
    of_64 = [f"{row} dtype=float64" for row in rows]
    of_32 = [f"{row} dtype=float32" for row in list(rows)[::4]]
    saved = [_case(split | {"checkpoint": True, "dtype": "float64"}) for split in SPLITS]  # no rational file
    return [*of_64, *of_32, *saved, *(f"{row} engine=threads" for row in of_64[::4])]


def numbers(case):
    """Return {part: lines} of J, gradients, parameters, what optimizers remember, and a prediction."""
    found, net, optimizer = _run(case)
    parts = {}
    for name, number in (found | memories_of(net, optimizer)).items():
        part, batch = re.fullmatch(r"(.+?)(?:(?: of|,| up to) mini-batch (\d+))?", name).groups()
        parts.setdefault(part, []).extend(lines_of_number(number, batch))
    return parts


def runs(case):
    """Return {part: lines} of the last mini-batch's trace: spans, messages, idle time, bytes."""
    _, net, _ = _run(case)
    return lines_of(net.trace, counted=True) if row_of(case)["engine"] == "cluster" else {}


def files():
    """Return the names of the checkpoints."""
    return list(FILES)


def of_file(name):
    """Return {part: lines} of what is read, with all bits, and of two more updates, rounded."""
    row = row_of(FILES[name])
    net, optimizer = loaded(row, FOLDER / name)
    found, read = {}, arrays_of(net) | memories_of(net, optimizer)
    HOW[row["how"]](row, net, optimizer, batches_of(row)[1:], found)
    found |= arrays_of(net) | memories_of(net, optimizer)
    steps = STEPS[row["dtype"]]
    rounded = {part: np.rint(np.asarray(number) * steps) + 0.0 for part, number in found.items()}
    return {"read": lines_of_all(read), "after two more updates": lines_of_all(rounded)}


def write_files():
    """Write the checkpoints that are missing; the others are never written again, since they are old."""
    for name, case in FILES.items():
        if not (FOLDER / name).exists():
            row = row_of(case)
            layers, loss, _ = layers_of(row)
            net, optimizer = network(row, layers, loss), optimizer_of(row)
            HOW[row["how"]](row, net, optimizer, batches_of(row)[:1], {})
            mp.save(FOLDER / name, net, optimizer)


def row_of(case):
    """Return the row that a text stands for."""
    words = (word.split("=") for word in case.split())
    return filled(ALWAYS | {name: _value(text) for name, text in words})


@cache
def _run(case):
    """Return what `settings.run` does."""
    row = row_of(case)
    return run(row | {"count_bytes": row["engine"] == "cluster"})


def lines_of_all(numbers):
    """Return the lines of {name: array}."""
    return [line for name, array in numbers.items() for line in [f"{name}:", *lines_of_number(array)]]


def lines_of_number(number, batch=None):
    """Return a line for the shape of an array, and one for each of its rows, with all digits."""
    array = np.asarray(number)
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    said = "" if batch is None else f"mini-batch {batch}, "
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # fractions are as long as they are
    try:
        texts = [" ".join(map(str, row.tolist())) for row in rows]
    finally:
        sys.set_int_max_str_digits(limit)
    return [f"{said}shape {array.shape}, {array.dtype}", *texts]


def _value(text):
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text.replace("+", " ")


def _case(row):
    """Return the text of a row."""
    said = DEFAULTS | ALWAYS
    words = {name: str(value).replace(" ", "+") for name, value in row.items() if value != said[name]}
    return " ".join(f"{name}={word}" for name, word in words.items()) or "K=1"


@cache
def _rows():
    """Return every schedule and option on every split."""
    schedules = [{"schedule": name} | ALONE.get(name, {}) | split for name in OPTIONS["schedule"]
                 for split in [*SPLITS[2:], {"K": 4}] if name != "data-parallel"]
    schedules += [row | {"M": 8} for row in schedules if row.get("K") == 4 or "D" in row]
    networks = [{"network": name} | split
                for name in OPTIONS["network"] if name != "tokens" for split in SPLITS]
    tokens = [TOKENS | split for split in SPLITS]
    options = [
        {"network": network, option: value} | WITH.get(option, {}) | split
        for option, values in OPTIONS.items()
        if option not in (*ELSEWHERE, *IN_NO_TICK)
        for value in values[1:] for network in OF_NETWORKS.get(option, ("perceptron",)) for split in SPLITS
        if "D" in split or option not in BETWEEN_COPIES
    ]
    tokens += [TOKENS | {"recompute": "selective"} | split for split in SPLITS[3::2]]
    optimizers = [{"optimizer": name} | split for name in ("sgd", "adam") for split in SPLITS[::3]]
    rows = [*SPLITS, *schedules, *networks, *options, *tokens, *optimizers]
    return list(dict.fromkeys(_case(row) for row in rows))
