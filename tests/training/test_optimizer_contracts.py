"""What every registered optimizer keeps, whatever its formula is: its equations, its memory, its splits.

The equations in an optimizer's docstring are carried out number by number: an update that shares no code. At
the end stand LARS and LAMB against their papers, and what optimizers refuse.
"""

import re
from typing import NamedTuple

import numpy as np
import pytest
from compared import assert_same, state
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves, root
from minipipe.exact import Rational, rational
from minipipe.optimizers import OPTIMIZERS

EXAMPLES = OPTIMIZERS.examples()
every_optimizer = pytest.mark.parametrize("optimizer", EXAMPLES.values(), ids=EXAMPLES)
LOSS = mp.SoftmaxCrossEntropy()


def fractions(*shape, seed):
    return rational(np.random.default_rng(seed).integers(-6, 7, shape)) / 4


def network():
    return [
        mp.Linear(3, 5), mp.BatchNorm(5), mp.Residual(mp.Linear(5, 5), mp.Tanh()), mp.LayerNorm(5),
        mp.Linear(5, 2, bias=False),
    ]


def mini_batch(seed, dtype=np.float32, m=12):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((3, m)).astype(dtype), mp.one_hot(rng.integers(0, 2, m), 2, dtype)


def trained(net, optimizer, n_updates=2, first=0):
    """Train `net`; return the costs and its state."""
    costs = []
    for seed in range(first, first + n_updates):
        costs += net.train([mini_batch(seed)], optimizer)
    return costs, state(net.layers)


@every_optimizer
def test_updates_match_the_equations_in_its_docstring(optimizer):
    """Of three gradients for a W and a b, in rational numbers; in the last, one of two rows is 0.

    The learning rate changes twice. What it remembers is what the equations call by a name: a sign, for
    instance, would not tell it.
    """
    own, dW = exact(optimizer), [fractions(2, 3, seed=seed) for seed in (1, 2, 5)]
    dW[-1][0] = 0 * dW[-1][0]
    own.weights_only = False
    W, b = fractions(2, 3, seed=3), fractions(2, 1, seed=4)
    layer, db = mp.Linear(3, 2, W=W, b=b), [g[:, :1] for g in dW]
    rates = [own.learning_rate * times for times in (1, rational([1])[0] / 2, 2)]
    for rate, *pair in zip(rates, dW, db):
        own.learning_rate = rate
        own.update([mp.ReLU(), layer], [(None, None), pair])
    for name, start, gradients in (("W", W, dW), ("b", b, db)):
        end, made = updated(own, start, gradients, rates)
        assert_same(getattr(layer, name), end, name)
        for array in own.memory.get((1, name, 0), ()):
            assert any(np.array_equal(array, value) for value in made.values()), array


@every_optimizer
def test_an_optimizer_writes_into_no_array_that_it_gets(optimizer):
    """Its own arrays lie in one piece, also where W and the gradient lie the other way."""
    optimizer, layer = optimizer.fresh(), mp.Linear(3, 2, W=np.ones((2, 3)), b=np.ones((2, 1)))
    layer.W = np.ones((3, 2)).T
    for _ in range(2):
        gradients = np.full((3, 2), 0.5).T, np.full((2, 1), 0.25)
        handed = [layer.W, layer.b, *gradients, *leaves(list(optimizer.memory.values()))]
        for array in handed:
            array.flags.writeable = False
        optimizer.update([layer], [gradients])
        kept = [layer.W, layer.b, *leaves(list(optimizer.memory.values()))]
        assert [len(arrays) for arrays in optimizer.memory.values()] == [optimizer.n_memories] * 2
        assert not any(np.shares_memory(new, old) for new in kept for old in handed)
        assert not any(np.shares_memory(a, b) for i, a in enumerate(kept) for b in kept[:i])
        assert all(array.flags.c_contiguous for array in kept)


