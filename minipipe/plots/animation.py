"""A run as a film: time sweeps over the timeline."""

from math import inf

from ..cluster.trace import check_trace
from .boxes import height_of, rows_of
from .canvas import import_matplotlib, new_figure
from .timeline import figure_size, timeline

N_FRAMES = 100
INTERVAL = 100  # milliseconds between two frames
MOST_FRAMES = 100_000
HOLD = 10       # frames for which the last picture stays, before the film begins again


def animate(trace, ticks_per_frame=None, title=None):
    """A `matplotlib.animation.FuncAnimation` of a run: what happens appears as a line sweeps over time.

    trace: the run; `ValueError` if nothing took time in it.
    ticks_per_frame: a hundredth of the run if None; `ValueError` if the frames do not advance.
    title: above the picture.

    Running boxes are outlined, and filled as far as they are done. `animation.save("run.gif",
    writer="pillow")` writes a file, `animation.to_jshtml()` a player for notebooks.

    Everything is drawn once and uncovered by moving the edge of a clipping box.
    """
    check_trace(trace)
    import_matplotlib()
    from matplotlib.animation import FuncAnimation
    from matplotlib.collections import PolyCollection

    times = _frame_ticks(trace.makespan, ticks_per_frame)
    rows = rows_of(trace)
    figure = new_figure(*figure_size([trace], height_of(rows)))
    ax = timeline(trace, figure.add_subplot(), title=title)
    _texts_to_paths(ax)
    curtain = _curtain(ax)
    line = ax.axvline(0, color="#202020", linewidth=1, zorder=4)
    running = PolyCollection([], facecolor="none", edgecolor="#404040", linewidth=0.6, zorder=0.5)
    ax.add_collection(running)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is done, once

    def show(now):
        curtain.x1 = now
        line.set_xdata([now, now])
        begun = [span for span in trace.spans if span.start <= now < span.end]
        running.set_verts([_outline(span, rows[span.device, span.lane]) for span in begun])
        ax.set_xlabel(f"time ({trace.unit}): {now:.4g}")
        return [running, line]

    return FuncAnimation(figure, show, times, init_func=lambda: show(0), interval=INTERVAL)


def _frame_ticks(makespan, step):
    """The tick that each frame shows."""
    step = makespan / N_FRAMES if step is None else step
    if not (makespan > 0 and 0 < step < inf):
        raise ValueError(
            f"a run of {makespan} ticks in frames of {step} ticks does not advance: "
            "both must be above 0, and finite"
        )
    if makespan / step > MOST_FRAMES:
        raise ValueError(
            f"ticks_per_frame={step} makes {makespan / step:,.0f} frames of {makespan} ticks, "
            f"above {MOST_FRAMES:,}: use at least {makespan / MOST_FRAMES:g}"
        )
    return [step * number for number in range(-int(-makespan // step))] + [makespan] * HOLD


def _texts_to_paths(ax):
    """The numbers in the boxes as one collection: a film of hundreds of separate texts would be slow."""
    from matplotlib.collections import PathCollection
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    shapes = {}
    for text in ax.texts:
        word = text.get_text(), text.get_fontsize()
        if word not in shapes:
            path = TextPath((0, 0), word[0], size=word[1])
            box = path.get_extents()
            shapes[word] = path.transformed(
                Affine2D().translate(-(box.x0 + box.x1) / 2, -(box.y0 + box.y1) / 2)
            )
    numbers = PathCollection(
        [shapes[text.get_text(), text.get_fontsize()] for text in ax.texts],
        offsets=[text.get_position() for text in ax.texts],
        facecolors=[text.get_color() for text in ax.texts],
        offset_transform=ax.transData,
        linewidths=0,
        zorder=4,
        transform=Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans,
    )
    for text in list(ax.texts):
        text.remove()
    ax.add_collection(numbers, autolim=False)


def _curtain(ax):
    """The box, in ticks, outside of which nothing that has been drawn is seen; move its `x1`."""
    from matplotlib.transforms import Bbox, TransformedBbox, blended_transform_factory

    curtain = Bbox([[0, 0], [0, 1]])
    clip = TransformedBbox(curtain, blended_transform_factory(ax.transData, ax.transAxes))
    for artist in ax.collections:
        artist.set_clip_box(clip)
        artist.set_clip_on(True)
    return curtain


def _outline(span, row):
    top, bottom = row.middle - row.height / 2, row.middle + row.height / 2
    return [(span.start, top), (span.end, top), (span.end, bottom), (span.start, bottom)]
