"""Checkers for notebook 48, automatic parallelism."""

from . import judged


def check_overlapped(overlapped):
    """Judge `overlapped(n, c, k)`: the ticks of n products of c, of which each result is copied in k.

    >>> check_overlapped(lambda n, c, k: n * (c + k))
    'That is one after the other. A result can travel while the next product is computed.'
    """
    cases = [(50, 2, 1), (50, 1, 2), (4, 3, 3), (1, 5, 2)]
    mistakes = [
        (lambda n, c, k: n * (c + k),
         "That is one after the other. A result can travel while the next product is computed."),
        (lambda n, c, k: n * max(c, k), "Nearly: nothing can be copied while the first product is made."),
        (lambda n, c, k: n * c + k,
         "That holds while a copy takes no longer than a product. Otherwise copies queue up."),
        (lambda n, c, k: c + n * k, "That holds if a copy takes at least as long as a product."),
    ]
    right = [c + (n - 1) * max(c, k) + k for n, c, k in cases]
    return judged(overlapped, ("n", "c", "k"), cases, right, mistakes) or (
        "Right: c + (n - 1) max(c, k) + k. Only the first product and the last copy are alone.")
