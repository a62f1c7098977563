"""`check` names the mistake in wrong layers, losses, optimizers and schedules.

At the end, the verdicts on a pipeline can say no.
"""

import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import eighths, exact
from equivalence.wrong_layers import (
    SUMS, WRONG, WRONG_LOSSES, WRONG_OPTIMIZERS, DividesByItsM, Gamma, NoReturn, Plain, of_error,
    of_formula, of_linear, of_step,
)

import minipipe as mp
from minipipe.arrays import sigmoid
from minipipe.exact import Rational
from minipipe.layers import LAYERS, Layer
from minipipe.losses import LOSSES
from minipipe.optimizers import OPTIMIZERS
from minipipe.parallel.stage import Stage
from minipipe.parallel.totals import Totals
from minipipe.schedules import SCHEDULES, build
from minipipe.verification import equals_full_batch, equals_same_groups, last_places_apart, same_bits


def line_of(report, words):
    """Return the verdict of a report whose claim has these words."""
    return next(verdict for verdict in report if words in verdict.claim)


def no_lines(report):
    """Return the verdicts that say NO."""
    return [verdict for verdict in report if verdict.holds is False]


@pytest.mark.parametrize("layer, shape, claim, mistake", [
    pytest.param(*row, id=f"{row[0]!r}") for row in WRONG
])
def test_the_mistake_of_a_wrong_layer_is_named(layer, shape, claim, mistake):
    """Its report is false, and its first NO has the claim and the likely mistake."""
    report = mp.check(layer, shape)
    assert not report
    first = no_lines(report)[0]
    assert claim in first.claim and mistake in first.why, f"{first.claim}: {first.why}"


# Right layers.

EXAMPLES = LAYERS.load().examples()
QUICK = (  # a layer for each thing that a check has to know of: kinks, masks, tokens, statistics, pairs, ...
    "ReLU()", "Softmax()", "Conv1d(1, 2, 3, stride=2, padding=3, dilation=4)", "Dropout(p=0.25)",
    "Embedding(7, 3)", "Embedding(3, 4)", "PositionalEmbedding(3, 7)", "Linear(4, 3) of (4, 3)",
    "LayerNorm(5)", "BatchNorm(3)", "Fork('skip')", "Join('skip')", "MultiHeadAttention(3, 1, causal=True)",
    "Chain(Linear(3, 5), Tanh(), Linear(5, 2))", "Concat([], [Linear(3, 2), LayerNorm(2)], [Tanh()])",
    "MaxPool1d(3)", "Pad(((1, 0),))",
)


def examples():
    """Return all examples of the package, those that are not in `QUICK` as slow ones."""
    assert {*QUICK} <= {*EXAMPLES}
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in EXAMPLES]


@pytest.mark.parametrize("name", examples())
def test_every_layer_of_the_package_keeps_all(name):
    """No line says NO, and what is not tried has a reason of its own: nothing is tried in floats only."""
    report = mp.check(*EXAMPLES[name])
    assert report, report
    reasons = {verdict.why for verdict in report if verdict.why}
    allowed = "alone_per_sample = False", "takes tokens", "no network begins", "can share a layer"
    assert all(any(words in why for words in allowed) for why in reasons), reasons


class PReLU(Layer):  # A = Z where Z > 0, else W * Z
    def __init__(self, n):
        self.W = np.full((n, 1), 0.25)

    def forward(self, Z):
        self.cache = Z
        return np.where(Z > 0, Z, self.W.astype(Z.dtype) * Z)

    def backward(self, dA):
        Z = self.cache
        slope = np.where(Z > 0, Z * 0 + 1, self.W.astype(Z.dtype))
        return dA * slope, (dA * Z * (Z <= 0)).sum(axis=1, keepdims=True), None


class Unit(Layer):  # A = A_prev / |A_prev|, which a column of zeros does not have
    def forward(self, A_prev):
        length = np.sqrt((A_prev * A_prev).sum(axis=0, keepdims=True))
        self.cache = A_prev / length, length
        return self.cache[0].copy()

    def backward(self, dZ):
        A, length = self.cache
        return (dZ - A * (A * dZ).sum(axis=0, keepdims=True)) / length, None, None


