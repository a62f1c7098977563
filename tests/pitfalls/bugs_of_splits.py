"""Bugs that frameworks have shipped where several devices share the samples, or the work inside a layer.

As those of `bugs.py`, which has them, too; `checks_of_splits.py` has a check of the same name for each.
"""

import numpy as np

from minipipe import Dropout
from minipipe.cluster import mail
from minipipe.collectives import Group, all_reduce, all_reduce_sum_and_gather, barrier
from minipipe.collectives.vectors import flattened, unflattened
from minipipe.layers.normalization import Moments
from minipipe.parallel import joining, synchronised
from minipipe.parallel.exchanges import Copied
from minipipe.parallel.parts import DropoutPart, EmbeddingPart
from minipipe.parallel.splitting import Shard
from minipipe.pipeline import Stage, closing
from minipipe.pipeline.batches import MicroBatches
from minipipe.pipeline.closing import Closing
from minipipe.pipeline.run import Run
from minipipe.pipeline.totals import Totals


def hook_gets_the_parameter(monkeypatch):
    """The copies average their weights, and leave their gradients as they are."""

    def weights_only(self, stage, i):
        group = self._groups.get(stage)
        if group is not None:
            stage = self._stages[stage, self._device]
            total = yield from all_reduce(group, stage.weights())
            for (layer, name), weights in zip(stage.parameters, total, strict=True):
                setattr(layer, name, None if weights is None else weights / group.size)
            for sums in (*stage.totals._gradients.values(), stage.totals._costs):
                sums.of(i).complete(next(iter(sums.of(i).pending.values())))

    monkeypatch.setattr(Closing, "_all_reduce", weights_only)


def bias_added_by_every_shard(monkeypatch):
    """The bias of a layer that is split by inputs is added before the sum over the devices, so T times."""
    by_inputs = Shard._by_inputs

    def bias_first(self, layer):
        part, leave, *bias = by_inputs(self, layer)
        return [part, *bias, leave]

    monkeypatch.setattr(Shard, "_by_inputs", bias_first)


def input_gradient_not_reduced(monkeypatch):
    """Megatron's f is left out: each device hands back its own summand of dA_prev."""
    monkeypatch.setattr(Copied, "exchanges", (False, False))
    monkeypatch.setattr(Copied, "backward_input", lambda self, dZ: dZ)


def norm_gradients_not_summed(monkeypatch):
    """Each device keeps the gradients of LayerNorm and of biases over its own positions."""
    monkeypatch.setattr(Totals, "replace_partial", lambda self, i, pending: None)


def one_mask_for_all_positions(monkeypatch):
    """Devices that have different positions draw the same dropout mask."""
    monkeypatch.setattr(DropoutPart, "_kept", Dropout._kept)


def vocabulary_edge(monkeypatch):
    """Each device has as many tokens as the shares that divide evenly, so the last ones are nobody's."""
    init = EmbeddingPart.__init__

    def without_the_last(self, whole, run):
        init(self, whole, run)
        self.run = slice(run.start, run.stop - (run.stop == whole.n_tokens))

    monkeypatch.setattr(EmbeddingPart, "__init__", without_the_last)

def only_the_containers_own_parameters(monkeypatch):
    """Gradients of layers inside a block stay on the copy that has computed them."""
    gradients, replace = Totals.gradients, Totals.replace_gradients

    def without_blocks(self, i):
        total = gradients(self, i)
        for term in total.pending.values():
            for index in [index for index, (dW, _) in term.items() if isinstance(dW, tuple)]:
                del term[index]
        return total

    def replace_and_keep(self, i, total):
        replace(self, i, total)
        for index, sums in self._gradients.items():
            if index not in total:
                keep_own(sums, i)

    monkeypatch.setattr(Totals, "gradients", without_blocks)
    monkeypatch.setattr(Totals, "replace_gradients", replace_and_keep)


def replicas_agree_on_a_wrong_gradient(monkeypatch):
    """A stage receives all micro-batches into one buffer, to which its caches still refer, in each copy of
    the network alike.
    """
    forward = Stage.forward

    def into_its_buffer(self, i, A_prev, *more):
        if self.index > 0:
            buffer = self.__dict__.setdefault("buffer", np.empty_like(A_prev))
            buffer[...] = A_prev
            A_prev = buffer
        return (yield from forward(self, i, A_prev, *more))

    monkeypatch.setattr(Stage, "forward", into_its_buffer)


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


def padded_sampler(monkeypatch):
    """The first samples come again at the end, until all micro-batches have the same size."""
    init = MicroBatches.__init__

    def padded(self, batches, n, *more):
        again = [np.arange(X.shape[-1] + -X.shape[-1] % n) % X.shape[-1] for X, _ in batches]
        batches = [(X[..., part], Y[..., part]) for (X, Y), part in zip(batches, again, strict=True)]
        init(self, batches, n, *more)

    monkeypatch.setattr(MicroBatches, "__init__", padded)


