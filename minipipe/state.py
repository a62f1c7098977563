"""The state of a training, as plain data, and changes of several objects, all of them or none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .checks import shown


# Changes that are all made, or none of them.

class Changes:
    """What several objects shall become, worked out on twins of them and then handed over.

    Until `make`, nothing has changed. Each object then takes over, at once, what its twin has; so `make` may
    be called again after an interrupt, and goes on where it was.

    >>> from types import SimpleNamespace
    >>> one, other = SimpleNamespace(dollars=5), SimpleNamespace(dollars=0)
    >>> changes = Changes()
    >>> changes.twin(one).dollars, changes.twin(other).dollars = 2, 3
    >>> one.dollars, other.dollars
    (5, 0)
    >>> changes.make()
    >>> one.dollars, other.dollars
    (2, 3)
    """

    def __init__(self) -> None:
        self._twins = {}  # id of the attributes of an object -> its twin; two objects may share them
        self._new = []    # [(attributes of an object, what they become)]
        self._last = []   # functions that are called once all that is made

    def twin(self, one: object) -> object:
        """Return a shallow copy of an object, in which its dictionaries and inner layers are copies, too."""
        attributes = vars(one)
        if id(attributes) not in self._twins:
            twin = self._twins[id(attributes)] = type(one).__new__(type(one))
            vars(twin).update(attributes)
            for name, value in attributes.items():
                if type(value) is dict:
                    setattr(twin, name, dict(value))
            if attributes.get("layers"):
                twin.layers = tuple(map(self.twin, one.layers))
            self._new.append((attributes, vars(twin)))
        return self._twins[id(attributes)]

    def of(self, one: object, **new) -> None:
        """Let an object have these attributes, too."""
        self._new.append((vars(one), new))

    def then(self, function: Callable[[], None]) -> None:
        """Call a function at the end of `make`. It may be called again after an interrupt, too."""
        self._last.append(function)

    def make(self) -> None:
        """Give each object what it shall have; layers stay made of their own layers."""
        for attributes, new in self._new:
            attributes.update({name: value for name, value in new.items() if name != "layers"})
        for function in self._last:
            function()


# The state of a training: from there it goes on with the same bits.

HANDED = "optimizer"  # the name of the optimizer that training is handed, among others that a network has


class OptimizerState(NamedTuple):
    """The state of an optimizer.

    kind: the name of its class.
    n_memories: how many arrays it remembers for each parameter.
    n_updates, learning_rate, last_rate: as its attributes.
    memory: {(index of the layer, "W" or "b", position in it): arrays}.
    """

    kind: str
    n_memories: int
    n_updates: int
    learning_rate: float
    last_rate: float
    memory: Mapping


class State(NamedTuple):
    """The state of a network, see `Network.state`.

    layers: the `repr` of each, by which another network knows whether this is its state.
    arrays: {name: array} of parameters, running statistics and keys; "2.0/W" is the W of the first layer that
        layer 2 is made of.
    n_steps: the updates that were made.
    optimizers: {name: `OptimizerState`}; "optimizer" is the one that training is handed.
    counts: {name: whole numbers} of what else a network counts, such as rounds.
    source: what an error calls this state.
    """

    layers: Sequence[str]
    arrays: Mapping[str, Any]
    n_steps: int
    optimizers: Mapping[str, OptimizerState]
    counts: Mapping[str, Any]
    source: str = "this state"


def state_of_optimizer(optimizer) -> OptimizerState:
    """Return the state of an optimizer; its arrays are copies."""
    memory = {key: [array.copy() for array in arrays] for key, arrays in optimizer.memory.items()}
    return OptimizerState(
        type(optimizer).__name__, optimizer.n_memories, optimizer.n_updates, optimizer.learning_rate,
        optimizer.last_rate, memory,
    )


def named_arrays(layers: Sequence) -> list[tuple]:
    """Return [(name in a `State`, layer, name of the array in it)] of what a training moves or draws."""
    return [
        (f"{path}/{array}", layer, array)
        for path, layer in _paths(layers)
        for array in (*layer.arrays, *layer.drawn)
        if getattr(layer, array) is not None
    ]


def _paths(layers, above="") -> Iterator[tuple]:
    """(path, layer) of all layers: "2" is one of the network, "2.0" the first of those that it is made of."""
    for index, layer in enumerate(layers):
        yield f"{above}{index}", layer
        yield from _paths(layer.layers, f"{above}{index}.")


def check_layers(state: State, layers: Sequence) -> None:
    """Raise `ValueError` unless this is a state of such layers."""
    ours = list(map(repr, layers))
    if len(state.layers) != len(ours):
        raise ValueError(
            f"{state.source} holds {len(state.layers)} layers, the network has {len(ours)}: build it alike"
        )
    for index, (theirs, own) in enumerate(zip(state.layers, ours, strict=True)):
        if theirs != own:
            raise ValueError(
                f"{state.source} holds {theirs} as layer {index}, the network has {own}: build it alike"
            )


def checked_array(state: State, name: str, own):
    """Return a copy of the array of this name; raise `ValueError` unless it is like our `own`."""
    array = state.arrays.get(name)
    if array is None or array.shape != own.shape or array.dtype != own.dtype:
        theirs, ours = ("nothing" if a is None else f"{a.dtype} of shape {a.shape}" for a in (array, own))
        raise ValueError(f"{state.source} holds {theirs} for {name}, the network has {ours}: build it alike")
    return array.copy()


def check_optimizer_state(state: State, name: str, optimizer) -> None:
    """Raise `ValueError` unless `state` has an optimizer `name` of the class of `optimizer`."""
    found = state.optimizers.get(name)
    if found is None:
        raise ValueError(
            f"{state.source} was saved without an optimizer: load it without one, or save one, too"
        )
    if found.kind != type(optimizer).__name__:
        raise ValueError(
            f"{state.source} holds the state of {found.kind}, the optimizer has {type(optimizer).__name__}: "
            "make it alike"
        )
    if found.n_memories != optimizer.n_memories:
        words = "arrays remembered for each parameter, the optimizer has"
        raise ValueError(
            f"{state.source} holds {found.n_memories} {words} {optimizer.n_memories}: make it alike"
        )


def restore(optimizer, found: OptimizerState) -> None:
    """Let an optimizer go on where another one has stopped."""
    memory = {key: [array.copy() for array in arrays] for key, arrays in found.memory.items()}
    optimizer.resume(memory, found.n_updates, found.learning_rate, found.last_rate)


def checked_state(state) -> State:
    """Return `state`, if it is one; raise `ValueError` for anything else."""
    if not isinstance(state, State):
        raise ValueError(f"state={shown(state)} is not a State: pass what net.state(optimizer) returns")
    return state
