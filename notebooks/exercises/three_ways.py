"""What notebook 10 runs and draws: one network on four devices, split in three ways."""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

import minipipe as mp
from minipipe.arrays import even_slices
from minipipe.cluster import Label, Trace
from minipipe.collectives import Group, all_gather, reduce_scatter

N = 4
INK = "#404040"
SENT = {"network": "A to the next device, dA back", "layer": "after each layer: A and dA, all to all",
        "data": "once a step: dW and db, all to all"}
COLOURS = ("#56B4E9", "#E69F00", "#7FCBA4", "#D9A0C0")  # of four devices: Okabe and Ito's, some paler
LEAST, GAP = 32, 6   # in a picture, the height of a layer with few units, and the white between two layers


class Run(NamedTuple):
    """One step of a split network.

    J: the cost.
    gradients: (dW, db) of each linear layer.
    trace: what was computed and sent.
    held: how many parameters each device has.
    """

    J: float
    gradients: list
    trace: Trace
    held: list

    @property
    def n_bytes(self) -> int:
        """The bytes that all devices have sent."""
        return sum(message.n_bytes for message in self.trace.messages)


def runs(layers: list, X: np.ndarray, Y: np.ndarray) -> dict:
    """Run a network split in three ways on four devices; return {"network", "layer", "data": a `Run`}.

    layers: four linear layers of the learner's, with a ReLU after each but the last.
    """
    linears = [layer for layer in layers if hasattr(layer, "W")]
    copies = [mp.Linear(*layer.W.shape[::-1], W=layer.W, b=layer.b) for layer in linears]
    ours = [copies[0]] + [layer for linear in copies[1:] for layer in (mp.ReLU(), linear)]
    loss = mp.MeanSquaredError()
    network = mp.Pipeline(ours, loss, mp.Cut([2, 2, 2, 1]), N, schedule="gpipe")
    data = mp.DataParallel(ours, loss, N)
    costs = [net.forward_backward(X, Y) for net in (network, data)]
    return {
        "network": _run(costs[0], network, [stage.layers for stage in network.stages]),
        "layer": _split_by_units(copies, X, Y),
        "data": _run(costs[1], data, data.replicas),
    }


def _run(J, net, parts):
    pairs = [pair for pair in net.gradients if pair[0] is not None]
    held = [sum(array.size for layer in part for array in (layer.W, layer.b) if array is not None)
            for part in parts]
    return Run(J, pairs, net.trace, held)


def _split_by_units(linears, X, Y):
    """Return the `Run` in which each device has a quarter of the rows of each W."""
    results, loss = {}, mp.MeanSquaredError()
    programs = [_program(rank, linears, loss, X, Y, results) for rank in range(N)]
    trace = mp.cluster.Cluster(programs).run()
    joined = [tuple(map(np.vstack, zip(*parts))) for parts in zip(*(results[rank][1] for rank in range(N)))]
    held = [sum(W[rows].size + b[rows].size for W, b in ((linear.W, linear.b) for linear in linears)
                for rows in [even_slices(len(W), N)[rank]]) for rank in range(N)]
    return Run(results[0][0], joined, trace, held)


def _program(rank, linears, loss, X, Y, results):
    """The program of a device: all gather A after each layer, and on the way back add up parts of dA."""
    group, units = Group(rank, range(N)), [even_slices(len(linear.W), N) for linear in linears]
    own = [(linear.W[rows[rank]], linear.b[rows[rank]]) for linear, rows in zip(linears, units)]
    A, kept = X, []
    for number, (W, b) in enumerate(own):
        Z = yield mp.cluster.Compute(Label(f"F{number + 1}", "F"), lambda: W @ A + b, ticks=1)
        kept.append((A, Z))
        A = np.vstack((yield from all_gather(group, Z if number == len(own) - 1 else np.maximum(Z, 0))))
    J = loss.forward(A, Y)
    dZ, found = loss.backward()[units[-1][rank]], []
    for number, (W, _) in reversed(list(enumerate(own))):
        A_prev = kept[number][0]
        dW = yield mp.cluster.Compute(Label(f"B{number + 1}", "B"), lambda: dZ @ A_prev.T, ticks=2)
        found.insert(0, (dW, dZ.sum(axis=1, keepdims=True)))
        if number > 0:
            shares = W.T @ dZ                                # of dA_prev: another on each device
            dA = yield from reduce_scatter(group, [shares[rows] for rows in units[number - 1]])
            dZ = dA * (kept[number - 1][1] > 0)
    results[rank] = J, found


def owners(name: str, run: Run, sizes: tuple, m: int) -> np.ndarray:
    """Return the device that has computed each activation, (units of all layers, samples).

    name: of the split.
    sizes: the units of each layer, without the input's.
    """
    ends = np.cumsum(sizes)
    table = np.full((ends[-1], m), -1)
    for span in run.trace.spans:
        if not str(span.label).lstrip("0123456789").startswith("F"):
            continue
        if name == "layer":
            number = int(str(span.label)[1:]) - 1
            rows = even_slices(sizes[number], N)[span.device]
            start = ends[number] - sizes[number]
            where = slice(start + rows.start, start + rows.stop), slice(None)
        else:
            stage = span.label.stage if name == "network" else None
            rows = slice(None) if stage is None else slice(ends[stage] - sizes[stage], ends[stage])
            where = rows, even_slices(m, N)[span.label.microbatch]
        assert np.all(table[where] == -1)                    # nothing is computed twice
        table[where] = span.device
    assert np.all(table >= 0)                                # and nothing is left out
    return table


def who_sends_what(found: dict, sizes: tuple, m: int) -> Figure:
    """Draw which device computes which activations in three splits, and say what they send."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 5.6), layout="constrained")
    for ax, (name, run) in zip(axes, found.items()):
        _owners(ax, owners(name, run, sizes, m), sizes, f"split of the {name}", ax is axes[0])
        ax.set_xlabel(f"samples\n\n{SENT[name]}", fontsize=13)
    return figure


def _owners(ax: Axes, table: np.ndarray, sizes: tuple, title: str, with_names: bool) -> None:
    """Draw the table, with the number of the device in each block that is large enough."""
    heights = np.maximum(sizes, LEAST)
    tops = np.cumsum(heights + GAP) - heights - GAP
    for block, top, height in zip(np.split(table, np.cumsum(sizes)[:-1]), tops, heights):
        n, m = block.shape
        ax.imshow(block, ListedColormap(COLOURS), vmin=0, vmax=3, aspect="auto", interpolation="nearest",
                  extent=(0, m, top + height, top))
        for device in np.unique(block):
            rows, columns = np.nonzero(block == device)
            if n > LEAST:
                ax.text(columns.mean() + 0.5, top + (rows.mean() + 0.5) * height / n, f"{device}",
                        ha="center", va="center_baseline", color=INK, fontsize=12 if n > 64 else 10)
    ax.set_ylim(tops[-1] + heights[-1], 0)
    names = [f"A[{number}]: {size} units" + "\n(enlarged)" * (size < LEAST)
             for number, size in enumerate(sizes, 1)]
    ax.set_yticks(tops + heights / 2, names if with_names else [""] * len(names), fontsize=12)
    ax.set_title(title, fontsize=14)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
