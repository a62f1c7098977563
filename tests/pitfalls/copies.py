"""Bugs where copies, or shards of each layer, share the work and exchange messages, with their checks.

Gradients are compared with the full batch's, parameter by parameter, and never among the copies alone.
"""

import tempfile
from pathlib import Path

import numpy as np
from cases import Rounding
from compared import assert_all_same, assert_equals_full_batch, assert_same, parameters
from pitfalls.arithmetic import LAYERS, LOSS, exact, mini_batch

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.cluster import Cluster, DeadlockError, Receive, Send, mail, sent_bytes
from minipipe.collectives import Group, all_gather, all_reduce, all_reduce_sum_and_gather
from minipipe.engines import Threads
from minipipe.exact import rational
from minipipe.layers import normalization
from minipipe.layers.embedding import EmbeddingPart
from minipipe.layers.exchanging import Copied
from minipipe.layers.normalization import Moments
from minipipe.order import with_updates
from minipipe.order.programs import Closing
from minipipe.parallel import layout, totals
from minipipe.parallel.batches import MicroBatches
from minipipe.parallel.run import Run
from minipipe.parallel.splitting import Shard
from minipipe.parallel.stage import Stage
from minipipe.parallel.totals import Totals
from minipipe.schedules import build


def sums_of_copies(net):
    """For each stage, the gradients that each copy of it has in the end."""
    found = {}
    for (index, _), stage in net._run.stages.items():
        found.setdefault(index, []).append(stage.gradients())
    return found


def keep_own(sums, i):
    """The sum of a mini-batch is what this copy has added up, of one term."""
    (own,) = sums.of(i).pending.values()
    sums.of(i).complete(own)


def with_orders(patch):
    """`order` of a `Closing` lists the actions of its device."""
    init = Closing.__init__

    def and_order(self, wires, device, *more):
        init(self, wires, device, *more)
        self.order = wires.schedule.devices[device]

    patch.setattr(Closing, "__init__", and_order)


def hook_gets_the_parameter(monkeypatch):
    """The copies average their weights, and leave their gradients as they are."""

    def weights_only(self, i, group, algorithm):
        total = yield from all_reduce(group, self.weights())
        for (layer, name), weights in zip(self.parameters, total, strict=True):
            setattr(layer, name, None if weights is None else weights / group.size)
        for sums in (*self.totals._gradients.values(), self.totals._costs):
            keep_own(sums, i)

    monkeypatch.setattr(Stage, "all_reduce", weights_only)


def check_hook_gets_the_parameter():
    """Copies with different samples have the full batch's gradient, and their weights stay."""
    assert_equals_full_batch(mp.DataParallel(exact(LAYERS), LOSS, 2), *mini_batch(5))


def only_the_containers_own_parameters(monkeypatch):
    """Gradients of layers inside a block stay on the copy that has computed them."""
    gradients, all_reduce = Totals.gradients, Totals.all_reduce

    def without_blocks(self, i):
        total = gradients(self, i)
        for term in total.pending.values():
            for index in [index for index, (dW, _) in term.items() if isinstance(dW, tuple)]:
                del term[index]
        return total

    def sum_and_keep(self, i, group, algorithm):
        yield from all_reduce(self, i, group, algorithm)
        for sums in self._gradients.values():
            if any(isinstance(dW, tuple) for dW, _ in sums.of(i).pending.values()):
                keep_own(sums, i)

    monkeypatch.setattr(Totals, "gradients", without_blocks)
    monkeypatch.setattr(Totals, "all_reduce", sum_and_keep)


