"""Every lane that was used has a row, in every picture; and what programs do has colours and names."""

import json

import matplotlib
import pytest
from pictures.browser import browse, in_a_browser
from ticks.programs import COMMUNICATION, copies_that_add_their_gradients, ring, trace_of_lanes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.quiver import Quiver

import minipipe as mp
from minipipe import plots
from minipipe.cluster import COMPUTE, Label, Port
from minipipe.order import Action
from minipipe.plots.boxes import boxes, height_of, rows_of, stage_places
from minipipe.plots.canvas import STYLES, styles_of
from minipipe.plots.html import picture
from minipipe.schedules import build

matplotlib.use("Agg")
LANES = [(device, lane) for device in range(3) for lane in (COMPUTE, COMMUNICATION)]
NAMES = ["device 0", COMMUNICATION, "device 1", COMMUNICATION, "device 2", COMMUNICATION]


@pytest.fixture(scope="module")
def trace():
    return copies_that_add_their_gradients()


def axes():
    return Figure(figsize=(8, 4)).add_subplot()


def spans_as(trace, row):
    """Sorted (left, right, middle) of all spans, in the row that `row` gives for a (device, lane)."""
    return sorted((span.start, span.end, row[span.device, span.lane]) for span in trace.spans)


def extents(collection):
    found = [path.get_extents() for path in collection.get_paths()]
    return [(box.x0, box.x1, round((box.y0 + box.y1) / 2, 9)) for box in found]


def middles(trace):
    return {lane: round(row.middle, 9) for lane, row in rows_of(trace).items()}


def idle_lane():
    """Two devices with a lane beside that hands on what it gets, and works on nothing."""
    def compute(r):
        yield mp.cluster.Compute("work")
        yield mp.cluster.Send("news", None, to=r)

    def hand_on(r):
        yield mp.cluster.Receive("news", source=r)

    return mp.cluster.Cluster([{COMMUNICATION: hand_on(r), COMPUTE: compute(r)} for r in range(2)]).run()


# ---- rows ----


def test_a_lane_that_was_not_used_has_no_row():
    trace = idle_lane()
    assert list(rows_of(trace)) == [(0, COMPUTE), (1, COMPUTE)]
    assert picture(trace)["messages"]["label"] == []
    assert trace.to_text().splitlines()[1:] == ["device 0  work", "device 1  work"]
    ax = trace.plot(ax=axes(), arrows=True, critical_path=True)
    assert [name.get_text() for name in ax.get_yticklabels()] == ["device 0", "device 1"]


# ---- still pictures and films ----

def test_boxes_are_in_the_row_of_their_lane(trace):
    ax = trace.plot(ax=axes())
    drawn = sorted(box for collection in ax.collections for box in extents(collection))
    assert drawn == spans_as(trace, middles(trace))
    names = ax.get_yticklabels()
    assert [name.get_text() for name in names] == NAMES and names[0].get_size() > names[1].get_size()
    assert list(ax.get_yticks()) == [row.middle for row in rows_of(trace).values()]
    assert ax.get_ylim() == (height_of(rows_of(trace)) - 0.5, -0.5)


def test_arrows_go_from_the_sending_lane_to_the_receiving_one(trace):
    ax = trace.plot(ax=axes(), arrows=True)
    (quiver,) = [found for found in ax.collections if isinstance(found, Quiver)]
    x, y = quiver.get_offsets().T
    for left, top, right, bottom, message in zip(x, y, x + quiver.U, y + quiver.V, trace.messages):
        assert (left, right) == (message.sent, message.arrived)
        for device, height in ((message.source, top), (message.to, bottom)):
            row = rows_of(trace)[device, COMMUNICATION]
            # heights below 10 and a quarter of a row: three roundings, each within 10 * 2**-53
            assert abs(height - row.middle) == pytest.approx(row.height / 4, rel=0, abs=3 * 10 * 2**-53)


def test_the_critical_path_goes_from_row_to_row(trace):
    ax = axes()
    trace.plot(ax=ax, critical_path=True)
    outlined = [patch.get_bbox() for patch in ax.patches if isinstance(patch, Rectangle)]
    rows = middles(trace)
    assert [(box.x0, box.x1, round((box.y0 + box.y1) / 2, 9)) for box in outlined] == [
        (0, 2, rows[2, COMPUTE]), (2, 5, rows[2, COMPUTE]), (5, 8, rows[2, COMPUTE]),
        (9, 10, rows[1, COMMUNICATION]), (11, 12, rows[0, COMMUNICATION]),
    ]
    first = ax.lines[0]  # device 2 starts its all-reduce
    assert list(first.get_xdata()) == [8, 8]
    assert rows[2, COMPUTE] < first.get_ydata()[0] < first.get_ydata()[1] < rows[2, COMMUNICATION]


# ---- text ----

