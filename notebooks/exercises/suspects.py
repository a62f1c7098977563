"""The suspects of notebook 29: bugs of `tests/pitfalls/`, and the tests that may see them."""

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.verification import equals_full_batch

TESTS = Path(__file__).parents[2] / "tests"
BUGS = {  # letter in the notebook: name of the bug; do not read on if you want to find them
    "A": "hang_when_M_is_less_than_K",
    "B": "gradient_scale",
    "C": "momentum_after_a_rate_change",
    "D": "in_place_backward",
    "E": "reused_receive_buffer",
    "F": "the_same_order_in_each_epoch",
    "G": "dtype_promotion",
    "H": "clipping_per_shard",
    "I": "unequal_microbatches",
    "J": "weight_decay_by_scaling_the_loss",
}
CASES = "IEG"  # the letters of cases 1 to 3
LOSS = mp.SoftmaxCrossEntropy()


def of_the_tests(name):
    """Return a module of the tests, whose folder need not be on Python's path."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module(name)


@contextmanager
def bug(letter):
    """Put a bug into the package, by letter or by name; it is taken out at the end of the block."""
    from pytest import MonkeyPatch

    with MonkeyPatch.context() as monkeypatch:
        of_the_tests("pitfalls.bugs").BUGS[BUGS.get(letter, letter)](monkeypatch)
        yield


def case(number):
    """Put the bug of a case into the package, as `bug` does."""
    return bug(CASES[number - 1])


def network():
    """Return five layers in fractions, from 3 numbers to 4."""
    layers = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]
    return [layer.copy(lambda part: rational(np.round(8 * part) / 8))
            for layer in mp.Sequential(layers, LOSS).layers]


def mini_batch(m):
    """Return (X, Y) of m samples in fractions, the same each time."""
    rng = np.random.default_rng(m)
    X = rational(rng.integers(-4, 5, (3, m)))
    return X, mp.one_hot(rng.integers(0, 4, m), n_classes=4).astype(int)


# ---------------------------------------------------------------- tests: True if they see nothing

def cost_falls():
    """Train three epochs on four devices; compare the first mini-batch's J with the last one's."""
    X, Y = (part[:, :640] for part in mp.datasets.digits().train)
    pipe = mp.Pipeline(mp.models.mlp([64, 32, 32, 32, 10]), LOSS, 4, 4, schedule="1f1b")
    rate = mp.rates.StepDecay(0.1, at=[2])
    optimizer = mp.SGD(0.1, 0.5, weight_decay=1e-4, rate_inside=True)
    history = mp.fit(pipe, X, Y, optimizer, 3, 64, learning_rate=rate, clip=1.0, report=None)
    return history[-1].J < history[0].J


def copies_agree():
    """Let two copies of a pipeline share a mini-batch; compare their gradients with each other."""
    net = mp.Parallel(network(), LOSS, replicas=2, stages=2, microbatches=4, schedule="gpipe")
    net.forward_backward(*mini_batch(8))
    sums = of_the_tests("pitfalls.copies").sums_of_copies(net)
    return all(np.array_equal(*pair) for first, *others in sums.values()
               for rest in others for pair in zip(leaves(first), leaves(rest), strict=True))


def parts_are_the_whole():
    """Compare pipelines with one device: ragged parts, fewer parts than devices, a clipped step."""
    for K, M, m in ((3, 4, 10), (5, 4, 8), (4, 2, 8)):
        if not equals_full_batch(mp.Pipeline(network(), LOSS, K, M, schedule="1f1b"), *mini_batch(m)):
            return False
    ends = []
    for net in (mp.Sequential(network(), LOSS), mp.Pipeline(network(), LOSS, 3, 4)):
        net.forward_backward(*mini_batch(10))
        net.step(mp.SGD(Rational(1)), clip=Rational(1, 8))
        ends.append(leaves([(layer.W, layer.b) for layer in net.layers]))
    return all(map(np.array_equal, *ends))


def slope_fits():
    """Compare the derivatives of a network with a residual block with the cost's own slope."""
    X, Y = (part.astype(float) for part in mini_batch(8))
    net = mp.Sequential([mp.Linear(3, 4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Linear(4, 4)], LOSS)
    J = net.forward_backward(X, Y)
    promised, h = sum((g**2).sum() for g in leaves(net.gradients)), 1e-6
    net.step(mp.SGD(h))
    return bool(abs((J - net.forward_backward(X, Y)) / h - promised) < 1e-4 * promised)


def steps_by_hand():
    """Compare two steps, the second at another rate, with the formula on paper."""
    layer, w, u = mp.Linear(1, 1, W=rational([[1]]), bias=False), 1, 0
    optimizer = mp.SGD(Rational(1, 10), Rational(9, 10), weight_decay=Rational(1, 10), rate_inside=True)
    for rate in (Rational(1, 10), Rational(1)):
        optimizer.learning_rate = rate
        optimizer.update([layer], [(rational([[1]]), None)])
        u = Rational(9, 10) * u + 1 + Rational(1, 10) * w
        w = w - rate * u
    return layer.W[0, 0] == w


def epochs_listed():
    """List the samples of two epochs: all of them in each, and in another order."""
    first, second = of_the_tests("pitfalls.large_batches").orders_of_training()
    return sorted(first) == sorted(second) == list(range(8)) and first.tolist() != second.tolist()


def bytes_counted():
    """Count the bytes of the messages of a network in float32: 4 for each number."""
    X, Y = (part.astype(np.float32) for part in mini_batch(8))
    pipe = mp.Pipeline(mp.models.mlp([3, 4, 4, 4]), LOSS, 5, 2, schedule="gpipe", dtype=np.float32)
    pipe.forward_backward(X, Y)
    return {message.n_bytes for message in pipe.trace.messages} == {4 * 4 * 4}


TESTS_OF = {
    "J falls": cost_falls, "copies agree": copies_agree, "parts = whole": parts_are_the_whole,
    "slope fits": slope_fits, "steps by hand": steps_by_hand, "epochs listed": epochs_listed,
    "bytes counted": bytes_counted,
}


def passing():
    """Return {name of a test: the letters of the bugs that it lets pass}, each really run.

    An error makes a test red, too.
    """
    def passes(test, letter):
        with bug(letter):
            try:
                return test()
            except Exception:
                return False

    return {name: [letter for letter in BUGS if passes(test, letter)] for name, test in TESTS_OF.items()}
