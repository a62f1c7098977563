"""Pictures and text say what the trace says."""

import matplotlib
import pytest
from matplotlib.figure import Figure

import minipipe as mp
from minipipe import plots
from minipipe.schedules import build, with_recompute

matplotlib.use("Agg")


def axes():
    return Figure().add_subplot()


def test_text_of_gpipe_with_three_stages():
    assert mp.simulate(build("gpipe", 3, 2)).to_text() == (
        "tick      0         5         10\n"
        "device 0  F0F1............B1--B0--\n"
        "device 1  ..F0F1......B1--B0--....\n"
        "device 2  ....F0F1B1--B0--........"
    )


def test_text_goes_on_below_when_it_is_wide():
    assert plots.text(mp.simulate(build("gpipe", 2, 2)), width=12) == (
        "tick      0         5\n"
        "device 0  F0F1......B1\n"
        "device 1  ..F0F1B1--B0\n"
        "\n"
        "tick      6\n"
        "device 0  --B0--\n"
        "device 1  --...."
    )


def test_text_in_columns_of_half_a_tick():
    trace = mp.simulate(build("gpipe", 2, 1), mp.Costs(F=0.5, B=1.5))
    assert trace.to_text().splitlines()[1:] == ["device 0  F0........B0----", "device 1  ..F0B0----......"]


def test_text_of_very_unequal_durations_stays_short():
    assert len(mp.simulate(build("gpipe", 2, 2), mp.Costs(F=1, B=10**6)).to_text()) < 30_000


def test_text_names_the_stage_where_a_device_has_several():
    trace = mp.simulate(mp.Schedule.from_text("0F0 1F0 1B0 0B0"))
    assert trace.to_text().splitlines()[1] == "device 0  0F01F01B0---0B0---"


def test_text_of_other_programs_uses_their_labels():
    def program():
        yield mp.Compute("all-reduce")

    assert "all-reduce" in mp.Cluster([program()]).run().to_text()
    assert mp.Cluster([]).trace.to_text() == "(nothing has been computed yet)"


def test_the_timeline_has_a_box_and_a_number_for_every_action_and_draws_into_the_axes_it_is_given():
    trace = mp.simulate(with_recompute(build("1f1b", 3, 4)))
    ax = axes()
    assert trace.plot(ax=ax) is ax
    assert sum(len(collection.get_paths()) for collection in ax.collections) == len(trace.spans) == 36
    written = sorted((text.get_text(), text.get_position()) for text in ax.texts)
    assert written == sorted((str(s.label.microbatch), ((s.start + s.end) / 2, s.device)) for s in trace.spans)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["forward", "backward", "recompute"]
    assert ax.get_xlabel() == "time (ticks)" and [tick.get_text() for tick in ax.get_yticklabels()] == ["device 0", "device 1", "device 2"]
    assert ax.get_xlim() == (0, trace.makespan) and ax.yaxis_inverted()


def test_until_shows_what_has_happened_so_far():
    trace = mp.simulate(build("gpipe", 3, 4))
    ax = trace.plot(ax=axes(), until=5.5)
    boxes = [path.get_extents() for collection in ax.collections for path in collection.get_paths()]
    assert len(boxes) == len([s for s in trace.spans if s.start < 5.5]) and max(box.x1 for box in boxes) == 5.5
    assert not trace.plot(ax=axes(), until=0).collections


def test_new_axes_are_made_only_when_none_are_given():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    mp.simulate(build("gpipe", 2, 2)).plot(ax=axes())
    assert plt.get_fignums() == before
    ax = mp.simulate(build("gpipe", 2, 2)).plot()
    assert ax.figure.number not in before
    plt.close(ax.figure)


def test_memory_curves_are_those_of_the_trace():
    X, Y = (part[:, :8] for part in mp.datasets.digits().train)
    pipe = mp.Pipeline([mp.Linear(64, 10), mp.ReLU()], mp.SoftmaxCrossEntropy(), 2, 4)
    pipe.forward_backward(X, Y)
    ax = plots.memory(pipe.trace, ax=axes())
    for device, line in enumerate(ax.lines):
        assert list(zip(*line.get_data()))[-1] == (pipe.trace.makespan, pipe.trace.memory(device)[-1][1] / 1024)
        assert list(zip(*line.get_data()))[:-1] == [(tick, size / 1024) for tick, size in pipe.trace.memory(device)]
        assert max(line.get_ydata()) * 1024 == pipe.trace.peak_bytes()[device]
    with pytest.raises(ValueError, match="counted no memory"):
        plots.memory(mp.simulate(build("gpipe", 2, 2)), ax=axes())


@pytest.mark.parametrize("kinds", [("F", "B"), ("F", "R"), ("B", "R")])
def test_colours_differ_in_brightness_too(kinds):
    from matplotlib.colors import to_rgb

    from minipipe.plots.timeline import STYLES

    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (to_rgb(STYLES[kind]["facecolor"]) for kind in kinds))
    assert light - dark > 0.1
