"""Pictures for notebook 04: drawings that would be too long for cells."""

import matplotlib.pyplot as plt
import numpy as np

STYLES = (("all right", "#0072B2", "o", "-"), ("10 of 3,610 wrong", "#D55E00", "s", "--"))


def needle(distance, gradients, wrong):
    """Return a figure of how far the two sides of the check are apart, for h from 1e-1 to 1e-12.

    distance: a function of gradients and h, called with the right `gradients` and with some that are `wrong`.
    """
    hs = 10.0 ** -np.arange(1, 13)
    figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
    for derivatives, (name, colour, marker, line) in zip((gradients, wrong), STYLES):
        distances = [distance(derivatives, h) for h in hs]
        ax.loglog(hs, distances, line, marker=marker, color=colour, linewidth=2, label=name)
    ax.invert_xaxis()
    ax.set_xlabel("length $h$ of the step, shorter to the right", fontsize=13)
    ax.set_ylabel("distance of the two sides", fontsize=13)
    ax.legend(frameon=False, fontsize=13, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def misread(images, truth, read, n=7):
    """Return a figure of the first n images that were read wrongly.

    images: (64, m). truth, read: (m,), the digits.
    """
    figure, axes = plt.subplots(1, n, figsize=(10, 2), layout="constrained")
    for ax, k in zip(axes, np.flatnonzero(truth != read)):
        ax.imshow(images[:, k].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set_title(f"read {read[k]}\nis {truth[k]}", fontsize=14)
    for ax in axes:
        ax.axis("off")
    return figure
