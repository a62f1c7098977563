"""The checkers and the picture of notebook 26, a layer that is split."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import called, judged, shape_of

SENT_MISTAKES = [
    (lambda b, s, h, T: 4 * b * s * h * (T - 1) / T,
     "That is half of it: an all-reduce sends 2 (T - 1)/T of the tensor, there and back."),
    (lambda b, s, h, T: 8 * b * s * h * (T - 1), "That is what all T devices send. What does one?"),
    (lambda b, s, h, T: 2 * b * s * h * (T - 1) / T,
     "That is one all-reduce. How many are there in a block, forward and backward?"),
    (lambda b, s, h, T: 8 * b * s * h, "What a device has already need not travel: think of T = 1."),
]


def check_numbers_sent(numbers_sent):
    """Judge `numbers_sent(b, s, h, T)`: how many numbers a device sends for a Transformer block in a step.

    >>> check_numbers_sent(lambda b, s, h, T: 4 * b * s * h * (T - 1) / T)
    'That is half of it: an all-reduce sends 2 (T - 1)/T of the tensor, there and back.'
    """
    cases = [(2, 3, 8, 2), (2, 3, 8, 4), (1, 2048, 12288, 8), (5, 7, 12, 1)]
    right = [float(8 * b * s * h * np.float64(T - 1) / T) for b, s, h, T in cases]
    return judged(numbers_sent, ("b", "s", "h", "T"), cases, right, SENT_MISTAKES) or (
        "Right: 8 b s h (T - 1)/T, as in Narayanan et al. 2021. It does not fall as T grows.")


def check_rows_of_packed(rows_of_packed):
    """Judge `rows_of_packed(d, T, rank)`: which rows of a packed [q | k | v] matrix (3 d, d) a device has.

    >>> check_rows_of_packed(lambda d, T, rank: range(3 * d // T * rank, 3 * d // T * (rank + 1)))
    'That cuts the matrix as a whole: device 0 gets all of q and half of k. Cut inside each third.'
    """
    for d, T in ((4, 2), (12, 4), (6, 1)):
        for rank in range(T):
            value, sentence = called(rows_of_packed, d, T, rank)
            if sentence is None:
                sentence = _fault_of_rows(value, d, T, rank)
            if sentence is not None:
                return sentence
    return "Right: the same run of rows in each third, so each device has whole heads of q, k and v."


def _fault_of_rows(value, d, T, rank):
    """Return what is wrong with the rows of a device, or None."""
    value = list(value) if np.iterable(value) else [None]
    if any(shape_of(row) != () for row in value):
        return "Return the numbers of the rows: a list, a range or an array."
    n = d // T
    right = [third * d + row for third in range(3) for row in range(n * rank, n * (rank + 1))]
    if value == right:
        return None
    if value == list(range(3 * n * rank, 3 * n * (rank + 1))):
        return "That cuts the matrix as a whole: device 0 gets all of q and half of k. Cut inside each third."
    if value == right[:n]:
        return "Those are its rows of q. It needs the same rows of k and of v, too."
    if sorted(map(str, value)) == sorted(map(str, right)):
        return "Those are the rows, but in another order: first q's, then k's, then v's."
    return f"With d = {d} and T = {T}, device {rank} has {len(right)} rows, {right[:3]} and so on; not yours."


DEVICES, INK = ("#0072B2", "#D55E00"), "#404040"


def mirrors(forward: list, backward: list) -> Figure:
    """Draw the way of two devices through a pair of layers, and back below it, with f and g between.

    forward, backward: the arrays from left to right; a list of two stands for what each device has alone.
    """
    figure, all_axes = plt.subplots(2, 1, figsize=(11, 5.4), sharex=True, layout="constrained")
    names = (["$X$", "$A_{1,r}$", "$W_{2,r} A_{1,r}$", "$W_2 A_1$"],
             ["$dX$", "$dX_r$", "$dZ_{1,r}$", "$dZ_2$"])
    for ax, arrays, titles, kind in zip(all_axes, (forward, backward), names, ("forward", "backward")):
        for x, (array, title) in enumerate(zip(arrays, titles)):
            whole = not isinstance(array, list)
            for device, y in enumerate((0.5,) if whole else (1, 0)):
                _matrix(ax, x, y, array if whole else array[device], INK if whole else DEVICES[device])
            ax.text(x, 1.55, title, ha="center", fontsize=13)
        for device, y in enumerate((1, 0)):
            ax.text(1.5, y + 0.12, f"device {device}", ha="center", color=DEVICES[device])
        for x, name in ((0, "f"), (2, "g")):
            adds = (name == "g") == (kind == "forward")
            words, colour = ("sum", "#F0E442") if adds else ("copy", "white")
            ax.text(x + 0.5, 0.5, f"${name}$\n{words}", ha="center", va="center", fontsize=13,
                    bbox=dict(boxstyle="round", facecolor=colour, edgecolor=INK))
            for y in (1, 0):
                _arrow(ax, (x + 0.22, 0.5 if name == "f" else y), (x + 0.4, 0.5), kind)
                _arrow(ax, (x + 0.6, 0.5), (x + 0.78, y if name == "f" else 0.5), kind)
        for y in (1, 0):
            _arrow(ax, (1.25, y), (1.72, y), kind)
        ax.set(xlim=(-0.4, 3.4), ylim=(-0.5, 1.8), ylabel=kind, xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return figure


def _matrix(ax: Axes, x: float, y: float, array: np.ndarray, colour: str) -> None:
    """Write the numbers of an array in a box."""
    rows = "\n".join("  ".join(f"{number:2g}" for number in row) for row in array)
    ax.text(x, y, rows, ha="center", va="center", fontsize=11, family="monospace",
            bbox=dict(boxstyle="square", facecolor="white", edgecolor=colour, linewidth=2))


def _arrow(ax: Axes, left: tuple, right: tuple, kind: str) -> None:
    """Draw an arrow to the right, or to the left on the way back."""
    start, end = (left, right) if kind == "forward" else (right, left)
    ax.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color=INK))
