"""A check for each bug of `bugs_of_splits.py`, for `test_pitfalls.py`.

Gradients are compared with the full batch's, parameter by parameter, and never among the copies alone.
"""

import tempfile
from pathlib import Path

import numpy as np
from cases import eighths
from compared import assert_all_same, assert_equals_full_batch, assert_same, parameters

import minipipe as mp
from minipipe.cluster import Cluster, DeadlockError, Receive, Send
from minipipe.collectives import Group, all_reduce, numbers_sent
from minipipe.functions import leaves
from minipipe.pipeline.batches import MicroBatches
from minipipe.schedules import build, with_updates
from minipipe.verification import equals_full_batch

LOSS, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()
LAYERS = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]


def exact(layers):
    return [layer.copy(eighths) for layer in mp.Sequential(layers, LOSS).layers]


def mini_batch(m, n=4, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((n, m)))


def sums_of_copies(net):
    """For each stage, the gradients that each copy of it has in the end."""
    found = {}
    for (index, _), stage in net._run.stages.items():
        found.setdefault(index, []).append(stage.gradients())
    return found


def check_hook_gets_the_parameter():
    """Copies with different samples have the full batch's gradient, and their weights stay."""
    assert_equals_full_batch(mp.DataParallel(exact(LAYERS), LOSS, 2), *mini_batch(5))