SELU = of_formula(
    "SELU", lambda Z: 1.0507 * np.where(Z > 0, Z, 1.6733 * np.expm1(np.minimum(Z, 0))),
    lambda dA, Z: dA * 1.0507 * np.where(Z > 0, 1, 1.6733 * np.exp(np.minimum(Z, 0))).astype(Z.dtype),
)
SquaredReLU = of_formula("SquaredReLU", lambda Z: (Z * (Z > 0)) ** 2, lambda dA, Z: 2 * dA * Z * (Z > 0))
Softsign = of_formula("Softsign", lambda Z: Z / (1 + abs(Z)), lambda dA, Z: dA / (1 + abs(Z)) ** 2)
Power = of_formula(  # whose slope at 0 is 0, and that of a step h is sqrt(h)
    "Power", lambda Z: np.sign(Z) * abs(Z) ** 1.5, lambda dA, Z: dA * 1.5 * abs(Z) ** 0.5
)
HardSwish = of_formula(
    "HardSwish", lambda Z: Z * np.clip(Z + 3, 0, 6) / 6,
    lambda dA, Z: dA * np.where(Z <= -3, 0, np.where(Z >= 3, 1, Z / 3 + 0.5)).astype(Z.dtype),
)
Clip = of_formula("Clip", lambda Z: np.clip(Z, -0.5, 2), lambda dA, Z: dA * ((Z >= -0.5) & (Z <= 2)))
Centred = of_formula(  # a right normalisation, whose slope is 10^6 where all features are equal
    "Centred", lambda A: centred(A) / size(A),
    lambda dZ, A: (centred(dZ) - centred(A) * (centred(A) * dZ).mean(axis=0) / size(A) ** 2) / size(A)
)


def centred(A):
    return A - A.mean(axis=0)


def size(A):
    return np.sqrt((centred(A) ** 2).mean(axis=0) + 1e-12)


class Largest(Layer):  # of equal ones the first has the whole dZ
    def output_shape(self, shape):
        return 1, *shape[1:]

    def forward(self, A_prev):
        self.cache = np.arange(len(A_prev))[:, None] == A_prev.argmax(axis=0)
        return A_prev.max(axis=0, keepdims=True)

    def backward(self, dZ):
        return dZ * self.cache, None, None


class LargestTogether(Largest):  # equal ones share dZ
    def forward(self, A_prev):
        A = super().forward(A_prev)
        self.cache = A_prev == A
        return A

    def backward(self, dZ):
        return dZ * self.cache / self.cache.sum(axis=0, keepdims=True).astype(dZ.dtype), None, None


class Sorted(Layer):
    def forward(self, A_prev):
        self.cache = np.argsort(A_prev, axis=0, kind="stable")
        return np.take_along_axis(A_prev, self.cache, 0)

    def backward(self, dZ):
        dA_prev = np.zeros_like(dZ)
        np.put_along_axis(dA_prev, self.cache, dZ, 0)
        return dA_prev, None, None


class FewUnits(Layer):  # relu(Z[0]) - relu(Z[1])/2, Z = W A_prev: both units bend where A_prev is 0
    def __init__(self):
        self.W = np.array([[1.0, 1.0, 2.0], [-1.0, 1.0, 0.5]])

    def output_shape(self, shape):
        return 1, *shape[1:]

    def forward(self, A_prev):
        Z = self.W.astype(A_prev.dtype) @ A_prev
        self.cache = A_prev, Z > 0
        A = Z * (Z > 0)
        return A[:1] - A[1:] / 2

    def backward(self, dZ):
        A_prev, is_on = self.cache
        dZ = np.concatenate([dZ, -dZ / 2]) * is_on
        return self.W.astype(dZ.dtype).T @ dZ, dZ @ A_prev.T, None


Exponential = of_formula("Exponential", np.exp, lambda dA, Z: dA * np.exp(Z))  # may overflow, and says so
Identity = of_formula("Identity", lambda A_prev: A_prev, lambda dZ, A_prev: dZ)  # hands on what it gets
Quarter = of_formula("Quarter", lambda A_prev: A_prev * 0.25, lambda dZ, A_prev: dZ * 0.25)


