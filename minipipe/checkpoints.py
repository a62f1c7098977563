"""Save a training to one file, and load it: it then goes on with the same bits.

The file is a `.npz` of plain arrays, which NumPy alone can read: an array for each
parameter and running statistic, those of the optimizer state, and "minipipe", a JSON
text with the rest. It is the same however the network was split.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .checks import shown, write_whole
from .network import Network
from .state import OptimizerState, State, uninterrupted

if TYPE_CHECKING:
    from .optimizers.optimizer import Optimizer

ABOUT = "minipipe"  # the array with the text
OPTIMIZER = "optimizer"  # the name of the optimizer state in the text and the arrays
FORMAT = 4  # the version of the text; files with another one are refused


def save(path: str | Path, model: Network, optimizer: Optimizer | None = None) -> None:
    """Write the state of `model`, and of `optimizer`, to a file.

    Args:
        path: the file; an old one is replaced when the new one is complete.
        model: a `Sequential`, a `Pipeline` or another network.
        optimizer: the one that `step` or `train` is called with; None: the file is for
            predictions.

    Raises `ValueError` for rational numbers, which have no plain arrays, and `OSError`
    if the file cannot be written; no partial file is left. Ctrl-C waits until the file
    is complete.

    >>> import tempfile
    >>> from minipipe.layers import Linear
    >>> from minipipe.network import Sequential
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/net.npz", Sequential([Linear(2, 1)], None, seed=7))
    ...     other = Sequential([Linear(2, 1)], None, seed=8)
    ...     load(f"{folder}/net.npz", other)
    >>> np.array_equal(other.layers[0].W, Sequential([Linear(2, 1)], None, seed=7).layers[0].W)
    True
    """
    path = Path(path).expanduser()
    state = _checked_model(model).state(optimizer)
    arrays = dict(state.arrays)
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("rational numbers cannot be written as plain arrays: save a network of floats")
    about = {"format": FORMAT, "layers": state.layers, "n_steps": state.n_steps, "counts": state.counts,
             OPTIMIZER: None}
    of_optimizer = state.optimizer
    if of_optimizer is not None:
        about[OPTIMIZER] = {
            "class": of_optimizer.kind, "memories": of_optimizer.n_memories,
            "updates": of_optimizer.n_updates, "last_pass": of_optimizer.last_pass,
            "learning_rate": float(of_optimizer.learning_rate), "last_rate": float(of_optimizer.last_rate),
        }
        for (index, parameter, position), remembered in sorted(of_optimizer.memory.items()):
            for number, array in enumerate(remembered):
                arrays[f"{OPTIMIZER}/{index}.{position}/{parameter}/{number}"] = array
    about["checksum"] = _checksum(about, arrays)
    # zipfile turns a Ctrl-C in the middle of an array into a ValueError, so Ctrl-C waits for the end
    with uninterrupted():
        model.once(lambda: _write(path, {ABOUT: np.array(json.dumps(about)), **arrays}))


def load(path: str | Path, model: Network, optimizer: Optimizer | None = None) -> None:
    """Give `model` and `optimizer` the state in a file.

    Args:
        path: a file that `save` has written.
        model: a network with the same layers, split in any way.
        optimizer: an optimizer of the class that was saved. It gets the saved state and
            learning rate, and keeps its other options. None: its state is not read.

    Raises `ValueError` for a file that is damaged, or not of this network or optimizer;
    then nothing is changed.
    """
    path = Path(path).expanduser()
    _checked_model(model).resume(_read(path), optimizer)


def _checked_model(model):
    """Return `model` if it is a network; raise `ValueError` for anything else."""
    if not isinstance(model, Network):
        raise ValueError(f"model={shown(model)} is not a network: pass a Sequential, a Pipeline or another")
    return model


def _write(path, arrays):
    """Write `arrays` to `path`, whole or not at all."""
    if not path.name:
        raise ValueError(f"path={str(path)!r} names no file: add a name")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")

    def write(temporary):
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())

    write_whole(path, write)


def _checksum(about: dict, arrays: dict) -> str:
    """Return a checksum of the text and of each array, with its name, dtype and shape."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read(path: Path) -> State:
    """Return the `State` in a file; raise `ValueError` for anything else."""
    if not path.is_file():
        raise ValueError(f"cannot read {path}: there is no such file; minipipe.save writes one")
    try:
        arrays = _arrays_in(path)
        about = json.loads(str(arrays.pop(ABOUT)))
        form, checksum = about.get("format"), about.pop("checksum", None)
        state = None
        if form == FORMAT:
            if checksum != _checksum(about, arrays):
                raise ValueError("its checksum is that of other contents")
            state = _state_in(path, about, arrays)
    except Exception as error:  # zipfile, NumPy and json raise errors of many kinds for damaged bytes
        raise ValueError(
            f"cannot read {path}: it is not a checkpoint of minipipe, or is damaged ({error}); "
            "take another copy of it"
        ) from None
    if state is None:
        raise ValueError(
            f"{path} has the format {shown(form)}, this version of minipipe reads {FORMAT}: "
            "use the version that wrote it"
        )
    return state


def _arrays_in(path: Path) -> dict:
    """Return {name: array} of a `.npz` file, unless its arrays exceed its size."""
    file = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(file) as archive:
        if sum(info.file_size for info in archive.infolist()) > file.getbuffer().nbytes:
            raise ValueError("its arrays are larger than the file")
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


def _state_in(path: Path, about: dict, arrays: dict) -> State:
    """Return the `State` in the file `path`, from its text `about` and its arrays."""
    found, optimizer = about[OPTIMIZER], None
    if found is not None:
        memory: dict[tuple, list] = {}
        for name in sorted(arrays):
            first, place, *parameter = name.split("/")
            if first == OPTIMIZER:
                index, position = map(int, place.split("."))
                memory.setdefault((index, parameter[0], position), []).append(arrays[name])
        optimizer = OptimizerState(
            found["class"], found["memories"], found["updates"], found["learning_rate"], found["last_rate"],
            found["last_pass"], memory,
        )
    layers, counts = list(map(str, about["layers"])), dict(about["counts"])
    return State(layers, arrays, about["n_steps"], optimizer, counts, source=str(path))
