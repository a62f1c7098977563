"""An all-reduce along a binomial tree."""

from .all_reduces import ALL_REDUCES
from .broadcasting import binomial, distances, reduce_to


def _numbers_sent(rank, N, n):
    """A partial sum up, except from rank 0, and a sum down to each child."""
    children = [distance for distance in distances(N) if rank % (2 * distance) == 0 and rank + distance < N]
    return n * (min(rank, 1) + len(children))


@ALL_REDUCES(
    "tree",
    ticks=lambda N, n, alpha, beta, gamma: (N - 1).bit_length() * (2 * (alpha + n * beta) + n * gamma),
    numbers_sent=_numbers_sent,
    order="tree",
    source="Thakur, Rabenseifner and Gropp 2005",
    exact="2^k",
)
def tree(group, vectors):
    """A binomial tree up to rank 0, and down again.

    2 k (alpha + n beta) + k n gamma for N = 2^k.
    """
    label = group.begin("tree all-reduce")
    total = yield from reduce_to(group, vectors, 0, f"{label}: up")
    return (yield from binomial(group, total, 0, f"{label}: down"))