@pytest.mark.parametrize("layer", [
    PReLU(3), Unit(), Largest(), LargestTogether(), Sorted(), FewUnits(), Exponential(), Identity(), SELU(),
    SquaredReLU(), Softsign(), Power(), HardSwish(), Clip(), Centred(),
], ids=repr)
def test_right_layers_of_a_user_keep_all(layer):
    """Among them those with kinks, at which any derivative between both sides will do."""
    report = mp.check(layer, (3,))
    assert report, report
    assert {verdict.holds for verdict in report} == {True}


def test_a_layer_that_needs_floats_is_compared_in_floats():
    report = mp.check(Quarter(), (3,))
    assert report
    why = "in floats, but for rounding; not tried in fractions, because exact arithmetic met the float 0.25"
    assert [verdict.claim for verdict in report if verdict.why] == [line_of(report, SUMS).claim]
    assert line_of(report, SUMS).why == why


def test_an_array_that_is_no_parameter_is_worth_a_remark():
    """It may be constant; then `drawn` lists it. """
    class Fixed(Gamma):
        drawn = ("gamma",)

    words = "A depends on self.gamma, which is neither W nor b, so no optimizer changes it"
    assert words in str(mp.check(Gamma(), (3,))) and "gamma" not in str(mp.check(Fixed(), (3,)))


def test_a_frozen_parameter_is_worth_a_remark():
    """A backward_weight of one's own that returns None keeps W and b as they are, in a block as well."""
    Frozen = of_linear("Frozen", lambda dW, db, dZ: (None, None))
    for layer in Frozen(3, 3), mp.layers.Chain(Frozen(3, 3), mp.Linear(3, 2)):
        report = mp.check(layer, (3,))
        assert report, report
    assert "returns None for W, b, which stays as it is" in mp.check(Frozen(3, 3), (3,))[0].why


# Losses and optimizers.

KINDS = {"numbers": (3,), "classes": (4,), "bits": (2,)}
SoftPlus = of_error("SoftPlus", lambda e, m: np.logaddexp(0, e).sum() / m, lambda e, m: sigmoid(e) / m)
Absolute = of_error("Absolute", lambda e, m: abs(e).sum() / m, lambda e, m: np.sign(e) / m)


class OneHot(mp.SoftmaxCrossEntropy):  # right if each column of Y adds up to 1
    def cost(self, Z, Y, m):
        shifted = Z - Z.max(axis=0)
        logs = shifted - np.log(np.exp(shifted).sum(axis=0))
        self.cache = np.exp(logs), Y, m
        return -(Y * logs).sum() / m

    def check(self, Y):
        pass


@pytest.mark.parametrize("loss, shape", [
    *((loss, KINDS[kind]) for loss, kind in LOSSES.load().examples().values()), (SoftPlus, (3,)),
    (Absolute, (3,)), (OneHot(), (4,)),
], ids=repr)
def test_right_losses_keep_all(loss, shape):
    """Labels are of a kind for which the loss is right."""
    report = mp.check(loss, shape)
    assert report, report


@pytest.mark.parametrize("loss, claim, mistake", [
    pytest.param(*row, id=f"{row[0]!r}") for row in WRONG_LOSSES
])
def test_the_mistake_of_a_wrong_loss_is_named(loss, claim, mistake):
    report = mp.check(loss, (3,))
    assert not report
    first = no_lines(report)[0]
    assert claim in first.claim and mistake in first.why, first


def momentum_of_sign(self, g, u):
    return self.learning_rate * np.sign(0.9 * u + 0.1 * g), 0.99 * u + 0.01 * g


@pytest.mark.parametrize("optimizer", [
    *OPTIMIZERS.load().examples().values(), Plain(0.1), mp.SGD(Fraction(1, 8), Fraction(1, 2)),
    mp.SGD(Rational(1, 8)), of_step("Lion", momentum_of_sign, n_memories=1),
], ids=repr)
def test_right_optimizers_pass_all_checks(optimizer):
    report = mp.check(optimizer)
    assert report, report


