"""The messages of a run, as arrows over its timeline."""

from ..checks import shown
from .rows import ends_of, rows_of

CHOICES = (False, True, "waited")
STYLE = {
    "color": "#202020",
    "units": "inches",
    "width": 0.012,
    "headwidth": 5,
    "headlength": 7,
    "headaxislength": 6,
    "minlength": 0,
}


def arrows(ax, trace, which=True, until=None):
    """Draw each message as an arrow, from its sender when it was sent to its receiver when it arrived.

    ax: matplotlib axes with the timeline.
    trace: the run.
    which: True, or "waited" for only those that a device stood idle for.
    until: messages that arrive after that tick are left out.
    """
    messages = messages_of(trace, which, until)
    if messages:
        rows = rows_of(trace)
        positions = zip(*(_arrow(message, rows) for message in messages))
        ax.quiver(*positions, angles="xy", scale_units="xy", scale=1, zorder=3, **STYLE)


def messages_of(trace, which=True, until=None):
    """The messages that `arrows` draws; `ValueError` for another choice than these."""
    if not isinstance(which, (bool, str)) or which not in CHOICES:
        raise ValueError(
            f"arrows={shown(which)} is not a choice: "
            "use False, True or 'waited', for those that a device waited for"
        )
    messages = [
        message
        for message in trace.messages
        if which and message.arrived is not None and (until is None or message.arrived <= until)
    ]
    if which != "waited":
        return messages
    waits = {
        (idle.device, idle.lane, idle.end, idle.message)
        for idle in trace.idle
        if idle.reason in ("fill", "wait")
    }
    return [
        message
        for message in messages
        if (message.to, message.to_lane, message.received, message.label) in waits
    ]


def entries_of_arrows(traces, which, until=None):
    """(handles, labels) of a legend for the arrows of some runs: one entry, or none without arrows."""
    from matplotlib.lines import Line2D

    if not any(messages_of(trace, which, until) for trace in traces):
        return [], []
    handle = Line2D([], [], color=STYLE["color"], linewidth=72 * STYLE["width"], marker=">", markersize=4)
    return [handle], ["message waited for" if which == "waited" else "message"]


def _arrow(message, rows):
    """Where it begins, and how far it goes: x, y, and the same of that."""
    source, to = (rows[end] for end in ends_of(message, rows))
    # from the middle of the sender's row towards the receiver's, as far as leaves the numbers free
    inwards = 1 / 4 if to.middle > source.middle else -1 / 4
    x, y = float(message.sent), source.middle + inwards * source.height
    return x, y, float(message.arrived) - x, to.middle - inwards * to.height - y
