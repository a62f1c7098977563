"""Twelve versions, A to L, of the pipeline of notebooks 03 to 10, with one mistake each; for notebook 11.

Each is an edit of the solutions in the folds of these notebooks. `EDITS` gives the mistakes away.
"""

from fractions import Fraction
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import minipipe as mp
from minipipe.exact import rational

from .folds import solution

SIZES, DEVICES, PARTS, EPOCHS, DIGITS = (64, 48, 48, 48, 10), 4, 4, 3, 64


class Version(NamedTuple):
    """One mistake.

    part: where it is. edits: (text of the solution, what stands there instead).
    what: what the edits do, in words.
    """

    part: str
    edits: tuple[tuple[str, str], ...]
    what: str


class Training(NamedTuple):
    """The costs and the digits of a training.

    costs: J of each mini-batch.
    digits: the test digits that are read right afterwards, of 360.
    error: the name of the error that stopped it, or "".
    """

    costs: list[float]
    digits: int
    error: str = ""

    @property
    def falls(self) -> bool:
        """Whether the mean cost of the last epoch is below that of the first."""
        n = len(self.costs) // EPOCHS
        return not self.error and bool(np.mean(self.costs[-n:]) < np.mean(self.costs[:n]))


ADDED = "self.gradients[layer] = sum_dW + dW, sum_db + db"
AT_ONCE = "\n                layer.W, layer.b = layer.W - 0.02 * dW, layer.b - 0.02 * db"
EDITS = {
    "A": Version("run", (("Y_parts[i], m)", "Y_parts[i], Y_parts[i].shape[1])"),),
                 "the cost divides by the m of the micro-batch"),
    "B": Version("run", (("Y_parts[i], m)", "Y_parts[i], M * Y_parts[i].shape[1])"),),
                 "each micro-batch counts 1/M, however many samples it has"),
    "C": Version("Stage with recompute", ((ADDED, "self.gradients[layer] = dW, db"),),
                 "only the last micro-batch's gradient is kept"),
    "D": Version("Stage with recompute", (("self.stash[i] =", "self.stash[0] ="),
                                          ("self.stash.pop(i)", "self.stash[0]")),
                 "the stash has one place for all micro-batches"),
    "E": Version("Stage with recompute", (("layer.cache = cache", "pass"),),
                 "a backward does not put the cache back"),
    "F": Version("ReLU", (("return dA * self.cache", "return dA"),), "ReLU passes everything back"),
    "G": Version("Linear", (("dZ.sum(axis=1", "dZ.mean(axis=1"),), "db is a mean over the samples"),
    "H": Version("Stage with recompute", ((ADDED, ADDED + AT_ONCE),),
                 "each backward moves the weights at once"),
    "I": Version("needs", (('return (device + 1, "B", i) if device < K - 1 else (device, "F", i)',
                            'return (device, "F", i)'),), "a backward does not wait for the next device"),
    "J": Version("Linear", (("dZ @ self.cache.T", "dZ[:, ::-1] @ self.cache.T"),),
                 "dW multiplies each sample's dZ with another sample's input"),
    "K": Version("cost", (("(2 * m)", "m"),), "J lacks its 1/2, dA does not"),
    "L": Version("micro_batches",
                 (("return np.array_split(X, M, axis=1)",
                   "n = X.shape[1] // M\n    return [X[:, i * n: i * n + n] for i in range(M)]"),),
                 "the samples that are left over are dropped"),
}


def course() -> dict[str, str]:
    """Return {title: the course's code} of all parts of notebooks 03 to 10, the newest of each name."""
    from .judging import all_parts

    newest = {part.name: part for part in all_parts() if part.kept and part.notebook <= 10}
    return {part.title: solution(part.notebook, part.title) for part in newest.values()}


@cache
def version(letter: str = "") -> SimpleNamespace:
    """Return the whole pipeline, with the mistake of that letter or, without a letter, with none."""
    parts = course()
    if letter:
        title, edits, _ = EDITS[letter]
        for old, new in edits:
            if parts[title].count(old) != 1:
                raise ValueError(f"version {letter}: the solution of {title} has {old!r} "
                                 f"{parts[title].count(old)} times: edit it once")
            parts[title] = parts[title].replace(old, new)
    names = {"__name__": f"version_{letter}", "np": np}
    for title, code in parts.items():
        exec(compile(code, f"<version {letter}, {title}>", "exec"), names)
    return SimpleNamespace(**names)