@pytest.mark.parametrize("optimizer, claim, mistake", [
    pytest.param(*row, id=f"{row[0]!r}") for row in WRONG_OPTIMIZERS
])
def test_the_mistake_of_a_wrong_optimizer_is_named(optimizer, claim, mistake):
    first = no_lines(mp.check(optimizer))[0]
    assert claim in first.claim and mistake in first.why, first


class Remembers(Layer):  # writes into all that it has
    def __init__(self):
        self.rng, self.seen, self.counts = np.random.default_rng(0), [], {"n": np.zeros(1)}
        self.W = np.ones((3, 1))

    def forward(self, A_prev):
        self.seen.append(self.rng.random() + np.random.random())
        self.counts["n"] += 1
        self.cache = A_prev
        return self.W.astype(A_prev.dtype) * A_prev

    def backward(self, dZ):
        return self.W.astype(dZ.dtype) * dZ, (dZ * self.cache).sum(axis=1, keepdims=True), None


def test_a_check_changes_nothing():
    """Neither what it is handed, whatever that writes into, nor the state of NumPy's generator."""
    adam, layer = mp.Adam(0.1), mp.Linear(4, 3)
    layer.initialize(np.random.default_rng(0))
    adam.update([layer], [(np.ones((3, 4)), np.ones((3, 1)))])
    for what in Remembers(), mp.BatchNorm(3), mp.MeanSquaredError(), adam:
        before = pickle.dumps((what, np.random.get_state()))
        mp.check(what, (3,))
        assert pickle.dumps((what, np.random.get_state())) == before


# Schedules.

@pytest.mark.parametrize("name", SCHEDULES.load())
def test_every_schedule_keeps_all(name):
    """With 2 devices and 4 micro-batches all of them exist; asynchronous ones have no full batch."""
    report = mp.check(name, devices=2, microbatches=4)
    assert report, report
    if "U" not in build(name, 2, 4).kinds:
        assert line_of(report, "in fractions").holds and line_of(report, "bits of one device").holds
    facts = SCHEDULES.facts[name]
    for words, formula in (("ticks", facts.ticks), ("alive", facts.peaks)):
        line, expected = line_of(report, words), formula(K=2, M=4)
        assert line.holds is (None if expected is None else True)
        if line.holds:
            counted = r"counted (.+) (ticks|micro-batches), the formula gives \1"
            assert re.fullmatch(counted, line.why), line.why


def test_a_custom_schedule_keeps_all_guarantees():
    report = mp.check(mp.Schedule.from_text(["F0 F1 B0 B1", "F0 B0 F1 B1"]))
    assert report, report
    assert "no closed form is known" in line_of(report, "ticks").why


@pytest.mark.parametrize("fact, claim, wrong, message", [
    ("makespan", "ticks", lambda K, M: 3 * (M + K - 1) + 1, "counted 33 ticks, the formula gives 34"),
    ("alive", "alive", lambda K, M, device: M + (device == 0),
     "counted 8 8 8 8 micro-batches, the formula gives 9 8 8 8"),
], ids=["makespan", "alive"])
def test_a_wrong_formula_is_named(monkeypatch, fact, claim, wrong, message):
    facts = SCHEDULES.facts["gpipe"]
    monkeypatch.setitem(SCHEDULES.facts, "gpipe", replace(facts, **{fact: wrong}))
    report = mp.check("gpipe", devices=4, microbatches=8)
    assert not report
    assert [(verdict.claim, verdict.why) for verdict in no_lines(report)] == [
        (line_of(report, claim).claim, message)
    ]


@pytest.mark.parametrize("rows, sentence", [
    (["F0 F1 B0", "F0 B0 F1 B1"], "B1"), (["B0 F0", "F0 B0"], "B0"), (["F0 B0", "B0 F0"], "device 1"),
])
def test_a_fault_of_a_schedule_is_named(rows, sentence):
    """And nothing else is tried, since it cannot run."""
    report = mp.check(mp.Schedule.from_text(rows))
    assert not report
    assert "it has no faults" in report[0].claim and sentence in report[0].why
    assert {verdict.holds for verdict in report[1:]} == {None}


# The report.

