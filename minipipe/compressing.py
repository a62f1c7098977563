"""Gradients sent in fewer bytes: sums over all ranks of what is left after a compression.

A compressor C makes p smaller, and what it drops is lost, unless each rank keeps it and adds it to what it
sends next. That is error feedback: with e = 0 at first, and a gradient g in each step,

    p = e + g       send C(p)       e <- p - C(p)       so that  sum of all C(p) sent + e == sum of all g

on each rank, exactly. e is what *this* rank has not sent yet, and not the error of the sum. The learning rate
stays outside: within p, e would carry old rates.

    TopK        the numbers of largest absolute value, with their places
    ScaledSign  a bit for each number, and their mean absolute value
    Quantised   a whole number of few bits for each number, rounded at random; and a norm for each bucket
    LowRank     a matrix as a product of two narrow ones
    Majority    a bit for each number, and a vote; it needs no feedback, and may point the wrong way

Sources: Karimireddy et al. 2019, arXiv 1901.09847 (feedback, scaled sign); Lin et al. 2017, arXiv 1712.01887
(top-k, momentum); Bernstein et al. 2018, arXiv 1802.04434 (majority); Alistarh et al. 2016, arXiv 1610.02132
(quantised); Vogels et al. 2019, arXiv 1905.13727 (low rank).
"""

import numpy as np

from .arguments import argument
from .arrays import leaves, norm, sum_in_order
from .checks import whole_number
from .collectives import all_gather, all_reduce


class Feedback:
    """What one rank keeps from step to step: a compressor, and what it has not sent yet.

    compressor: one of those in `minipipe.compressing`; each rank has its own.
    is_on: whether what is dropped is sent later; if not, it is lost.

    `left` has for each array of a value what is not sent yet, and `sent` what was sent last; None before the
    first step.
    """

    def __init__(self, compressor, is_on=True):
        self.compressor, self.is_on, self.left, self.sent = compressor, is_on, None, None

    def all_reduce(self, group, arrays):
        """A program: for each array, the sum of what all ranks have sent of theirs, the same on all.

        group: the `Group`, of this rank.
        arrays: of the same shapes on all ranks and in all steps; they stay as they are.

        Raises `ValueError` if the shapes are not those of the step before.
        """
        arrays = leaves(list(arrays))
        if self.left is not None and [e.shape for e in self.left] != [a.shape for a in arrays]:
            raise ValueError(
                f"arrays of shapes {[a.shape for a in arrays]}, but {[e.shape for e in self.left]} are left "
                "from the step before: what is left belongs to those; use another Feedback for other arrays"
            )
        if self.left is not None and self.is_on:
            arrays = [e + a for e, a in zip(self.left, arrays, strict=True)]
        totals, self.sent = yield from self.compressor.exchange(group, arrays)
        self.left = [p - own for p, own in zip(arrays, self.sent, strict=True)]
        return totals


class MomentumFeedback(Feedback):
    """Momentum on each rank, in front of the compression: what waits goes on gathering speed.

        u <- momentum u + g      p = e + u      send C(p)      e <- p - C(p)

    With `masked`, u <- 0 wherever a number was sent: what waited for long would else push twice, by its sum
    and by its speed. The optimizer behind it is plain SGD. Where all is sent, this is SGD with momentum
    without the mask, and plain SGD with it. Source: Lin et al. 2017, arXiv 1712.01887, section 3.

    compressor, is_on: as for `Feedback`.
    momentum: from 0 to below 1.
    masked: whether numbers that were sent begin anew.
    """

    def __init__(self, compressor, momentum=0.9, masked=True, is_on=True):
        super().__init__(compressor, is_on)
        self.momentum = argument("momentum", momentum)
        self.masked, self._u = argument("masked", masked), None

    def all_reduce(self, group, arrays):
        """As for `Feedback`."""
        u = leaves(list(arrays))
        if self._u is not None:
            u = [self.momentum * before + g for before, g in zip(self._u, u, strict=True)]
        totals = yield from super().all_reduce(group, u)
        self._u = [v * (own == 0) for v, own in zip(u, self.sent, strict=True)] if self.masked else u
        return totals


