"""What a training has come to, in one file: it goes on from there with the same bits.

The file is a `.npz` of plain arrays without pickles, which NumPy alone can read: an array for each parameter
and running statistic, those that the optimizer remembers, and "minipipe", a JSON text with the rest. Layers
are counted through the whole network, so the file does not know how it was cut or copied.
"""

import json
import os
import zipfile
import zlib
from functools import partial

import numpy as np

from .changes import Changes
from .checks import path_of, shown
from .network import Network
from .optimizers import checked_optimizer

ABOUT = "minipipe"  # the array with the text
REMEMBERED = "optimizer"  # begins the names of the arrays that an optimizer remembers
FORMAT = 1
UNREADABLE = (
    AttributeError, EOFError, KeyError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError,
    zipfile.BadZipFile, zlib.error,
)


def save(path, model, optimizer=None):
    """Write the parameters and running statistics of `model`, and the state of `optimizer`, to a file.

    path: of the file; what was there is replaced once the new file is complete.
    model: a `Sequential`, a `Pipeline` or another network.
    optimizer: the one that `step` or `train` is called with; left out, the file is for predictions.

    The file is the same however the network is cut or copied. Raises `ValueError` for rational numbers, which
    have no plain arrays, and `OSError` if nothing can be written there; no half of a file is left.

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
    path = path_of("path", path)
    if optimizer is not None:
        checked_optimizer(optimizer)
    optimizer = _checked(model).collect(optimizer)
    arrays = {name: getattr(layer, array) for name, layer, array in _places(model)}
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("rational numbers cannot be written as plain arrays: save a network of floats")
    about = {"format": FORMAT, "layers": _names(model), "n_steps": model.n_steps, "optimizer": None}
    if optimizer is not None:
        about["optimizer"] = _state_of(optimizer)
        for (index, name, position), remembered in sorted(optimizer.memory.items()):
            for number, array in enumerate(remembered):
                arrays[f"{REMEMBERED}/{index}.{position}/{name}/{number}"] = array
    model.once(lambda: _write(path, {ABOUT: np.array(json.dumps(about)), **arrays}))


def load(path, model, optimizer=None):
    """Give `model` the parameters and running statistics of a file, and `optimizer` its state.

    path: of a file that `save` has written.
    model: a network of the same layers, cut and copied as you like.
    optimizer: one of the same class as the one that was saved; left out, its state is not read.

    Training then goes on with the bits that it would have had without the interruption. `optimizer` goes on
    with the learning rate that it had; what else it was made with is that of yours. Raises `ValueError` for a
    file that is damaged, of something else, or of another network or optimizer; nothing has moved then.
    """
    path = path_of("path", path)
    ours = _names(_checked(model))
    about, arrays = _read(path)
    _check_layers(path, about["layers"], ours)
    places, new = _places(model), {}
    for name, layer, array in places:
        new[name] = _fitting(path, arrays, name, getattr(layer, array))
    state = about["optimizer"]
    if optimizer is not None:
        _check_optimizer(path, state, checked_optimizer(optimizer))
    model.forget_run()
    changes = Changes()
    for name, layer, array in places:
        changes.of(layer, **{array: new[name]})
    changes.of(model, n_steps=about["n_steps"])
    if optimizer is not None:
        rates = state["learning_rate"], state["last_rate"]
        changes.twin(optimizer).resume(_remembered(arrays), state["updates"], *rates)
        changes.then(partial(model.keep_memory, optimizer))
    model.decide(changes)


def _checked(model):
    """`model`, if it is a network; `ValueError` for anything else."""
    if not isinstance(model, Network):
        raise ValueError(f"model={shown(model)} is no network: pass a Sequential, a Pipeline or another")
    return model


def _places(model):
    """[(name in the file, layer, name of the array in it)] of all that is not given by how layers were made.

    These are parameters, running statistics and the keys of dropout.
    """
    return [
        (f"{path}/{array}", layer, array)
        for path, layer in _paths(model.layers)
        for array in (*layer.arrays, *layer.drawn)
        if getattr(layer, array) is not None
    ]


def _paths(layers, above=""):
    """(path, layer) of all layers: "2" is one of the network, "2.0" the first of those that it is made of."""
    for index, layer in enumerate(layers):
        yield f"{above}{index}", layer
        yield from _paths(layer.layers, f"{above}{index}.")


def _names(model):
    return [repr(layer) for layer in model.layers]


def _state_of(optimizer):
    rates = {"learning_rate": float(optimizer.learning_rate), "last_rate": float(optimizer.last_rate)}
    kind = {"class": type(optimizer).__name__, "memories": optimizer.n_memories}
    return {**kind, "updates": optimizer.n_updates, **rates}


def _write(path, arrays):
    """Into a file beside it first, which then takes its name."""
    if not path.name:
        raise ValueError(f"path={str(path)!r} names no file: add a name")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _read(path):
    """(what is said about the network, {name: array}) of a whole file; `ValueError` for anything else."""
    if not path.is_file():
        raise ValueError(f"cannot read {path}: there is no such file; minipipe.save writes one")
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                raise ValueError("one array, without any names")
            arrays = {name: found[name] for name in found.files}
        about = json.loads(str(arrays.pop(ABOUT)))
        form = about.get("format")
    except UNREADABLE as error:
        raise ValueError(
            f"cannot read {path}: it is no checkpoint of minipipe, or is damaged ({error}); "
            "take another copy of it"
        ) from None
    if form != FORMAT:
        raise ValueError(
            f"{path} has the format {form!r}, this version of minipipe reads {FORMAT}: "
            "use the version that wrote it"
        )
    return about, arrays


def _check_layers(path, saved, ours):
    if len(saved) != len(ours):
        raise ValueError(f"{path} holds {len(saved)} layers, the network has {len(ours)}: build it alike")
    for index, (theirs, own) in enumerate(zip(saved, ours)):
        if theirs != own:
            raise ValueError(f"{path} holds {theirs} as layer {index}, the network has {own}: build it alike")


def _fitting(path, arrays, name, own):
    """The array of this name, which must be like our `own`."""
    array = arrays.get(name)
    if array is None or array.shape != own.shape or array.dtype != own.dtype:
        theirs, ours = ("nothing" if a is None else f"{a.dtype} of shape {a.shape}" for a in (array, own))
        raise ValueError(f"{path} holds {theirs} for {name}, the network has {ours}: build it alike")
    return array


def _check_optimizer(path, state, optimizer):
    """`ValueError` unless this is the `state` of such an optimizer."""
    own = _state_of(optimizer)
    if state is None:
        raise ValueError(f"{path} was saved without an optimizer: leave it out, or save it, too")
    for what, name in (("the state of {}", "class"), ("{} arrays remembered for each parameter", "memories")):
        if state[name] != own[name]:
            theirs = what.format(state[name])
            raise ValueError(f"{path} holds {theirs}, the optimizer has {own[name]}: make it alike")


def _remembered(arrays):
    """What an optimizer remembers: {(index of the layer, "W" or "b", position): arrays}."""
    memory = {}
    for name in sorted(arrays):
        kind, place, *parameter = name.split("/")
        if kind == REMEMBERED:
            index, position = map(int, place.split("."))
            memory.setdefault((index, parameter[0], position), []).append(arrays[name])
    return memory
