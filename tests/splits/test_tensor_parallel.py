"""Several devices share the work inside each layer: one device's gradients, and every byte is counted."""

from functools import partial

import numpy as np
import pytest
from cases import Rounding, eighths
from compared import assert_equals_full_batch, assert_same, assert_within, difference, parameters
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster import Cluster, ports
from minipipe.collectives import Group
from minipipe.exact import rational
from minipipe.functions import even_slices, leaves
from minipipe.layers.exchange import backward_input_program, forward_program
from minipipe.layers.through import prepare_forward
from minipipe.parallel.exchanges import Copied, Gathered, Parted, PartialToSplit, SplitToWhole, Summed
from minipipe.parallel.parts import SoftmaxCrossEntropyPart
from minipipe.parallel.splitting import Shard
from minipipe.schedules import names_for_stages
from minipipe.verification import equals_full_batch

LOSS, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()
RNG = np.random.default_rng(0)

MLP = [mp.Linear(3, 5), mp.Tanh(), mp.Linear(5, 4), mp.ReLU(), mp.Linear(4, 7), mp.Linear(7, 2)]
CNN = [
    mp.Conv2d(2, 3, 3, padding=1), mp.GroupNorm(3, 3), mp.ReLU(), mp.MaxPool2d(2),
    mp.Conv2d(3, 4, 2), mp.ReLU(), mp.Conv2d(4, 3, 1), mp.Flatten(), mp.Linear(3, 3),
]
TRANSFORMER = [
    mp.Embedding(7, 4, tie="words"), mp.PositionalEmbedding(4, 4), mp.TransformerBlock(4, 2, 6, causal=True),
    mp.Residual(mp.LayerNorm(4), mp.MultiHeadAttention(4, 4), mp.Dropout(0.25)),
    mp.LayerNorm(4), mp.Linear(4, 7, tie="words"),
]
SHORT_TRANSFORMER = [  # for rational numbers, which would grow from layer to layer
    mp.Embedding(7, 4, tie="words"), mp.PositionalEmbedding(4, 4),
    mp.Chain(
        mp.Residual(mp.LayerNorm(4), Rounding(), mp.MultiHeadAttention(4, 2, causal=True), Rounding()),
        mp.Residual(
            mp.LayerNorm(4), Rounding(), mp.Linear(4, 6), mp.GELU(), Rounding(), mp.Linear(6, 4), Rounding()
        ),
    ),
    mp.Residual(
        mp.LayerNorm(4), Rounding(), mp.MultiHeadAttention(4, 4), mp.Dropout(0.25), Rounding()
    ),
    mp.LayerNorm(4), mp.Linear(4, 7, tie="words"),
]
LOGITS = [mp.Linear(3, 4), mp.LayerNorm(4), mp.Linear(4, 5)]


def samples(name, m):
    """(layers, loss, X, Y) of one of the networks."""
    rng = np.random.default_rng(m)
    if name == "transformer":
        tokens, labels = rng.integers(0, 7, (2, 4, m))
        return TRANSFORMER, CLASSES, tokens, mp.one_hot(labels, 7)
    if name == "logits":
        return LOGITS, CLASSES, rng.standard_normal((3, m)), mp.one_hot(rng.integers(0, 5, m), 5)
    if name == "cnn":
        return CNN, LOSS, rng.standard_normal((2, 4, 4, m)), rng.standard_normal((3, m))
    return MLP, LOSS, rng.standard_normal((3, m)), rng.standard_normal((2, m))


def exact(name, m):
    layers, loss, X, Y = samples(name, m)
    layers = SHORT_TRANSFORMER if name == "transformer" else layers
    layers = [layer.copy(eighths) for layer in mp.Sequential(layers, loss).layers]
    return layers, loss, X if X.dtype.kind == "i" else eighths(X), eighths(Y)


SIZES = {"mlp": (2, 3, 4), "cnn": (2, 3), "transformer": (2,), "logits": (2, 3, 4)}