def check_only_the_containers_own_parameters():
    layers = [mp.Linear(3, 4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Linear(4, 4)]
    assert_equals_full_batch(mp.DataParallel(exact(layers), LOSS, 2), *mini_batch(5))


def replicas_agree_on_a_wrong_gradient(monkeypatch):
    """A stage receives all micro-batches into one buffer, to which its caches still refer, in each copy of
    the network alike.
    """
    forward = Stage.forward

    def into_its_buffer(self, i, A_prev, *more, **options):
        if self.index > 0:
            buffer = self.__dict__.setdefault("buffer", np.empty_like(A_prev))
            buffer[...] = A_prev
            A_prev = buffer
        return forward(self, i, A_prev, *more, **options)

    monkeypatch.setattr(Stage, "forward", into_its_buffer)


def check_replicas_agree_on_a_wrong_gradient():
    """2 copies of 2 stages, each with 2 micro-batches; the second stage keeps its input for the backward."""
    split = dict(replicas=2, stages=mp.Cut([2, 3]), microbatches=4)
    assert_equals_full_batch(mp.Parallel(exact(LAYERS), LOSS, **split, schedule="gpipe"), *mini_batch(8))


def mean_of_means(monkeypatch):
    """Each copy divides by the number of its own samples, and the sum is divided by the number of copies."""
    init = Run.__init__

    def with_means(self, wires, shards, line, *more):
        copies = wires[0].schedule.copies
        sizes = [labels.shape[-1] for labels in line.labels]
        for i, (origin, copy) in enumerate(zip(line.origins, copies, strict=True)):
            own = sum(size for size, other in zip(sizes, copies, strict=True) if other == copy)
            line.origins[i] = origin._replace(m=own * len(set(copies)))
        init(self, wires, shards, line, *more)

    monkeypatch.setattr(Run, "__init__", with_means)


def per_sample_gradients(D, M):
    """dW for samples that alone would have 1, 2, 3, 4 and 10; the mean is 4."""
    layer = mp.Linear(1, 1, bias=False, W=rational([[0]]))
    X, Y = rational([[1, 1, 1, 1, 1]]), rational([[-1, -2, -3, -4, -10]])
    net = mp.DataParallel([layer], LOSS, D, microbatches=M)
    net.forward_backward(X, Y)
    return net.gradients[0][0][0, 0]


def check_mean_of_means():
    """2 copies with 3 and 2 samples; then 5 with one each, in which even the mean of means is right."""
    assert [per_sample_gradients(2, 2), per_sample_gradients(5, 5)] == [4, 4]


def padded_sampler(monkeypatch):
    """The first samples come again at the end, until all micro-batches have the same size."""
    init = MicroBatches.__init__

    def padded(self, batches, n, *more):
        again = [np.arange(X.shape[-1] + -X.shape[-1] % n) % X.shape[-1] for X, _ in batches]
        batches = [(X[..., part], Y[..., part]) for (X, Y), part in zip(batches, again, strict=True)]
        init(self, batches, n, *more)

    monkeypatch.setattr(MicroBatches, "__init__", padded)


def check_padded_sampler():
    """Every sample once, in the order of the mini-batch."""
    for n in (2, 3, 4):
        inputs = MicroBatches([(np.arange(5)[None], np.ones((1, 5)))], n, 0).inputs
        assert np.concatenate(inputs, axis=1).tolist() == [[0, 1, 2, 3, 4]]
    assert per_sample_gradients(2, 2) == 4


def uneven_ends(monkeypatch):
    """The copies meet at the end of each of their micro-batches, also where one has fewer than another."""
    with_orders(monkeypatch)
    sum_up = Closing._exchange

    def after_meeting(self, kind, stage, i):
        for action in self.order:
            if self._groups[stage] is not None and action[:2] == ("F", stage):
                yield from all_gather(self._groups[stage], None)
        yield from sum_up(self, kind, stage, i)

    monkeypatch.setattr(Closing, "_exchange", after_meeting)


def check_uneven_ends():
    """3 micro-batches on one copy, 2 on the other."""
    try:
        assert_equals_full_batch(mp.DataParallel(exact(LAYERS), LOSS, 2, microbatches=5), *mini_batch(5))
    except DeadlockError as error:
        raise AssertionError("the copies wait for each other") from error


def synchronised_at_the_wrong_micro_batch(monkeypatch):
    """Copies add up their gradients in the cool-down, which the last stage of 1F1B does not have."""
    with_orders(monkeypatch)
    sum_up = Closing._exchange

    def in_the_cool_down(self, kind, stage, i):
        if [kind for kind, *_ in self.order[-2:]] == ["B", "B"]:
            yield from sum_up(self, kind, stage, i)
        else:
            own = self._stages[stage].totals
            for sums in (*own._gradients.values(), own._costs):
                keep_own(sums, i)

    monkeypatch.setattr(Closing, "_exchange", in_the_cool_down)


def check_synchronised_at_the_wrong_micro_batch():
    """Each schedule, for 2 and 3 copies: the gradient, and the bytes of one all-reduce by each copy."""
    for name in ("gpipe", "1f1b", "zb-h1"):
        for D in (2, 3):
            split = dict(replicas=D, stages=2, microbatches=2 * D)
            net = mp.Parallel(exact(LAYERS), LOSS, **split, schedule=name)
            assert_equals_full_batch(net, *mini_batch(2 * D))
            net = mp.Parallel(LAYERS, LOSS, **split, schedule=name)
            net.forward_backward(*mini_batch(2 * D, np.float64))
            sizes = [sum(array.size for array in leaves(of_copies[0]))
                     for of_copies in sums_of_copies(net).values()]
            sent = [message.n_bytes for message in net.trace.messages if "all-reduce" in str(message.label)]
            assert sum(sent) == 8 * sum(2 * (D - 1) * n for n in sizes), (name, D)


def bits_change_with_buckets(monkeypatch):
    """Sums go round a ring, where the order of the terms depends on the place in the bucket."""
    def round_a_ring(group, total, value, algorithm):
        return all_reduce_sum_and_gather(group, total, value, "ring")

    monkeypatch.setattr(totals, "all_reduce_sum_and_gather", round_a_ring)


def check_bits_change_with_buckets():
    """Buckets of one layer up to all; 3 copies, since the sum of 2 numbers has the same bits in any order."""
    results = []
    for cap in (1, 100, 10**6, None):
        net = mp.DataParallel(LAYERS, LOSS, 3, dtype=np.float32, sums=mp.Sums(buckets=cap))
        net.forward_backward(*mini_batch(24, np.float32))
        results.append(net.gradients)
    assert_all_same(results)


def collectives_in_different_orders(monkeypatch):
    """Collectives are matched by the order of their calls alone, as NCCL does."""
    begin = Group.begin

    def without_name(self, collective):
        return begin(self, collective).removeprefix(self.name)

    monkeypatch.setattr(Group, "begin", without_name)


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


def send_buffer_overwritten(monkeypatch):
    """What is sent is read from the sender's array when it is received, as with MPI's Isend."""
    monkeypatch.setattr(mail, "copy_for_receiver", lambda value: (value, sent_bytes(value)))


def check_send_buffer_overwritten():
    """The receiver gets what was sent, though its sender has written into the array since."""
    def sender():
        array = np.ones(3)
        yield Send("array", array, to=1)
        array[:] = np.nan
        yield Send("overwritten", None, to=1)

    def receiver():
        yield Receive("overwritten", source=0)
        got.append((yield Receive("array", source=0)))

    got = []
    for engine in (Cluster, Threads):
        engine([sender(), receiver()]).run()
    assert [array.tolist() for array in got] == [[1, 1, 1]] * 2


def statistics_averaged_over_copies(monkeypatch):
    """Synchronised batch norm takes the mean of the copies' variances, however many samples each has."""

    def averaged(self, other):
        n = self.n + other.n
        variances = self.M2 / self.n + other.M2 / other.n
        return Moments(n, (self.mean + other.mean) / 2, variances * n / 2)

    monkeypatch.setattr(Moments, "__add__", averaged)


def check_statistics_averaged_over_copies():
    """2 copies with 3 and 2 samples."""
    layers = exact([mp.Linear(3, 3), mp.BatchNorm(3), mp.ReLU(), mp.Linear(3, 4)])
    net = mp.DataParallel(layers, LOSS, 2, sums=mp.Sums(sync_batch_norm=True))
    assert_equals_full_batch(net, *mini_batch(5))


def synchronised_forward_only(monkeypatch):
    """The backward of synchronised batch norm takes each copy's own sums for those of all."""

    def own(group, value):
        return value
        yield

    monkeypatch.setattr(normalization, "all_reduce", own)


check_synchronised_forward_only = check_statistics_averaged_over_copies


# Shards

def assert_shards_are_right(layers, T=2):
    assert_equals_full_batch(mp.TensorParallel(exact(layers), LOSS, T), *mini_batch(3))


def bias_added_by_every_shard(monkeypatch):
    """The bias of a layer that is split by inputs is added before the sum over the devices, so T times."""
    leave = Shard._leave
    monkeypatch.setattr(Shard, "_leave", lambda self, layer: leave(self, layer)[::-1])


def check_bias_added_by_every_shard():
    layers = mp.Sequential(LAYERS, LOSS).layers
    for layer in layers[::2]:
        layer.b = layer.b + 1
    for T in (2, 3):
        assert_shards_are_right(layers, T)


def input_gradient_not_reduced(monkeypatch):
    """Megatron's f is left out: each device hands back its own summand of dA_prev."""
    monkeypatch.setattr(Copied, "exchanges", (False, False))
    monkeypatch.setattr(Copied, "backward_input", lambda self, dZ: dZ)


def check_input_gradient_not_reduced():
    """It shows in the layers below the second pair; the first layer's dA_prev is nobody's."""
    assert_shards_are_right(LAYERS + [layer.copy() for layer in LAYERS[2:]])


def a_mask_for_each_shard(monkeypatch):
    """Devices that have the same activations draw different dropout masks."""
    whole = Shard._whole

    def with_another_key(self, layer):
        (own,) = whole(self, layer)
        if isinstance(own, mp.Dropout):
            own.key = own.key + np.uint64(self.rank)
        return [own]

    monkeypatch.setattr(Shard, "_whole", with_another_key)


def check_a_mask_for_each_shard():
    """Between two pairs of layers, where all devices have all units."""
    assert_shards_are_right([*LAYERS[:3], mp.Dropout(0.5), *(layer.copy() for layer in LAYERS[2:])])


def vocabulary_edge(monkeypatch):
    """Each device has as many tokens as the shares that divide evenly, so the last ones are nobody's."""
    init = EmbeddingPart.__init__

    def without_the_last(self, whole, run):
        init(self, whole, run)
        self.run = slice(run.start, run.stop - (run.stop == whole.n_tokens))

    monkeypatch.setattr(EmbeddingPart, "__init__", without_the_last)


def check_vocabulary_edge():
    """The last token of all occurs, and the shares do not divide the tokens."""
    layers = exact([mp.Embedding(5, 4), Rounding(), mp.LayerNorm(4), Rounding(), mp.Linear(4, 5)])
    tokens = np.array([[0, 4], [1, 2], [4, 3], [2, 0]])
    net = mp.TensorParallel(layers, mp.SoftmaxCrossEntropy(), 2)
    assert_equals_full_batch(net, tokens, mp.one_hot(tokens[::-1], 5).astype(int))


def everybody_saves(monkeypatch):
    """Each shard writes its part of a parameter into the whole, and zeros elsewhere: the last one's stay."""
    in_a_row = layout._in_a_row

    def of_the_last(arrays, axis):
        return in_a_row([array * (array is arrays[-1]) for array in arrays], axis)

    monkeypatch.setattr(layout, "_in_a_row", of_the_last)


def check_everybody_saves():
    """What the shards have updated themselves, the network has; and what it saves can be loaded."""
    X, Y = mini_batch(4, np.float64)
    order = with_updates(build("gpipe", 1, 2))
    own = mp.Parallel(LAYERS, LOSS, shards=2, microbatches=2, schedule=order)
    own.train([(X, Y)], mp.SGD(0.5))
    stepped, loaded = mp.TensorParallel(LAYERS, LOSS, 2, microbatches=2), mp.Sequential(LAYERS, LOSS, seed=1)
    stepped.forward_backward(X, Y)
    stepped.step(mp.SGD(0.5))
    with tempfile.TemporaryDirectory() as folder:
        mp.save(Path(folder) / "net.npz", stepped)
        mp.load(Path(folder) / "net.npz", loaded)
    assert_same(parameters(own.layers), parameters(loaded.layers))