def check_only_the_containers_own_parameters():
    layers = [mp.Linear(3, 4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Linear(4, 4)]
    assert_equals_full_batch(mp.DataParallel(exact(layers), LOSS, 2), *mini_batch(5))


def check_replicas_agree_on_a_wrong_gradient():
    """2 copies of 2 stages, each with 2 micro-batches."""
    assert_equals_full_batch(two_copies_of_two_stages(), *mini_batch(8))


def two_copies_of_two_stages():
    """The second stage begins with a layer that keeps its input for the backward."""
    return mp.Hybrid(exact(LAYERS), LOSS, 2, 1, 2, 4, "gpipe", partition=[2, 3])


def per_sample_gradients(D, M):
    """dW for samples that alone would have 1, 2, 3, 4 and 10; the mean is 4."""
    layer = mp.Linear(1, 1, bias=False, W=eighths(np.zeros((1, 1))))
    X, Y = eighths(np.ones((1, 5))), eighths(np.array([[-1.0, -2.0, -3.0, -4.0, -10.0]]))
    net = mp.DataParallel([layer], LOSS, D, M)
    net.forward_backward(X, Y)
    return net.gradients[0][0][0, 0]


def check_mean_of_means():
    """2 copies with 3 and 2 samples; then 5 with one each, in which even the mean of means is right."""
    assert [per_sample_gradients(2, 2), per_sample_gradients(5, 5)] == [4, 4]


def check_padded_sampler():
    """Every sample once, in the order of the mini-batch."""
    for n in (2, 3, 4):
        inputs = MicroBatches([(np.arange(5)[None], np.ones((1, 5)))], n, 0).inputs
        assert np.concatenate(inputs, axis=1).tolist() == [[0, 1, 2, 3, 4]]
    assert per_sample_gradients(2, 2) == 4


def check_uneven_ends():
    """3 micro-batches on one copy, 2 on the other."""
    try:
        assert_equals_full_batch(mp.DataParallel(exact(LAYERS), LOSS, 2, 5), *mini_batch(5))
    except DeadlockError as error:
        raise AssertionError("the copies wait for each other") from error


def check_synchronised_at_the_wrong_micro_batch():
    """Each schedule, for 2 and 3 copies: the gradient, and the bytes of one all-reduce by each copy."""
    for name in ("gpipe", "1f1b", "zb-h1"):
        for D in (2, 3):
            net = mp.Hybrid(exact(LAYERS), LOSS, D, 1, 2, 2 * D, name)
            assert equals_full_batch(net, *mini_batch(2 * D)), (name, D)
            net = mp.Hybrid(LAYERS, LOSS, D, 1, 2, 2 * D, name)
            net.forward_backward(*mini_batch(2 * D, convert=np.asarray))
            sizes = [sum(array.size for array in leaves(of_copies[0]))
                     for of_copies in sums_of_copies(net).values()]
            sent = [message.n_bytes for message in net.trace.messages if "all-reduce" in str(message.label)]
            assert sum(sent) == 8 * sum(sum(numbers_sent("owners", D, n)) for n in sizes), (name, D)


def assert_buckets_have_the_same_bits(D):
    """In float32, for buckets of one layer up to all of them."""
    X, Y = mini_batch(8 * D, convert=np.float32)
    results = []
    for cap in (1, 100, 10**6, None):
        net = mp.DataParallel(LAYERS, LOSS, D, buckets=cap, dtype=np.float32)
        net.forward_backward(X, Y)
        results.append(net.gradients)
    assert_all_same(results)


def check_bits_change_with_buckets():
    """3 copies: the sum of 2 numbers has the same bits in any order."""
    assert_buckets_have_the_same_bits(3)


def check_collectives_in_different_orders():
    """A device that begins with another bucket gets nobody's sum, and is told who waits for what."""
    def program(rank):
        a, b = (Group(rank, range(2), f"bucket {name}: ") for name in "ab")
        for group in (a, b) if rank == 0 else (b, a):
            yield from all_reduce(group, np.ones(2) * (group is a))

    try:
        Cluster([program(0), program(1)]).run()
        words = "no deadlock"
    except DeadlockError as error:
        words = str(error)
    assert "device 0 waits for bucket a" in words and "device 1 waits for bucket b" in words


def check_send_buffer_overwritten():
    """The receiver gets what was sent, though its sender has written into the array since."""
    got = []

    def sender():
        array = np.ones(3)
        yield Send("array", array, to=1)
        array[:] = np.nan
        yield Send("overwritten", None, to=1)

    def receiver():
        yield Receive("overwritten", source=0)
        got.append((yield Receive("array", source=0)))

    Cluster([sender(), receiver()]).run()
    assert got[0].tolist() == [1, 1, 1]


def check_everybody_saves():
    """What the shards have updated themselves, the network has; and what it saves can be loaded."""
    X, Y = mini_batch(4, convert=np.asarray)
    order = with_updates(build("gpipe", 1, 2))
    own = mp.Hybrid(LAYERS, LOSS, 1, 2, 1, 2, order, optimizer=mp.SGD(0.5))
    own.train([(X, Y)])
    stepped, loaded = mp.Hybrid(LAYERS, LOSS, 1, 2, 1, 2), mp.Sequential(LAYERS, LOSS, seed=1)
    stepped.forward_backward(X, Y)
    stepped.step(mp.SGD(0.5))
    with tempfile.TemporaryDirectory() as folder:
        mp.save(Path(folder) / "net.npz", stepped)
        mp.load(Path(folder) / "net.npz", loaded)
    assert_same(parameters(own.layers), parameters(loaded.layers))


def synchronised_batch_norm():
    """2 copies with 3 and 2 samples."""
    layers = exact([mp.Linear(3, 3), mp.BatchNorm(3), mp.ReLU(), mp.Linear(3, 4)])
    return mp.DataParallel(layers, LOSS, 2, sync_batch_norm=True), *mini_batch(5)


def check_statistics_averaged_over_copies():
    assert_equals_full_batch(*synchronised_batch_norm())


def check_synchronised_forward_only():
    assert_equals_full_batch(*synchronised_batch_norm())


def check_bias_added_by_every_shard():
    layers = exact(LAYERS)
    for layer in layers[::2]:
        layer.b = layer.b + 1
    for T in (2, 3):
        assert_equals_full_batch(mp.TensorParallel(layers, LOSS, T), *mini_batch(3))


def check_input_gradient_not_reduced():
    """It shows in the layers below the second pair; the first layer's dA_prev is nobody's."""
    layers = exact(LAYERS + LAYERS[2:])
    assert_equals_full_batch(mp.TensorParallel(layers, LOSS, 2), *mini_batch(3))


def check_a_mask_for_each_shard():
    """Between two pairs of layers, where all devices have all units."""
    layers = exact([*LAYERS[:3], mp.Dropout(0.5), *LAYERS[2:]])
    assert_equals_full_batch(mp.TensorParallel(layers, LOSS, 2), *mini_batch(3))


def sequence_parallel(dropout=0.0):
    layers = exact([mp.Embedding(5, 4), mp.TransformerBlock(4, 2, 4, dropout=dropout), mp.Linear(4, 5)])
    tokens = np.array([[0, 4], [1, 2], [4, 3], [2, 0]])
    net = mp.TensorParallel(layers, CLASSES, 2, sequence=True)
    return net, tokens, mp.one_hot(tokens[::-1], 5).astype(int)


def check_norm_gradients_not_summed():
    assert_equals_full_batch(*sequence_parallel())


def check_norm_gradients_averaged():
    assert_equals_full_batch(*sequence_parallel())


def check_one_mask_for_all_positions():
    assert_equals_full_batch(*sequence_parallel(dropout=0.25))


def check_vocabulary_edge():
    """The last token of all occurs, and the shares do not divide the tokens."""
    assert_equals_full_batch(*sequence_parallel())
