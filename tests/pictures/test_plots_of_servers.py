"""Pictures of servers and workers: rows with their names, curves, and how stale updates were."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from asynchronous.by_the_rule import LAYERS, LOSS, THIRD, mini_batches

import minipipe as mp
from minipipe import plots


def trained(n_servers=1, on_workers=False, engine="cluster"):
    servers = mp.Servers(n_servers, on_workers, mode="async")
    net = mp.ParameterServer(
        LAYERS, LOSS, 2, servers, pace=mp.Pace(speeds=THIRD), on=mp.Machine(engine)
    )
    net.train(mini_batches(8), mp.SGD(0.1))
    return net


@pytest.mark.parametrize("options, names", [
    ({}, ["server", "worker 0", "worker 1"]),
    ({"n_servers": 2}, ["server 0", "server 1", "worker 0", "worker 1"]),
    ({"n_servers": 2, "on_workers": True}, ["worker 0", "server", "worker 1", "server"]),
    ({"engine": "threads"}, ["server", "worker 0", "worker 1"]),
])
def test_rows_have_the_names_of_servers_and_workers(options, names):
    net = trained(**options)
    assert [line[:10].strip() for line in net.trace.to_text().splitlines()[1:1 + len(names)]] == names
    ax = Figure().subplots()
    net.trace.plot(ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == names


def test_rows_of_a_round_have_the_names_of_its_clients():
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((3, 2)), rng.standard_normal((2, 2))) for _ in range(5)]
    net = mp.FederatedAveraging(LAYERS, LOSS, clients, mp.Rounds(0.4))
    chosen = net.round(mp.SGD(0.1)).chosen
    rows = [line.split("  ")[0] for line in net.trace.to_text().splitlines()[1:]]
    assert rows == ["server", *(f"client {k}" for k in chosen)]
    assert str(net.trace.spans_of(0)[-1].label) == "average"


def test_staleness_is_drawn_as_shares_of_the_updates():
    """By hand: 0 0 0 3 1 0 0 3."""
    net, ax = trained(), Figure().subplots()
    assert plots.staleness({"a": net.updates, "b": net.updates[:1]}, ax) is ax
    heights = {round(bar.get_x() + bar.get_width() / 2, 3): bar.get_height() for bar in ax.containers[0]}
    assert heights == {-0.2: 62.5, 2.8: 25, 0.8: 12.5}
    assert len({run[0].get_facecolor() for run in ax.containers}) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a, mean 0.88", "b, mean 0.00"]


def test_curves_have_a_colour_and_a_dash_each():
    series = {str(n): [(0, n), (1, 2 * n)] for n in range(5)}
    ax = plots.curves(series, Figure().subplots(), "ticks", "J", "race")
    lines = ax.get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[n, 2 * n] for n in range(5)]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 5
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("ticks", "J", "race")


@pytest.mark.parametrize("draw, nothing", [
    (plots.curves, {}), (plots.staleness, {}), (plots.staleness, {"a": []}),
])
def test_nothing_to_draw_is_refused(draw, nothing):
    with pytest.raises(ValueError, match="there is nothing to draw"):
        draw(nothing)
