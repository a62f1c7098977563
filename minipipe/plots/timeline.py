"""The timeline of a run: one row per device, one box per action, and the bubble as empty space."""

STYLES = {  # colours of Okabe and Ito, for colour-blind readers; their brightness differs, too
    "F": {"facecolor": "#56B4E9", "label": "forward"},
    "B": {"facecolor": "#D55E00", "label": "backward"},
    "I": {"facecolor": "#E69F00", "label": "input gradient"},
    "W": {"facecolor": "#009E73", "label": "weight gradient"},
    "R": {"facecolor": "#F0E442", "label": "recompute"},
}
OTHER = {"facecolor": "#CCCCCC", "label": "other work"}


def timeline(trace, ax=None, until=None, title=None, legend=True):
    """Draw `trace` into the matplotlib axes `ax`, new ones if None, and return the axes.

    Time runs to the right, in ticks; device 0 is on top; the number in a box is its micro-batch. until: draw
    only what has happened before that tick.
    """
    from matplotlib.patches import Patch

    end = trace.makespan if until is None else until
    if ax is None:
        ax = new_axes(trace)
    handles = []
    for kind, spans in _by_kind(trace, end).items():
        style = {"edgecolor": "#404040", "linewidth": 0.6} | STYLES.get(kind, OTHER)
        label = style.pop("label")
        _boxes(ax, spans, end, style)
        handles.append(Patch(label=label, **style))
    if trace.makespan <= 130:
        _numbers(ax, trace, end)
    ax.set_xlim(0, max(trace.makespan, end) or 1)
    ax.set_ylim(trace.n_devices - 0.5, -0.5)
    ax.set_yticks(range(trace.n_devices), [f"device {device}" for device in range(trace.n_devices)])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time (ticks)")
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    if title:
        ax.set_title(title, loc="left", fontsize=11)
    if legend and handles:
        ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False, fontsize=9,
                  borderaxespad=0.2, handlelength=1.2, columnspacing=1.2)
    return ax


def new_axes(trace):
    """Axes in a new figure whose size suits the number of ticks and devices."""
    import matplotlib.pyplot as plt

    width = min(16, max(6.5, 0.24 * trace.makespan + 1))
    _, ax = plt.subplots(figsize=(width, 0.45 * trace.n_devices + 1.1), layout="constrained")
    return ax


def _by_kind(trace, end):
    spans = {}
    for span in trace.spans:
        if span.start < end:
            spans.setdefault(getattr(span.label, "kind", None), []).append(span)
    return {kind: spans[kind] for kind in sorted(spans, key=lambda kind: [*STYLES, kind].index(kind))}


def _boxes(ax, spans, end, style):
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    boxes = [Rectangle((span.start, span.device - 0.4), min(span.end, end) - span.start, 0.8) for span in spans]
    ax.add_collection(PatchCollection(boxes, **style))


def _numbers(ax, trace, end):
    for span in trace.spans:
        if span.start < end:
            middle = (span.start + min(span.end, end)) / 2
            number = str(getattr(span.label, "microbatch", span.label))
            ax.text(middle, span.device, number, ha="center", va="center", fontsize=8, clip_on=True)