class Compressor:
    """What most of them share: each rank sends its message to all, and adds up what all have sent."""

    def exchange(self, group, arrays):
        """A program: (for each array the sum over the ranks, what of it this rank has sent).

        All ranks add in the order of the ranks, so they have the same bits.
        """
        messages = [self.encode(array) for array in arrays]
        of_ranks = yield from all_gather(group, messages)
        decoded = [
            [self.decode(message, array) for message, array in zip(own, arrays, strict=True)]
            for own in of_ranks
        ]
        return [sum_in_order(parts) for parts in zip(*decoded, strict=True)], decoded[group.rank]


class TopK(Compressor):
    """The numbers of largest absolute value, ties by place: each as 32 bits of place, and itself.

    k: how many of each array; or a share below 1, of which at least one number is sent.

    >>> compressor = TopK(1)
    >>> compressor.decode(compressor.encode(np.array([3.0, 2.0, -4.0])), np.zeros(3))
    array([ 0.,  0., -4.])
    """

    def __init__(self, k):
        self.k = argument("TopK.k", k)
        if self.k >= 1:
            self.k = whole_number("k", k)

    def encode(self, array):
        k = max(1, round(self.k * array.size)) if self.k < 1 else self.k
        if k > array.size:
            raise ValueError(f"k={k} exceeds the {array.size} numbers of an array: use at most that many")
        flat = array.ravel()
        places = np.sort(np.argsort(-abs(flat), kind="stable")[:k])
        return places.astype(np.int32), flat[places]

    def decode(self, message, like):
        places, numbers = message
        flat = np.zeros_like(like).ravel()
        flat[places] = numbers
        return flat.reshape(like.shape)


class ScaledSign(Compressor):
    """A bit for each number, and one number: (sum of absolute values / d) * sign, with sign(0) = 1.

    >>> compressor = ScaledSign()
    >>> compressor.decode(compressor.encode(np.array([3.0, 1.0, -2.0])), np.zeros(3))
    array([ 2.,  2., -2.])
    """

    def encode(self, array):
        return np.packbits((array >= 0).ravel()), abs(array).sum(keepdims=True).ravel() / array.size

    def decode(self, message, like):
        bits, scale = message
        signs = 2 * np.unpackbits(bits, count=like.size).astype(int) - 1
        return (signs.astype(like.dtype) * scale).astype(like.dtype).reshape(like.shape)


class Majority(ScaledSign):
    """A bit for each number; the sum over the ranks is the sign of the sum of their signs, 0 in a tie.

    Use it with `Feedback(..., is_on=False)`: a vote keeps no sizes. Of the gradients 4, -1, -1, -1 the sum is
    1, and the vote -1, however many ranks draw from these four.

    >>> compressor = Majority()
    >>> compressor.decode(compressor.encode(np.array([3.0, 1.0, -2.0])), np.zeros(3))
    array([ 1.,  1., -1.])
    """

    def exchange(self, group, arrays):
        totals, sent = yield from super().exchange(group, arrays)
        return [np.sign(total) for total in totals], sent

    def encode(self, array):
        bits, _ = super().encode(array)
        return bits

    def decode(self, message, like):
        return super().decode((message, np.ones(1, like.dtype)), like)