@settings(max_examples=16)
@given(st.data())
def test_in_rational_arithmetic_all_splits_at_once_give_the_full_batchs_gradient(data):
    """D copies of K stages on groups of T devices, ragged, with every schedule and recomputation mode."""
    name = data.draw(st.sampled_from(list(SIZES)))
    T, D = data.draw(st.sampled_from(SIZES[name])), data.draw(st.integers(1, 3))
    K, M = data.draw(st.integers(1, 3)), D * data.draw(st.integers(1, 3))
    schedules = names_for_stages(K, M // D)
    layers, loss, X, Y = exact(name, data.draw(st.integers(M, M + 1)))
    net = mp.Hybrid(
        layers, loss, D, T, K, M, data.draw(st.sampled_from(schedules)),
        data.draw(st.sampled_from(["tp-dp-pp", "pp-tp-dp", "dp-pp-tp"])),
        recompute=data.draw(st.sampled_from([False, True])),
        accumulate=data.draw(st.sampled_from(["tree", "running"])),
        sequence=name == "transformer" and data.draw(st.booleans()),
        all_reduce=data.draw(st.sampled_from(sorted(mp.collectives.ALL_REDUCES))),
    )
    assert_equals_full_batch(net, X, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_numbers_that_floats_can_represent_the_bits_are_those_of_one_device(dtype):
    """Weights -1, 0, 1 and whole inputs, through layers that only add and multiply."""
    layers = [mp.Linear(3, 5), mp.ReLU(), mp.Linear(5, 4), mp.Linear(4, 3), mp.ReLU(), mp.Linear(3, 2)]
    layers = [
        layer.copy(lambda p: np.sign(p).astype(dtype)) for layer in mp.Sequential(layers, LOSS).layers
    ]
    X = np.random.default_rng(1).integers(-2, 3, (3, 8)).astype(dtype)
    Y = np.random.default_rng(2).integers(-2, 3, (2, 8)).astype(dtype)
    for T in (2, 3):
        assert_equals_full_batch(mp.Hybrid(layers, LOSS, 2, T, 2, 4), X, Y)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_threads_have_the_bits_of_the_cluster_and_so_has_every_order_of_the_devices(name):
    layers, loss, X, Y = samples(name, 8)
    options = dict(n_replicas=2, n_shards=2, n_stages=2, n_microbatches=4)
    one = mp.Hybrid(layers, loss, **options)
    J = one.forward_backward(X, Y)
    others = (dict(engine="threads"), dict(order="pp-dp-tp"), dict(schedule="gpipe", recompute=True))
    for other in others:
        net = mp.Hybrid(layers, loss, **options, **other)
        assert_same((net.forward_backward(X, Y), net.gradients), (J, one.gradients), f"what {other} gives")


def test_positions_of_a_sequence_are_split_between_the_blocks():
    """LayerNorm, dropout, biases and the residual stream: their gradients are added up over the devices."""
    layers, loss, X, Y = exact("transformer", 2)
    net = mp.Hybrid(layers, loss, n_shards=2, n_stages=2, n_microbatches=2, sequence=True)
    assert_equals_full_batch(net, X, Y)
    layers, loss, X, Y = samples("transformer", 4)
    order = mp.schedules.with_updates(mp.schedules.build("1f1b", 2, 2))
    own = mp.Hybrid(layers, loss, 1, 2, 2, 2, order, optimizer=mp.Adam(0.1), sequence=True)
    assert own.split[2:4] == [
        "((by positions, by heads), (by positions, by outputs, unit by unit, by inputs))",
        "(by positions, by heads, by positions)",
    ]
    stepped, adam = mp.Hybrid(layers, loss, 1, 2, 2, 2, sequence=True), mp.Adam(0.1)
    for J in own.train([(X, Y)] * 3):
        assert stepped.forward_backward(X, Y) == J
        stepped.step(adam)
    assert_same(parameters(own.layers), parameters(stepped.layers))


def test_positions_that_the_shards_do_not_divide_are_refused():
    layers, loss, X, Y = samples("transformer", 2)
    net = mp.TensorParallel(layers, loss, 2, sequence=True)
    with pytest.raises(ValueError, match="3 positions over 2 shards: use a number of shards that divides 3"):
        net.forward_backward(X[:3], Y[:, :3])


def test_a_refused_run_leaves_the_parameters_of_all_shards():
    layers, loss, X, Y = samples("mlp", 4)
    schedule = mp.schedules.with_updates(mp.schedules.build("gpipe", 2, 2))
    net = mp.Hybrid(layers, loss, 1, 2, 2, 2, schedule, optimizer=mp.SGD(1e300))
    before = parameters(net.layers)
    with pytest.raises(FloatingPointError):
        net.train([(X, Y), (X, Y), (X, Y)])
    assert net.n_steps == 0 or difference(before, parameters(net.layers))
    assert all(np.isfinite(p).all() for p in parameters(net.layers).values())


# The goldens of one layer pair, and of what travels


def on_devices(T, perform):
    """[what perform(rank, group) returns on each of T devices], and the trace. perform is a program."""
    results = [None] * T

    def program(rank):
        results[rank] = yield from perform(rank, Group(rank, range(T)))

    return results, Cluster([program(rank) for rank in range(T)]).run()


def through(layers, A, dA, group):
    """A program: (A, dX) of layers, some of which exchange."""
    for layer in layers:
        layer.group = group
    prepare_forward(layers, training=True)
    A = yield from driven(forward_program(layers, A, {}))
    if dA is None:
        return A
    return A, (yield from driven(backward_input_program(layers, dA, {}, True, lambda index, half: None)))


def driven(work):
    """A program: what a way through layers returns."""
    answer = None
    while True:
        try:
            exchange = work.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield from exchange.program


W1 = np.array([[1.0, 2], [3, -1], [-2, 1], [0, 1]])
W2 = np.array([[1.0, 0, 2, -1], [0, 1, -1, 3]])
PAIR = [
    mp.Linear(2, 4, W=W1, b=[[0], [1], [0], [-1]]), mp.ReLU(), mp.Linear(4, 2, W=W2, b=[[10], [20]])
]


def test_a_pair_of_layers_over_two_devices():
    """Z2 and dX of the worked example; the bias is added once."""
    X = np.array([[1.0, 2], [3, -1]])

    def perform(rank, group):
        shard = Shard(PAIR, LOSS, rank, 2)
        return (yield from through(sum(shard.layers, []), X, np.ones((2, 2)), group))

    results, _ = on_devices(2, perform)
    for Z2, dX in results:
        assert Z2.tolist() == [[17, 10], [26, 28]] and dX.tolist() == [[2, 3], [4, -1]]


def sent_by(trace, rank):
    return sum(message.n_bytes for message in trace.messages if message.source == rank)


def test_what_a_pair_sends_and_what_a_data_split_sends():
    """An MLP 64-256-64, m = 32, float64, T = 4: 24,576 bytes a device each way, and 8,320 parameters."""
    layers = mp.Sequential([mp.Linear(64, 256), mp.ReLU(), mp.Linear(256, 64)], LOSS).layers
    X = np.ones((64, 32))

    def perform(backward, rank, group):
        shard = sum(Shard(layers, LOSS, rank, 4).layers, [])
        yield from through(shard, X, np.ones((64, 32)) if backward else None, group)
        return sum(p.size for layer in shard for p in leaves((layer.W, layer.b)))

    held, forward = on_devices(4, partial(perform, False))
    _, both = on_devices(4, partial(perform, True))
    assert held == [8320] * 4
    for rank in range(4):
        assert sent_by(forward, rank) == 24576 and sent_by(both, rank) == 2 * 24576
    net = mp.DataParallel(layers, LOSS, 4)
    net.forward_backward(X, X)
    gradients = sum(dW.nbytes + db.nbytes for dW, db in net.gradients if dW is not None)
    assert gradients * 2 * 3 // 4 == 397056


def test_logits_over_two_devices():
    """z = (0, ln 2, ln 3, ln 4), label 2: J = ln(10/3)."""
    Z, Y = np.log([[1.0], [2], [3], [4]]), np.array([[0.0], [0], [1], [0]])

    def perform(rank, group):
        loss = SoftmaxCrossEntropyPart(4)
        loss.group = group
        J = yield from loss.forward(Z[2 * rank:2 * rank + 2], Y, 1)
        return J, loss.backward()

    (first, second), _ = on_devices(2, perform)
    # exp and log to 8 roundings each, as NumPy's tests demand: four, of numbers below 2; and 5 operations
    assert first[0] == second[0]
    assert_within(first[0], np.log(10 / 3), roundings=4 * 8 + 5, of=2)
    dZ = np.concatenate([first[1], second[1]]).ravel()
    assert_within(dZ, np.array([0.1, 0.2, -0.7, 0.4]), roundings=4 * 8 + 5, of=1)


def test_three_numbers_a_column_are_exchanged_instead_of_the_logits():
    """64 classes, 1,024 columns, T = 4, float32: 18,432 bytes a device."""
    Z, Y = np.zeros((64, 1024), np.float32), mp.one_hot(np.arange(1024) % 64, 64, np.float32)

    def perform(rank, group):
        loss = SoftmaxCrossEntropyPart(64)
        loss.group = group
        yield from loss.forward(Z[16 * rank:16 * rank + 16], Y)

    _, trace = on_devices(4, perform)
    assert [sent_by(trace, rank) for rank in range(4)] == [18432] * 4


@pytest.mark.parametrize("n_classes", [5, 64, 65])
@pytest.mark.parametrize("T", [2, 3])
def test_each_column_of_dZ_adds_up_to_zero_whatever_the_label(n_classes, T):
    """The last class of all, too, and classes that T does not divide."""
    layers = [layer.copy(eighths) for layer in mp.Sequential([mp.Linear(2, n_classes)], CLASSES).layers]
    X, Y = eighths(RNG.standard_normal((2, 2))), rational(mp.one_hot(np.array([n_classes - 1, 0]), n_classes))
    net = mp.TensorParallel(layers, CLASSES, T)
    assert net.split == ["by outputs, up to the loss"] and equals_full_batch(net, X, Y)
    net.forward_backward(X, Y)
    assert net.gradients[0][1].sum() == 0


@pytest.mark.parametrize("T", [1, 2, 3])
def test_each_exchange_and_its_backward_are_transposes_of_each_other(T):
    """<dA, f(A)> over all devices = <f'(dA), A>, where what is whole counts once. In whole numbers."""
    rng = np.random.default_rng(T)
    whole, split = "whole", "split"
    kinds = [
        (Copied(), whole, None), (Summed(), None, whole), (Gathered(1), split, whole),
        (Parted(1), whole, split), (SplitToWhole(1), split, None), (PartialToSplit(1), None, split),
    ]
    n = 6

    def values(kind):
        """For each device its array: of what is whole the same, of what is split its part, else its own."""
        if kind is None:
            return [rng.integers(-9, 10, (2, n, 3)) for _ in range(T)]
        one = rng.integers(-9, 10, (2, n, 3))
        return [one if kind == whole else one[:, part] for part in even_slices(n, T)]

    def inner(kind, left, right):
        products = [int((a * b).sum()) for a, b in zip(left, right, strict=True)]
        return products[0] if kind == whole else sum(products)

    for layer, into, out in kinds:
        A, dA = values(into), values(out)

        def perform(rank, group, kind=type(layer), args=vars(layer).values(), A=A, dA=dA):
            return (yield from through([kind(*args)], A[rank], dA[rank], group))

        results, _ = on_devices(T, perform)
        assert inner(out, dA, [A for A, _ in results]) == inner(into, [dA for _, dA in results], A)


# Devices and their numbers


def test_the_numbers_of_the_devices():
    """As in Megatron-LM: T = 2, D = 2, K = 4."""
    layers = [mp.Linear(2, 2) for _ in range(4)]
    groups = mp.Hybrid(layers, LOSS, 2, 2, 4, 8).groups
    assert groups["dp"][:4] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    groups = mp.Hybrid(layers[:2], LOSS, 2, 2, 2, 2, order="tp-pp-dp").groups
    assert groups["pp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["dp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("order", ["tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"])
def test_messages_stay_within_the_groups(order):
    """Every device is in one group of each axis; groups of two axes share one device at most."""
    layers, loss, X, Y = samples("mlp", 4)
    net = mp.Hybrid(layers, loss, 2, 2, 2, 4, order=order)
    net.forward_backward(X, Y)
    pairs = [
        (message.source, message.to) for message in net.trace.messages if message.source != message.to
    ]
    for axis, groups in net.groups.items():
        assert sorted(sum(groups, [])) == list(range(8)), axis
    together = {frozenset(pair) for groups in net.groups.values() for group in groups for pair in [group]}
    assert {frozenset(pair) for pair in pairs} == together


def test_shards_that_talk_over_slow_links_take_longer_where_their_neighbours_are_far_apart():
    """Fast links inside nodes of two: neighbours along T first, then along D."""
    layers, loss, X, Y = samples("mlp", 8)
    links = mp.parallel.in_nodes(4, 2, mp.Link(latency=1), mp.Link(latency=10))
    makespan = {}
    for order in ("tp-dp-pp", "dp-tp-pp"):
        net = mp.Hybrid(layers, loss, 2, 2, 1, 4, order=order, link=links)
        net.forward_backward(X, Y)
        makespan[order] = net.trace.makespan
    assert makespan["tp-dp-pp"] < makespan["dp-tp-pp"]
    net = mp.TensorParallel(layers, loss, 2, ports=ports(2, 64))
    net.forward_backward(X, Y)
    assert net.trace.makespan > 3


@pytest.mark.parametrize("layers, arguments, words", [
    (MLP, dict(n_shards=2, n_replicas=2, n_stages=2, n_microbatches=3), "use a multiple of 2"),
    (MLP, dict(n_shards=2, order="tp-pp"), "order"),
    (MLP, dict(n_replicas=3, n_microbatches=2), "3 copies of the network, but 2 micro-batches"),
    (MLP, dict(n_shards=20), r"n_shards=20 splits none of these \d layers: use fewer"),
    (LOGITS, dict(n_shards=2, sequence=True), "sequence=True splits nothing here: it needs blocks"),
    (TRANSFORMER, dict(n_shards=3), "2 heads over 3 shards: n_shards must divide the number of heads"),
])
def test_what_does_not_fit_is_refused(layers, arguments, words):
    with pytest.raises(ValueError, match=words):
        mp.Hybrid(layers, CLASSES, **arguments)


def test_a_layer_that_talks_to_others_says_so_where_it_is_alone():
    with pytest.raises(RuntimeError, match="talks to other devices, but here it is alone"):
        mp.Sequential([mp.Linear(2, 2), Summed()], LOSS).forward_backward(np.ones((2, 1)), np.ones((2, 1)))


def test_what_an_optimizer_keeps_counts_in_parts():
    """Adam's two moments of a pair over four devices: a quarter of W1, b1 and W2, and all of b2."""
    layers = [mp.Linear(64, 256), mp.ReLU(), mp.Linear(256, 64)]
    X = np.ones((64, 4))
    net, adam = mp.TensorParallel(layers, LOSS, 4), mp.Adam(0.1)
    net.forward_backward(X, X)
    net.step(adam)
    net.forward_backward(X, X)
    assert net.trace.peak_bytes(["parameters"]) == [8 * 8320] * 4
    assert net.trace.peak_bytes(["optimizer state"]) == [2 * 8 * 8320] * 4


def test_layers_of_ones_own_are_whole_on_each_device():
    """A Linear that does something else, and an activation with parameters of its own."""

    class Doubled(mp.Linear):
        def forward(self, A_prev):
            return 2 * super().forward(A_prev)

        def backward_input(self, dZ):
            return super().backward_input(2 * dZ)

        def backward_weight(self, dZ):
            return super().backward_weight(2 * dZ)

    class Scaled(mp.ReLU):
        def parameter_shapes(self):
            return None, (4, 1)

        def initialize(self, rng, dtype=np.float64):
            self.b = np.ones((4, 1), dtype) if self.b is None else self.b

        def forward(self, A_prev):
            return super().forward(A_prev + self.b)

        def backward_weight(self, dZ):
            return None, super().backward_input(dZ).sum(axis=1, keepdims=True)

        def backward_input(self, dZ):
            slope = self.cache
            dA_prev = super().backward_input(dZ)
            self.cache = slope
            return dA_prev

    layers = [mp.Linear(3, 4), Scaled(), Doubled(4, 4), mp.ReLU(), mp.Linear(4, 2)]
    layers = [layer.copy(eighths) for layer in mp.Sequential(layers, LOSS).layers]
    net = mp.TensorParallel(layers, LOSS, 2)
    assert net.split == ["by outputs, gathered", "whole", "whole", "whole", "by outputs, gathered"]
    _, _, X, Y = exact("mlp", 3)
    assert_equals_full_batch(net, X, Y)


@pytest.mark.parametrize("K", [1, 2])
def test_an_action_takes_its_ticks_whatever_the_number_of_its_exchanges(K):
    """Two pairs: 12 ticks forward, 24 back, also where nobody wants the first layer's dA_prev."""
    layers = [layer for _ in range(4) for layer in (mp.Linear(4, 4), mp.ReLU())]
    net = mp.Hybrid(layers, LOSS, n_shards=2, n_stages=K, costs=mp.Costs(F=12, B=24))
    net.forward_backward(np.ones((4, 2)), np.ones((4, 2)))
    assert net.trace.makespan == 36 * K