def versions() -> dict[str, SimpleNamespace]:
    """Return {letter: the pipeline with that mistake} of all twelve."""
    return {letter: version(letter) for letter in EDITS}


def small(my: SimpleNamespace, m: int, number: type = Fraction) -> tuple[list, np.ndarray, np.ndarray]:
    """Return (layers, X, Y) for a test: three `my.Linear` with a `my.ReLU` between them, and m samples.

    number: Fraction, in which nothing is rounded, or float.

    X is (3, m), Y (2, m). The same m gives the same numbers each time, in new layers.
    """
    convert = rational if number is Fraction else np.asarray
    parameters, X, Y = _eighths(m)
    layers = []
    for W, b in parameters:
        layers += [my.Linear(*W.shape[::-1], np.random.default_rng(0)), my.ReLU()]
        layers[-2].W, layers[-2].b = convert(W), convert(b)
    layers.pop()
    thirds = convert(np.ones((1, m))) / 3    # so that floats are rounded, and no Z is exactly 0
    return layers, convert(X) * thirds + thirds / 7, convert(Y)


@cache
def _eighths(m):
    """Return ([(W, b)], X, Y) for `small`, of the first random numbers in which no derivative is always 0."""
    for seed in count(20 + m):
        rng = np.random.default_rng(seed)
        parameters = [tuple(rng.integers(-8, 9, shape) / 8 for shape in ((n, n_prev), (n, 1)))
                      for n_prev, n in ((3, 4), (4, 4), (4, 2))]
        X, Y = rng.integers(-8, 9, (3, m)) / 8, rng.integers(-8, 9, (2, m)) / 8
        if _is_alive(parameters, X / 3 + 1 / 21):
            return parameters, X, Y


def _is_alive(parameters, A):
    """Return whether each ReLU is open for some sample, and some are shut; one sample opens half of them.

    No Z may be so near to 0 that a small step opens or shuts its ReLU.
    """
    for W, b in parameters[:-1]:
        Z = W @ A + b
        share = (Z > 0).any(axis=1).mean()
        if np.abs(Z).min() < 1e-3 or (Z > 0).all() or share < (1 if A.shape[1] > 1 else 0.5):
            return False
        A = np.maximum(Z, 0)
    return True


def trained(my: SimpleNamespace, rate: float = 0.3) -> Training:
    """Train a network for digits on four devices with GPipe, for three epochs of 22 mini-batches.

    All versions begin with the same weights and see the same 64 digits in each mini-batch.
    """
    (X, Y), (X_test, Y_test) = mp.datasets.digits().train, mp.datasets.digits().test
    rng, layers, costs = np.random.default_rng(0), [], []
    for n_prev, n in zip(SIZES, SIZES[1:]):
        layers += [my.Linear(n_prev, n, np.random.default_rng(0)), my.ReLU()]
        layers[-2].W = rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)
        layers[-2].b = np.zeros((n, 1))
    layers.pop()
    with np.errstate(all="ignore"):    # some explode
        try:
            for start in [*range(0, X.shape[1] - DIGITS, DIGITS)] * EPOCHS:
                some = slice(start, start + DIGITS)
                J, stages, _ = my.run(layers, X[:, some], Y[:, some], DEVICES, PARTS, my.gpipe)
                my.step(stages, rate)
                costs.append(float(J))
        except Exception as error:
            return Training(costs, 0, type(error).__name__)
        A = X_test
        for layer in layers:
            A = layer.forward(A)
    return Training(costs, int((A.argmax(axis=0) == Y_test.argmax(axis=0)).sum()))


def passes(test: object, my: SimpleNamespace) -> bool:
    """Return whether a version passes a test: it returns True. An error makes the test red, too."""
    with np.errstate(all="ignore"):
        try:
            return bool(test(my))
        except Exception:
            return False