@every_optimizer
def test_an_optimizer_learns_and_keeps_float32(optimizer):
    optimizer, (X, _) = optimizer.fresh(), mini_batch(0, m=40)
    Y = mp.one_hot((X[0] > X[1]).astype(int), 2, np.float32)
    net = mp.Sequential([mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 2)], LOSS, dtype=np.float32)
    costs = []
    for _ in range(30):
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    assert costs[-1] < costs[0]
    arrays = [*state(net.layers).values(), *leaves(list(optimizer.memory.values()))]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


@every_optimizer
def test_parameters_without_decay_do_not_depend_on_weight_decay(optimizer):
    """With `weights_only`, b of a Linear, and W and b of a LayerNorm; while W of a Linear does."""
    layers = mp.Sequential([mp.Linear(3, 3, b=np.ones((3, 1))), mp.LayerNorm(3)], None).layers
    gradients = [(np.full((3, 3), 0.5), np.full((3, 1), 0.5)), (np.full((3, 1), 0.25), np.full((3, 1), 0.5))]
    ends = []
    for decay in (0, 0.25):
        twins, own = [layer.copy() for layer in layers], optimizer.fresh()
        own.weights_only, own.weight_decay = True, decay
        for _ in range(2):
            own.update(twins, gradients)
        ends.append([array for layer in twins for array in (layer.W, layer.b)])
    same = [np.array_equal(*pair) for pair in zip(*ends)]
    assert same == [False, True, True, True]


@every_optimizer
def test_a_refused_update_changes_nothing(optimizer):
    """The last of its gradients is not a number, or has another shape: after one update, and before any."""
    layers = mp.Sequential([mp.Linear(3, 3), mp.Linear(3, 2)], None).layers
    good = [(np.ones((3, 3)), np.ones((3, 1))), (np.ones((2, 3)), np.ones((2, 1)))]
    not_finite = [good[0], (good[1][0], np.full((2, 1), np.nan))]
    optimizer = optimizer.fresh()
    for n_updates in range(2):
        before = [state(layers), dict(optimizer.memory), optimizer.n_updates, optimizer.last_rate]
        for wrong, error, words in (
            (not_finite, FloatingPointError, "layer 1, .*: b after this update is not finite"),
            ([good[0]] * 2, ValueError, r"layer 1: W has shape \(2, 3\), but its gradient has \(3, 3\)"),
            (good[:1], ValueError, "2 layers but 1 gradients"),
        ):
            with pytest.raises(error, match=words):
                optimizer.update(layers, wrong)
            after = [state(layers), dict(optimizer.memory), optimizer.n_updates, optimizer.last_rate]
            assert_same(after, before)
            assert optimizer.n_updates == n_updates
        optimizer.update(layers, good)


@every_optimizer
def test_an_optimizer_resumes_from_a_checkpoint_with_the_same_bits(optimizer, tmp_path):
    """The rate changes before the checkpoint, since some optimizers remember the one before."""
    one, own = mp.Sequential(network(), LOSS, dtype=np.float32), optimizer.fresh()
    trained(one, own, 2)
    own.learning_rate = own.learning_rate / 2
    mp.save(tmp_path / "net.npz", one, own)
    expected = trained(one, own, first=2)
    other = mp.Parallel(network(), LOSS, seed=9, dtype=np.float32)
    resumed = optimizer.fresh()
    mp.load(tmp_path / "net.npz", other, resumed)
    assert resumed.learning_rate == own.learning_rate and resumed.n_updates == 2
    assert_same(trained(other, resumed, first=2), expected)


@every_optimizer
def test_it_prints_as_the_call_that_makes_it(optimizer):
    again = eval(repr(optimizer), {type(optimizer).__name__: type(optimizer)})
    assert repr(again) == repr(optimizer) and vars(again) == vars(optimizer)


