"""The colours of the kinds of work."""

# colours of Okabe and Ito, for colour-blind readers; "dark" is the same hue for the device's last stage
STYLES = {
    "F": {"label": "forward", "facecolor": "#56B4E9", "dark": "#0072B2"},
    "B": {"label": "backward", "facecolor": "#D55E00", "dark": "#6B2400"},
    "I": {"label": "input gradient", "facecolor": "#E69F00", "dark": "#7A5200"},
    "W": {"label": "weight gradient", "facecolor": "#009E73", "dark": "#005A41"},
    "W*": {"label": "weight gradients of all", "facecolor": "#009E73", "dark": "#005A41"},
    "R": {"label": "recompute", "facecolor": "#F0E442", "dark": "#77743C"},
    "A": {"label": "all-reduce", "facecolor": "#CC79A7", "dark": "#8E3F6B"},
    "S": {"label": "reduce-scatter", "facecolor": "#CC79A7", "dark": "#8E3F6B"},
    "G": {"label": "gather of parameters", "facecolor": "#999999", "dark": "#4D4D4D"},
    "X": {
        "label": "freeing of parameters",
        "facecolor": "#999999",
        "dark": "#999999",
        "edgecolor": "#999999",
        "linewidth": 2,
    },
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
LENDERS = "AWIRFB"  # whose colours other kinds of work get, if a run has none of that kind


def parts_of(label):
    """The parts of an action or overlap; the label itself of any other work."""
    return getattr(label, "parts", (label,))


def styles_of(traces):
    """{kind: its style}: `STYLES`, and a style for each other kind that the labels of `traces` name.

    Those are called as they are, and get, in the order of time, the colours that no other work in these runs
    has. When no colour is left, the rest is "other work".

    >>> from minipipe import Cluster, Compute
    >>> from minipipe.cluster import Label
    >>> def program():
    ...     yield Compute(Label("add 3", kind="add"))
    >>> styles_of([Cluster([program()]).run()])["add"]
    {'label': 'add', 'facecolor': '#CC79A7', 'dark': '#8E3F6B'}
    """
    parts = (part for trace in traces for span in trace.spans for part in parts_of(span.label))
    kinds = dict.fromkeys(getattr(part, "kind", None) for part in parts)
    others = [kind for kind in kinds if isinstance(kind, str) and kind not in ("", *STYLES)]
    taken = {STYLES[kind]["facecolor"] for kind in kinds if kind in STYLES}
    free = [lender for lender in LENDERS if STYLES[lender]["facecolor"] not in taken]
    return STYLES | {kind: STYLES[lender] | {"label": kind} for kind, lender in zip(others, free)}


def shade(kind, place, n_places, styles=STYLES):
    """The colour of a kind of work in one of a device's `n_places` stages: the later, the darker."""
    from matplotlib.colors import to_hex, to_rgb

    style = styles.get(kind, OTHER)
    share = place / (n_places - 1) if n_places > 1 else 0
    pairs = zip(to_rgb(style["facecolor"]), to_rgb(style["dark"]))
    return to_hex([(1 - share) * light + share * dark for light, dark in pairs])


def ink(colour):
    """Black or white, whichever stands out more from `colour`, as WCAG 2 counts contrast."""
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"
