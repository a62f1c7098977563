"""A picture for notebook 07: a drawing that would be too long for a cell."""

COLOURS, EDGE, GREY = {"F": "#BFE3F7", "B": "#F2B28C"}, "#404040", "#777777"


def needs(trace, needed):
    """The actions of a run as boxes, with an arrow to each from what it needs.

    trace: the run, of one stage on each device.
    needed: function of (kind, stage, i): the list of those that it needs.
    """
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(8.5, 3.6))
    box = {span.label: span for span in trace.spans}
    for (kind, stage, i), span in box.items():
        style = dict(height=0.5, edgecolor=EDGE, color=COLOURS[kind])
        ax.barh(span.device, span.end - span.start, left=span.start, **style)
        middle = (span.start + span.end) / 2
        ax.text(middle, span.device, f"${kind}_{{{stage},{i}}}$", ha="center", va="center", fontsize=14)
        for need in filter(box.get, needed(kind, stage, i)):
            _arrow(ax, box[need], span)
    ax.plot([], [], color="black", label="sent to another device")
    ax.plot([], [], color=GREY, linestyle=":", label="kept in the stash")
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, fontsize=11)
    devices = range(trace.n_devices)
    ax.set(yticks=devices, yticklabels=[f"device {r}" for r in devices], ylim=(len(devices) - 0.6, -1.1),
           xlim=(0, trace.makespan), xticks=range(trace.makespan + 1), xlabel="time (ticks)")
    plt.show()


def _arrow(ax, need, span):
    """From the action `need` to the action of `span`, which needs it."""
    stays, edge = need.label.stage == span.label.stage, 0.25 if span.label.kind == "F" else -0.25
    dotted = {"color": GREY, "linestyle": ":", "connectionstyle": "arc3,rad=-0.12"}
    style = dotted if stays else {"color": "black"}
    ends = (span.start + 0.2, span.device + (edge if stays else -edge)), (need.end - 0.2, need.device + edge)
    ax.annotate("", *ends, arrowprops={"arrowstyle": "->", "lw": 1.4, "shrinkA": 0, "shrinkB": 0} | style)
