"""The programs of a round, the average that they make, and the masks that hide its terms.

Device 0 is the server, device 1 + k the k-th of the chosen clients.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..arrays import constant
from ..cluster import Compute, Label, Receive, Send
from ..collectives.group import flattened
from ..exact import Rational
from ..layers.layer import pairs_of_layers
from ..parallel.layout import put_together
from ..servers.share import counted_places
from ..sums import TreeSum


# A sum whose terms nobody sees: masks that cancel.
#
# Each two clients i < j share a secret, of which both make the same random numbers s_ij. Client i sends
#
#     y_i = x_i + sum over j > i of s_ij - sum over j < i of s_ji   mod R
#
# In the sum of all y each s_ij stands once with + and once with -, so it is the sum of all x mod R: exactly,
# since these are whole numbers. It is the sum itself as long as that lies in the range of R, see `to_whole`.
# If a client drops out after the exchange of secrets, its masks stay in the others' y; these then tell the
# server the secrets that they shared with it, and the server takes the masks out.
#
# What that gives: the server learns the sum and no client's numbers, as long as at least two report and it
# follows the protocol. What it does not give: what the *sum* says of a client is not hidden (differential
# privacy adds noise for that); a server that lies about who has dropped out learns a client's numbers (the
# full protocol has a second mask against it, and shares of the secrets); clients can send what they like.
# Here the secrets come from a seed; really they are agreed upon by keys, without the server.
#
# Source: Bonawitz et al. 2017, Practical Secure Aggregation.

R = 2**62  # of weights: the sum of two numbers below it fits into 64 bits


def secret(seed, i, j):
    """What clients i and j share: a list of whole numbers, the same for both."""
    return [*seed, min(i, j), max(i, j)]


def mask(of_pair, n, modulus=R):
    """n random numbers below the modulus, made of what a pair shares."""
    return np.random.default_rng(of_pair).integers(0, modulus, n, dtype=np.uint64)


def add_masks(values, i, masks, modulus=R):
    """y_i of client i. values: whole numbers below the modulus. masks: {j: s_ij} of all others."""
    total = np.asarray(values, np.uint64)
    for j, numbers in masks.items():
        total = _plus(total, numbers if i < j else _minus(numbers, modulus), modulus)
    return total


def summed(sent, left_over=(), modulus=R):
    """The sum of the x of all who have sent their y.

    sent: {i: y_i}.
    left_over: [(i, j, s_ij)] for each i that has reported and each j that has not.

    >>> s01, s02, s12 = ([number] for number in (47, 88, 20))
    >>> sent = {0: add_masks([3], 0, {1: s01, 2: s02}, 100), 1: add_masks([5], 1, {0: s01, 2: s12}, 100)}
    >>> sent[2] = add_masks([9], 2, {0: s02, 1: s12}, 100)
    >>> [int(y[0]) for y in sent.values()], summed(sent, modulus=100)
    ([38, 78, 1], array([17], dtype=uint64))
    >>> del sent[2]                     # it has dropped out: s02 and s12 are left over
    >>> summed(sent, [(0, 2, s02), (1, 2, s12)], 100)
    array([8], dtype=uint64)
    """
    terms = [*sent.values()]
    for i, j, numbers in left_over:
        terms.append(_minus(numbers, modulus) if i < j else np.asarray(numbers, np.uint64))
    total = np.zeros_like(terms[0])
    for term in terms:
        total = _plus(total, term, modulus)
    return total


def to_whole(values, scale, n_terms, who, modulus=R):
    """round(values * scale) mod R, negative ones from R down.

    n_terms: how many clients' numbers will be added, so that each must lie within R / (2 n_terms).
    who: the client, for an error. Raises `ValueError` for larger ones, whose sum might pass R unnoticed.
    """
    most = modulus // (2 * n_terms)
    whole = [round(number * scale) for number in values.tolist()]
    largest = max(whole, key=abs, default=0)
    if abs(largest) >= most:
        raise ValueError(
            f"client {who}: a sum of {n_terms} numbers like {float(largest / scale):.3g} in steps of "
            f"1/{scale} may pass R = {modulus}: use a lower learning rate, or fewer samples"
        )
    return np.array([number % modulus for number in whole], np.uint64)


def from_whole(numbers, modulus=R):
    """The whole numbers, as Python's own, of which `to_whole` has made these: those past R/2 are negative."""
    return [number - modulus if 2 * number >= modulus else number for number in numbers.tolist()]


