"""Each registered layer does what its traits say, in parts, shards, files and pickles; and its repr."""

import pickle
from inspect import signature

import numpy as np
import pytest
from cases import eighths
from compared import assert_same
from layers.every_layer import ALONE, CONTRACT, LAYERS, TOKENS, is_pair, own_parameters, ready, tree
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational
from minipipe.layers import every_layer as parts_of, xavier
from minipipe.layers.convolution import Kernel
from minipipe.layers.through import prepare_forward, put_aside

every_layer = pytest.mark.parametrize("name", CONTRACT)


def exact(name, m=5):
    """`ready` in rational numbers; tokens stay as they are."""
    layer, A_prev, dZ = ready(name, m)
    A_prev = A_prev if name in TOKENS else tree(eighths, A_prev)
    return layer.copy(eighths), A_prev, tree(eighths, dZ)


@every_layer
def test_micro_batches_add_up_where_a_sample_is_alone(name):
    """A and dA_prev of two samples and of one lie side by side, and dW and db add up: `==` to all three.

    Where `alone_per_sample` is False, the first two have another A.
    """
    layer, A_prev, dZ = exact(name, 3)

    def run(samples):
        prepare_forward(list(parts_of([layer])), training=True, first_sample=samples.start)
        A = layer.forward(tree(lambda array: array[..., samples], A_prev))
        return A, *layer.backward(tree(lambda array: array[..., samples], dZ))

    whole, first = run(slice(0, 3)), run(slice(0, 2))
    if not layer.alone_per_sample:
        assert not np.array_equal(first[0], whole[0][..., :2])
        return
    second = run(slice(2, 3))
    A, dA_prev = (
        tree(lambda *parts: np.concatenate(parts, axis=-1), *pair) for pair in zip(first[:2], second[:2])
    )
    assert_same((A, dA_prev), whole[:2], "A, dA_prev")
    assert_same(tree(np.add, first[2:], second[2:]), whole[2:], "dW, db")