@every_optimizer
def test_entries_are_updated_separately_unless_the_optimizer_states_otherwise(optimizer):
    """W in two parts is updated as W in one, unless the optimizer needs whole parameters."""
    W, g = np.array([[1.0, 2.0, -1.0, 3.0]]), np.array([[0.5, -2.0, 4.0, 1.0]])

    def after(*columns):
        layers = [mp.Linear(W[:, part].shape[1], 1, W=W[:, part], bias=False) for part in columns]
        own = optimizer.fresh()
        for _ in range(2):
            own.update(layers, [(g[:, part], None) for part in columns])
        return np.hstack([layer.W for layer in layers])

    same = np.array_equal(after(slice(0, 1), slice(1, 4)), after(slice(0, 4)))
    assert same != optimizer.needs_whole_parameters


@pytest.mark.parametrize("optimizer, n_servers", one_in(4, EXAMPLES.values(), [1, 2]), ids=repr)
def test_parameter_servers_have_the_bits_of_one_device_or_refuse(optimizer, n_servers):
    def server():
        return mp.ParameterServer(network(), LOSS, 6, servers=n_servers, dtype=np.float32)

    optimizer = optimizer.fresh()
    optimizer.weights_only |= n_servers > 1 and not optimizer.needs_whole_parameters
    if optimizer.needs_whole_parameters:
        with pytest.raises(ValueError, match=type(optimizer).__name__):
            trained(server(), optimizer.fresh())
        return
    expected = trained(mp.Pipeline(network(), LOSS, 1, 6, dtype=np.float32), optimizer.fresh())
    assert_same(trained(server(), optimizer.fresh()), expected)


def test_every_form_in_the_docstrings_matches_an_example():
    """So that no line of equations stands there that no test carries out."""
    shown = {type(optimizer) for optimizer in EXAMPLES.values()}
    for kind in shown:
        options = [form.options for form in forms_of(kind)]
        assert options and options[0] == {}
        for option in options:
            assert any(
                type(optimizer) is kind and all(getattr(optimizer, k) == v for k, v in option.items())
                for optimizer in EXAMPLES.values()
            )


# The equations

NAME = r"[A-Za-z_]\w*(?:\^(?![\w(]))?"  # the power in m^2 is not a part of the name, the hat of m^ is
EQUATION = re.compile(rf"({NAME}) = (.+)")
OPTION = re.compile(r"(\w+)=(\w+)")
TOKEN = re.compile(rf"\s*(\|\|[^|]+\|\||{NAME}|\d+(?:\.\d+)?|[-+*/^(),])")
FUNCTIONS = {
    "sqrt": np.sqrt, "sign": np.sign, "norm": lambda array: root((array * array).sum()), "abs": abs,
    "max": np.maximum, "min": np.minimum,
}
OPERATORS = {"^": "**"}


class Form(NamedTuple):
    """One form of an update: [(name, Python expression)], the last for W, and the options that it is for."""

    equations: list
    options: dict


def forms_of(kind):
    """Return the `Form`s in the docstring of an optimizer's class.

    Equations are `name = expression`, divided by two spaces, a semicolon or a new line. Each form ends with
    W. Options for which it is stand in its line, such as `nesterov=True`.
    """
    forms, equations = [], []
    for line in kind.__doc__.splitlines():
        segments = [part.strip(" .") for part in re.split(r";|\s{2,}", line)]
        options = {name: value == "True" for name, value in OPTION.findall(line)}
        for segment in segments:
            found = EQUATION.fullmatch(segment)
            if found and not found[2].startswith("="):
                expression = in_python(found[2])
                if expression is not None:
                    equations.append((found[1].replace("^", "_hat"), expression))
                    if found[1] == "W":
                        forms.append(Form(equations, options))
                        equations = []
    return forms


