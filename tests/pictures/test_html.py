"""The web page of a run: its data are the trace, nothing in it leaves the file, and a real browser can step
through it.
"""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from html import escape, unescape

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from pictures.browser import browse, in_a_browser
from ticks.programs import with_all_reduces

import minipipe as mp
from minipipe.cluster import BUBBLES, COMPUTE, Trace, describe_path
from minipipe.cluster.record import Record
from minipipe.order import Action, Overlap, Schedule, peak_microbatches
from minipipe.plots import html
from minipipe.plots.boxes import stage_places
from minipipe.plots.canvas import STYLES, ink, shade
from minipipe.plots.html import picture
from minipipe.schedules import build


def trace_of(*spans, n_devices=1):
    """A finished trace of rows (device, label, start, end)."""
    record = Record([(device, COMPUTE) for device in range(n_devices)], [1] * n_devices)
    record.finished = [0] * n_devices
    for device, label, start, end in spans:
        record.spans += (device, label, start, end)
        record.finished[device] = max(record.finished[device], end)
    return Trace(record)


def data_in(page):
    """The data of a page, read as a browser would: up to the first end of a script element."""
    return json.loads(
        re.search(r'<script id="data" type="application/json">(.*?)</script', page, re.DOTALL).group(1)
    )


def table(columns, names):
    """The rows of some columns."""
    return list(zip(*(columns[name] for name in names.split()), strict=True))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-v"])
def test_the_page_holds_the_trace(name):
    trace = mp.simulate(build(name, 4, 8), mp.Costs(F=1, B=2), mp.Link(latency=1))
    data = data_in(trace.to_html())
    spans = [(span.device, span.start, span.end, *span.label) for span in trace.spans]
    assert table(data["spans"], "row start end kind stage microbatch") == spans
    explanation = trace.explain()
    assert table(data["idle"], "row start end words") == [
        (idle.device, idle.start, idle.end, explanation.describe(idle)) for idle in trace.idle
    ]
    steps = [(step.start, step.end) for step in trace.critical_path()]
    assert table(data["path"], "start end") == steps
    assert table(data["messages"], "label source to sent arrived") == [
        (str(message.label), message.source, message.to, message.sent, message.arrived)
        for message in trace.messages
    ]
    assert data["makespan"] == trace.makespan and data["devices"] == trace.n_devices
    memory = data["memory"]
    assert memory["peaks"] == list(map(max, memory["amounts"])) == peak_microbatches(trace)
    assert all(amounts[-1] == 0 for amounts in memory["amounts"]) and memory["unit"] == "micro-batches alive"


def test_stages_and_copies_of_a_device_are_told_apart():
    two_stages = picture(mp.simulate(build("zb-v", 2, 4)))
    places = set(table(two_stages["spans"], "row stage place"))
    assert places == {(0, 0, 0), (0, 3, 1), (1, 1, 0), (1, 2, 1)}
    both_ways = Schedule.from_text(["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"], copy_of=(0, 1))
    two_copies = picture(mp.simulate(both_ways))
    assert set(table(two_copies["spans"], "stage microbatch copy place")) == {
        # stage, micro-batch, copy, place on its device
        (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 1, 1), (1, 1, 1, 1),
    }
    assert two_copies["most_stages"] == 2


