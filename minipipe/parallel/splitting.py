"""How a list of ordinary layers is divided among devices that share the work inside each of them."""

import copy
from itertools import chain

from ..functions import even_slices
from ..layers import (
    Chain, Conv1d, Conv2d, Conv3d, Dropout, Embedding, Fork, Join, LayerNorm, Linear, MultiHeadAttention,
    Residual, every_layer,
)
from ..layers.activations import Elementwise
from ..layers.convolution import Convolution
from ..layers.pooling import Pool
from ..losses import SoftmaxCrossEntropy
from ..ties import ties_of
from .exchanges import Copied, Gathered, Parted, PartialToSplit, SplitToWhole, Summed
from .parts import Bias, DropoutPart, EmbeddingPart, SoftmaxCrossEntropyPart
from .rows import by_rows, goes_by_rows

COMPUTING = ("forward", "backward", "backward_input", "backward_weight", "through", "derivatives")


class Shard:
    """What one of T devices has of a network, whose layers and loss stay as they are.

    layers, loss: the network's.
    rank: which of the devices this is.
    size: T.
    sequence: whether what stands between the parts of a Transformer's blocks, (d, positions, m), is split,
        too, by positions: sequence parallelism.
    rows: whether convolutions that keep the number of rows, and what acts on each number between them, are
        split by the rows of the image, (C, rows, ..., m): each borrows rows of its neighbours, see `Halo`.

    `layers` has for each layer of the network the list of layers that this device has instead: the layer
    itself, or a copy of it, where all devices do the same; or a part of it, with the exchanges around it.
    `held[id(layer), name]` says where a parameter of the network lies: (layer of the shard, the axis along
    which it is split, or None if it is whole). `words` says for each layer of the network how it is split.

    - A Linear, an activation, and another Linear: the first by its outputs, W[rows], the second by its
      inputs, W[:, columns]; so are convolutions, by channels. The hidden units never meet.
    - Any other Linear or convolution: by its outputs, which are then gathered.
    - Attention by its heads; an Embedding, and the logits before a `SoftmaxCrossEntropy`, by the tokens.
    - A residual connection in parts becomes a Fork and a Join around them.
    - With `sequence`, from the first attention on, LayerNorm, Dropout and residual connections by positions.
      The gradients of their parameters, and of biases there, are sums over the devices, and are added up at
      the end.
    - With `rows`, convolutions by the rows of the image, and their gradients are such sums, too.
    - All else, layers of one's own, what has fewer units than there are devices, and what is tied to one of
      these, is whole on each device.
    """

    def __init__(self, layers, loss, rank, size, sequence=False, rows=False):
        self.rank, self.size, self._sequence, self._rows = rank, size, sequence, rows
        self.parted = []  # the indices of the layers before which positions, or rows, are split
        self._by_positions = False  # whether what the next layer gets is split so
        self._tied = {name: [layers[index] for index in tied] for name, tied in ties_of(layers).items()}
        self.held, self._held_of, self.words = {}, {}, ["whole"] * len(layers)  # _held_of: id -> layer
        self.loss, self._logits = copy.copy(loss), None
        is_second = len(layers) - 1 in self._pairs(layers).values()
        by_classes = type(loss) is SoftmaxCrossEntropy and self._is_splittable(layers[-1], Linear)
        if by_classes and not is_second:
            self.loss, self._logits = SoftmaxCrossEntropyPart(layers[-1].n), layers[-1]
        self.layers = self._each(layers, "", self.words, is_top=True)
        if self._by_positions:
            self.layers[-1].append(Gathered(1))

    def check(self):
        """Raise `ValueError` if `size`, `sequence` or `rows` would change nothing."""
        if self.size == 1:
            return
        if all(words == "whole" for words in self.words):
            raise ValueError(f"n_shards={self.size} splits none of these {len(self.words)} layers: use fewer")
        if self._sequence and self._rows:
            raise ValueError("sequence=True and rows=True: positions are split one way, so use one of them")
        if self._sequence and not self.parted:
            raise ValueError("sequence=True splits nothing here: it needs blocks of attention: leave it out")
        if self._rows and not self.parted:
            raise ValueError("rows=True splits nothing here: it needs convolutions that keep the rows")

    def __setstate__(self, state):
        """Take the state of a copy, or of a pickle, whose layers are other objects with other ids."""
        vars(self).update(state)
        self.held = {(id(self._held_of[old]), name): place for (old, name), place in self.held.items()}
        self._held_of = {id(layer): layer for layer in self._held_of.values()}

    def parts_of(self, arrays, layers):
        """The part of these `layers` of the shard of what is kept for the network's parameters.

        arrays: {(id of a layer of the network, name of a parameter): arrays of the parameter's shape}
        """
        there, found = set(map(id, layers)), []
        for key, (holder, axis) in self.held.items():
            if id(holder) in there:
                whole = arrays.get(key, [])
                found += [self.part_of(array, axis) for array in whole]
        return found

    def part_of(self, array, axis):
        """The part of an array that is split along an axis, or, for None, a copy of the whole."""
        if axis is None:
            return array.copy()
        return array[(slice(None),) * axis + (self._runs(array.shape[axis])[self.rank],)].copy()

    def _each(self, layers, place, words, is_top=False):
        """For each of consecutive layers, what this device has instead; in `words`, how each is split."""
        found, pairs = [], self._pairs(layers)
        between = {i for first, second in pairs.items() for i in range(first + 1, second)}
        for index, layer in enumerate(layers):
            before = self._changed_split(layer) if is_top and (self._sequence or self._rows) else []
            if before and self._by_positions:
                self.parted.append(index)
            if index in pairs:
                parts, how = [self._enter(), self._by_outputs(layer)], "by outputs"
            elif index in pairs.values():
                parts, how = self._by_inputs(layer), "by inputs"
            elif index in between:
                parts, how = [layer.copy()], "unit by unit"
            else:
                parts, how = self._alone(layer, f"{place}{index}")
            found.append(before + parts)
            words[index] = how
        return found

    def _changed_split(self, layer):
        """The exchange before a layer of the network for which the positions must be split, or whole."""
        by_positions = self._goes_by_positions(layer) and (self._by_positions or _attends(layer))
        if self._rows:
            on_numbers = isinstance(layer, Elementwise) or type(layer) is Dropout
            by_positions = goes_by_rows(layer) or (self._by_positions and on_numbers)
        if layer is self._logits or self._by_positions == by_positions:
            return []
        self._by_positions = not self._by_positions
        return [Parted(1) if self._by_positions else Gathered(1)]

    def _enter(self):
        """The exchange before a product that is split by outputs."""
        return SplitToWhole(1) if self._by_positions else Copied()

    def _leave(self):
        """The exchange behind a product that is split by inputs."""
        return PartialToSplit(1) if self._by_positions else Summed()

    def _alone(self, layer, place):
        """(what this device has instead of a layer, how that is split)"""
        if layer is self._logits:
            enter, self._by_positions = self._enter(), False
            return [enter, self._by_outputs(layer)], "by outputs, up to the loss"
        if self._by_positions and goes_by_rows(layer):
            *before, part = by_rows(layer)
            self._hold(layer, W=(part, None), b=(part, None))
            return [*before, part], "by rows"
        if self._is_splittable(layer, Linear, Convolution):
            return [Copied(), self._by_outputs(layer), Gathered()], "by outputs, gathered"
        if type(layer) is MultiHeadAttention:
            return self._by_heads(layer), "by heads"
        if self._is_splittable(layer, Embedding):
            part = EmbeddingPart(layer, self._runs(layer.n_tokens)[self.rank])
            self._hold(layer, W=(part, 0))
            return [part, Summed()], "by tokens"
        if self._by_positions and not layer.layers:
            return [self._run_of(layer)], "by rows" if self._rows else "by positions"
        inner = _inner(layer)
        words = [None] * len(inner)
        parts = list(chain(*self._each(inner, f"{place}.", words)))
        if set(words) <= {"whole"}:
            return self._whole(layer), "whole"
        if isinstance(layer, Residual):
            name = f"residual {place}"
            parts = [Fork(name), *parts, Join(name)]
        return parts, f"({', '.join(words)})"

    def _whole(self, layer):
        """The layer itself on the first device, which so gets its statistics, and copies on the others."""
        own = layer if self.rank == 0 else layer.copy()
        for theirs, ours in zip(every_layer([layer]), every_layer([own]), strict=True):
            self._hold(theirs, W=(ours, None), b=(ours, None))
        return [own]

    def _by_outputs(self, layer):
        run = self._runs(len(layer.W))[self.rank]
        part = self._part(layer, n_outputs=run.stop - run.start)
        part.W = layer.W[run].copy()
        self._hold(layer, W=(part, 0))
        if layer.b is not None:
            part.b = layer.b[run].copy()
            self._hold(layer, b=(part, 0))
        return part

    def _by_inputs(self, layer):
        """The product with a part of the columns of W, the sum over the devices, and b."""
        run = self._runs(layer.W.shape[1])[self.rank]
        part = self._part(layer, n_inputs=run.stop - run.start)
        part.bias, part.b, part.W = False, None, layer.W[:, run].copy()
        self._hold(layer, W=(part, 1))
        if layer.b is None:
            return [part, self._leave()]
        bias = Bias(layer.b.copy())
        bias.partial = self._by_positions
        self._hold(layer, b=(bias, None))
        return [part, self._leave(), bias]

    def _run_of(self, layer):
        """The layer for this device's run of the positions."""
        part = DropoutPart(layer, self.rank, self.size) if type(layer) is Dropout else layer.copy()
        part.partial = layer.W is not None
        self._hold(layer, W=(part, None), b=(part, None))
        return part

    def _by_heads(self, attention):
        n_heads, size = attention.n_heads, self.size
        if n_heads % size:
            raise ValueError(
                f"{attention!r}: {n_heads} heads over {size} shards: n_shards must divide the number of heads"
            )
        *inputs, output = attention.layers
        product, *rest = self._by_inputs(output)
        part = attention.copy()
        part.n_heads, part.layers = n_heads // size, (*map(self._by_outputs, inputs), product)
        return [self._enter(), part, *rest]

    def _part(self, layer, **sizes):
        """A copy of a Linear or a convolution with other sizes."""
        names = ("n", "n_prev") if isinstance(layer, Linear) else ("out_channels", "in_channels")
        part = copy.copy(layer)
        part.cache = None
        for name, size in zip(names, (sizes.get("n_outputs"), sizes.get("n_inputs"))):
            if size is not None:
                setattr(part, name, size)
        return part

    def _goes_by_positions(self, layer):
        """Whether positions can go through it one by one; in residual parts, attention and pairs gather them.
        """
        inner = _inner(layer)
        if isinstance(layer, Residual):
            in_pairs = set(chain(*self._pairs(inner).items()))
            alone = [part for index, part in enumerate(inner) if index not in in_pairs]
            kinds = LayerNorm, Dropout, MultiHeadAttention
            return all(type(part) in kinds or isinstance(part, Elementwise) for part in alone) and bool(inner)
        if inner:
            return all(map(self._goes_by_positions, inner))
        return type(layer) in (LayerNorm, Dropout)

    def _pairs(self, layers):
        """{index: index} of two layers of one kind with activations or pooling in between, pair after pair.

        The first is split by its outputs, so the second can be by its inputs.
        """
        found, index = {}, 0
        while index < len(layers):
            kind = next((k for k in (Linear, Convolution) if self._is_splittable(layers[index], k)), None)
            second = index + 1
            while second < len(layers) and _acts_on_units(layers[second]):
                second += 1
            if kind and second < len(layers) and self._fits(layers[index], layers[second], kind):
                found[index] = second
                index = second
            index += 1
        return found

    def _fits(self, first, second, kind):
        of_kind = isinstance(second, kind) and self._can_be_split(second)
        return of_kind and first.tie is None and second.tie is None

    def _is_splittable(self, layer, *kinds):
        """Whether it is one of these kinds, and it and all layers tied to it have a unit for each device."""
        return isinstance(layer, kinds) and all(
            self._can_be_split(one) and len(one.W) >= self.size for one in self._tied.get(layer.tie, [layer])
        )

    def _can_be_split(self, layer):
        """Whether it is minipipe's own, with one group of channels, and does not go by rows."""
        if self._rows and goes_by_rows(layer):
            return False
        return type(layer) in (Linear, Embedding, Conv1d, Conv2d, Conv3d) and getattr(layer, "groups", 1) == 1

    def _runs(self, n):
        return even_slices(n, self.size)

    def _hold(self, layer, **places):
        for name, (holder, axis) in places.items():
            self.held[id(layer), name], self._held_of[id(layer)] = (holder, axis), layer


def _attends(layer):
    """Whether there is attention in it, and so positions in what it gets."""
    return any(isinstance(part, MultiHeadAttention) for part in every_layer([layer]))


def _inner(layer):
    """The layers that a `Residual` or a `Chain` is made of; none, if its class computes something else."""
    kind = next((kind for kind in (Residual, Chain) if isinstance(layer, kind)), None)
    if kind is None or any(getattr(type(layer), name) is not getattr(kind, name) for name in COMPUTING):
        return ()
    return layer.layers[1].layers if kind is Residual else layer.layers


def _acts_on_units(layer):
    """Whether each unit, or channel, of its output depends on that of its input alone."""
    return isinstance(layer, (Elementwise, Pool)) and layer.W is None and layer.b is None
