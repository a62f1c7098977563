"""Checkers for notebook 46, large mini-batches."""

from . import judged


def check_rate(rate):
    """Judge `rate(i, W, eta, k)`: that of update i of a gradual warm-up of W updates, from eta to k eta.

    >>> check_rate(lambda i, W, eta, k: eta if i < W else k * eta)
    'That is the constant warm-up, with its jump. Let the rate grow in each update.'
    """
    cases = [(2, 4, 0.5, 8), (0, 4, 0.5, 8), (4, 4, 0.5, 8), (9, 4, 0.5, 8), (3, 8, 0.25, 16)]
    mistakes = [
        (lambda i, W, eta, k: eta if i < W else k * eta,
         "That is the constant warm-up, with its jump. Let the rate grow in each update."),
        (lambda i, W, eta, k: eta + (k - 1) * eta * i / W,
         "Right up to update W; but then the rate grows on. It stays at k eta."),
        (lambda i, W, eta, k: k * eta * min(i, W) / W,
         "That begins at 0: the first update would do nothing. Begin at eta."),
        (lambda i, W, eta, k: eta + k * eta * min(i, W) / W,
         "That ends at (k + 1) eta: from eta to k eta it has (k - 1) eta to gain."),
        (lambda i, W, eta, k: eta + (k - 1) * eta * min(i + 1, W) / W,
         "That is one update early: update 0 has eta, and update W is the first with k eta."),
    ]
    right = [eta + (k - 1) * eta * min(i, W) / W for i, W, eta, k in cases]
    return judged(rate, ("i", "W", "eta", "k"), cases, right, mistakes) or (
        "Right: it begins where the small mini-batch is at home, and ends at k times that.")


def check_noise(noise):
    """Judge `noise(b, B, small, large)`: the noise scale from |g|^2 for mini-batches of b and of B samples.

    >>> check_noise(lambda b, B, small, large: (small - large) / (1 / b - 1 / B))
    'That is tr(Sigma), the noise of one sample. Divide it by |G|^2.'
    """
    cases = [(1, 4, 5.0, 2.0), (2, 4, 3.0, 2.0), (4, 16, 8.0, 5.0), (1, 2, 4.0, 3.0)]

    def right(b, B, small, large):
        return (small - large) / (1 / b - 1 / B) * (B - b) / (B * large - b * small)

    mistakes = [
        (lambda b, B, small, large: (small - large) / (1 / b - 1 / B),
         "That is tr(Sigma), the noise of one sample. Divide it by |G|^2."),
        (lambda b, B, small, large: (small - large) / (1 / b - 1 / B) / large,
         "You take |g|^2 of the large mini-batch for |G|^2; it still has noise in it, tr(Sigma) / B."),
        (lambda b, B, small, large: (small - large) / (1 / b - 1 / B) / small,
         "You take |g|^2 of the small mini-batch for |G|^2; that has the most noise in it, tr(Sigma) / b."),
        (lambda b, B, small, large: 1 / right(b, B, small, large),
         "Upside down: tr(Sigma) stands above the line."),
    ]
    return judged(noise, ("b", "B", "small", "large"), cases, [right(*case) for case in cases], mistakes) or (
        "Right: and both unknowns come without the gradient of all samples.")
