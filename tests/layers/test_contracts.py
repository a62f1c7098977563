"""Every layer keeps the same promises, whatever its formula is: one test a layer, one function a promise."""

import pickle
from inspect import signature
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from cases import eighths
from compared import assert_same, assert_within
from layers.every_layer import (
    ALONE, CONTRACT, LAYERS, TOKENS, arrays_in, dual, is_pair, own_parameters, ready, slopes, tree,
    unread_between_the_halves,
)

import minipipe as mp
from minipipe.arrays import leaves, shape_of
from minipipe.exact import Rational, rational
from minipipe.layers import every_layer as parts_of, xavier
from minipipe.layers.convolution import Kernel
from minipipe.layers.through import prepare_forward, put_aside


def fewest(name):
    """How many samples a layer needs: one, or two that have a variance."""
    return 1 if CONTRACT[name][0].alone_per_sample else 2


def exact(name, m):
    """`ready` in rational numbers; tokens stay as they are."""
    layer, A_prev, dZ = ready(name, m)
    A_prev = A_prev if name in TOKENS else tree(eighths, A_prev)
    return layer.copy(eighths), A_prev, tree(eighths, dZ)


# --- its derivatives

def its_backward_equals_central_differences(name):
    """The slope of J = sum(R * A), where A_prev and all parameters move at once along a random direction D,
    by (J(+h) - J(-h)) / 2h, in float64.
    """
    for m in (fewest(name), 5):
        layer, A_prev, R = ready(name, m)
        layer.forward(A_prev)
        derivatives = leaves(layer.backward(R))  # tokens have none
        rng, h = np.random.default_rng(1), 3e-6
        directions = [rng.standard_normal(d.shape) for d in derivatives]

        def J(step):
            twin, moves = layer.copy(), iter([step * D for D in directions])
            inputs = A_prev if name in TOKENS else tree(lambda A: A + next(moves), A_prev)
            for part, which in own_parameters(twin):
                setattr(part, which, getattr(part, which) + next(moves))
            assert next(moves, None) is None
            return sum((r * A).sum() for r, A in zip(leaves(R), leaves(twin.forward(inputs)), strict=True))

        slope = (J(h) - J(-h)) / (2 * h)
        expected = sum((d * D).sum() for d, D in zip(derivatives, directions))
        because = "h^2/6 times the third derivative along D, and rounding u J / h, of numbers up to about 100"
        assert_within(slope, expected, bound=1e-7, because=because)


def its_backward_equals_dual_numbers_exactly(name):
    """The slope of sum(R * A), where A_prev and all parameters move at once along a random direction,
    in rational numbers.
    """
    layer, A_prev, R = ready(name, fewest(name))
    layer, A_prev, R = layer.copy(rational), tree(rational, A_prev), tree(rational, R)
    A = layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(R)
    twin, rng = layer.copy(), np.random.default_rng(2)

    def direction(array):
        return rational(rng.integers(-4, 5, array.shape))

    moved = []
    for part, which in own_parameters(twin):
        moved.append(direction(getattr(part, which)))
        setattr(part, which, dual(getattr(part, which), moved[-1]))
    expected = sum((d * D).sum() for d, D in zip(leaves((dW, db)), moved, strict=True))
    inputs = A_prev
    if dA_prev is not None:
        D = tree(direction, A_prev)
        inputs = tree(dual, A_prev, D)
        expected += sum((d * D).sum() for d, D in zip(leaves(dA_prev), leaves(D), strict=True))
    found = twin.forward(inputs)
    assert all(np.array_equal(mine, true) for mine, true in zip(leaves(found), leaves(A), strict=True))
    assert sum((r * slopes(A)).sum() for r, A in zip(leaves(R), leaves(found))) == expected


def its_floats_are_close_to_its_rational_numbers(name):
    """No float is among the rational ones.

    The float result is off by at most 2000 units in the last place of the largest of all results:
    generous for a few dozen operations, and far below what a wrong constant would change.
    """
    layer, A_prev, dZ = ready(name, fewest(name))
    if not layer.layers and name not in TOKENS:
        A_prev = tree(lambda A: 8 * A, A_prev)  # up to where GELU is straight
    twin = layer.copy(rational)
    results = leaves((layer.forward(A_prev), layer.backward(dZ)))
    truth = leaves((twin.forward(tree(rational, A_prev)), twin.backward(tree(rational, dZ))))
    bound = Rational(max(abs(mine).max() for mine in results) * 2000 * np.finfo(float).eps)
    for mine, true in zip(results, truth, strict=True):
        assert all(type(value) is Rational for value in true.flat)
        assert np.all(abs(rational(mine) - true) <= bound)