def _plus(a, b, modulus):
    return (np.asarray(a, np.uint64) + np.asarray(b, np.uint64)) % np.uint64(modulus)


def _minus(numbers, modulus):
    return (np.uint64(modulus) - np.asarray(numbers, np.uint64)) % np.uint64(modulus)


# What clients send back, and what the server makes of it: an average weighted by samples.

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
    return Upload(None, [add_masks(values, client, masks)], upload.J)


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


# The programs.

DOWN, UP, MISSING, SECRETS = "weights", "update", "missing", "secrets"  # the names of the messages


class Pass(NamedTuple):
    """A client goes over its samples once, or makes its local steps.

    >>> print(Pass(client=17, number=2, round=3))
    c17.2
    """

    client: int
    number: int
    round: int

    @property
    def kind(self):
        return "local training"

    def __str__(self):
        return f"c{self.client}.{self.number}"


def state_of(layers):
    """What a round sends: the parameters and what the layers have counted, as vectors."""
    counted = [getattr(*place) for place in counted_places(layers)]
    return flattened([pairs_of_layers(layers), counted])


def take(layers, state):
    """`layers` go on with what `state_of` has given."""
    n = len(flattened(pairs_of_layers(layers)))
    put_together(layers, [state[:n]])
    for (layer, name), vector in zip(counted_places(layers), state[n:], strict=True):
        setattr(layer, name, vector.reshape(getattr(layer, name).shape))


def federated_server(state, chosen, n_least, is_secure, average, found):
    """The server: it sends out the weights, collects what those send who report, and averages.

    state: what each client starts from.
    chosen: the clients.
    n_least: how many must report, or the round counts for nothing.
    is_secure: whether what they send has masks.
    average: average(uploads, secrets) is (new state, J) of {client: `Upload`}; secrets as for `revealed`.
    found: a dict that takes up "reported", the clients; and "state" and "J", if these are enough.
    """
    for device in range(1, len(chosen) + 1):
        yield Send(DOWN, state, to=device)
    uploads, devices = {}, {}
    for device, client in enumerate(chosen, start=1):
        upload = yield Receive(UP, source=device)
        if upload is not None:
            uploads[client], devices[client] = upload, device
    is_enough, secrets = len(uploads) >= n_least, {}
    if is_secure:
        missing = [client for client in chosen if client not in uploads] if is_enough else []
        for device in devices.values():
            yield Send(MISSING, missing, to=device)
        if missing:
            for client, device in devices.items():
                secrets[client] = yield Receive(SECRETS, source=device)
    if is_enough:
        found["reported"] = list(uploads)
        found["state"], found["J"] = yield Compute(Label("average", "U"), average, uploads, secrets, ticks=0)


def federated_client(one, chosen, n_passes, ticks, number, drops_out, seed):
    """A client: it gets the weights, trains on its own samples, and sends back what it has come to.

    one: the `Client`.
    chosen: all clients of the round.
    n_passes: E.
    ticks: of a sample.
    number: of the round.
    drops_out: whether the server never hears of it again; None in the place of its message stands for the
        time at which the server gives it up.
    seed: of the secrets between each two clients; None, and they send their numbers as they are.
    """
    state = yield Receive(DOWN, source=0)
    take(one.layers, state)
    anchor, costs = one.anchor(), []
    for done in range(n_passes):
        label = Pass(one.number, done, number)
        costs.append((yield Compute(label, one.work, anchor, ticks=one.samples() * ticks)))
    if drops_out:
        yield Send(UP, None, to=0)
        return
    upload = Upload(one.n, state_of(one.layers), costs[-1])
    if seed is not None:
        others = [other for other in chosen if other != one.number]
        upload = yield Compute(Label("masks", "masks"), hidden, upload, one.number, others, seed, ticks=0)
    yield Send(UP, upload, to=0)
    if seed is not None:
        missing = yield Receive(MISSING, source=0)
        if missing:
            yield Send(SECRETS, {other: secret(seed, one.number, other) for other in missing}, to=0)
