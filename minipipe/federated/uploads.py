"""What clients send back, and what the server makes of it: an average weighted by samples."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..arrays import constant
from ..exact import Rational
from ..sums import TreeSum
from .secure import from_whole, mask, masked, secret, summed, to_whole

SCALE = 2**24  # steps of a number in a secure sum


class Upload(NamedTuple):
    """What a client sends at the end of its round.

    n: its samples; with masks, hidden in `numbers`.
    numbers: its vectors; with masks, one vector of whole numbers: n times each of them, in steps of 1/SCALE,
        and n.
    J: the mean of the costs that it has met.
    """

    n: int | None
    numbers: list
    J: float


def averaged(uploads):
    """(vectors, J): sum over clients of n_k / n times what each has sent, with n the samples of these.

    uploads: {client: `Upload`}, at least one. The sum is along the tree over the clients in order.
    """
    n, total = sum(upload.n for upload in uploads.values()), TreeSum(len(uploads))
    for place, (_, upload) in enumerate(sorted(uploads.items())):
        share = Fraction(upload.n, n)
        vectors = [constant(share, vector) * vector for vector in upload.numbers]
        total.add(place, (vectors, constant(share, np.asarray(upload.J)) * upload.J))
    return total.value


def hidden(upload, client, others, seed):
    """The `Upload` with masks: what `client` shares with each of the `others` hides its numbers.

    others: all clients of the round but this one.
    """
    row = np.concatenate(upload.numbers) * constant(upload.n, upload.numbers[0])
    whole = to_whole(row, SCALE, 1 + len(others), client)
    values = np.append(whole, np.uint64(upload.n))
    masks = {j: mask(secret(seed, client, j), len(values)) for j in others}
    return Upload(None, [masked(values, client, masks)], upload.J)


def revealed(uploads, secrets, like):
    """(vectors, J) as `averaged`, of uploads with masks; J is the clients' mean, not weighted.

    uploads: {client: `Upload`} of those who have reported.
    secrets: {client: {client that has not reported: what the two share}}.
    like: vectors as those of each client.
    """
    length = 1 + sum(vector.size for vector in like)
    left_over = [(i, j, mask(pair, length)) for i, of in secrets.items() for j, pair in of.items()]
    *row, n = from_whole(summed({k: upload.numbers[0] for k, upload in uploads.items()}, left_over))
    row = [Rational(number, SCALE * n) for number in row]
    if like[0].dtype != object:
        row = [float(number) for number in row]
    ends = np.cumsum([vector.size for vector in like])
    J = sum(upload.J for upload in uploads.values()) / len(uploads)
    return np.split(np.array(row, like[0].dtype), ends[:-1]), J