def test_text_has_a_row_for_each_lane():
    assert copies_that_add_their_gradients().to_text() == (
        "tick           0                   5                   10\n"
        "device 0       0F0---- 1F0 1B0 0B0---- ..............U.......U.\n"
        "communication  ....................................1A0 ....0A0\n"
        "device 1       0F1---- 1F1---- 1B1---- 0B1---- ......U.......U.\n"
        "communication  ....................................1A1 ....0A1\n"
        "device 2       0F2---- 1F2-------- 1B2-------- 0B2---U ......U.\n"
        "communication  ................................1A2 ........0A2"
    )


# ---- the page ----

def test_the_page_has_rows_of_lanes(trace):
    data = json.loads(json.dumps(picture(trace)))
    assert data["rows"] == [[device, name] for (device, _), name in zip(LANES, NAMES)]
    row, spans, idle = {lane: number for number, lane in enumerate(LANES)}, data["spans"], data["idle"]
    assert sorted(zip(spans["start"], spans["end"], spans["row"])) == spans_as(trace, row)
    assert list(zip(idle["row"], idle["start"], idle["end"])) == [
        (row[idle.device, idle.lane], idle.start, idle.end) for idle in trace.idle
    ]
    assert list(zip(data["messages"]["source"], data["messages"]["to"])) == [
        (2 * message.source + 1, 2 * message.to + 1) for message in trace.messages
    ]
    assert data["devices"] == len(data["memory"]["ticks"]) == 3


WALK = """
const [run] = runs, {lanes, picture} = run, pen = canvas.getContext("2d");
const tipOf = (row, time) => describe(itemAt(picture.x(time), lanes[row].top + 3).item, run);
results.tips = [[4, 8.5], [5, 8.5], [1, 8], [1, 10.5]].map(place => tipOf(...place));
const pixel = (row, time) =>
  [...pen.getImageData(picture.x(time), lanes[row].top + 3, 1, 1).data].slice(0, 3);
results.colours = [pixel(5, 8.1), pixel(4, 8.1)];
canvas.focus();
choose({side: 0, lane: 0, index: 0});
results.down = [0, 1, 2].map(() => { key("ArrowDown"); return $("said").textContent.split(":")[0]; });
results.tops = lanes.map(({top}) => top);
results.legend = [...$("legend").children].map(item => item.textContent);
report();
"""


@in_a_browser
def test_a_reader_can_walk_through_the_lanes(trace, tmp_path):
    seen = browse(tmp_path, trace.to_html(), WALK)
    of_lane = [idle for idle in trace.idle if (idle.device, idle.lane) == (0, "communication")]
    why = [trace.explain().describe(idle) for idle in of_lane if idle.end > 8]
    for tip, begin in zip(seen["tips"], [
        "0B2, backward of micro-batch 2 on stage 0 of replica 2\ntick 8 to 10",
        "1A2, all-reduce of micro-batch 2 on stage 1 of replica 2\ntick 8 to 9",
        why[0], why[1],
    ]):
        assert tip.startswith(begin), tip
    assert seen["colours"][0] != seen["colours"][1] == [224, 105, 21]
    assert seen["down"] == ["communication", "device 1", "communication"]
    pitches = [below - above for above, below in zip(seen["tops"], seen["tops"][1:])]
    assert pitches == pitches[:2] * 2 + pitches[:1] and 0 < pitches[1] < pitches[0]
    assert seen["legend"] == [
        "F forward", "B backward", "A all-reduce", "U update", "darker: a further stage of the device",
    ]


# ---- the Chrome trace ----

def test_lanes_are_threads_of_their_own(trace):
    events = trace.to_chrome_trace()["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(threads.values()) == [
        "device 0", "device 0 communication", "device 1", "device 1 communication",
        "device 2", "device 2 communication",
    ]
    number = {lane: thread for thread, lane in zip(threads, LANES)}
    assert number == {lane: place for place, lane in enumerate(LANES, 1)}
    boxes = [event for event in events if event["ph"] == "X"]
    found = [(box["ts"] / 1000, (box["ts"] + box["dur"]) / 1000, box["tid"]) for box in boxes]
    assert sorted(found) == spans_as(trace, number)
    ends = [event["tid"] for event in events if event["ph"] in "stf"]
    assert set(ends) == {2, 4, 6}


# ---- why a lane is idle ----

def test_the_explanation_has_rows_of_lanes_below_the_sums(trace):
    explanation = trace.explain()
    assert explanation.totals() == {"fill": 0, "wait": 5, "imbalance": 1, "link": 6}
    busy = [sum(span.end - span.start for span in trace.spans_of(device, COMPUTE)) for device in range(3)]
    assert sum(explanation.totals().values()) == 3 * trace.makespan - sum(busy)
    lines = str(explanation).splitlines()
    assert [line.split("  ")[0] for line in lines[1:9]] == [
        "device 0", "device 1", "device 2", "all", "of 3 x 12 ticks",
        "device 0 communication", "device 1 communication", "device 2 communication",
    ]
    for lane in LANES:
        own = [idle for idle in trace.idle if (idle.device, idle.lane) == lane]
        parts = [part for idle in own for part in explanation.parts[idle]]
        work = sum(span.end - span.start for span in trace.spans_of(*lane))
        assert sum(part.end - part.start for part in parts) + work == trace.makespan


