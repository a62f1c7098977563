"""Checkpoints that an earlier version has written: they are read, and the training goes on.

A case is the name of a file. `python3 tests/goldens/files.py` writes those that are missing; what is there is
never written again, since it is the old version that has to be read.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "files"
sys.path[:0] = map(str, (FOLDER.parents[1], FOLDER.parents[2]))

import numpy as np  # noqa: E402
from goldens.training import lines_of_number, row_of  # noqa: E402
from settings import HOW, arrays_of, batches_of, layers_of, loaded, memories_of, network  # noqa: E402
from settings import optimizer_of  # noqa: E402

import minipipe as mp  # noqa: E402

ROWS = {
    "pipeline.npz": "K=3 dtype=float64 ties=True dropout=True optimizer=adam",
    "copies.npz": "D=2 K=2 dtype=float64 network=image zero=2 updates=order",
    "shards.npz": "T=2 dtype=float64 network=tokens optimizer=adamw",
    "normal.npz": "dtype=float32 network=image+normal optimizer=rmsprop",
}
STEPS = {"float64": 2**30, "float32": 2**10}  # in one unit: far above what another processor rounds otherwise


def cases():
    """Return the names of all files."""
    return list(ROWS)


def parts(case):
    """Return {part: lines} of what is read, with all bits, and of two more updates, rounded."""
    row = row_of(ROWS[case])
    net, optimizer = loaded(row, FOLDER / case)
    found = {}
    read = [line for name, array in {**arrays_of(net), **memories_of(net, optimizer)}.items()
            for line in [f"{name}:", *lines_of_number(array)]]
    HOW[row["how"]](row, net, optimizer, batches_of(row)[1:], found)
    found |= arrays_of(net) | memories_of(net, optimizer)
    steps = STEPS[row["dtype"]]
    after = [line for name, number in found.items()
             for line in [f"{name}:", *lines_of_number(np.rint(np.asarray(number) * steps) + 0.0)]]
    return {"read": read, "after two more updates": after}


def write():
    """Write the files that are missing, each after one update."""
    FOLDER.mkdir(exist_ok=True)
    for name, case in ROWS.items():
        if not (FOLDER / name).exists():
            row = row_of(case)
            layers, loss, _ = layers_of(row)
            net = network(row, layers, loss)
            optimizer = optimizer_of(row)
            HOW[row["how"]](row, net, optimizer, batches_of(row)[:1], {})
            mp.save(FOLDER / name, net, optimizer)


if __name__ == "__main__":
    write()