def test_a_report_prints_what_is_wrong_first_and_all_on_request():
    report = mp.check(DividesByItsM(3, 2), (3,))
    head = "DividesByItsM(3, 2), samples of shape (3,): 9 of 11 checks passed"
    wrong = [
        "  NO  its derivatives are the slopes of its output",
        "        dW is 5 times too small: does backward divide by its own m? The loss has done that",
    ]
    assert str(report).splitlines() == [head, *wrong, "  print(report.details()) shows all 11 checks"]
    lines = report.details().splitlines()
    assert lines[0] == head and lines[5:7] == wrong
    assert [line[:6] for line in lines if re.match("  (yes|NO|-) ", line)] == [
        {True: "  yes ", False: "  NO  "}[verdict.holds] for verdict in report
    ]
    assert len(report) == 11 and bool(report) is False and repr(report) == str(report)


def test_a_report_without_failures_prints_remarks_only():
    assert str(mp.check(mp.ReLU(), (3,))) == "ReLU(), samples of shape (3,): 12 of 12 checks passed"
    lines = str(mp.check("1f1b", devices=2, microbatches=4)).splitlines()
    assert [line[:4] for line in lines] == ["<Sch", "  ye", "    ", "  ye", "    "]


def test_checks_after_one_that_they_need_are_not_tried():
    report = mp.check(NoReturn(), (3,))
    assert [verdict.holds for verdict in report] == [False, *[None] * 10]
    assert all("comes first" in verdict.why for verdict in report[1:])
    assert "0 of 1 checks passed" in str(report)


def test_a_report_in_which_nothing_was_tried_is_false():
    from minipipe.verification.checking import Report, Verdict

    assert not Report("nothing", [Verdict("it cannot be tried", None, "for a reason")])
    assert not Report("nothing", [])
    assert Report("one", [Verdict("it holds", True), Verdict("it cannot be tried", None)])


# The door.

LAYER, MSE = mp.Linear(3, 2), mp.MeanSquaredError()
REFUSED = [  # (arguments, a piece of the sentence)
    ((LAYER,), "shape is missing: pass that of one sample, such as shape=(3,)"),
    ((LAYER, 3), "shape=3 must be a tuple, such as (3,)"),
    ((LAYER, "abc"), "shape='abc' must be a tuple"),
    ((LAYER, (0,)), "shape[0]=0 must be at least 1"),
    ((LAYER, (10**9,)), "1,000,000,000 numbers in a sample, more than 10,000"),
    (([LAYER, mp.ReLU()], (3,)), "Of a network, check each layer"),
    ((mp.Linear, (3,)), "must be a layer, a loss or an optimizer: pass an object"),
    ((MSE,), "shape is missing: pass that of one sample"),
    ((np.ones(3), (3,)), "must be a layer"),
    (("gpip",), "did you mean 'gpipe'?"),
]


@pytest.mark.parametrize("arguments, sentence", [pytest.param(*row, id=row[1][:40]) for row in REFUSED])
def test_wrong_calls_raise_errors_before_any_work(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        mp.check(*arguments)


def test_a_layer_that_raises_an_error_is_a_finding():
    class Broken(Layer):
        def forward(self, A_prev):
            raise KeyError("of my own")

    for layer, shape, error in (
        (Broken(), (3,), "KeyError: 'of my own'"), (LAYER, (4,), "needs A_prev of shape (3, m), got (4, 5)"),
    ):
        report = mp.check(layer, shape)
        assert not report and error in report[0].why, report


def test_a_shape_may_be_a_list():
    assert mp.check(mp.Linear(2, 1, W=[[1.0, 2.0]], b=[[0.5]]), [2])


# The verdicts can say no


def pipe_and_batch():
    X, Y = (part[:, :12] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 8), mp.ReLU(), mp.Linear(8, 10)]
    return mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 4), X, Y


def of_every_gradient(change):
    """A wrong `Stage.gradients`, which changes each array."""
    return lambda found: [tuple(None if part is None else change(part) for part in pair) for pair in found]


def one_entry(place, number):
    """A wrong `Stage.gradients`, whose first stage has another number in one entry of W or b."""
    def change(found):
        part = found[0]["Wb".index(place)]
        part[0, 0] = number(part[0, 0])
        return found

    return change