def test_an_all_reduce_belongs_to_the_copy_that_its_device_has():
    page = picture(with_all_reduces(mp.simulate(build("chimera", 4, 4))))
    assert page["most_stages"] == 2 and page["rows"][:2] == [[0, "device 0"], [0, "communication"]]
    for row, kinds in ((0, "FB"), (1, "A")):
        spans = table(page["spans"], "row kind stage copy place")
        found = {tuple(part) for number, *part in spans if number == row}
        assert found == {(kind, stage, stage // 3, stage // 3) for kind in kinds for stage in (0, 3)}


@pytest.mark.parametrize("devices_swapped", [False, True])
def test_page_and_picture_agree_on_the_stages_of_a_device(devices_swapped):
    schedule = build("chimera", 4, 8)
    trace = mp.simulate(replace(schedule, devices=schedule.devices[::-1]) if devices_swapped else schedule)
    spans = table(picture(trace)["spans"], "row stage place")
    places = {(device, stage): place for device, stage, place in spans}
    assert places == stage_places(trace).of


def test_an_overlap_has_two_parts_and_both_count():
    overlap = Overlap(Action("F", 0, 1), Action("B", 0, 0))
    trace = trace_of((0, Action("F", 0, 0), 0, 1), (0, overlap, 1, 4), (0, Action("B", 0, 1), 4, 6))
    data = picture(trace)
    assert table(data["spans"], "kind part") == [("F", (0, 1)), ("F", (0, 2)), ("B", (1, 2)), ("B", (0, 1))]
    assert table(data["memory"], "ticks amounts") == [((0, 1, 4, 6), (1, 2, 1, 0))]


def test_a_run_with_arrays_shows_its_bytes():
    layers = [mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 2)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 2, count_bytes=True)
    X, Y = mp.datasets.digits().train
    pipe.forward_backward(X[:4, :6], Y[:2, :6])
    data = data_in(pipe.trace.to_html())
    assert data["memory"]["unit"] == "bytes"
    curves = [list(zip(*curve)) for curve in table(data["memory"], "ticks amounts")]
    assert curves == [pipe.trace.memory(device) for device in (0, 1)]


def test_times_may_be_fractions_and_actions_may_take_none():
    trace = trace_of(
        (0, Action("F", 0, 0), Fraction(0), Fraction(1, 4)),
        (0, Action("B", 0, 0), Fraction(1, 4), Fraction(3, 4)),
        (0, Action("U", 0, 0), Fraction(3, 4), Fraction(3, 4)),
    )
    data = data_in(trace.to_html())
    assert table(data["spans"], "start end") == [(0, 0.25), (0.25, 0.75), (0.75, 0.75)]
    assert (data["makespan"], data["step"]) == (0.75, 0.25)


@pytest.mark.parametrize("end, step", [
    (5, 1), (10_000, 1), (10_001, 100), (12.5, 0.5), (12.75, 0.25), (5000.5, 1), (Fraction(37, 3), 1),
    (0.3, 0.001), (2e-6, 1e-8),
])
def test_the_step_suits_the_length_of_the_run(end, step):
    assert math.isclose(picture(trace_of((0, "work", 0, end)))["step"], step)


def test_a_run_before_its_first_tick():
    data = data_in(trace_of(n_devices=2).to_html())
    columns = data["spans"]["row"], data["memory"]["ticks"], data["path"]["start"]
    assert (data["makespan"], *columns) == (0, [], [], [])
    page = trace_of(n_devices=2).to_html()
    assert "(nothing has been computed yet)" in page and "bubble: " not in page


@pytest.mark.parametrize("nasty", [
    "</script><script>alert(1)</script>", "<!-- <script>", "{{data}}",
    "\u2028 \ud800 \\u003c & \" ' `${now}`",
])
def test_labels_and_titles_cannot_leave_the_data(nasty):
    page = trace_of((0, nasty, 0, 1)).to_html(title=nasty)
    data = data_in(page)
    assert data["spans"]["label"] == [nasty]
    title = unescape(re.search(r"<title>(.*?)</title>", page, re.DOTALL)[1])
    assert title == nasty.replace("\ud800", "\ufffd"), "half a pair of UTF-16 is no character"
    assert page.encode()
    assert page.count("</script>") == trace_of((0, "work", 0, 1)).to_html().count("</script>") == 2


def test_the_page_needs_no_network(tmp_path):
    trace = mp.simulate(build("1f1b", 2, 2))
    page = html(trace, title="Two stages")
    loads = re.compile(r"https?:|//[a-z]|\bsrc=|@import|url\(|\bimport\b|fetch|XMLHttp")
    assert not loads.search(page.replace("http://www.w3.org/2000/svg", "")), "but for the name of SVG"
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]
    trace.save(tmp_path / "run.html", "Two stages")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == page