def uneven_ends(monkeypatch):
    """The copies meet at the end of each of their micro-batches, also where one has fewer than another."""
    with_orders(monkeypatch)
    sum_up = Closing._all_reduce

    def after_meeting(self, stage, i):
        for action in self.order:
            if stage in self._groups and action[:2] == ("F", stage):
                yield from barrier(self._groups[stage])
        yield from sum_up(self, stage, i)

    monkeypatch.setattr(Closing, "_all_reduce", after_meeting)


def synchronised_at_the_wrong_micro_batch(monkeypatch):
    """Copies add up their gradients in the cool-down, which the last stage of 1F1B does not have."""
    with_orders(monkeypatch)
    sum_up = Closing._all_reduce

    def in_the_cool_down(self, stage, i):
        if [kind for kind, *_ in self.order[-2:]] == ["B", "B"]:
            yield from sum_up(self, stage, i)
        elif (stage, self._device) in self._stages:
            totals = self._stages[stage, self._device].totals
            for sums in (*totals._gradients.values(), totals._costs):
                keep_own(sums, i)

    monkeypatch.setattr(Closing, "_all_reduce", in_the_cool_down)


def bits_change_with_buckets(monkeypatch):
    """Sums go round a ring, where the order of the terms depends on the place in the bucket."""
    def round_a_ring(group, total, value, algorithm):
        return all_reduce_sum_and_gather(group, total, value, "ring")

    monkeypatch.setattr(closing, "all_reduce_sum_and_gather", round_a_ring)


def collectives_in_different_orders(monkeypatch):
    """Collectives are matched by the order of their calls alone, as NCCL does."""
    begin = Group.begin

    def without_name(self, collective):
        return begin(self, collective).removeprefix(self.name)

    monkeypatch.setattr(Group, "begin", without_name)


def send_buffer_overwritten(monkeypatch):
    """What is sent is read from the sender's array when it is received, as with MPI's Isend."""
    own = mail.own
    monkeypatch.setattr(mail, "own", lambda value: (value, own(value)[1]))


def everybody_saves(monkeypatch):
    """Each shard writes its part of a parameter into the whole, and zeros elsewhere: the last one's stay."""
    whole_array = joining._whole_array

    def of_the_last(layer, name, shards, value):
        last = shards[-1]

        def or_zeros(t, holder, name):
            return value(t, holder, name) * (shards[t] is last)

        return whole_array(layer, name, shards, or_zeros)

    monkeypatch.setattr(joining, "_whole_array", of_the_last)


def statistics_averaged_over_copies(monkeypatch):
    """Synchronised batch norm takes the mean of the copies' variances, however many samples each has."""

    def averaged(self, other):
        n = self.n + other.n
        variances = self.M2 / self.n + other.M2 / other.n
        return Moments(n, (self.mean + other.mean) / 2, variances * n / 2)

    monkeypatch.setattr(Moments, "__add__", averaged)


def synchronised_forward_only(monkeypatch):
    """The backward of synchronised batch norm takes each copy's own sums for those of all."""

    def own(group, value):
        return value
        yield

    monkeypatch.setattr(synchronised, "all_reduce", own)


def norm_gradients_averaged(monkeypatch):
    """The devices' gradients of LayerNorm over their positions are averaged, and not added up."""

    def mean(group, value, algorithm):
        total = yield from all_reduce(group, value, algorithm)
        return unflattened([vector / group.size for vector in flattened(total)], total)

    monkeypatch.setattr(closing, "all_reduce", mean)


def a_mask_for_each_shard(monkeypatch):
    """Devices that have the same activations draw different dropout masks."""
    whole = Shard._whole

    def with_another_key(self, layer):
        (own,) = whole(self, layer)
        if isinstance(own, Dropout):
            own.key = own.key + np.uint64(self.rank)
        return [own]

    monkeypatch.setattr(Shard, "_whole", with_another_key)


def keep_own(sums, i):
    """The sum of a mini-batch is what this copy has added up, of one term."""
    (own,) = sums.of(i).pending.values()
    sums.of(i).complete(own)


def with_orders(monkeypatch):
    """`order` of a `Closing` lists the actions of its device."""
    init = Closing.__init__

    def and_order(self, wires, device, *more):
        init(self, wires, device, *more)
        self.order = wires.schedule.devices[device]

    monkeypatch.setattr(Closing, "__init__", and_order)


BUGS_OF_SPLITS = {
    function.__name__: function
    for function in (
        hook_gets_the_parameter,
        bias_added_by_every_shard,
        input_gradient_not_reduced,
        norm_gradients_not_summed,
        one_mask_for_all_positions,
        vocabulary_edge,
        only_the_containers_own_parameters,
        replicas_agree_on_a_wrong_gradient,
        mean_of_means,
        padded_sampler,
        uneven_ends,
        synchronised_at_the_wrong_micro_batch,
        bits_change_with_buckets,
        collectives_in_different_orders,
        send_buffer_overwritten,
        everybody_saves,
        statistics_averaged_over_copies,
        synchronised_forward_only,
        norm_gradients_averaged,
        a_mask_for_each_shard,
    )
}
