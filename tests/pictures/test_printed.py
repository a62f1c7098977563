"""What a run shows by itself: printed, saved, drawn, tick by tick, beside other runs, and with servers."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from asynchronous.by_the_rule import LAYERS, LOSS, THIRD, mini_batches
from compared import assert_refused
from matplotlib.figure import Figure
from pictures.test_html import trace_of
from pictures.test_plots import both_ways

import minipipe as mp
from minipipe import comparison, plots
from minipipe.cluster import Label
from minipipe.order import ScheduleError, in_copies
from minipipe.plots import saving
from minipipe.plots.boxes import rows_of
from minipipe.plots.html import picture
from minipipe.schedules import build, gpipe

TRACE = mp.simulate(gpipe(2, 2))


@pytest.mark.parametrize("ending", ["png", "html"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, ending):
    def fails(trace, path, title):
        path.write_text("the first half")
        raise KeyboardInterrupt

    path = tmp_path / f"run.{ending}"
    TRACE.save(path)
    before = path.read_bytes()
    monkeypatch.setitem(saving.OTHERS, ending, fails)
    with pytest.raises(KeyboardInterrupt):
        TRACE.save(path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_file_name_without_a_format_is_refused(tmp_path):
    assert_refused([
        (lambda: TRACE.save(tmp_path / "run.docx"), "its name must end in one of ....gif, .html, ....png"),
        (lambda: TRACE.save(tmp_path / "nowhere/run.png"), "there is no folder"),
    ])
    assert not [*tmp_path.iterdir()]


def test_a_trace_prints_its_timeline():
    assert str(TRACE) == f"{TRACE.to_text()}\n9 ticks, 33.3 % idle"
    assert TRACE.bubble() == TRACE.bubble("total")


def program():
    yield mp.cluster.Send("news", None, to=0)
    yield mp.cluster.Receive("news", 0)


def test_a_trace_in_which_nothing_took_time_prints_too():
    nothing = mp.cluster.Cluster([program()]).run()
    assert str(nothing) == "(nothing has been computed yet)\n0 ticks"


def test_a_schedule_draws_its_run():
    ax = gpipe(2, 2).plot()
    assert ax.get_title(loc="left") == "gpipe"
    own = plt.figure().subplots()
    assert gpipe(2, 2).plot(own, "mine") is own and own.get_title(loc="left") == "mine"
    plt.close("all")


def test_each_tick_says_what_the_devices_did():
    pipe = mp.Pipeline([mp.Linear(1, 1), mp.Linear(1, 1)], mp.MeanSquaredError(), 2, 2, schedule="gpipe")
    pipe.start(np.ones((1, 2)), np.ones((1, 2)))
    ticks = [pipe.tick()]
    while ticks[-1]:
        ticks.append(pipe.tick())
    assert [repr(tick) for tick in ticks[:4]] == [
        "tick 1: device 0 0F0, device 1 waits",
        "tick 2: device 0 0F1, device 1 1F0",
        "tick 3: device 0 waits, device 1 1F1",
        "tick 4: device 0 waits, device 1 1B1",
    ]
    assert repr(ticks[-1]) == "tick 9: device 0 0B0, device 1 waits. All is done" and ticks[-1].now == 9
    assert pipe.trace.makespan == 9


# ---- printed ----

def test_wide_text_continues_below():
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
    assert trace.to_text().splitlines()[1] == "device 0  0F0 1F0 1B0---- 0B0----"


def test_text_of_overlaps_is_short_where_the_stage_is_clear():
    trace = mp.simulate(both_ways(), mp.Costs(FB=2))
    assert trace.to_text().splitlines()[1:] == [
        "device 0  F0-F1-F2-F3&B2-B0----B1----...B3----", "device 1  F2-F0-F1-B0----B1----F3-B3----B2----",
    ]
    same = mp.Schedule.from_text("0F0 1F0 0F1&1B0 1F1 1B1 0B0 0B1")
    row = mp.simulate(same).to_text().splitlines()[1]
    assert row.startswith("device 0  0F0 1F0 0F1&1B0---- 1F1 1B1---- ")


def test_text_of_work_that_takes_no_time_hides_nothing():
    row = "device 1  ..F0B0-{}F1B1-{}"
    order = ["F0 F1 B0 U0 B1 U1", "F0 B0 U0 F1 B1 U1"]
    text = mp.simulate(mp.Schedule.from_text(order, versions=[(0, 0), (0, 1)])).to_text()
    assert text.splitlines()[2].startswith(row.format("U", "U"))
    assert mp.simulate(build("1f1b", 2, 2)).to_text().splitlines()[2].startswith(row.format("-", "-"))
    full = mp.simulate(mp.Schedule.from_text("F0 B0 U0"), mp.Costs(F=1, B=1)).to_text()
    assert full.splitlines()[1] == "device 0  F0B0", "no room: the update is left out"
    assert plots.text(trace_of((0, "nothing", 3, 3))) == "(nothing has been computed yet)"


def test_text_in_seconds_has_round_times_above_its_columns():
    """GPipe with milliseconds, to 9; where a box is too narrow for its name, it has its first letter."""
    costs = mp.Costs(F=0.001, B=0.002, unit="seconds")
    trace = mp.simulate(build("gpipe", 2, 2), costs)
    assert plots.text(trace, width=36) == (
        "ms        0       2       4       6       8\n"
        "device 0  F0--F1--............B1------B0------\n"
        "device 1  ....F0--F1--B1------B0------........"
    )
    assert [line[10:] for line in plots.text(trace, width=9).splitlines()[1:]] == ["FF...B1B0", ".FFB1B0.."]
    assert [line[10:] for line in plots.text(trace, width=4).splitlines()[1:]] == ["F.BB", "FBB."]

    def program():
        yield mp.cluster.Compute(Label("wait for a lock", "overhead"))
        yield mp.cluster.Compute("broadcast", ticks=3)

    trace = mp.cluster.Cluster([program()], unit="seconds").run()
    assert plots.text(trace, width=8).splitlines()[1] == "device 0  ::b-----"


def test_text_of_other_programs_uses_their_labels():
    def program():
        yield mp.cluster.Compute("all-reduce")

    assert "all-reduce" in mp.cluster.Cluster([program()]).run().to_text()
    assert mp.cluster.Cluster([]).trace.to_text() == "(nothing has been computed yet)"


# ---- beside each other ----

def all_forwards_first(device, K, M):
    return [f"F{i}" for i in range(M)] + [f"B{i}" for i in range(M)]


def test_a_row_of_a_comparison_has_the_counts_of_its_run():
    found = mp.compare("naive", "gpipe", "1f1b", devices=4, microbatches=8)
    head, *rows = repr(found).splitlines()[:4]
    assert head.split() == ["schedule", "makespan", "idle", "peak", "messages"]
    assert [row.split() for row in rows] == [
        ["naive", "96", "75.00", "%", "1", "48"], ["gpipe", "33", "27.27", "%", "8", "48"],
        ["1f1b", "33", "27.27", "%", "4", "48"],
    ]
    assert found["gpipe"] == mp.simulate(build("gpipe", 4, 8)) and len(found) == 3


def test_two_copies_on_the_same_devices_hold_twice_the_parameters():
    times = {"dualpipe": 2, "chimera": 2, "dualpipe-v": 1, "zb-v": 1, "1f1b": 1, "with 2 copies": 1}
    copies = replace(in_copies(build("zb-v", 2, 4), 2), name="with 2 copies")
    found = mp.compare(*list(times)[:-1], copies, devices=4, microbatches=8)
    head, *rows = repr(found).splitlines()[:7]
    assert head.endswith("  parameters")
    assert repr(found).endswith("\nparameters: how many times its share of the network's a device holds.")
    assert [row.rpartition("  x ")[2] for row in rows] == [str(n) for n in times.values()]
    titles = [ax.get_title(loc="left") for ax in found.plot().axes]
    assert [title.endswith("% of the time, parameters x 2") for title in titles] == [
        n == 2 for n in times.values()
    ]
    assert "parameters" not in repr(mp.compare("zb-v", "dualpipe-v"))


def test_a_function_and_a_schedule_are_taken_as_well():
    own = build("1f1b", 2, 3)
    found = mp.compare(all_forwards_first, own, "1f1b", devices=2, microbatches=3, costs=mp.Costs(F=1, B=3))
    assert [*found] == ["all_forwards_first", "1f1b", "1f1b (2)"]
    assert found["1f1b"] == found["1f1b (2)"] == mp.simulate(own, mp.Costs(F=1, B=3))
    assert found["all_forwards_first"].makespan == 16  # (M + K - 1)(F + B)


def test_a_comparison_shows_and_saves_its_picture(tmp_path, monkeypatch):
    found = mp.compare("gpipe", "1f1b", devices=2, microbatches=4)
    found.save(tmp_path / "both.svg")
    text = (tmp_path / "both.svg").read_text()
    assert text.startswith("<?xml") and [*tmp_path.iterdir()] == [tmp_path / "both.svg"]
    assert [ax.get_title(loc="left").split(":")[0] for ax in found.plot().axes[:2]] == ["gpipe", "1f1b"]
    assert len(mp.plots.compare(found).axes) == len(found.plot().axes)
    page = found._repr_html_()
    assert page.startswith("<pre>schedule") and "data:image/png;base64," in page
    with pytest.raises(ValueError, match="its name must end in one of"):
        found.save(tmp_path / "both.txt")
    monkeypatch.setattr(comparison, "MOST_IN_A_CELL", 31)
    large = found._repr_html_()
    assert "<img" not in large and "has 32 spans" in large and large.startswith("<pre>schedule")


@pytest.mark.parametrize("make, error, words", [
    (lambda: mp.compare(), ValueError, "there is nothing to compare: pass schedules"),
    (lambda: mp.compare("gpip"), ValueError, "did you mean 'gpipe'"),
    (lambda: mp.compare(3), ValueError, "3 is not a schedule: pass a name"),
    (lambda: mp.compare("gpipe", devices=0), ValueError, "devices=0 must be at least 1"),
    (lambda: mp.compare(lambda device, K, M: ["F0"]), ScheduleError, "<lambda>.*device 0 never does 0B0"),
])
def test_a_schedule_that_cannot_be_compared_is_named(make, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        make()


# ---- servers and workers ----

def trained(**options):
    net = mp.ParameterServer(LAYERS, LOSS, 2, mode="async", speeds=THIRD, **options)
    net.train(mini_batches(8), mp.SGD(0.1))
    return net


@pytest.mark.parametrize("options, names", [
    ({}, ["server", "worker 0", "worker 1"]),
    ({"servers": 2}, ["server 0", "server 1", "worker 0", "worker 1"]),
    ({"servers": 2, "on_workers": True}, ["worker 0", "server", "worker 1", "server"]),
    ({"engine": "threads"}, ["server", "worker 0", "worker 1"]),
])
def test_rows_have_the_names_of_servers_and_workers(options, names):
    net = trained(**options)
    assert [line[:10].strip() for line in net.trace.to_text().splitlines()[1:1 + len(names)]] == names
    ax = Figure().subplots()
    net.trace.plot(ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == names


@pytest.mark.parametrize("numbering", ["tp-dp-pp", "pp-tp-dp"])
@pytest.mark.parametrize("sizes, engine", [
    ({"replicas": 2, "shards": 2, "stages": 2}, "cluster"), ({"replicas": 3, "stages": 2}, "threads"),
    ({"shards": 2, "stages": 3}, "cluster"), ({"replicas": 2, "shards": 2}, "cluster"),
    ({"replicas": 3}, "cluster"), ({"shards": 2}, "cluster"), ({"stages": 3}, "cluster"),
])
def test_rows_of_several_axes_say_the_place_along_each(sizes, engine, numbering):
    layers = [mp.Linear(2, 4), mp.Linear(4, 4), mp.Linear(4, 2)]
    net = mp.Parallel(layers, LOSS, microbatches=6, engine=engine, numbering=numbering, **sizes)
    net.forward_backward(np.ones((2, 6)), np.ones((2, 6)))
    trace, n = net.trace, net.trace.n_devices
    letters = {"replicas": ("d", "dp"), "shards": ("t", "tp"), "stages": ("p", "pp")}
    names = [f"device {device}" for device in range(n)]
    if len(sizes) > 1:
        for device in range(n):
            places = [f"{letter}{group.index(device)}" for letter, axis in map(letters.get, sizes)
                      for group in net.groups[axis] if device in group]
            names[device] += f": {' '.join(places)}"
    for one in (trace, trace.stretched(2)):
        rows = [line.split("  ")[0] for line in one.to_text().split("\n\n")[0].splitlines()[1:]]
        assert rows == names == [row.name for row in rows_of(one).values()]
    threads = [event["args"].get("name") for event in trace.to_chrome_trace()["traceEvents"]
               if event["name"] == "thread_name"]
    assert threads == names and [name for _, name in picture(trace)["rows"]] == names


def test_rows_of_a_round_have_the_names_of_its_clients():
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((3, 2)), rng.standard_normal((2, 2))) for _ in range(5)]
    net = mp.FederatedAveraging(LAYERS, LOSS, clients, fraction=0.4)
    chosen = net.round(mp.SGD(0.1)).chosen
    rows = [line.split("  ")[0] for line in net.trace.to_text().splitlines()[1:]]
    assert rows == ["server", *(f"client {k}" for k in chosen)]
    assert str(net.trace.spans_of(0)[-1].label) == "average"


def test_curves_have_a_colour_and_a_dash_each():
    series = {str(n): [(0, n), (1, 2 * n)] for n in range(5)}
    ax = plots.curves(series, Figure().subplots(), "ticks", "J", "race")
    lines = ax.get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[n, 2 * n] for n in range(5)]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 5
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("ticks", "J", "race")


def test_no_curves_to_draw_are_refused():
    with pytest.raises(ValueError, match="there is nothing to draw"):
        plots.curves({})