def it_has_no_derivative_by_tokens(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    assert (layer.backward(dZ)[0] is None) == (layer.takes == "tokens") == (name in TOKENS)
    assert layer.takes in ("numbers", "tokens")


# --- its arrays

def its_results_have_the_dtype_of_the_data(name):
    """Tokens are not such data: after them, A has the dtype of W."""
    for dtype, of_parameters in product((np.float32, np.float64), repeat=2):
        layer, _, _ = ready(name, dtype=of_parameters)
        _, A_prev, dZ = ready(name, dtype=dtype)
        expected = of_parameters if name in TOKENS else dtype
        dZ = tree(lambda d: d.astype(expected), dZ)
        for part in leaves((layer.forward(A_prev), layer.backward(dZ))):
            assert part.dtype == expected


def it_takes_whole_numbers_and_rounds_nothing(name):
    layer, A_prev, _ = ready(name)
    found, expected = (
        layer.forward(tree(lambda A: np.round(A).astype(dtype), A_prev)) for dtype in (int, float)
    )
    assert_same(tree(lambda A: A.astype(float), found), expected)


def it_knows_shapes_before_anything_is_computed(name):
    def shapes_of(parameter):
        if isinstance(parameter, tuple):
            return tuple(map(shapes_of, parameter))
        return None if parameter is None else parameter.shape

    layer, A_prev, dZ = ready(name)
    assert shape_of(layer.forward(A_prev)) == CONTRACT[name][0].output_shape(shape_of(A_prev))
    assert (shapes_of(layer.W), shapes_of(layer.b)) == CONTRACT[name][0].parameter_shapes()
    assert [d.shape for d in leaves(layer.backward(dZ)[1:])] == [
        parameter.shape for parameter in leaves((layer.W, layer.b))
    ]


def it_writes_into_no_array_that_it_was_handed(name):
    layer, A_prev, dZ = ready(name)
    for array in leaves((A_prev, dZ, layer.W, layer.b)):
        array.flags.writeable = False
    layer.forward(A_prev)
    layer.backward(dZ)


def spread(array):
    """The same numbers in every second place of a larger array, along each axis."""
    every_second = (slice(None, None, 2),) * array.ndim
    wide = np.zeros([2 * n for n in array.shape], array.dtype)
    wide[every_second] = array
    return wide[every_second]


# --- its cache, and the halves of its backward

def its_halves_stand_alone(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(dZ)
    assert_same(layer.backward(dZ), (dA_prev, dW, db))  # another dZ may follow
    layer.forward(A_prev)
    assert_same((layer.backward_input(dZ), *layer.backward_weight(dZ)), (dA_prev, dW, db))
    layer.forward(A_prev)
    assert_same(layer.backward_weight(dZ), (dW, db))
    _, other, _ = ready(name, seed=1)
    layer.forward(other)
    layer.backward(dZ)
    layer.forward(A_prev)
    assert_same(layer.backward_weight(dZ), (dW, db))  # nothing is left of the forward before


def its_second_half_needs_no_dZ_only_where_it_says_so(name):
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


def it_keeps_between_the_halves_only_what_the_second_reads(name):
    """A change of any array that is left changes dW or db; and none is a view of a larger array.

    A layer by itself has none left that no parameter needs.
    """
    layer, A_prev, dZ = ready(name)
    assert not unread_between_the_halves(layer, A_prev, dZ)
    layer.forward(A_prev)
    layer.backward_input(dZ)
    if not own_parameters(layer):
        assert not arrays_in(layer.cache) and put_aside(layer, dZ) is None


def its_cache_can_be_taken_out_and_put_back(name):
    """Before and after the first half of backward, while another micro-batch passes; and into a pickle.

    A product caches its input, and no copy of it.
    """
    layer, A_prev, dZ = ready(name)
    _, other, other_dZ = ready(name, seed=1, m=3)
    layer.forward(A_prev)
    assert layer.cache is A_prev or not isinstance(layer, (mp.Linear, Kernel))
    expected = pickle.loads(pickle.dumps(layer)).backward(dZ)
    assert_same(layer.backward(dZ), expected)
    for begun in (False, True):
        layer.forward(A_prev)
        if begun:
            layer.backward_input(dZ)
        cache, layer.cache = layer.cache, None
        layer.forward(other)
        layer.backward(other_dZ)
        layer.cache = cache
        if not begun:
            assert_same(layer.backward_input(dZ), expected[0])
        assert_same(layer.backward_weight(dZ), expected[1:])


def its_copy_shares_nothing_that_changes(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    before = layer.backward(dZ)
    twin = layer.copy()
    assert all(part.cache is None and part.statistics is None for part in parts_of([twin]))
    assert not {id(part) for part in parts_of([layer])} & {id(part) for part in parts_of([twin])}
    for parameter in leaves((twin.W, twin.b)):
        parameter += 1
    _, other, other_dZ = ready(name, seed=1)
    twin.forward(other)
    twin.backward(other_dZ)
    assert_same(layer.backward(dZ), before)


def its_wrong_calls_say_what_is_wrong(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    with pytest.raises(ValueError, match=r"dZ has shape \(?\(7, 5\).* but the output had shape"):
        layer.backward(tree(lambda d: np.zeros((7, 5)), dZ))
    layer = layer.copy()
    for half in (layer.backward, layer.backward_input, *([layer.backward_weight] if leaves(layer.W) else [])):
        with pytest.raises(RuntimeError, match="backward needs the cache of a forward: call forward"):
            half(dZ)
    if leaves(layer.W):
        with pytest.raises(
            RuntimeError, match=r"has no parameters yet: call initialize\(rng\), or put it into a Sequential"
        ):
            CONTRACT[name][0].copy().forward(A_prev)


# --- its traits

def its_micro_batches_add_up_wherever_arrays_lie(name):
    """A and dA_prev of two samples lie side by side, and dW and db add up: `==` to both in one.

    The arrays are handed in with gaps, or the first axis closest; in rational numbers, because floats may be
    added up in another order there. Where `alone_per_sample` is False, two of three samples have another A.
    """
    m = fewest(name) + 1
    layer, A_prev, dZ = exact(name, m)

    def run(samples, lie):
        prepare_forward(list(parts_of([layer])), training=True, first_sample=samples.start)
        A = layer.forward(tree(lambda array: lie(array[..., samples]), A_prev))
        return A, *layer.backward(tree(lambda array: lie(array[..., samples]), dZ))

    whole, first = run(slice(0, m), np.ascontiguousarray), run(slice(0, m - 1), spread)
    if not layer.alone_per_sample:
        assert not np.array_equal(first[0], whole[0][..., :m - 1])
        for lie in (spread, np.asfortranarray):
            assert_same(run(slice(0, m), lie), whole)
        return
    second = run(slice(m - 1, m), np.asfortranarray)
    A, dA_prev = (
        tree(lambda *parts: np.concatenate(parts, axis=-1), *pair) for pair in zip(first[:2], second[:2])
    )
    assert_same((A, dA_prev), whole[:2], "A, dA_prev")
    assert_same(tree(np.add, first[2:], second[2:]), whole[2:], "dW, db")


def its_products_are_as_many_for_each_sample(name):
    """`macs` is a whole number; above 0 in a Linear, convolution or attention."""
    layer, shape = CONTRACT[name]

    def of(m):
        return tuple((*part, m) for part in shape) if is_pair(shape) else (*shape, m)

    assert type(layer.macs(of(1))) is int
    assert [layer.macs(of(m)) for m in (1, 2, 7)] == [m * layer.macs(of(1)) for m in (1, 2, 7)]
    if any(isinstance(part, (mp.Linear, Kernel, mp.MultiHeadAttention)) for part in parts_of([layer])):
        assert layer.macs(of(1)) > 0
    assert all(set(part.decays) <= {"W", "b"} for part in parts_of([layer]))


def it_computes_the_same_from_a_file(name):
    """In training, with what is random in it, and in a prediction."""
    if name not in ALONE:
        return
    _, A_prev, _ = ready(name)
    one, other = (mp.Sequential([LAYERS[name][0]], None, seed=seed) for seed in (1, 2))
    prepare_forward(list(parts_of(one.layers)), training=True)
    one.layers[0].forward(A_prev)
    for part in parts_of(one.layers):
        if part.statistics is not None:
            part.commit(part.statistics)  # running statistics belong to the file
    with TemporaryDirectory() as folder:
        mp.save(Path(folder) / "net.npz", one)
        mp.load(Path(folder) / "net.npz", other)
    for training in (True, False):
        outputs = []
        for net in (one, other):
            prepare_forward(list(parts_of(net.layers)), training)
            outputs.append(net.layers[0].forward(A_prev))
        assert_same(*outputs)


PROMISES = [
    its_backward_equals_central_differences, its_backward_equals_dual_numbers_exactly,
    its_floats_are_close_to_its_rational_numbers, it_has_no_derivative_by_tokens,
    its_results_have_the_dtype_of_the_data, it_takes_whole_numbers_and_rounds_nothing,
    it_knows_shapes_before_anything_is_computed, it_writes_into_no_array_that_it_was_handed,
    its_halves_stand_alone, its_second_half_needs_no_dZ_only_where_it_says_so,
    it_keeps_between_the_halves_only_what_the_second_reads, its_cache_can_be_taken_out_and_put_back,
    its_copy_shares_nothing_that_changes, its_wrong_calls_say_what_is_wrong,
    its_micro_batches_add_up_wherever_arrays_lie, its_products_are_as_many_for_each_sample,
    it_computes_the_same_from_a_file,
]


@pytest.mark.parametrize("name", CONTRACT)
def test_a_layer_keeps_all_promises(name):
    """The first broken promise is shown in full, and the names of all."""
    broken = {}
    for promise in PROMISES:
        try:
            promise(name)
        except (Exception, pytest.fail.Exception) as error:  # the second: nothing was raised
            broken[promise.__name__] = error
    if broken:
        raise AssertionError(f"{name}: {', '.join(broken)}") from next(iter(broken.values()))


# --- what it prints

OTHER = {  # a value that is no default, for each optional argument that layers of the package have
    "stride": 4, "padding": 1, "dilation": 2, "groups": 2, "bias": False, "epsilon": 0.5,
    "momentum": 0.5, "p": 0.25, "negative_slope": 0.5, "causal": True, "dropout": 0.25,
    "n_hidden": 3, "how": "concat", "tie": "name", "initialization": xavier,
}
NEEDED = {"widths": [1], "shape": (2, 3), "kernel_size": 3}  # other sizes are 4, and the rest an example's


def again(layer):
    return eval(repr(layer), dict(vars(mp.layers)))


def test_the_repr_is_the_call_that_makes_such_a_layer():
    for layer, shape in LAYERS.values():
        twin, shape = again(layer), tuple((*s, 5) for s in shape) if layer.join else (*shape, 5)
        assert repr(twin) == repr(layer)
        assert twin.parameter_shapes() == layer.parameter_shapes(), layer
        assert twin.output_shape(shape) == layer.output_shape(shape), layer
        assert twin.macs(shape) == layer.macs(shape), layer


def test_the_repr_leaves_out_given_arrays():
    assert repr(mp.Linear(2, 1, W=[[1.0, 2.0]], b=[[0.5]])) == "Linear(2, 1)"


def test_the_repr_names_every_argument_that_is_no_default():
    for name in mp.layers.LAYERS.keys() - {"Add", "Concat"}:
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
                layer = kind(*needed, **{argument.name: value})
                assert f"{argument.name}={getattr(value, '__name__', None) or repr(value)}" in repr(layer)
                assert repr(again(layer)) == repr(layer)


# --- what layers are cut and copied by


class OldFloat(np.float64):
    """As `np.float64` was before NumPy 2.4: called with an array of one entry, it makes a number of it."""

    def __new__(cls, array):
        return np.float64(array.item()) if array.size == 1 else array.astype(np.float64)


def test_a_copy_in_another_dtype_keeps_the_shape_of_one_entry():
    layer = mp.Linear(3, 1, W=np.float32([[1, 2, 3]]), b=np.float32([[4]]))
    for convert in (OldFloat, np.float64, np.float16, rational):
        twin = layer.copy(convert)
        assert (twin.W.shape, twin.b.shape, twin.b[0, 0]) == ((1, 3), (1, 1), 4)
        assert twin.b.dtype == twin.W.dtype == (object if convert is rational else np.dtype(convert))


def test_a_layer_of_one_unit_with_one_input_keeps_all_promises():
    assert mp.check(mp.Linear(1, 1), shape=(1,))


@pytest.mark.parametrize("layer, shape", [
    (mp.Linear(4, 3, W=np.ones((3, 4)), b=np.ones((3, 1))), (4,)), (mp.ReLU(), (4,)), (mp.Flatten(), (2, 2)),
    (mp.MaxPool1d(2), (1, 4)),
])
def test_dZ_must_fit_the_current_cache(layer, shape):
    """By hand, micro-batches of 3 and 2 samples: what counts is the one whose cache has been put back."""
    of_three = layer.forward(np.ones((*shape, 3)))
    cache = layer.cache
    of_two = layer.forward(np.ones((*shape, 2)))
    for kept, fitting, other in ((cache, of_three, of_two), (layer.cache, of_two, of_three)):
        layer.cache = kept
        with pytest.raises(ValueError, match="but the output had shape"):
            layer.backward(other)
        layer.cache = kept
        dA_prev, *_ = layer.backward(fitting)
        assert dA_prev.shape == (*shape, fitting.shape[-1])


def test_a_W_without_its_b_is_refused():
    layer = mp.Linear(2, 1, W=[[1.0, 2.0]])
    with pytest.raises(RuntimeError, match="has no parameters yet"):
        layer.forward(np.ones((2, 3)))
    layer.initialize(np.random.default_rng(0))
    assert_same(layer.forward(np.ones((2, 3))), np.full((1, 3), 3.0))


def test_no_cache_is_left_below_the_first_layer_with_parameters():
    """The backward stops above these layers, since dX is not needed."""
    net = mp.Sequential([mp.ReLU(), mp.Tanh(), mp.Linear(2, 1), mp.ReLU()], mp.MeanSquaredError())
    net.forward_backward(np.ones((2, 3)), np.ones((1, 3)))
    assert [layer.cache for layer in net.layers] == [None] * 4
