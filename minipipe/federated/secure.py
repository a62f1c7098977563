"""A sum whose terms nobody sees: masks that cancel.

Each two clients i < j share a secret, of which both make the same random numbers s_ij. Client i sends

    y_i = x_i + sum over j > i of s_ij - sum over j < i of s_ji   mod R

In the sum of all y each s_ij stands once with + and once with -, so it is the sum of all x mod R: exactly,
since these are whole numbers. It is the sum itself as long as that lies in the range of R, see `to_whole`.
If a client drops out behind the exchange of secrets, its masks stay in the others' y; these then tell the
server the secrets that they shared with it, and the server takes the masks out.

What that gives: the server learns the sum and no client's numbers, as long as at least two report and it
follows the protocol. What it does not give: what the *sum* says of a client is not hidden (differential
privacy adds noise for that); a server that lies about who has dropped out learns a client's numbers (the full
protocol has a second mask against it, and shares of the secrets); clients can send what they like. Here the
secrets come from a seed; really they are agreed upon by keys, without the server.

Source: Bonawitz et al. 2017, Practical Secure Aggregation.
"""

import numpy as np

R = 2**62  # of weights: the sum of two numbers below it fits into 64 bits


def secret(seed, i, j):
    """What clients i and j share: a list of whole numbers, the same for both."""
    return [*seed, min(i, j), max(i, j)]


def mask(of_pair, n, modulus=R):
    """n random numbers below the modulus, made of what a pair shares."""
    return np.random.default_rng(of_pair).integers(0, modulus, n, dtype=np.uint64)


def masked(values, i, masks, modulus=R):
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
    >>> sent = {0: masked([3], 0, {1: s01, 2: s02}, 100), 1: masked([5], 1, {0: s01, 2: s12}, 100)}
    >>> sent[2] = masked([9], 2, {0: s02, 1: s12}, 100)
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