def in_python(text):
    """Return an expression of the docstring as Python; None for words.

    >>> in_python("(1 - beta1^t) g^2 / ||W||")
    '( 1 - beta1 ** t ) * g ** 2 / norm(W)'
    """
    tokens, place = [], 0
    text = text.strip()
    while place < len(text):
        found = TOKEN.match(text, place)
        if found is None:
            return None
        token, place = found[1], found.end()
        if tokens and _ends(tokens[-1]) and _begins(token) and tokens[-1] not in FUNCTIONS:
            tokens.append("*")
        if token.startswith("||"):
            token = f"norm({token.strip('|')})"
        tokens.append(OPERATORS.get(token, token.replace("^", "_hat")))
    return " ".join(tokens)


def _ends(token):
    return token == ")" or token[0].isalnum() or token[0] == "_" or token.startswith("norm(")


def _begins(token):
    return token == "(" or token[0].isalnum() or token[0] in "_|"


def updated(optimizer, W, gradients, rates):
    """Return (W, {name: what the last update has made}) after updates with these gradients, by the equations.

    rates: the learning rate of each update.

    Weight decay that its equations do not have is that of `Optimizer`: decoupled, W - learning_rate *
    weight_decay * W before the step, or else coupled, g + weight_decay * W.
    """
    forms = [form for form in forms_of(type(optimizer)) if _is_for(form, optimizer)]
    form = max(forms, key=lambda form: len(form.options))
    has_decay = any("decay" in expression for _, expression in form.equations)
    numbers = vars(optimizer) | {"decay": optimizer.weight_decay}
    numbers |= dict(zip(("beta1", "beta2"), getattr(optimizer, "betas", ())))
    made = {name: np.zeros_like(W) for name, _ in form.equations}
    for t, (rate, g) in enumerate(zip(rates, gradients, strict=True), 1):
        if getattr(optimizer, "rate_inside", False) and t > 1:  # the momentum correction of Goyal et al.
            made["v"] = made["v"] * rate / rates[t - 2]
        if optimizer.weight_decay and not has_decay:
            if optimizer.decoupled:
                W = W - rate * optimizer.weight_decay * W
            else:
                g = g + optimizer.weight_decay * W
        values = FUNCTIONS | numbers | made | {"learning_rate": rate, "t": t, "g": g, "W": W}
        for name, expression in form.equations:
            values[name] = eval(expression, values)
        made = {name: values[name] for name, _ in form.equations}
        W = values["W"]
    return W, made


def _is_for(form, optimizer):
    return all(getattr(optimizer, name, None) == value for name, value in form.options.items())


def exact(optimizer):
    """Return a fresh optimizer of the same kind, whose numbers are rational."""
    twin = optimizer.fresh()
    for name, value in vars(optimizer).items():
        if isinstance(value, float):
            setattr(twin, name, Rational(value))
        elif isinstance(value, tuple):
            setattr(twin, name, tuple(map(Rational, value)))
    return twin


# LARS and LAMB against their papers, what decays in a layer of one's own, and what is refused


BETAS = Rational(9, 10), Rational(999, 1000)
TINY = Rational(1, 2**200)  # an epsilon that is nothing beside any root here


def after(optimizer, W, *gradients, b=0):
    """W and b after updates with these gradients of W; those of b are 1."""
    layer = mp.Linear(len(W[0]), 1, W=rational(W), b=rational([[b]]))
    for g in gradients:
        optimizer.update([layer], [(rational(g), rational([[1]]))])
    return layer.W.tolist()[0], layer.b[0, 0]


def test_the_golden_step_of_lars():
    """||W|| = 5, ||g|| = 1: local = 5/1000 / (1 + 5/2000) = 2/401, and v = local * (g + W/2000)."""
    optimizer = mp.LARS(Rational(1), Rational(0), weight_decay=Rational(1, 2000), trust=Rational(1, 1000))
    W, b = after(optimizer, [[3, 4]], [[Rational(3, 5), Rational(4, 5)]])
    assert W == [Rational(2997, 1000), Rational(3996, 1000)]
    assert b == -1  # without trust and decay