def one_bit_more(number):
    return np.nextafter(number, np.inf)


BITS, FULL = same_bits, equals_full_batch


@pytest.mark.parametrize("method, change, verdicts", [
    ("gradients", of_every_gradient(np.float32), [BITS, FULL]),
    ("gradients", of_every_gradient(np.longdouble), [BITS]),
    ("gradients", of_every_gradient(lambda part: part * (1 + 1e-9)), [BITS, FULL]),
    ("gradients", one_entry("W", one_bit_more), [BITS, FULL]),
    ("gradients", one_entry("b", one_bit_more), [BITS, FULL]),
    ("cost", one_bit_more, [BITS]),
    ("cost", lambda J: J * (1 + 1e-9), [BITS]),
], ids=["float32", "longdouble", "a billionth", "a bit of W", "a bit of b", "a bit of J", "a billionth of J"])
def test_what_is_wrong_in_a_pipeline_is_noticed(method, change, verdicts, monkeypatch):
    pipe, X, Y = pipe_and_batch()
    assert same_bits(pipe, X, Y)
    spoil(pipe, method, change, monkeypatch)
    assert not any(verdict(pipe, X, Y) for verdict in verdicts)


def spoil(pipe, method, change, monkeypatch):
    """Change what `gradients` of the first stage of the pipeline returns, or `cost` of any of its stages."""
    kind = Totals if method == "cost" else Stage
    right = getattr(kind, method)

    def wrong(one, *arguments):
        found = right(one, *arguments)
        is_meant = one is pipe.stages[0] or any(one is stage.totals for stage in pipe.stages)
        return change(found) if is_meant else found

    monkeypatch.setattr(kind, method, wrong)


@pytest.mark.parametrize("layer, place", [(0, 0), (2, 0), (2, 1), (6, 1), ("J", None)])
def test_any_difference_from_the_same_micro_batches_is_noticed(layer, place, monkeypatch):
    """With BatchNorm, dropout, a skip connection and a tie, in rational numbers."""
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 2, tie="W"), mp.Fork("a"), mp.BatchNorm(2), mp.Dropout(0.25), mp.Linear(2, 2, tie="W"),
        mp.Join("a"), mp.Linear(2, 1),
    ]
    X, Y = eighths(rng.standard_normal((2, 5))), eighths(rng.standard_normal((1, 5)))
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 4, 2)
    assert equals_same_groups(pipe, X, Y) and not equals_full_batch(pipe, X, Y)
    gradients = mp.Pipeline.gradients.fget

    def spoilt(self):
        found = [list(pair) for pair in gradients(self)]
        found[layer][place] = found[layer][place] + Rational(1, 10**30)
        return found

    if layer == "J":
        spoil(pipe, "cost", lambda J: J + Rational(1, 10**30), monkeypatch)
    else:
        monkeypatch.setattr(mp.Pipeline, "gradients", property(spoilt))
    assert not equals_same_groups(pipe, X, Y)


def test_verdicts_compare_at_the_step_of_the_pipeline():
    """Dropout's masks change from step to step; each reference is at the same one, and stays out
    of the pipeline's way.
    """
    layers = [mp.Linear(2, 8), mp.Dropout(), mp.Linear(8, 1)]
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 2, 2)
    X, Y = eighths(np.ones((2, 4))), eighths(np.ones((1, 4)))
    for _ in range(2):
        J = pipe.forward_backward(X, Y)
        pipe.step(mp.SGD(Rational(1, 8)))
        assert equals_full_batch(pipe, X, Y) and equals_same_groups(pipe, X, Y) and same_bits(pipe, X, Y)
        assert pipe.J != J


def test_differences_of_floats_are_measured_in_last_places(monkeypatch):
    pipe, X, Y = pipe_and_batch()
    apart = last_places_apart(pipe, X, Y)
    assert 0 < apart < 100
    largest = abs(mp.Sequential(pipe.layers, pipe.loss).forward_backward(X, Y))
    spoil(pipe, "cost", lambda J: J + 1000 * np.spacing(largest), monkeypatch)
    assert abs(last_places_apart(pipe, X, Y) - 1000) <= apart