def test_title_figures_and_reasons_need_no_script():
    trace = mp.simulate(build("1f1b", 2, 3), mp.Costs(F=[1, 2]), mp.Link(latency=1))
    page = re.sub(r"<script.*?</script>", "", trace.to_html(title="A <run>"), flags=re.DOTALL)
    assert "<title>A &lt;run&gt;</title>" in page and "<h1>A &lt;run&gt;</h1>" in page
    for of, words in BUBBLES.items():
        assert f"<dt>bubble: {escape(words)}</dt><dd>{100 * trace.bubble(of):.1f} %</dd>" in page
    path = describe_path(trace.critical_path())
    reasons = f"{trace.sentence()}\n\n{trace.explain()}\n\nthe critical path:\n{path}"
    assert f"<pre>{escape(reasons)}</pre>" in page and "imbalance" in reasons


def test_every_step_of_a_run_has_a_page():
    pipe = mp.Pipeline(
        [mp.Linear(2, 2) for _ in range(4)], mp.MeanSquaredError(), 4, 3, schedule="zb-v",
        link=mp.Link(latency=0.25),
    )
    pipe.start(np.ones((2, 6)), np.ones((2, 6)))
    while pipe.tick():
        data = picture(pipe.trace)
        assert all(data["spans"]["kind"]) and all(data["idle"]["words"])
        assert not data["path"]["end"] or data["path"]["end"][-1] == data["makespan"]


# ---- in a browser ----

VIEW = """
const [run] = runs, {picture, lanes, makespan} = run, pen = canvas.getContext("2d");
const pixel = (row, time, down) =>
  [...pen.getImageData(picture.x(time), lanes[row].top + down, 1, 1).data].slice(0, 3);
"""
WALK = VIEW + """
const tip = () => $("tip").hidden ? null : $("tip").textContent;
const point = async (type, device, time) => {
  const box = canvas.getBoundingClientRect();
  const [clientX, clientY] = [box.left + picture.x(time), box.top + lanes[device].top + 5];
  canvas.dispatchEvent(new PointerEvent(type, {clientX, clientY, bubbles: true}));
  await new Promise(done => setTimeout(done));
};
const isDark = ({start, end, source, to}) => {  // a quarter of the way along a message's arrow
  const [from, target] = picture.edges(source, to), x = picture.x(start + (end - start) / 4);
  const [red, , , alpha] = pen.getImageData(x, 0.75 * from + 0.25 * target, 1, 1).data;
  return alpha > 0 && red < 150;
};
(async () => {
  results.begin = [now, +$("slider").value];
  results.keys = [
    ["Home"], ["ArrowRight"], ["ArrowRight", true], ["ArrowLeft"], ["ArrowLeft", true], ["ArrowLeft"],
    ["End"], ["ArrowRight"], ["ArrowLeft"],
  ].map(([name, shiftKey]) => { key(name, {shiftKey}); return now; });
  $("slider").value = 7.3;
  $("slider").dispatchEvent(new Event("input"));
  results.slid = [now, $("now").textContent];
  results.hover = [];
  for (const [device, time] of [[0, 0.5], [2, 1.5], [0, 25.5], [3, 31.5], [0, 12.5], [3, 47.5]]) {
    await point("pointermove", device, time);
    results.hover.push(tip());
  }
  await point("pointerleave", 0, 0);
  results.left = tip();
  await point("pointerdown", 2, 4.5);
  await point("pointerup", 2, 4.5);
  results.clicked = $("said").textContent;
  canvas.focus();
  key("ArrowDown");
  results.below = $("said").textContent;
  canvas.blur();
  results.blurred = $("said").textContent;

  key("Home"); key("ArrowRight"); key("ArrowRight");
  const underWay = run.arrows.filter(({start, end}) => start <= 2 && 2 <= end);
  results.silent = underWay.map(isDark);
  $("messages").click();
  const isPressed = $("messages").getAttribute("aria-pressed");
  results.arrows = [arrowsOf(0).map(({label}) => label), underWay.map(isDark), isPressed];
  key("+"); key("+");
  results.zoomed = [view.from, view.to];
  key("0");
  results.unzoomed = view;
  results.unnamed = [...document.querySelectorAll("button, select, input, canvas")]
    .filter(one => !(one.getAttribute("aria-label") || one.matches("button") && one.textContent.trim()))
    .map(one => one.id);
  const heading = document.querySelector("h1").textContent;
  results.title = [document.title, heading, $("figures").innerText.split(/\\s*\\n\\s*/)];
  results.legend = [...$("legend").children].map(item => item.textContent);
  results.bars = [...$("bars").querySelectorAll("button")].map(item => item.textContent);

  // without a window there are no frames
  window.requestAnimationFrame = frame => setTimeout(() => frame(performance.now()), 16);
  key("Home");
  key(" ");
  results.plays = [playing, $("play").textContent];
  setTimeout(() => {
    key(" ");
    results.played = [now, playing, $("play").textContent];
    playUntil(makespan - 2);
    key(" ");
    setTimeout(() => { results.over = [now, playing, $("play").textContent]; report(); }, 1000);
  }, 1500);
})();
"""


