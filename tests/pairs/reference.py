"""What a row of settings must give: an independent plain loop in rational numbers.

The loop takes from minipipe what a layer computes forward and backward, and nothing else: the groups of
samples, the masks of dropout, sums, ties, clipping, updates, statistics and versions of weights stand here.
"""

from math import isqrt

import numpy as np
from settings import batches_of, clip_of, counts_of, layers_of, parts_of

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational
from minipipe.layers import every_layer
from minipipe.layers.normalization import Normalization

HALF, RATE, DECAY, EPSILON = (Rational(1, n) for n in (2, 64, 16, 64))


class Masked(mp.Dropout):
    """Dropout with masks that are drawn here: by its key, sample k of step t has a range of a counter."""

    def forward(self, A_prev):
        if not self.training:
            return A_prev
        n, columns = A_prev[..., 0].size, []
        blocks = -(-n // 8)
        for sample in self.samples:
            generator = np.random.Philox(key=self.key, counter=(self.step << 128) + int(sample) * blocks)
            columns.append(generator.random_raw(4 * blocks).view(np.uint32)[:n] >= int(self.p * 2**32))
        kept = np.array(columns).T.reshape(A_prev.shape)
        self.cache = np.where(kept, 1 / (1 - Rational(self.p)), Rational(0))
        return A_prev * self.cache


class Counted(mp.BatchNorm):
    """Batch norm that keeps what it has met in training, for its running statistics."""

    def forward(self, A_prev):
        if self.training:
            self.met.append(A_prev.reshape(self.n, -1))
        return super().forward(A_prev)

    def move(self):
        """Move the running statistics by mean and unbiased variance of the whole mini-batch."""
        met, share = np.concatenate(self.met, axis=1), Rational(self.momentum)
        mean = met.sum(axis=1, keepdims=True) / met.shape[1]
        var = ((met - mean) ** 2).sum(axis=1, keepdims=True) / (met.shape[1] - 1)
        self.running_mean = (1 - share) * self.running_mean + share * mean
        self.running_var = (1 - share) * self.running_var + share * var


class Loop:
    """A network that a plain loop trains; `found` is what `settings.trained` shows of it.

    places: for each parameter (layer, "W" or "b", index of the network's layer, number of the array there).
    weights: the parameters after each update, of all places.
    """

    def __init__(self, row):
        self.row, self.found, self.memory = row, {}, {}
        self.layers, self.loss, _ = layers_of(row)
        self.flat = [layer for layer in every_layer(self.layers) if not layer.layers]
        for layer in self.flat:
            layer.__class__ = {mp.Dropout: Masked, mp.BatchNorm: Counted}.get(type(layer), type(layer))
        self.places = [
            (part, name, index, k) for index, layer in enumerate(self.layers) for name in "Wb"
            for k, part in enumerate(part for part in every_layer([layer])
                                     if isinstance(getattr(part, name), np.ndarray))
        ]
        for place in self.places:  # layers of one tie start from the W of the first of them
            first = next(other for other in self.places if of_one_tie(other, place))
            setattr(*place[:2], getattr(*first[:2]))
        self.weights = [[getattr(part, name) for part, name, *_ in self.places]]

    def train(self):
        """Train on all mini-batches of the row; return `found`."""
        row, t = self.row, 0
        for batches in parts_of(row):
            costs, begin = [], t
            for X, Y in batches:
                self.put([self.weights[version(row, begin, t, self.stage(index))][p]
                          for p, (*_, index, _) in enumerate(self.places)])
                J, gradients = self.gradients(X, Y, t)
                self.report(t, J, gradients)
                self.weights.append(self.updated(gradients, t + 1))
                costs.append(J)
                t += 1
            mean = 0.0
            for J in costs:
                mean += float(J) * X.shape[-1] / (X.shape[-1] * len(costs))
            self.found[f"mean J up to mini-batch {t}"] = mean
        self.put(self.weights[-1])
        for index, layer in enumerate(every_layer(self.layers)):
            for name in layer.arrays if not layer.layers else ():
                if getattr(layer, name) is not None:
                    kind = {Masked: "Dropout", Counted: "BatchNorm"}.get(type(layer), type(layer).__name__)
                    self.found[f"{name} of layer {index}, {kind}"] = getattr(layer, name)
        self.prepare(False, 0, [])
        self.found["prediction"] = self.forward(batches_of(row)[0][0])
        return self.found

    def put(self, arrays):
        """Give the layers these parameters."""
        for (part, name, *_), array in zip(self.places, arrays, strict=True):
            setattr(part, name, array)

    def stage(self, index):
        """Return the stage of a layer of the network."""
        counts = counts_of(self.row, len(self.layers))
        return next(s for s in range(len(counts)) if index < sum(counts[:s + 1]))

    def prepare(self, training, step, samples):
        """Tell the layers what the next forward is."""
        for layer in self.flat:
            layer.training, layer.step, layer.samples = training, step, samples

    def gradients(self, X, Y, t):
        """Return (J, [gradient of each place]), summed over the groups of samples of mini-batch t."""
        total, m, batch_norms = [Rational(0)] + [0] * len(self.places), X.shape[-1], self.batch_norms()
        for layer in batch_norms:
            layer.met = []
        for samples in groups(self.row, m) if batch_norms else [np.arange(m)]:
            self.prepare(True, t, samples)
            J = self.loss.forward(self.forward(X[..., samples]), Y[..., samples], m)
            total = [a + b for a, b in zip(total, [J, *self.backward(self.loss.backward())], strict=True)]
        for layer in batch_norms:
            layer.move()
        J, *own = total
        ones = [[g for g, other in zip(own, self.places) if other is place or of_one_tie(other, place)]
                for place in self.places]
        return J, [sum(family[1:], family[0]) for family in ones]

    def batch_norms(self):
        """Return the layers in which samples meet."""
        return [layer for layer in self.flat if isinstance(layer, Counted)]

    def forward(self, A):
        """Return the output of the last layer."""
        skips = {}
        for layer in self.layers:
            A = layer.forward((A, skips.pop(layer.join)) if layer.join else A)
            if layer.fork:
                A, skips[layer.fork] = A
        return A

    def backward(self, dA):
        """Return the gradient of each place."""
        found, skips = [], {}
        for layer in reversed(self.layers):
            dA, dW, db = layer.backward((dA, skips.pop(layer.fork)) if layer.fork else dA)
            found[:0] = leaves((dW, db))
            if layer.join:
                dA, skips[layer.join] = dA
        return found

    def report(self, t, J, gradients):
        """Show J, the gradients and their norm."""
        self.found[f"J of mini-batch {t}"] = J
        for (_, name, index, k), g in zip(self.places, gradients, strict=True):
            self.found[f"d{name} of layer {index}.{k}, mini-batch {t}"] = g
        self.found[f"norm of the gradients of mini-batch {t}"] = self.norm(gradients)

    def norm(self, gradients):
        """Return the norm of all gradients together; that of a tied W counts once."""
        once = [g for n, (g, place) in enumerate(zip(gradients, self.places))
                if not any(of_one_tie(other, place) for other in self.places[:n])]
        return length(*once)

    def updated(self, gradients, t):
        """Return the parameters after update t, from 1."""
        most, size = clip_of(self.row), self.norm(gradients)
        if most is not None and size > most:
            gradients = [most / size * g for g in gradients]
        after = []
        triples = zip(self.places, self.weights[-1], gradients, strict=True)
        for p, ((part, name, *_), W, g) in enumerate(triples):
            is_weight = name == "W" and not isinstance(part, Normalization)
            decay = DECAY if is_weight or not self.row["weights_only"] else 0
            trusts = is_weight or not self.row["weights_only"]
            memory = self.memory.setdefault(p, [0, 0])
            after.append(UPDATES[self.row["optimizer"]](W, g, decay, memory, t, trusts))
        return after


def of_one_tie(place, other):
    """Return whether two places have the W of one tie, or are the same place."""
    return place is other or (place[1] == other[1] == "W" and place[0].tie is not None
                              and place[0].tie == other[0].tie)


def length(*arrays):
    """Return the root of the sum of all squares; exact if that is the square of a fraction."""
    square = sum((array * array).sum() for array in arrays)
    root = Rational(isqrt(square.numerator), isqrt(square.denominator))
    return root if root * root == square else square.sqrt()


def even(n, parts):
    """Return `parts` ranges that cover 0..n, as equal as can be, the longer ones first."""
    edges = [part * (n // parts) + min(part, n % parts) for part in range(parts + 1)]
    return [np.arange(*pair) for pair in zip(edges, edges[1:])]


def groups(row, m):
    """Return the samples that batch norm puts together: a grain, a micro-batch, or one micro-batch a copy."""
    if row["grain"]:
        return [np.arange(start, min(start + row["grain"], m)) for start in range(0, m, row["grain"])]
    parts = even(m, row["M"])
    if not row["sync_batch_norm"]:
        return parts
    runs = even(row["M"], row["D"])
    return [np.concatenate([parts[run[k]] for run in runs]) for k in range(len(runs[0]))]


def version(row, begin, t, stage):
    """Return how many updates the weights have had with which a stage works on mini-batch t of a run.

    begin: the first mini-batch of the run, which begins with the newest weights.
    """
    delay = {"pipedream": row["K"] - 1 - stage, "pipedream-vertical": row["K"] - 1, "pipedream-2bw": 1}
    return max(begin, t - delay.get(row["schedule"], 0))


def sgd(W, g, decay, memory, t, trusts):
    return W - RATE * (g + decay * W)


def momentum(W, g, decay, memory, t, trusts):
    memory[0] = HALF * memory[0] + RATE * g
    return W - RATE * decay * W - memory[0]


def nesterov(W, g, decay, memory, t, trusts):
    g = g + decay * W
    memory[0] = HALF * memory[0] + g
    return W - RATE * (g + HALF * memory[0])


def rmsprop(W, g, decay, memory, t, trusts):
    g = g + decay * W
    memory[0] = HALF * memory[0] + HALF * g * g
    return W - RATE * g / (np.sqrt(memory[0]) + EPSILON)


def direction(g, memory, t):
    """Return m^ / (sqrt(v^) + epsilon)."""
    shares = HALF, Rational(3, 4)
    memory[:] = [share * old + (1 - share) * new for share, old, new in zip(shares, memory, (g, g * g))]
    m, v = (average / (1 - share**t) for average, share in zip(memory, shares))
    return m / (np.sqrt(v) + EPSILON)


def adam(W, g, decay, memory, t, trusts):
    return W - RATE * direction(g + decay * W, memory, t)


def adamw(W, g, decay, memory, t, trusts):
    return W - RATE * decay * W - RATE * direction(g, memory, t)


def lars(W, g, decay, memory, t, trusts):
    size, of_g = length(W), length(g)
    local = HALF * size / (of_g + decay * size) if trusts and size and of_g else 1
    memory[0] = HALF * memory[0] + local * (g + decay * W)
    return W - RATE * memory[0]


def lamb(W, g, decay, memory, t, trusts):
    r = direction(g, memory, t) + decay * W
    size, of_r = length(W), length(r)
    return W - RATE * (size / of_r if trusts and size and of_r else 1) * r


UPDATES = {f.__name__: f for f in (sgd, momentum, nesterov, rmsprop, adam, adamw, lars, lamb)}
