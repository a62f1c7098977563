"""What the work in a trace looks like: the position, the colour and the number of each box."""

from typing import NamedTuple

# colours of Okabe and Ito, for colour-blind readers; "dark" is the same hue for the device's last stage
STYLES = {
    "F": {"label": "forward", "facecolor": "#56B4E9", "dark": "#0072B2"},
    "B": {"label": "backward", "facecolor": "#D55E00", "dark": "#6B2400"},
    "I": {"label": "input gradient", "facecolor": "#E69F00", "dark": "#7A5200"},
    "W": {"label": "weight gradient", "facecolor": "#009E73", "dark": "#005A41"},
    "R": {"label": "recompute", "facecolor": "#F0E442", "dark": "#77743C"},
    "A": {"label": "all-reduce", "facecolor": "#CC79A7", "dark": "#8E3F6B"},
    "U": {
        "label": "update",
        "facecolor": "#202020",
        "dark": "#202020",
        "edgecolor": "#202020",
        "linewidth": 2,
    },
}
OTHER = {"label": "other work", "facecolor": "#CCCCCC", "dark": "#707070"}
EDGE = {"edgecolor": "#404040", "linewidth": 0.6}
UNNUMBERED = ("A", "U")  # they close many micro-batches at once
# of a box, and of the line that stands for work that takes no time; a row is 1
HEIGHT, MARK_HEIGHT = 0.8, 0.94


class Box(NamedTuple):
    """A part of a span, as it is drawn.

    kind: of the action, or None for other work.
    lane: 0 for the device's first stage, 1 for its second.
    colour: as matplotlib reads it.
    left, right: ticks; the same for work that takes no time.
    top, bottom: in rows.
    text: the number of the micro-batch, or "".
    """

    kind: str | None
    lane: int
    colour: str
    left: float
    right: float
    top: float
    bottom: float
    text: str


class Lanes(NamedTuple):
    """Which stage and copy of the network a box belongs to.

    of: {(device, stage): its position among the device's stages}.
    n: the most stages of one device.
    copies: whether there are two copies of the network.
    copy_of: {micro-batch: its copy, 0 or 1}.
    copy_at: {(device, stage): its copy}.
    """

    of: dict
    n: int
    copies: bool
    copy_of: dict
    copy_at: dict


def boxes(trace, until=None):
    """A `Box` for each part of each span that began before `until`, in the order of `STYLES`.

    An overlap has two halves.
    """
    lanes = lanes_of(trace)
    begun = [span for span in trace.spans if until is None or span.start < until]
    found = [box for span in begun for box in _boxes_of(span, lanes, until)]
    order = [*STYLES, None]
    return sorted(found, key=lambda box: (order.index(box.kind), box.lane))


def _boxes_of(span, lanes, until):
    """The boxes of one span, one below the other, from its start to its end or `until`."""
    parts = parts_of(span.label)
    height = (HEIGHT if span.end > span.start else MARK_HEIGHT) / len(parts)
    right = span.end if until is None else min(span.end, until)
    found = []
    for number, part in enumerate(parts):
        kind = part.kind if getattr(part, "kind", None) in STYLES else None
        lane = lanes.of.get((span.device, getattr(part, "stage", None)), 0)
        colour = shade(kind, lane, lanes.n)
        top, bottom = (span.device + height * (edge - len(parts) / 2) for edge in (number, number + 1))
        found.append(Box(kind, lane, colour, span.start, right, top, bottom, _text(kind, part)))
    return found


def parts_of(label):
    """The parts of an action or overlap; the label itself of any other work."""
    return getattr(label, "parts", (label,))


def lanes_of(trace):
    """The `Lanes` of a trace: a device's stages by the copy of the network, then by number.

    Copy 1 has a stage on another device than the first micro-batch has it.
    """
    homes, first_at = {}, {}  # {micro-batch: {stage: device}}, {(device, stage): the first micro-batch there}
    for span in trace.spans:
        for part in parts_of(span.label):
            if hasattr(part, "stage") and hasattr(part, "microbatch"):
                homes.setdefault(part.microbatch, {}).setdefault(part.stage, span.device)
                first_at.setdefault((span.device, part.stage), part.microbatch)
    first = homes[min(homes)] if homes else {}
    copy_of = {}
    for i, home in homes.items():
        elsewhere = any(first.get(stage, device) != device for stage, device in home.items())
        copy_of[i] = 1 if elsewhere else 0
    copy_at = {position: copy_of[i] for position, i in first_at.items()}
    of, n = {}, 1
    for device in range(trace.n_devices):
        stages = sorted((copy, stage) for (owner, stage), copy in copy_at.items() if owner == device)
        of |= {(device, stage): lane for lane, (_, stage) in enumerate(stages)}
        n = max(n, len(stages))
    return Lanes(of, n, any(copy_at.values()), copy_of, copy_at)


def shade(kind, lane, n_lanes):
    """The colour of a kind of work in the given one of a device's `n_lanes` stages: the later, the darker."""
    from matplotlib.colors import to_hex, to_rgb

    style = STYLES.get(kind, OTHER)
    share = lane / (n_lanes - 1) if n_lanes > 1 else 0
    pairs = zip(to_rgb(style["facecolor"]), to_rgb(style["dark"]))
    return to_hex([(1 - share) * light + share * dark for light, dark in pairs])


def ink(colour):
    """Black or white, whichever stands out more from `colour`, as WCAG 2 counts contrast."""
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def _text(kind, part):
    return "" if kind in UNNUMBERED else str(getattr(part, "microbatch", part))