@in_a_browser
def test_a_reader_can_walk_through_a_run(tmp_path):
    trace = mp.simulate(build("1f1b", 4, 8), mp.Costs(F=1, B=2), mp.Link(latency=1))
    end = trace.makespan
    seen = browse(tmp_path, trace.to_html(title="1F1B <&> 'friends'"), WALK, "--virtual-time-budget=4000")
    assert seen["begin"] == [None, end]
    assert seen["keys"] == [0, 1, 11, 10, 0, 0, None, end, end - 1]
    assert seen["slid"] == [7, "7"]
    places = [(0, 0.5), (2, 1.5), (0, 25.5), (3, 31.5), (0, 12.5), (3, 47.5)]
    for (device, time), tip in zip(places, seen["hover"], strict=True):
        assert tip.startswith(answer(trace, device, time))
    assert seen["left"] is None and seen["blurred"] == ""
    assert seen["clicked"].startswith(f"device 2: {answer(trace, 2, 4.5)}")
    assert seen["below"].startswith("device 3: ")
    under_way = [str(message.label) for message in trace.messages if message.sent <= 2 <= message.arrived]
    n_arrows = len(under_way)
    # dark only once they are asked for
    assert seen["silent"] == [False] * n_arrows and n_arrows > 0
    assert seen["arrows"] == [under_way, [True] * n_arrows, "true"]
    begin, stop = seen["zoomed"]
    assert begin <= 2 <= stop and stop - begin == end / 4 and seen["unzoomed"] is None
    assert seen["unnamed"] == []
    assert seen["title"][:2] == ["1F1B <&> 'friends'"] * 2
    bubbles = {f"{100 * trace.bubble(of):.1f} %" for of in BUBBLES}
    assert set(seen["title"][2]) >= {f"{end} ticks", *bubbles}
    assert seen["legend"] == ["F forward", "B backward"]
    idle = [f"{cause} {ticks}" for cause, ticks in trace.explain().totals().items() if ticks]
    assert seen["bars"] == ["F 32", "B 64", *idle]
    assert seen["plays"][0] and seen["plays"][1].endswith("Pause")
    # 1.5 seconds, of at most 12 in all
    assert 0 < seen["played"][0] < end and not seen["played"][1] and seen["played"][2].endswith("Play")
    assert seen["over"][0] is None and not seen["over"][1]