class Quantised(Compressor):
    """Whole numbers l of `levels` levels, and a norm for each bucket: norm * sign * l / levels.

    l is rounded up or down at random, so that the expected value is the number: no feedback is needed.

    levels: from 1 to 127, as one byte with the sign; 127 are 8 bits.
    bucket: how many numbers share a norm. With large ones, the noise grows with their root.
    seed: each rank has another.
    """

    def __init__(self, levels=127, bucket=512, seed=0):
        self.levels, self.bucket = argument("levels", levels), argument("bucket", bucket)
        self._rng = np.random.default_rng(argument("seed", seed))

    def encode(self, array):
        flat, levels, norms = array.ravel(), [], []
        for start in range(0, flat.size, self.bucket):
            low, up, size = self.rounding(flat[start:start + self.bucket])
            level = low + (self._rng.random(low.shape) < up)
            levels.append(level * np.sign(flat[start:start + self.bucket]))
            norms.append(size)
        return np.concatenate(levels).astype(np.int8), np.array(norms, array.dtype)

    def rounding(self, bucket):
        """(the lower levels, the probabilities of the next one, the norm) of the numbers of a bucket.

        >>> Quantised(levels=1).rounding(np.array([3.0, -4.0]))
        (array([0., 0.]), array([0.6, 0.8]), 5.0)
        """
        size = norm(bucket)
        shares = abs(bucket) * (self.levels / size if size else 0)
        low = np.minimum(np.floor(shares), self.levels - 1)
        return low, shares - low, size

    def decode(self, message, like):
        levels, norms = message
        steps = (norms / self.levels).repeat(self.bucket)[:like.size]
        return (levels * steps).astype(like.dtype).reshape(like.shape)


class LowRank(Compressor):
    """Each matrix M as P Q^T, with `rank` columns in P and Q: one step of the power method, on all ranks.

        P = sum of M Q         made orthogonal, column by column
        Q = sum of M^T P       each column over the square of that of P; the next step begins with it
        sum of M ~ P Q^T

    Both are linear in M, so the sum over the ranks is what one rank with the sum would have. Of a product of
    rank 1 nothing is lost. Arrays with one column, or of `rank` columns at most, are sent as they are.

    rank: at least 1.
    seed: of the first Q, the same on all ranks.
    """

    def __init__(self, rank=1, seed=0):
        self.rank, self._seed = argument("rank", rank), argument("seed", seed)
        self._Q = {}  # index of an array -> the Q to begin with

    def exchange(self, group, arrays):
        totals, sent = [], []
        for index, array in enumerate(arrays):
            M = array.reshape(len(array), -1) if array.ndim > 1 else array[:, None]
            if min(M.shape) <= self.rank:
                total, own = (yield from all_reduce(group, array)), array
            else:
                P = orthogonal((yield from all_reduce(group, M @ self._begin(index, M))))
                squares = (P * P).sum(axis=0)
                own_Q = M.T @ P / (squares + (squares == 0))
                Q = self._Q[index] = yield from all_reduce(group, own_Q)
                total, own = P @ Q.T, P @ own_Q.T
                total, own = (part.reshape(array.shape) for part in (total, own))
            totals.append(total)
            sent.append(own)
        return totals, sent

    def _begin(self, index, M):
        """The last Q, with new numbers in a column of zeros, from which no step would come away."""
        drawn = np.random.default_rng([self._seed, index]).integers(1, 9, (M.shape[1], self.rank))
        drawn = drawn.astype(M.dtype) if M.dtype != object else drawn * (M.flat[0] * 0 + 1)
        Q = self._Q.get(index, drawn)
        return Q + drawn * (Q == 0).all(axis=0)


def orthogonal(P):
    """Columns that are orthogonal to each other and span what those of P do; of rational numbers exactly.

    Those of floats have length 1. Exact ones are as long as what is left of a column without its parts along
    those before it, which may be nothing.

    >>> abs(orthogonal(np.array([[1.0, 1.0], [0.0, 2.0]])))
    array([[1., 0.],
           [0., 1.]])
    """
    if P.dtype != object:
        return np.linalg.qr(P)[0]
    columns = []
    for column in P.T:
        for before in columns:
            square = (before * before).sum()
            column = column - before * ((before * column).sum() / (square or 1))
        columns.append(column)
    return np.stack(columns, axis=1)