# ---- kinds of work of programs ----


def test_kinds_of_programs_get_colours_that_no_other_work_has():
    trace = trace_of_lanes(
        (0, COMPUTE, Action("F", 0, 0), 0, 1), (0, COMMUNICATION, Label("gather 0", "gather"), 0, 1),
        (0, COMPUTE, Label("sum", "A"), 1, 2), (0, COMPUTE, Label("", ""), 2, 3),
    )
    styles = styles_of([trace])
    assert styles.keys() - STYLES.keys() == {"gather"} and styles["gather"]["label"] == "gather"
    taken = {STYLES[kind]["facecolor"] for kind in "FA"}
    assert styles["gather"]["facecolor"] not in taken
    assert [(box.kind, box.text) for box in boxes(trace)] == [
        ("F", "0"), ("A", "sum"), ("gather", "gather 0"), (None, ""),
    ]
    many = trace_of_lanes(*((0, COMPUTE, Label(f"{n}", f"kind {n}"), n, n + 1) for n in range(8)))
    assert [box.kind for box in boxes(many)] == [f"kind {n}" for n in range(6)] + [None, None]
    assert len({box.colour for box in boxes(many)}) == 7


def test_runs_that_are_compared_share_their_colours():
    first = trace_of_lanes((0, COMPUTE, Label("a", "add"), 0, 1), (0, COMPUTE, Label("b", "copy"), 1, 2))
    second = trace_of_lanes((0, COMPUTE, Label("b", "copy"), 0, 2))
    figure = plots.compare({"first": first, "second": second})
    copies = [to_hex(ax.collections[place].get_facecolor()[0]) for ax, place in zip(figure.axes, (1, 0))]
    assert copies[0] == copies[1] == STYLES["W"]["facecolor"].lower()


@pytest.mark.parametrize("label", [Label("store", "copy"), "store"])
def test_work_of_no_ticks_is_a_thick_line(label):
    trace = trace_of_lanes((0, COMPUTE, "add", 0, 2), (0, COMPUTE, label, 6, 6), (0, COMPUTE, "end", 6, 8))
    ax = trace.plot(ax=axes())
    (line,) = [found for found in ax.collections if (6, 6, 0) in extents(found)]
    assert line.get_linewidth()[0] == 2 and to_hex(line.get_edgecolor()[0]) == to_hex(line.get_facecolor()[0])


def test_the_page_and_the_chrome_trace_know_kinds_of_programs():
    data = picture(ring())
    assert [data["kinds"][kind] for kind in ("add", "copy")] == [
        ["#CD8FBF", "#742665", "add"], ["#069D72", "#295730", "copy"],
    ]
    columns = (data["spans"][name] for name in ("kind", "stage", "microbatch", "copy", "place"))
    assert set(zip(*columns)) == {("add", None, None, 0, 0), ("copy", None, None, 0, 0)}
    boxes = [event for event in ring().to_chrome_trace()["traceEvents"] if event["ph"] == "X"]
    assert {(event["name"][:-2], event["cat"]) for event in boxes} == {("add", "add"), ("copy", "copy")}


# ---- copies, and runs that are not over ----

def test_copies_on_own_devices_have_the_shades_of_stages(trace):
    places = stage_places(trace)
    assert (places.n, places.shared) == (2, False)
    assert places.copy_of == {0: 0, 1: 1, 2: 2} and places.copy_at[2, 1] == 2
    names = [text.get_text() for text in trace.plot(ax=axes()).get_legend().get_texts()]
    assert names == ["forward", "backward", "all-reduce", "update", "device's 1st, 2nd stage"]
    assert stage_places(mp.simulate(build("chimera", 4, 4))).shared


def test_a_message_without_a_known_arrival_has_none_in_the_picture():
    ports = [Port(1, sends=[0])]
    cluster = mp.cluster.Cluster([send_twice(), receive_twice()], ports=ports)
    for _ in range(3):
        cluster.tick()
    assert [message.arrived for message in cluster.trace.messages] == [4, None]
    messages = picture(cluster.trace)["messages"]
    assert list(zip(messages["label"], messages["arrived"])) == [("first", 4), ("second", None)]
    ax = cluster.trace.plot(ax=axes(), arrows=True)
    (quiver,) = [found for found in ax.collections if isinstance(found, Quiver)]
    assert len(quiver.U) == 1


def send_twice():
    yield mp.cluster.Compute("work")
    for name in ("first", "second"):
        yield mp.cluster.Send(name, None, to=1, n_bytes=3)


def receive_twice():
    for name in ("first", "second"):
        yield mp.cluster.Receive(name, source=0)