def answer(trace, device, time):
    """What the page must say of a device at a time."""
    for span in trace.spans_of(device):
        if span.start <= time < span.end:
            kind, stage, microbatch = span.label
            name = {"F": "forward", "B": "backward"}[kind]
            return (
                f"{span.label}, {name} of micro-batch {microbatch} on stage {stage}\n"
                f"tick {span.start} to {span.end} ({span.end - span.start} tick"
            )
    idle = next(idle for idle in trace.idle if idle.device == device and idle.start <= time < idle.end)
    return trace.explain().describe(idle)


PATH = VIEW + """
const places = [[0, 0.8], [1, 2.5], [0, 2.5]];
const outlines = () => places.map(place => pixel(...place, 1)[0] < 60);
results.before = outlines();
$("path").click();
results.after = outlines();
results.pressed = $("path").getAttribute("aria-pressed");
key("p");
results.off = outlines();
results.why = $("why").textContent;
report();
"""


@in_a_browser
def test_the_critical_path_is_outlined(tmp_path):
    trace = mp.simulate(build("gpipe", 2, 4), mp.Costs(F=Fraction(5, 3), B=Fraction(2, 3)))
    seen = browse(tmp_path, trace.to_html(), PATH)
    assert seen["before"] == seen["off"] == [False] * 3 and seen["pressed"] == "true"
    assert seen["after"] == [True, True, False], "the second forward of device 0 is not on the path"
    assert "the critical path:" in seen["why"] and "idle ticks" in seen["why"]


SCRUB = VIEW + """
results.boxes = run.items.length;
const time = [];
key("Home");
for (let i = 0; i < 60; i++) {
  const start = performance.now();
  key("ArrowRight", {shiftKey: i % 2 === 0});
  pen.getImageData(0, 0, 1, 1);  // waits until the picture is painted
  time.push(performance.now() - start);
}
results.now = now;
results.zooms = ["+", "+", "-", "-"].map(name => {
  const start = performance.now();
  key(name);
  pen.getImageData(0, 0, 1, 1);
  return performance.now() - start;
});
results.steps = time.sort((a, b) => a - b);
report();
"""


@in_a_browser
def test_a_large_run_scrubs_smoothly(tmp_path):
    trace = mp.simulate(build("zb-h1", 32, 128), mp.Costs(F=1, B=2))
    seen = browse(tmp_path, trace.to_html(), SCRUB)
    assert seen["boxes"] == 3 * 32 * 128 and seen["now"] == 30 * 10 + 30
    # milliseconds; the middle one, because other programs share the machine
    assert seen["steps"][30] < 100
    assert 0 < min(seen["zooms"]) < 400  # here every visible box is drawn again