@every_layer
def test_its_second_half_needs_no_dZ_only_where_it_says_so(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    expected = layer.backward(dZ)[1:]
    layer.backward_input(dZ)
    if not own_parameters(layer):
        assert put_aside(layer, dZ) is None
    elif layer.weight_after_input:
        assert_same(layer.backward_weight(None), expected)
    else:
        with pytest.raises((AttributeError, TypeError, ValueError), match=r"None|shape"):
            layer.backward_weight(None)


@every_layer
def test_its_products_are_as_many_for_each_sample(name):
    """`macs` and `macs_again` are whole numbers; above 0 in a Linear, convolution or attention."""
    layer, shape = CONTRACT[name]

    def of(m):
        return tuple((*part, m) for part in shape) if is_pair(shape) else (*shape, m)

    for count in (layer.macs, layer.macs_again):
        assert type(count(of(1))) is int
        assert [count(of(m)) for m in (1, 2, 7)] == [m * count(of(1)) for m in (1, 2, 7)]
    if any(isinstance(part, (mp.Linear, Kernel, mp.MultiHeadAttention)) for part in parts_of([layer])):
        assert layer.macs(of(1)) > 0


@every_layer
def test_what_decays_is_a_parameter_of_its_own(name):
    layer, _ = CONTRACT[name]
    for part in parts_of([layer]):
        assert set(part.decays) <= {"W", "b"}


@every_layer
def test_what_takes_tokens_has_no_derivative_by_them(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    assert (layer.backward(dZ)[0] is None) == (layer.takes == "tokens") == (name in TOKENS)
    assert layer.takes in ("numbers", "tokens")


@every_layer
def test_it_is_the_same_from_a_pickle(name):
    """With the cache of a forward that waits for its backward."""
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    twin = pickle.loads(pickle.dumps(layer))
    assert_same(twin.backward(dZ), layer.backward(dZ))


@pytest.mark.parametrize("name", ALONE)
def test_it_computes_the_same_from_a_file(name, tmp_path):
    """In training, with what is random in it, and in a prediction."""
    layer, _ = LAYERS[name]
    one, other = (mp.Sequential([layer], None, seed=seed) for seed in (1, 2))
    mp.save(tmp_path / "net.npz", one)
    mp.load(tmp_path / "net.npz", other)
    _, A_prev, _ = ready(name)
    for training in (True, False):
        outputs = []
        for net in (one, other):
            prepare_forward(list(parts_of(net.layers)), training)
            outputs.append(net.layers[0].forward(A_prev))
        assert_same(*outputs)


def between_products(name, m):
    """(layers, X, Y): the layer between two Linear, which act at each position, in rational numbers."""
    layer, shape = LAYERS[name]
    rng, output_shape = np.random.default_rng(0), layer.output_shape((*shape, m))
    layers = [layer, mp.Linear(output_shape[0], 2)]
    if name in TOKENS:
        X = rng.integers(0, TOKENS[name], (*shape, m))
    else:
        layers.insert(0, mp.Linear(1, shape[0]))
        X = rational(rng.integers(-4, 5, (1, *shape[1:], m))) / 4
    layers = [part.copy(eighths) for part in mp.Sequential(layers, None).layers]
    return layers, X, rational(rng.integers(-2, 3, (2, *output_shape[1:])))


def shards_of(layers):
    """2 or 3 devices, which must divide the heads of an attention; 1 if there is one head."""
    heads = [part.n_heads for part in parts_of(layers) if isinstance(part, mp.MultiHeadAttention)]
    return next((T for T in (2, 3) if not any(n % T for n in heads)), 1)


@pytest.mark.parametrize("name", one_in(4, ALONE))
def test_in_shards_stages_and_copies_it_equals_one_device(name):
    """J and all gradients, of the same micro-batches; two samples each, so that all have a variance."""
    layers, X, Y = between_products(name, 4)
    loss = mp.MeanSquaredError()
    nets = [mp.Pipeline(layers, loss, 1, 2)]
    nets.append(mp.TensorParallel(layers, loss, shards_of(layers), 2))
    nets.append(mp.Pipeline(layers, loss, 2, 2, "zb-h1", "always"))
    nets.append(mp.Parallel(layers, loss, mp.Split(replicas=2, stages=2, microbatches=2)))
    runs = [[net.forward_backward(X, Y), leaves(net.gradients)] for net in nets]
    for net, run in zip(nets[1:], runs[1:]):
        assert_same(run, runs[0], type(net).__name__)


# --- what it prints

OTHER = {  # a value that is no default, for each optional argument that layers of the package have
    "stride": 4, "padding": 1, "dilation": 2, "groups": 2, "bias": False, "output_padding": 1, "epsilon": 0.5,
    "momentum": 0.5, "gamma": 0, "p": 0.25, "negative_slope": 0.5, "causal": True, "dropout": 0.25,
    "n_hidden": 3, "how": "concat", "tie": "name", "initialization": xavier, "approximate": "none",
}
BESIDE = {"output_padding": {"stride": 2}}
NEEDED = {"widths": [1], "shape": (2, 3), "kernel_size": 3}  # other sizes are 4, and the rest an example's


def again(layer):
    return eval(repr(layer), {name: getattr(mp, name) for name in mp.__all__})


@pytest.mark.parametrize("name", LAYERS)
def test_the_repr_is_the_call_that_makes_such_a_layer(name):
    layer, shape = LAYERS[name]
    twin, shape = again(layer), tuple((*s, 5) for s in shape) if layer.join else (*shape, 5)
    assert repr(twin) == repr(layer)
    assert twin.parameter_shapes() == layer.parameter_shapes()
    assert twin.output_shape(shape) == layer.output_shape(shape) and twin.macs(shape) == layer.macs(shape)


@pytest.mark.parametrize("name", [name for name in mp.layers.LAYERS if name not in ("Add", "Concat")])
def test_the_repr_names_every_argument_that_differs_from_its_default(name):
    kind = getattr(mp, name)
    arguments = signature(kind).parameters.values()
    named = [argument for argument in arguments if argument.kind is argument.POSITIONAL_OR_KEYWORD]
    example, *_ = mp.layers.LAYERS.facts[name].examples()[0]
    needed = []
    for argument in named:
        if argument.default is argument.empty:
            shown = example.argument(argument.name)
            needed.append(NEEDED.get(argument.name, 4 if isinstance(shown, int) else shown))
    assert "=" not in repr(kind(*needed))
    for argument in named:
        if argument.default is not argument.empty and argument.name in OTHER:
            value = OTHER[argument.name]
            layer = kind(*needed, **{argument.name: value}, **BESIDE.get(argument.name, {}))
            assert f"{argument.name}={getattr(value, '__name__', None) or repr(value)}" in repr(layer)
            assert repr(again(layer)) == repr(layer)
