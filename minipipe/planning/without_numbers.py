"""A network of arrays without numbers, of which the bytes of any cut can be counted, and bytes of numbers."""

import copy
import pickle
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ..arguments import argument
from ..arrays import floats, grains_of
from ..checks import shown
from ..description import describe
from ..layers import Layer, every_layer
from ..meta import MetaArray
from ..optimizers import checked_optimizer
from ..order.simulate import collector_paused
from ..sums import checked_accumulate
from .one_microbatch import (
    PATTERNS, footprint, in_network, n_bytes_of, one_micro_batch, received, sends_back, skips_across,
    stages_of,
)


# The bytes of numbers.

@dataclass(frozen=True)
class Precision:
    """The bytes of a number, by what it is for: counted, never computed in.

    name: of the precision.
    numbers: of parameters, gradients and activations, 2, 4 or 8.
    state: of what an optimizer keeps for each parameter, such as Adam's two moments.
    master: of the second, longer copy of each parameter that the optimizer updates; 0: there is none.

    The "optimizer state" that is counted holds the master weights, too, as in Rajbhandari et al. 2020, arXiv
    1910.02054, section 3.1: for Adam in mixed precision 2 + 2 + 12 bytes a parameter.

    >>> PRECISIONS["mixed"]
    Precision(name='mixed', numbers=2, state=4, master=4)
    >>> [PRECISIONS[name].of_a_parameter(n_memories=2) for name in ("float32", "mixed")]
    [16, 16]
    """

    name: str
    numbers: int
    state: int
    master: int = 0

    @property
    def dtype(self):
        """Of arrays with numbers of so many bytes: float16 stands for every format of 16 bits."""
        return floats(f"f{self.numbers}")

    def of_a_parameter(self, n_memories):
        """The bytes of a parameter, its gradient, and all that an optimizer with so many memories keeps."""
        return 2 * self.numbers + self.master + n_memories * self.state

    def optimizer_state(self, gradients, kept):
        """The bytes beside parameters and gradients.

        gradients: those of one sum of them, one number for each parameter.
        kept: those that the optimizer would keep if all numbers were alike.
        """
        return gradients // self.numbers * self.master + kept // self.numbers * self.state


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float64", 8, 8),
        Precision("float32", 4, 4),
        Precision("mixed", 2, 4, master=4),  # bfloat16 or float16, beside float32
    )
}


def precision_of(precision, dtype):
    """The `Precision` of this name, or itself; that of a run in `dtype`, if it is None."""
    if precision is None:
        dtype = floats(dtype)
        return Precision(np.dtype(dtype).name, dtype.itemsize, dtype.itemsize)
    if isinstance(precision, Precision):
        return precision
    if not (isinstance(precision, str) and precision in PRECISIONS):
        raise ValueError(
            f"precision={shown(precision)} is not known: use one of {', '.join(PRECISIONS)}, or a Precision"
        )
    return PRECISIONS[precision]


# What a network without numbers needs: random numbers that are not drawn, and errors that say who fails.

class NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size=(), dtype="float64"):
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def say_who_fails(owner, methods, name=None):
    """Where one of `methods` cannot do without numbers, the error says so, whose it is, and a remedy.

    name: of the owner in the error; without it, its code, which is written when it is needed: a network has
        many layers.
    Of layers within layers, the innermost is named: what it raises is a `ValueError`, which passes through
    the others.
    """
    def saying(method):
        def called(*arguments):
            try:
                return method(*arguments)
            except (TypeError, AttributeError, IndexError) as error:
                who = name or repr(owner)
                raise ValueError(
                    f"{who} cannot be counted without numbers: {error}. Use functions that arrays without "
                    "numbers know, see minipipe.meta, or mp.measure, which runs the layers with numbers"
                ) from error
        return called

    for method in methods:
        setattr(owner, method, saying(getattr(owner, method)))


# The network.

class Kept(NamedTuple):
    """The bytes that a stage keeps of a micro-batch between its forward and its backward.

    input: if the forward will be recomputed.
    caches: if not.
    """

    input: int
    caches: int