@pytest.mark.parametrize("kind", [mp.LARS, mp.LAMB])
def test_a_parameter_of_zeros_moves_by_the_plain_step(kind):
    """The ratio is 1 there, not 0 and not 0/0; a gradient of zeros moves nothing."""
    plain, options = mp.SGD, {"momentum": Rational(1, 2)}
    if kind is mp.LAMB:
        plain, options = mp.Adam, {"betas": BETAS, "epsilon": TINY, "weight_decay": 0}
    makes = kind(Rational(1), **options), plain(Rational(1), **options)
    own, theirs = (after(optimizer, [[0, 0]], [[3, 4]]) for optimizer in makes)
    assert own == theirs and own[0] != [0, 0]
    assert after(kind(Rational(1), **options), [[3, 4]], [[0, 0]])[0] == [3, 4]


class RootMeanSquare(mp.Layer):
    """A normalisation of one's own, but for its division, which says that its W is no weight."""

    decays = ()

    def __init__(self):
        self.W, self.b = np.ones((2, 1)), np.ones((2, 1))


class Shift(RootMeanSquare):
    decays = ("b",)


@pytest.mark.parametrize("weights_only", [True, False])
def test_decays_of_a_custom_layer_apply_if_weights_only(weights_only):
    layers, zeros = [RootMeanSquare(), Shift()], np.zeros((2, 1))
    mp.SGD(0.5, weight_decay=0.5, weights_only=weights_only).update(layers, [(zeros, zeros)] * 2)
    moved = [not np.array_equal(array, np.ones((2, 1))) for layer in layers for array in (layer.W, layer.b)]
    assert moved == [not weights_only, not weights_only, not weights_only, True]


class Average(mp.optimizers.Optimizer):
    """u = u / 2 + g, W = W - u: what is subtracted and what is remembered are one array."""

    n_memories = 1

    def __init__(self):
        super().__init__(1, 0, False)

    def step(self, g, u):
        u = Rational(1, 2) * u + g
        return u, u


def test_a_custom_optimizer_may_return_its_state_as_the_step():
    """A new parameter that were written into the step would stand in the memory, too: W = 1 - 1 - 3/2."""
    optimizer = Average()
    assert after(optimizer, [[1]], [[1]], [[1]])[0] == [-Rational(3, 2)]
    assert optimizer.memory[0, "W", 0][0].tolist() == [[Rational(3, 2)]]


# --- errors

ONE = [(np.ones((1, 2)), np.ones((1, 2)))]


def assigned(W):
    layer = mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])
    layer.W = W
    return layer


@pytest.mark.parametrize("make, words", [
    (lambda: setattr(mp.Adam(), "learning_rate", -1), "learning_rate=-1 must be above 0"),
    *[(lambda W=W: mp.SGD(0.1).update([assigned(W)], [(np.ones((1, 1)), np.ones((1, 1)))]),
       r"layer 0: W holds no floats, .* layer.W = np.asarray\(layer.W, float\)")
      for W in ([[1]], np.array([[1]]), np.array([[True]]))],
    (lambda: mp.SGD(0.1, nesterov=True), "nesterov=True with momentum=0: it needs a momentum above 0"),
    (lambda: mp.RMSProp(epsilon=0), "epsilon=0 must be above 0"),
    (lambda: mp.Adam(betas=(0.9, 1)), "beta2=1 must be at least 0 and below 1"),
    (lambda: mp.DataParallel([mp.Linear(1, 1)], mp.MeanSquaredError(), 2, zero=1).train(ONE, mp.LARS(1)),
     r"LARS looks at whole parameters, but with 'data-parallel\+zero 1', each device updates a part"),
    (lambda: mp.TensorParallel([mp.Linear(2, 2)], mp.MeanSquaredError(), 2, schedule="F0 B0 U0").train(
        ONE, mp.LAMB(1)),
     "LAMB looks at whole parameters, but with 'custom', each device updates a part"),
])
def test_invalid_optimizers_and_uses_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