@in_a_browser
def test_boxes_below_two_pixels_have_their_mean_colour(tmp_path):
    """Else each pixel has the colour of its own box, and stripes show what is not there."""
    trace = trace_of(*((0, Action("FB"[i % 2], 0, i // 2), i, i + 1) for i in range(1000)))
    script = VIEW + """
    results.colours = [100, 301, 502.5, 803].map(time => pixel(0, time, 3));
    report();
    """
    mean = np.mean([bytes_of(STYLES[kind]["facecolor"]) for kind in "FB"], axis=0)
    for colour in browse(tmp_path, trace.to_html(), script)["colours"]:
        assert np.abs(colour - mean).max() < 20, (colour, mean)


@in_a_browser
def test_labels_of_any_kind_are_drawn(tmp_path):
    trace = trace_of(
        (0, Overlap(Action("F", 0, 1), Action("B", 1, 0)), 0, 3),
        (0, Action("U", 1, 0), 3, 3),
        (0, Action("F", 1, 1), 3, 4),
        (1, "</script><b>a long name that fits no box</b>", 0, Fraction(1, 2)),
        (1, ("a", 1), Fraction(1, 2), 4),
        n_devices=2,
    )
    script = VIEW + """
    const tips = [lanes[0].work[0], lanes[0].marks[0], ...lanes[1].work];
    results.tips = tips.map(item => describe(item, run));
    results.halves = [pixel(0, 0.1, 2), pixel(0, 0.1, 28), pixel(0, 3.1, 2)];
    results.fraction = describe({parts: lanes[0].work[0].parts, start: 1 / 3, end: 1}, run).split("\\n")[1];
    results.bold = document.querySelectorAll("b").length;
    report();
    """
    seen = browse(tmp_path, trace.to_html(), script)
    parts = "forward of micro-batch 1 on stage 0 and, at once, backward of micro-batch 0 on stage 1"
    assert f"0F1&1B0, {parts}" in seen["tips"][0]
    assert "1U0, update after micro-batch 0 on stage 1\nat tick 3" in seen["tips"][1]
    assert "</script><b>a long name that fits no box</b>, work\ntick 0 to 0.5 (0.5 ticks)" in seen["tips"][2]
    assert "('a', 1), work" in seen["tips"][3]
    assert seen["halves"] == [bytes_of(shade(*each, 2)) for each in (("F", 0), ("B", 1), ("F", 1))]
    assert seen["fraction"] == "tick 1/3 to 1 (2/3 ticks)" and seen["bold"] == 0


def bytes_of(colour):
    return [round(255 * part) for part in to_rgb(colour)]


@in_a_browser
def test_the_page_has_the_colours_of_the_pictures(tmp_path):
    """Of each kind of work, in each of three stages of a device, and black or white for the number in it."""
    script = VIEW + """
    const named = Object.keys(run.kinds);
    results.fills = named.map(kind => [kind, [0, 1, 2].map(place => picture.fillOf(kind, place))]);
    report();
    """
    actions = [Action(kind, stage, 0) for kind in STYLES for stage in range(3)]
    trace = trace_of(*((0, action, i, i + 1) for i, action in enumerate(actions)))
    seen = browse(tmp_path, trace.to_html(), script)
    assert [kind for kind, _ in seen["fills"]] == list(STYLES)
    for kind, fills in seen["fills"]:
        for place, fill in enumerate(fills):
            colour, (*rgb,) = shade(kind, place, 3), map(int, re.findall(r"\d+", fill["box"]))
            # a half is rounded up there, and to an even number here
            assert np.abs(np.subtract(rgb, bytes_of(colour))).max() <= 1, (kind, place)
            assert fill["text"] == {"black": "#000", "white": "#fff"}[ink(colour)], (kind, place)


@in_a_browser
def test_boxes_of_a_row_have_words_of_one_length_left_free(tmp_path):
    """Kind and micro-batch in a row of wide boxes; one short box leaves its row without any, until zoomed."""
    wide, short = [(0, 10), (10, 20), (20, 30)], [(0, 10), (10, 10.01), (20, 30)]
    trace = trace_of(
        *((device, Action("F", device, i), *when) for device, row in enumerate((wide, short))
          for i, when in enumerate(row)),
        n_devices=2,
    )
    script = VIEW + """
    const wordsIn = row => picture.wordsOf(row.work[1].parts[0])[picture.lengthOfWords(row.work, row)];
    results.words = lanes.map(row => wordsIn(row) ?? null);
    view = {from: 20, to: 30};
    draw();
    results.zoomed = picture.lengthOfWords([...picture.visible(lanes[1].work)], lanes[1]);
    const boxes = lanes.map(({top, box}) => [top, top + box]);
    const inABox = y => boxes.some(([top, end]) => top < y && y < end);
    results.between = [picture.edges(0, 1), picture.edges(1, 0)].flat().map(inABox);
    report();
    """
    seen = browse(tmp_path, trace.to_html(), script)
    assert seen == {"words": ["F1", None], "zoomed": 0, "between": [False] * 4}