class WithoutNumbers:
    """A network of arrays without numbers, of which any cut can be counted.

    layers, loss, input_shape, dtype, optimizer, accumulate, precision, grain: as for `footprints`.

    Stages that are alike are counted once. The bytes of an array with m columns grow evenly with m, and
    others know nothing of m. So for many samples the counts are made of those for 2 and for 3, which takes
    less time for images. (m = 1 is a case of its own: there, copies may be views.)
    """

    def __init__(
        self, layers, loss, input_shape, dtype, optimizer, accumulate="tree", precision=None, grain=None
    ):
        if isinstance(loss, (type, Layer)) or not hasattr(loss, "backward"):
            raise ValueError(
                f"loss is {shown(loss)}, but a backward begins at the loss: pass one, such as "
                "MeanSquaredError()"
            )
        if optimizer is not None:
            checked_optimizer(optimizer)
        self.precision = precision_of(precision, dtype)
        dtype = self.precision.dtype
        self.description = describe(layers, input_shape, dtype)
        outputs = [
            row.output_shape[0] if layer.fork else row.output_shape  # the other one is what a Fork puts aside
            for layer, row in zip(layers, self.description.rows)
        ]
        self.shapes = [self.description.input_shape, *outputs]
        self.skips = {layer.fork: shape for layer, shape in zip(layers, self.shapes) if layer.fork}
        self.names = list(map(_name, layers))
        self.layers = [layer.copy() for layer in layers]  # initialized in those stages that are counted
        self.loss, self.dtype, self.optimizer = copy.copy(loss), dtype, optimizer
        self.accumulate = checked_accumulate(accumulate)
        self.grain = None if grain is None else argument("grain", grain)
        for layer in every_layer(self.layers):
            say_who_fails(layer, ("initialize", "forward", "backward_input", "backward_weight"))
        say_who_fails(self.loss, ("forward", "backward"), "the loss")
        self.known = {}

    def footprints(self, counts, m, patterns=PATTERNS):
        """The `Footprint` of each stage s, which has `counts[s]` layers, for micro-batches of m samples."""
        if self.grain is None:
            found, n_grains = of_samples(m, lambda m: self._footprints(counts, m, patterns)), 1
        else:  # what is kept of a grain beside its samples does not grow with m
            found, n_grains = self._footprints(counts, m, patterns), len(grains_of(m, self.grain))
        return [self._in_precision(of_stage)._replace(n_grains=n_grains) for of_stage in found]

    def temporaries(self, counts, m, patterns=PATTERNS):
        """For each stage {kind of action: bytes}, as `temporaries` says.

        A peak does not grow evenly with m, so it is counted for m itself.
        """
        found = []
        coming_back = dict.fromkeys(patterns)
        for stage, shape, alike in reversed(self._stages(counts, m)):
            most = Counter()
            for pattern in patterns:
                given = stage, shape, alike, m, pattern, coming_back[pattern]
                _, inside, coming_back[pattern] = self._counted(*given)
                most |= inside | self._inside_later(*given)
            found.append({kind: most[kind] for kind in sorted(set("".join(patterns)))})
        return found[::-1]

    def kept(self, counts, m):
        """What each stage has `Kept` of a micro-batch of m samples after its forward.

        The last stage's caches include the loss's. `footprints` say the same, but take longer: here, no stage
        goes backward.
        """
        return of_samples(m, lambda m: self._kept(counts, m), few=4)

    def takes_single_samples(self):
        """Whether a micro-batch may have one sample.

        A batch norm refuses that, if a sample has one number in each row.
        """
        try:
            self.kept([len(self.layers)], 1)
        except ValueError:
            return False
        return True

    def sample(self, m):
        """(X, Y) of m samples."""
        X, Y = (arrays(shape, m, self.dtype) for shape in (self.shapes[0], self.shapes[-1]))
        if self.layers[0].takes == "tokens":  # they are looked at
            X = np.zeros(X.shape)
        return X, Y

    def _stages(self, counts, m):
        """[(stage, shape of its inputs, a key that is the same for stages that are alike)]"""
        found = []
        ends = accumulate([0, *counts])
        for stage, (start, end) in zip(stages_of(self.layers, self.loss, counts), pairwise(ends)):
            shape = self.shapes[start]
            given = repr((shape, self._arriving(stage, m)))
            found.append((stage, shape, (stage.index == 0, *self.names[start:end], m, given)))
        return found

    def _footprints(self, counts, m, patterns):
        found = []
        coming_back = dict.fromkeys(patterns)  # to a stage, in each pattern; None to the last
        for stage, shape, alike in reversed(self._stages(counts, m)):
            of_pattern = {}
            for pattern in patterns:
                of_pattern[pattern], _, coming_back[pattern] = self._counted(
                    stage, shape, alike, m, pattern, coming_back[pattern]
                )
            actions = {pattern: counted.actions[pattern] for pattern, counted in of_pattern.items()}
            found.append(of_pattern[patterns[-1]]._replace(actions=actions))
        return in_network(found[::-1], counts)

    def _kept(self, counts, m):
        found = []
        for stage, shape, alike in self._stages(counts, m):
            key = *alike, stage.loss is None
            if key not in self.known:
                A_prev = arrays(shape, m, self.dtype) if stage.index else self.sample(m)[0]
                performed = self._performed(stage, shape, m, "F")
                self.known[key] = Kept(n_bytes_of(A_prev), performed["F", stage.index].held["caches"])
            found.append(self.known[key])
        return found

    def _in_precision(self, of_stage):
        kept = self.precision.optimizer_state(of_stage.gradients, of_stage.optimizer_state)
        return of_stage._replace(
            optimizer_state=kept, accumulate=self.accumulate, precision=self.precision.name
        )

    def _counted(self, stage, shape, alike, m, pattern, dA):
        """(Footprint, {kind: the most bytes inside it}, what it sends back) of one stage.

        It gets inputs of `shape`, and dA from behind; `alike` is its key among those of `_stages`.
        """
        key = *alike, pattern, repr(dA)
        if key not in self.known:
            performed = self._performed(stage, shape, m, pattern, dA)
            counted = footprint(stage, {pattern: performed}, self.optimizer)
            sent_back = performed[sends_back(pattern), stage.index].sent
            self.known[key] = counted, _insides(performed), received(sent_back)
        return self.known[key]

    def _inside_later(self, stage, shape, alike, m, pattern, dA):
        """{kind: the most bytes inside it} where sums over micro-batches have begun already."""
        key = "later", *alike, pattern, repr(dA)
        if key not in self.known:
            self.known[key] = _insides(self._performed(stage, shape, m, pattern, dA, is_first=False))
        return self.known[key]

    def _arriving(self, stage, m):
        """What skip connections bring to a stage, forward and backward."""
        forks, joins = skips_across(stage.layers)
        places = [*(("F", name) for name in joins), *(("B", name) for name in forks)]
        return {(message, name): arrays(self.skips[name], m, self.dtype) for message, name in places}

    def _performed(self, stage, shape, m, pattern, dA=None, is_first=True):
        """As `one_micro_batch`, of one stage alone.

        What Python's collector would find meanwhile is not to be taken for what an action has dropped.
        """
        for layer in stage.layers:
            layer.initialize(NoNumbers(), self.dtype)
        A_prev = arrays(shape, m, self.dtype) if stage.index else None
        arriving = self._arriving(stage, m)
        with collector_paused():
            performed = one_micro_batch(
                [stage], pattern, *self.sample(m), A_prev, dA, arriving, is_first, self.grain
            )
        if stage.loss is None:
            last = stage.layers[-1]
            expected = arrays(self.shapes[1 + self.layers.index(last)], m, self.dtype)
            _check_sent(performed["F", stage.index].sent, expected, last)
        return performed


