"""Schedules, and the ways to split a network, next to each other: as a table and as one picture."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from base64 import b64encode
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np

from . import plots
from .arrays import leaves
from .checks import whole_number, write_whole
from .cluster import Link, Port, Trace, ticks
from .layers import Layer
from .losses import Loss, MeanSquaredError
from .network import Sequential
from .order import Costs, peak_microbatches, simulate
from .order.costs import divide_exactly
from .order.names import is_name
from .parallel import Parallel
from .parallel.options import Cut, Sums
from .parallel.shards import macs_of_shard
from .parallel.splitting import Shard
from .partitioning import costs_of_layers, loads, min_max
from .plots.comparison import in_one_unit
from .plots.html import MOST_IN_A_CELL
from .plots.saving import DOTS_PER_INCH, checked_path, picture_formats
from .schedules import build
from .verification.verdicts import difference_in_words

def _most_sent(trace):
    """Return the bytes that a device sends, of the one that sends most."""
    sent = [0] * trace.n_devices
    for message in trace.messages:
        sent[message.source] += message.n_bytes
    return max(sent)


IDLE = "idle", 10, lambda trace: f"{float(100 * trace.bubble()):.2f} %"
MESSAGES = "messages", 10, lambda trace: str(len(trace.messages))
OF_SCHEDULES = (  # columns: (head, width, function of a trace)
    ("makespan", 9, lambda trace: ticks(trace.makespan)), IDLE,
    ("peak", 7, lambda trace: str(max(peak_microbatches(trace)))), MESSAGES,
)
OF_SPLITS = (
    ("ticks", 9, lambda trace: f"{float(trace.makespan):.6g}"), IDLE,
    ("bytes sent", 13, lambda trace: f"{_most_sent(trace):,}"),
    ("bytes held", 13, lambda trace: f"{max(trace.peak_bytes()):,}"), MESSAGES,
)
NOTES = (
    "idle: the share of all devices' time, the bubble; `show --explain` has others that go by that name.\n"
    "peak: the most micro-batches that a device keeps at once."
)
NOTES_OF_SPLITS = (
    "idle: the share of all devices' time, the bubble.\n"
    "bytes: of the device that sends most, and of the one that holds most, at its peak."
)


class Comparison(Mapping):
    """{name: `Trace`} of several runs, in one unit of time. It prints as a table; a notebook shows a picture.

    `save(path)` writes the picture, `plot()` returns it as a matplotlib figure. `tick_is` is what a tick is,
    as for a `Trace`; None if it need not be said, since simulations have the same, or if it is unknown.

    traces: {name: trace}; `ValueError` if they cannot be brought to one unit.
    columns: of the table, such as `OF_SCHEDULES`.
    what: is compared, the head of the first column.
    notes: below the table.
    """

    def __init__(
        self, traces: Mapping[str, Trace], columns: tuple = OF_SCHEDULES, what: str = "schedule",
        notes: str = NOTES,
    ) -> None:
        self._traces, self.tick_is = in_one_unit(traces)
        self._columns, self._what, self._notes = columns, what, notes

    def __getitem__(self, name: str) -> Trace:
        return self._traces[name]

    def __iter__(self):
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        notes = self._notes if self.tick_is is None else f"{self.tick_is}.\n{self._notes}"
        return f"{table_of(self._traces, self._columns, self._what)}\n\n{notes}"

    def _repr_html_(self) -> str:
        table = f"<pre>{escape(repr(self))}</pre>"
        n_spans = sum(len(trace.spans) for trace in self._traces.values())
        if n_spans > MOST_IN_A_CELL:
            return (
                f"{table}<p>The picture has {n_spans:,} spans, and a notebook draws at most "
                f"{MOST_IN_A_CELL:,}: type .save(&quot;both.png&quot;) on the comparison.</p>"
            )
        file = BytesIO()
        self.plot().savefig(file, format="png")
        picture = b64encode(file.getvalue()).decode()
        return f'{table}<img alt="their timelines" src="data:image/png;base64,{picture}">'

    def plot(self) -> Any:
        """Return a matplotlib `Figure` with all timelines on one axis."""
        return plots.compare(self._traces)

    def save(self, path) -> None:
        """Write the picture into a file, whole or not at all, such as "both.png" or "both.svg"."""
        path = checked_path(path, picture_formats())
        write_whole(path, lambda beside: self.plot().savefig(beside, dpi=DOTS_PER_INCH))


def table_of(traces: Mapping[str, Trace], columns: tuple = OF_SCHEDULES, what: str = "schedule") -> str:
    """Return a table with a row for each trace.

    columns: (head, width, function of a trace) of each.
    what: the traces are of, the head of the first column.
    """
    width = max(len(name) for name in [what, *traces]) + 2
    rows = [[what, *(head for head, _, _ in columns)]]
    rows += [[name, *(text_of(trace) for _, _, text_of in columns)] for name, trace in traces.items()]
    lines = []
    for name, *cells in rows:
        aligned = [f"{cell:>{n}}" for cell, (_, n, _) in zip(cells, columns, strict=True)]
        lines.append(f"{name:{width}}{''.join(aligned)}")
    return "\n".join(lines)


# Schedules.

def compare(
    *schedules: Any, devices: int | None = None, microbatches: int | None = None, costs: Costs = Costs(),
    link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
) -> Comparison:
    """Simulate several schedules on the same devices, and return a `Comparison` of their runs.

    schedules: whatever says a schedule, as for `build`: names, such as "1f1b"; `Schedule`s; functions
        (device, K, M), which return the list of actions of a device; texts; files.
    devices, microbatches: K and M of all. Left out, each has its own; names and functions get 4 and 8.
    costs, link, ports: as for `simulate`.

    Schedules of other numbers of devices have other ticks: they are brought to one unit, with equally large
    micro-batches. Raises `ScheduleError` for an order that cannot run, with its name.

    >>> found = compare("naive", "gpipe", devices=4, microbatches=8)
    >>> print(found)  # doctest: +ELLIPSIS
    schedule   makespan      idle   peak  messages
    naive            96   75.00 %      1        48
    gpipe            33   27.27 %      8        48
    ...
    >>> def mine(device, K, M):
    ...     return [("F", i) for i in range(M)] + [("B", i) for i in range(M)]
    >>> compare(mine, devices=2, microbatches=3)["mine"].makespan
    12
    """
    if len(schedules) == 1 and type(schedules[0]) is list and any(map(is_name, schedules[0])):
        names = ", ".join(map(repr, schedules[0]))
        raise ValueError(f"a list is one schedule, with a line for each device: type compare({names})")
    if not schedules:
        raise ValueError("there is nothing to compare: pass schedules, such as compare('gpipe', '1f1b')")
    traces = {}
    for one in schedules:
        schedule = build(one, devices, microbatches)
        name, again = schedule.name, 1
        while name in traces:
            again += 1
            name = f"{schedule.name} ({again})"
        try:
            traces[name] = simulate(schedule, costs, link, ports=ports)
        except ValueError as error:
            raise type(error)(f"{name}: {error}") from None
    return Comparison(traces)


# The ways to split a network.

def compare_splits(
    layers: Sequence[Layer], X: Any, Y: Any, devices: int = 4, microbatches: int | None = None,
    loss: Loss = MeanSquaredError(), link: Link = Link(),
) -> Comparison:
    """Split one network in three ways over the same devices, and return a `Comparison` of the three runs.

        network   a pipeline: each device has some of the layers, cut so that the slowest stage is fastest
        layer     each device has a part of each layer
        data      each device has a copy of the network, and a part of the samples

    All three run one mini-batch in the same M micro-batches by 1F1B, up to the sum of its gradients, which
    each device adds up in one buffer. They find the same gradients: in fractions, they are equal with `==`;
    in floats, but for rounding, since they add in other orders.

    They have one unit of time. In a tick, a device works through 1/`devices` of the multiply-accumulates in
    the forward of the whole network for a micro-batch; a backward takes two forwards. So all splits do equal
    work. Only layers that are whole on each device of the layer split are worked on by each; a note below the
    table names them.

    layers, X, Y, loss: as for `Sequential`. X and Y in float32 are computed with as float64.
    devices: K = T = D.
    microbatches: M; left out, 2 for each device, or as many as there are samples.
    link: as for `simulate`, in these ticks; left out, messages take no time.

    Raises `ValueError` for layers and samples that do not suffice for so many devices, and for layers with
    which the gradients differ.

    >>> import numpy as np
    >>> from minipipe import Linear, ReLU
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.standard_normal((64, 32)), rng.standard_normal((64, 32))
    >>> layers = [Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 64)]
    >>> print(compare_splits(layers, X, Y, devices=4))
    split        ticks      idle   bytes sent   bytes held  messages
    network         33   27.27 %       32,768       77,824        48
    layer           24    0.00 %       73,728       77,696       576
    data            24    0.00 %      199,680      277,248        24
    <BLANKLINE>
    1 tick: the forward of 1/4 of the network for 4 samples.
    idle: the share of all devices' time, the bubble.
    bytes: of the device that sends most, and of the one that holds most, at its peak.
    """
    devices = whole_number("devices", devices, 2)
    network = Sequential(layers, loss)
    X, Y = network.checked_batch(X, Y)
    if X.dtype == np.float32:  # in which rounding would hide differences
        X, Y = X.astype(np.float64), Y.astype(np.float64)
    m = X.shape[-1]
    M = min(2 * devices, m) if microbatches is None else whole_number("microbatches", microbatches, 1, m)
    if devices > M:
        raise ValueError(
            f"devices={devices}, but each of them needs one of {M} micro-batches of the {m} samples: use "
            "fewer devices, or a larger batch"
        )
    macs = costs_of_layers(network.layers, "macs", X.shape[:-1])
    n_at_work = sum(n > 0 for n in macs)
    if devices > n_at_work:
        raise ValueError(
            f"devices={devices}, but {n_at_work} of the layers multiply, and the network split gives each "
            "device at least one of them: use fewer devices, or more such layers"
        )
    counts = _cut_behind_work(macs, devices)
    shard = Shard(network.layers, network.loss, 0, devices)
    of_work = [(layer, how) for layer, how, n in zip(network.layers, shard.words, macs, strict=True) if n]
    whole = [layer for layer, how in of_work if how == "whole"]
    if len(whole) == len(of_work):
        raise ValueError(
            f"devices={devices} cannot share the work inside any layer of {_names(whole)}: use fewer "
            "devices, or layers with at least as many units; one of your own says in `splits` how it is split"
        )
    work = {  # multiply-accumulates of a device in a forward; of each device in a pipeline
        "network": loads(macs, counts), "layer": sum(macs_of_shard(network.layers, shard, macs)),
        "data": sum(macs),
    }
    splits = {
        "network": dict(stages=Cut(counts)), "layer": dict(shards=devices), "data": dict(replicas=devices),
    }
    nets = {}
    for name, split in splits.items():
        # in ticks of 1/devices of the whole network's forward
        of_stages = work[name] if name == "network" else [work[name]]
        F = [divide_exactly(one * devices, sum(macs)) for one in of_stages]
        costs = Costs(F=F, B=[2 * f for f in F], share=Fraction(1, devices))
        nets[name] = Parallel(
            network.layers, loss, **split, microbatches=M, sums=Sums("running"), costs=costs, link=link,
            count_bytes=True,
        )
        nets[name].forward_backward(X, Y)
    _check_gradients(nets)
    notes = NOTES_OF_SPLITS
    if whole:
        notes += f"\nlayer: each device does all the work of {_names(whole)}, which it does not split."
    return Comparison({name: net.trace for name, net in nets.items()}, OF_SPLITS, "split", notes)


def _names(layers):
    """Return the names of layers in a text, each once."""
    return ", ".join(dict.fromkeys(map(repr, layers)))


def _cut_behind_work(macs, n_stages):
    """Return how many layers each stage has: the cut with the least work in the fullest, and some in each.

    >>> _cut_behind_work([0, 8, 0, 2, 0, 2, 0, 2], 2)
    [3, 5]
    """
    starts = [0, *[index for index, n in enumerate(macs) if n][1:], len(macs)]
    lengths = [end - start for start, end in pairwise(starts)]
    return loads(lengths, min_max(loads(macs, lengths), n_stages))


def _check_gradients(nets):
    """Raise `ValueError` unless all networks have found the same cost and gradients, but for rounding."""
    found = {name: (net.J, net.gradients) for name, net in nets.items()}
    in_fractions = all(array.dtype == object for array in leaves(found["network"][1]))
    for name in ("data", "layer"):
        wrong = difference_in_words(found[name], found["network"], exact=in_fractions)
        if wrong:
            raise ValueError(
                f"the {name} split finds other gradients than the network split: {wrong}. Let "
                "check(layer, shape) look at each layer of your own"
            )
