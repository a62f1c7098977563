"""Pictures for notebook 01: a neuron as a computation graph, and samples for it."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import minipipe as mp

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"
NAMES = ("w_1", "w_2", "b", "x_1", "x_2", "y", "z", "a", "L")
PLACES = {  # of the boxes, from left to right as the forward pass goes
    "x_1": (0, 4), "w_1": (0, 3), "x_2": (0, 2), "w_2": (0, 1), "b": (0, 0),
    "z": (3, 2), "a": (5.2, 2), "L": (7.4, 2), "y": (7.4, 0),
}
BACK = [("z", "w_1"), ("z", "w_2"), ("z", "b"), ("a", "z"), ("L", "a")]
ARROWS = [*((name, "z") for name in ("x_1", "w_1", "x_2", "w_2", "b")), ("z", "a"), ("a", "L"), ("y", "L")]
WIDTH, HEIGHT = 0.42, 0.38  # half of a box


def samples(n: int = 6) -> Figure:
    """Draw the first n zeros and ones, with the places where x1 and x2 are measured."""
    pixels, digits = mp.datasets.digits().train
    chosen = np.flatnonzero(digits[0] + digits[1])[:n]
    figure, axes = plt.subplots(1, n, figsize=(10, 2.6), layout="constrained")
    for sample, ax in zip(chosen, axes):
        image = pixels[:, sample].reshape(8, 8)
        centre, sides = image[3:5, 3:5].mean(), image[3:5, [2, 5]].mean()
        ax.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        ax.add_patch(plt.Rectangle((2.6, 2.6), 1.8, 1.8, fill=False, edgecolor=BLUE, linewidth=3))
        for column in (1.6, 4.6):
            frame = {"fill": False, "edgecolor": ORANGE, "linewidth": 3, "linestyle": "--"}
            ax.add_patch(plt.Rectangle((column, 2.6), 0.8, 1.8, **frame))
        y = int(digits[1, sample])
        ax.set_title(f"$x_1$ = {centre:.2f}\n$x_2$ = {sides:.2f}\n$y$ = {y}", fontsize=13)
        ax.axis("off")
    return figure


def graph(given: Sequence[float], went: Sequence[float] = (), came: Sequence[float] = ()) -> Figure:
    """Draw a neuron as a graph: blue what goes forward, orange what comes back, on its arrows the slopes.

    given: w1, w2, b, x1, x2, y.
    went: z, a, L, or the first of them; the other boxes have a question mark.
    came: dz, dw1, dw2, db.
    """
    values = dict(zip(NAMES, (*given, *went)))
    derivatives = _derivatives(values, came) if len(came) else {}
    figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    for start, end in ARROWS:
        if (end, start) not in BACK or not derivatives:
            _arrow(ax, start, end)
    for name, (x, y) in PLACES.items():
        box = plt.Rectangle((x - WIDTH, y - HEIGHT), 2 * WIDTH, 2 * HEIGHT, facecolor="white", edgecolor=GREY)
        ax.add_patch(box)
        up = 0.17 if name in derivatives else 0
        middle = {"ha": "center", "va": "center", "fontsize": 15}
        ax.text(x - WIDTH - 0.08, y, f"${name}$", ha="right", va="center", fontsize=17)
        ax.text(x, y + up, f"{values[name]:.4g}" if name in values else "?", color=BLUE, **middle)
        if name in derivatives:
            ax.text(x, y - up - 0.02, f"{derivatives[name]:.4g}", color=ORANGE, **middle)
    if derivatives:
        _slopes(ax, values, derivatives)
    ax.text(3.4, 4.2, "blue: forward, left to right", color=BLUE, fontsize=15)
    if derivatives:
        ax.text(3.4, 3.75, "orange: back, right to left", color=ORANGE, fontsize=15)
    ax.set(xlim=(-0.9, 7.9), ylim=(-0.5, 4.5))
    ax.axis("off")
    return figure


def _derivatives(values, came):
    """Return {name: derivative of L} of all boxes that have one."""
    y, a = values["y"], values["a"]
    return {"L": 1.0, "a": -y / a + (1 - y) / (1 - a), **dict(zip(("z", "w_1", "w_2", "b"), came))}


def _ends(start, end):
    """Return where an arrow begins and ends: beside the boxes, and beside the name of the right one."""
    (x_from, y_from), (x_to, y_to) = PLACES[start], PLACES[end]
    if start == "y":  # it stands below L
        return (x_from, y_from + HEIGHT), (x_to, y_to - HEIGHT)
    return (x_from + WIDTH, y_from), (x_to - WIDTH - 0.3, y_to)


def _arrow(ax, start, end):
    tail, head = _ends(start, end)
    ax.annotate("", head, tail, arrowprops={"arrowstyle": "->", "color": GREY})


def _slopes(ax, values, derivatives):
    """Draw the arrows back, and on each the slope of its step."""
    a, da = values["a"], derivatives["a"]
    slopes = {
        "w_1": rf"$\times\ x_1 = {values['x_1']:.4g}$",
        "w_2": rf"$\times\ x_2 = {values['x_2']:.4g}$",
        "b": r"$\times\ 1$",
        "z": rf"$\times\ a(1 - a)$" "\n" rf"$= {a * (1 - a):.4g}$",
        "a": r"$\times\ \left(-\frac{y}{a} + \frac{1 - y}{1 - a}\right)$" "\n" rf"$= {da:.4g}$",
    }
    for start, end in BACK:
        left, right = _ends(end, start)
        ax.annotate("", left, right, arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 1.5})
        level = left[1] == right[1]
        share = 0.5 if level else 0.35  # of the way from left to right: near z, slanting arrows are close
        x, y = (left[place] + share * (right[place] - left[place]) for place in (0, 1))
        ax.text(x, y - HEIGHT - 0.1 if level else y, slopes[end], fontsize=13, ha="center",
                va="top" if level else "center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