def _insides(performed):
    return Counter({kind: done.inside for (kind, _), done in performed.items()})


def arrays(shape, m, dtype):
    """An array without numbers for m samples of `shape`; for a pair of shapes, two."""
    if shape and isinstance(shape[0], tuple):
        return tuple(arrays(part, m, dtype) for part in shape)
    return MetaArray((*shape, m), dtype)


def of_samples(m, count, few=3):
    """count(m), which for more than a few samples is made of count(2) and count(3).

    few: 3, if there will be counts for several m, which then share these two; 4, if not: that takes less time
        than both.

    >>> of_samples(6, lambda m: [100 + 8 * m])
    [148]
    """
    m = argument("m", m)
    return count(m) if m <= few else evenly(m, count(2), count(3))


def evenly(m, two, three):
    """The numbers for m, where `two` and `three` have those for 2 and for 3.

    >>> evenly(4, [10, {"F": (0, 5)}], [12, {"F": (0, 8)}])
    [14, {'F': (0, 11)}]
    """
    if two == three:
        return two
    if isinstance(two, dict):
        return {key: evenly(m, two[key], three[key]) for key in two}
    if isinstance(two, (list, tuple)):
        parts = [evenly(m, *pair) for pair in zip(two, three, strict=True)]
        return type(two)(*parts) if hasattr(two, "_fields") else type(two)(parts)
    return two + (m - 2) * (three - two)


def _check_sent(sent, expected, layer):
    """What a stage sends is what the next one is counted with."""
    if repr(sent) != repr(expected):
        raise ValueError(
            f"{layer!r} ends a stage with {sent!r}, but output_shape and the dtype of X say {expected!r}: "
            "make them agree, and let constants have the dtype of A_prev"
        )


def _name(layer):
    """The same for layers that are alike."""
    try:
        return pickle.dumps(layer)
    except (pickle.PicklingError, AttributeError, TypeError):  # its class stands in a function, for instance
        return id(layer)
