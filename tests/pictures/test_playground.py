"""The playground: its engine answers as the package does, in Python and in a browser; and its page works."""

import json
import os
import random
import re
import shutil
import threading
import time
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pictures.browser import CHROMIUM, Driven

import minipipe as mp
import minipipe.site
from minipipe.cluster import Exchange, Link, Span
from minipipe.order import in_copies, peak_microbatches, simulate, with_all_reduce, with_zero
from minipipe.order.simulate import names_in_split
from minipipe.plots.boxes import rows_of, spans_and_exchanges
from minipipe.schedules import SCHEDULES, build
from minipipe.site.live import lab
from minipipe.site.playground import write_playground

NAMES = [*SCHEDULES.load()]
HALVES = {"I", "W"}


def ask(name, **given):
    """The answer of the engine, from text to text."""
    return json.loads(lab.answer(name, json.dumps(given)))


def exact(number):
    """A number or a text as an int, or else as a fraction."""
    fraction = Fraction(number)
    return int(fraction) if fraction.denominator == 1 else fraction


def run(settings):
    """The run of one side, alone."""
    return ask("run", sides=[settings, None])["runs"][0]


# ---- every box, gap, message and number is that of the package ----

def same(picture, trace):
    """Assert that a picture is the one of `trace`, read off the trace itself."""
    rows = {lane: number for number, lane in enumerate(rows_of(trace))}
    spans, expected = picture["spans"], []
    for span in spans_and_exchanges(trace):
        place = rows[span.device, span.lane], float(span.start), float(span.end)
        parts = getattr(span.label, "parts", [(span.label.kind, None, None)])  # of an exchange
        for number, part in enumerate(parts):
            expected.append((*place, *part, [number, len(parts)], int(type(span) is Exchange)))
    columns = ("row", "start", "end", "kind", "stage", "microbatch", "part", "exchange")
    assert list(zip(*(spans[name] for name in columns))) == expected
    idle, causes = picture["idle"], trace.explain()
    assert list(zip(idle["row"], idle["start"], idle["end"])) == [
        (rows[each.device, each.lane], float(each.start), float(each.end)) for each in trace.idle
    ]
    if idle["words"] and idle["words"][0] is not None:
        assert idle["words"] == [causes.describe(each) for each in trace.idle]
        for each, numbers in zip(trace.idle, idle["blame"]):
            blamed = [part.blame for part in causes.parts[each] if type(part.blame) in (Span, Exchange)]
            assert {(spans["row"][i], spans["start"][i]) for i in numbers} == {
                (rows[one.device, one.lane], float(one.start)) for one in blamed
            }
    assert picture["messages"]["sent"] == [float(message.sent) for message in trace.messages]
    assert picture["makespan"] == float(trace.makespan)
    assert picture["bubble"] == float(trace.bubble())
    assert picture["causes"] == {name: float(ticks) for name, ticks in causes.totals().items()}
    assert sum(picture["busy"].values()) == pytest.approx(float(sum(trace.busy_ticks())), rel=1e-12)
    steps = trace.critical_path()
    assert picture["path"]["end"] == [float(step.end) for step in steps]


def grid():
    """The settings of over 1,100 runs: K, M, W's share of a backward and latency of every schedule."""
    for name, K, M in product(NAMES, (2, 4, 8), (4, 8, 16)):
        try:
            schedule = build(name, K, M)
        except ValueError as error:
            yield {"schedule": name, "K": K, "M": M}, str(error), None
            continue
        shares = ("0.25", "0.375", "0.5") if HALVES & schedule.kinds else ("0.5",)
        for share, latency in product(shares, ("0", "0.5", "1", "2")):
            W = exact(2 * Fraction(share))
            asked = {"schedule": name, "K": K, "M": M, "I": str(2 - W), "W": str(W), "latency": latency}
            yield asked, schedule, (mp.Costs(F=1, I=2 - W, W=W), Link(exact(latency)))


@pytest.mark.slow
def test_the_engine_gives_the_runs_of_the_package():
    n_runs = n_refused = 0
    for asked, schedule, machine in grid():
        found = run(asked)
        if machine is None:
            assert found == {"refused": schedule}
            n_refused += 1
            continue
        trace = simulate(schedule, *machine)
        same(found, trace)
        assert found["memory"]["peaks"] == [float(peak) for peak in peak_microbatches(trace)]
        n_runs += 1
    assert n_runs > 1100 and n_refused > 0


def random_settings(draw):
    """Settings as a visitor may make them: copies, limits, links, costs by device, orders of one's own."""
    name, K, M = draw.choice([*NAMES, "greedy"]), draw.randint(1, 5), draw.randint(1, 9)
    asked = {"schedule": name, "K": K, "M": M, "latency": draw.choice(["0", "0", "0.5", "1/7"])}
    for kind in "FIW":
        asked[kind] = " ".join(draw.choices(["1", "2", "0.1", "1/3", "0.75"], k=draw.choice([1, 1, K])))
    asked["transfer"] = draw.choice(["0", "0", "0.2"])
    asked["alive"] = draw.choice([None, None, "2", "3.5"])
    asked["D"] = draw.choice([1, 1, 1, 2, 3])
    asked["zero"] = draw.choice([0, 1, 2, 3]) if asked["D"] > 1 else 0
    if draw.random() < 0.25:
        try:
            words = [list(map(str, order)) for order in build(name, K, M).devices]
        except ValueError:
            return asked
        line = draw.choice(words)
        i, j = (draw.randrange(len(line)) for _ in range(2))
        line[i], line[j] = line[j], line[i]
        asked |= {"schedule": "own", "own": "\n".join(map(" ".join, words))}
    return asked


def by_hand(asked):
    """The trace of settings without shards, made by the package's own functions."""
    numbers = {kind: [exact(word) for word in asked[kind].split()] for kind in "FIW"}
    length = max(map(len, numbers.values()))
    costs = {kind: found if len(found) == length else found * length for kind, found in numbers.items()}
    if length == 1:
        costs = {kind: cost for kind, [cost] in costs.items()}
    transfer, latency = exact(asked["transfer"]), exact(asked["latency"])
    costs = mp.Costs(**costs, message_bytes=transfer, by="stage" if length == 1 else "device")
    link = Link(latency, Fraction(1)) if transfer else Link(latency)
    limits = asked["alive"] and exact(asked["alive"])
    if asked["schedule"] == "own":
        schedule = build(asked["own"].splitlines())
    elif asked["schedule"] == "greedy":
        schedule = mp.order.greedy_schedule(asked["K"], asked["M"], costs, most_alive=limits, latency=latency)
    else:
        schedule = build(asked["schedule"], asked["K"], asked["M"])
    stops, K = bool(schedule.faults()), len(schedule.devices)
    if asked["D"] > 1 and not stops:
        schedule = in_copies(schedule, asked["D"])
        if asked["zero"]:
            schedule = with_zero(schedule, asked["zero"])
        elif "U" not in schedule.kinds:
            schedule = with_all_reduce(schedule)
    trace = simulate(schedule, costs, link, as_far_as_it_goes=True)
    trace.names = [] if stops else names_in_split(asked["D"], K, 1)
    return trace, schedule.faults()


@pytest.mark.slow
def test_the_engine_equals_the_package_in_300_random_settings():
    draw, seen = random.Random(0), {"refused": 0, "faults": 0, "makespan": 0}
    for _ in range(300):
        asked = random_settings(draw)
        found = run(asked)
        seen[next(each for each in seen if each in found)] += 1
        try:
            trace, faults = by_hand(asked)
        except ValueError as error:
            assert found == {"refused": str(error)}, asked
            continue
        if faults:
            assert [each["words"] for each in found["faults"]] == faults, asked
            found = found["stopped"]
        if trace.spans:
            same(found, trace)
    assert min(seen.values()) > 15, seen


# ---- an order of one's own, copies and shards, bytes, files ----

DEADLOCK = "F0 F1 F2 B0 B1 B2\nF0 B0 F1 F2 B1 B2\nF0 F1 F2 B1 B0 B2"
MENDED = "F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\nF0 B0 F1 B1 F2 B2"


def test_an_order_that_cannot_run_says_where_and_goes_as_far_as_it_can():
    found = run({"schedule": "own", "own": DEADLOCK})
    (fault,), stopped = found["faults"], found["stopped"]
    assert fault["words"].startswith("deadlock: device 1 cannot start 1B0 before 2B0 on device 2")
    assert (stopped["makespan"], stopped["left"]) == (3, 13)
    where = [(each["device"], each["position"], each["action"], each["waits"]) for each in stopped["stop"]]
    assert where == [(0, 3, "0B0", "1B0"), (1, 1, "1B0", "2B0"), (2, 1, "2F1", "1F1")]
    words = run({"schedule": "own", "own": "F0 B0 Q7\nF0 X B0"})
    assert [(each["device"], each["position"]) for each in words["faults"]] == [(0, 2), (1, 1)]
    assert words["stopped"] is None
    mended = run({"schedule": "own", "own": MENDED, "K": 9, "M": 9})
    assert (mended["K"], mended["M"], mended["spans"]["action"][:4]) == (3, 3, [0, 1, 0, 2])
    assert ask("lines", side=0)["lines"] == MENDED


def test_a_limit_of_memory_that_is_broken_is_named():
    found = run({"schedule": "gpipe", "K": 2, "M": 4, "alive": "3 4"})
    assert found["memory"]["limits"] == [3, 4] and len(found["over"]) == 1
    assert "above the limit of 3" in found["over"][0]
    found = run({"schedule": "gpipe", "K": 2, "M": 4, "alive": "0"})
    assert (found["memory"]["limits"], len(found["over"])) == ([0, 0], 2)


def test_impossible_settings_are_refused_with_the_packages_message():
    for asked, words in (
        ({"schedule": "chimera", "K": 3}, "chimera needs an even number of devices"),
        ({"F": "fast"}, "'fast' is not a number: write 2, 0.1 or 1/3, or one for each device: 1 1 2 1"),
        ({"K": 0}, "devices=0 must be at least 1"),
        ({"D": "1.5"}, "copies=Fraction(3, 2) must be a whole number"),
        ({"latency": "1 2"}, "latency=[1, 2] must be a number"),
        ({"profile": "F,I\n1,1"}, "a profile needs the columns F, I, W and a row for each layer, at least 4"),
        ({"D": 2, "zero": 1, "K": 1, "profile": "F,I,W\n1,1,1"}, "counted without ZeRO"),
    ):
        assert words in run(asked)["refused"], asked


def test_replicas_and_shards_exchange_in_lanes_for_the_stated_ticks():
    """A copy sends an N-th of its gradients to each other one and gets an N-th back: links do so at once."""
    alone = run({"K": 2, "M": 2})
    copies = run({"K": 2, "M": 2, "D": 4, "gradients": 2})
    assert [each[1] for each in copies["rows"]][:2] == ["device 0: d0 p0", "communication"]
    assert copies["makespan"] == alone["makespan"] + 2 * 2 / 4 and "A" in copies["kinds"]
    halved = {"schedule": "zb-v", "K": 1, "M": 2}  # each of two stages on a device has half of its gradients
    assert run(halved | {"D": 2, "gradients": 2})["makespan"] == run(halved)["makespan"] + 2 * 2 / 2 / 2
    zero = run({"K": 2, "M": 2, "D": 2, "zero": 3, "gradients": 2})
    assert {"S", "G", "X", "U"} <= set(zero["kinds"])
    shards = run({"K": 1, "M": 3, "T": 2, "activations": "0.5"})
    assert shards["makespan"] == 3 * (1 + 2 + 2 * 0.5) and len(shards["rows"]) == 2
    assert shards["spans"]["exchange"].count(1) == 2 * 3 * 2


def test_a_profile_of_layers_gives_ticks_and_bytes():
    table = "F, I, W, activations, parameters, sent\n1,1,1,10,100,7\n2,1,1,10,200,7\n1,1,2,1,1000,0\n"
    found = run({"schedule": "gpipe", "K": 3, "M": 2, "profile": table})
    stages = mp.Costs(F=[1, 2, 1], I=[1, 1, 1], W=[1, 1, 2])
    assert found["makespan"] == simulate(build("gpipe", 3, 2), stages).makespan
    assert found["memory"]["unit"] == "bytes"
    assert found["memory"]["peaks"] == [100 + 2 * 10, 200 + 2 * 10, 1000 + 2 * 1]
    two = run({"schedule": "gpipe", "K": 2, "M": 2, "profile": table})
    assert two["memory"]["peaks"] == [100 + 2 * 10, 1200 + 2 * 11]
    sent = run({"schedule": "gpipe", "K": 2, "M": 2, "profile": table, "transfer": 1})
    assert sent["makespan"] == two["makespan"] + 2


def test_gaps_orders_and_files_come_one_by_one():
    found = run({"schedule": "zb-h1", "K": 3, "M": 3})
    trace = simulate(build("zb-h1", 3, 3), mp.Costs(F=1, I=1, W=1))
    for i, (words, blame) in enumerate(zip(found["idle"]["words"], found["idle"]["blame"])):
        told = ask("describe", side=0, i=i)
        assert (told["words"], told["blame"]) == (words, blame)
        assert words == trace.explain().describe(trace.idle[i])
    text = ask("lines", side=0)["lines"]
    assert build(text.splitlines()).devices == build("zb-h1", 3, 3).devices
    run({"schedule": "zb-v", "K": 2, "M": 2})
    text = ask("lines", side=0)["lines"]
    assert text.startswith("0F0 ") and build(text.splitlines()).devices == build("zb-v", 2, 2).devices
    run({"schedule": "zb-h1", "K": 3, "M": 3})
    table = ask("export", side=0, **{"as": "csv"})
    assert mp.Schedule.from_csv(table["text"]).devices == build("zb-h1", 3, 3).devices
    assert "<!doctype html>" in ask("export", side=0, **{"as": "html"})["text"]
    events = json.loads(ask("export", side=0, **{"as": "json"})["text"])["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == len(trace.spans)
    run({"schedule": "pipedream", "K": 2, "M": 2})
    assert "PyTorch" in ask("export", side=0, **{"as": "csv"})["refused"]


def test_a_search_proves_its_order():
    found = ask("search", settings={"K": 3, "M": 4, "alive": "3"}, halves=True, nodes=1000, seconds=9)
    assert (found["makespan"], found["bound"], found["proved"]) == (14, 14, True)
    assert run({"schedule": "own", "own": found["lines"]})["makespan"] == 14


def test_many_gaps_are_described_one_by_one():
    found = run({"schedule": "1f1b", "K": 8, "M": 96, "F": "1 2 1 2 1 2 1 2"})
    assert len(found["idle"]["row"]) > 400 and set(found["idle"]["words"]) == {None}
    assert ask("describe", side=0, i=300)["words"].startswith("device ")


# ---- in a browser: the page with Pyodide, served ----

PYODIDE = os.environ.get("PYODIDE")
REASON = "needs chromium on the PATH, and PYODIDE=the folder `package` that `npm pack pyodide` brings"


def in_chromium(test):
    """The decorator of a test that drives the page."""
    return pytest.mark.slow(pytest.mark.skipif(None in (CHROMIUM, PYODIDE), reason=REASON)(test))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where the playground is served."""
    folder = tmp_path_factory.mktemp("served")
    write_playground(folder / "live", Path(PYODIDE))
    shutil.copytree(folder / "live", folder / "without", ignore=lambda *_: ["pyodide.asm.wasm"])
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/live/index.html"
        server.shutdown()


@pytest.fixture
def page(address, tmp_path):
    """A browser with the playground, which has logged no error at the end."""
    with Driven(tmp_path) as driven:
        size = dict(width=1300, height=900, deviceScaleFactor=1, mobile=False)
        driven.call("Emulation.setDeviceMetricsOverride", **size)
        driven.call("Page.navigate", url=address)
        driven.until("window.playground && document.getElementById('sentence').textContent")
        yield driven
        assert driven.console == []


LIVE = "document.getElementById('engine').classList.contains('live')"
MAKESPAN = "playground.runs[0].makespan"
SENTENCE = "document.getElementById('sentence').textContent"


def put(page, **values):
    """Set fields of the form, as a visitor's typing does."""
    for name, value in values.items():
        page.run(f"""(field => {{
          field.value = {json.dumps(str(value))};
          for (const event of ["input", "change"]) field.dispatchEvent(new Event(event, {{bubbles: true}}));
        }})(document.getElementsByName("{name}")[0])""")


def press(page, name):
    page.run(f"document.getElementById('{name}').click()")


@in_chromium
def test_a_picture_is_there_at_once_and_the_engine_soon(page, address):
    page.call("Page.reload", ignoreCache=True)
    first = page.until("window.playground && playground.runs.length === 2", 10)
    stored = page.run("JSON.stringify([playground.runs.map(run => run.spans), " + SENTENCE + "])")
    live = page.until(LIVE)
    time.sleep(0.5)
    assert page.run("JSON.stringify([playground.runs.map(run => run.spans), " + SENTENCE + "])") == stored
    assert "1F1B takes 33 ticks, 6 more than Zero Bubble ZB-H1" in page.run(SENTENCE)
    assert first < 3 and live < 20, (first, live)


@in_chromium
def test_of_thirty_moves_of_a_slider_the_last_is_shown(page):
    page.until(LIVE)
    asked = page.run("""(async () => {
      const field = document.getElementsByName("M")[0];
      for (let M = 3; M <= 32; M++) {
        field.value = M;
        field.dispatchEvent(new Event("input", {bubbles: true}));
        await new Promise(done => setTimeout(done, 20));
      }
      field.dispatchEvent(new Event("change", {bubbles: true}));
    })()""")
    assert asked is None
    expected = (32 + 4 - 1) * 3
    page.until(f"{MAKESPAN} === {expected}", 20)
    time.sleep(0.5)
    assert page.run(MAKESPAN) == expected
    put(page, K=6, M=20, vs="none", F="1 1 2 1 1 1.5", I="1", W="0.5")
    costs = mp.Costs(F=[1, 1, 2, 1, 1, 1.5], I=[1] * 6, W=[0.5] * 6, by="device")
    page.until(f"{MAKESPAN} === {float(simulate(build('1f1b', 6, 20), costs).makespan)}", 20)


@in_chromium
def test_an_address_outside_the_sizes_shows_the_nearest_run_and_a_note(page):
    page.until(LIVE)
    page.run("location.hash = 'vs=none&K=64&M=512'")
    page.until(f"{MAKESPAN} === {(128 + 32 - 1) * 3}")
    note = page.run("document.getElementById('note').textContent")
    assert "K=64 is outside 1 to 32: this is K=32" in note and "M=512 is outside 1 to 128" in note


def test_every_key_of_an_address_is_documented():
    script = (Path(lab.__file__).parent / "app.js").read_text(encoding="utf-8")
    fields = re.search(r"const FIELDS = \{(.*?)\n\};", script, re.DOTALL)[1]
    keys = re.findall(r"(\w+): \{", fields)
    said = re.findall(r"^    ((?:\w+, )*\w+) {2,}", minipipe.site.__doc__, re.MULTILINE)
    assert ", ".join(said).split(", ") == keys


@in_chromium
def test_an_own_order_is_faulty_deadlocked_and_mended_in_the_page(page, address):
    page.until(LIVE)
    put(page, K=3, M=3, vs="none")
    page.until(f"{MAKESPAN} === 15")
    press(page, "edit")
    page.until("document.getElementsByName('own')[0].value.startsWith('F0 F1')")
    faults = "document.getElementById('faults').textContent"
    put(page, own="F0 Q7 F1\nF0 F1")
    page.until(f"{SENTENCE}.includes(\"'Q7' is not an action\") && {faults}.startsWith('Line 0, action 2')")
    put(page, own=DEADLOCK)
    page.until(f"{SENTENCE}.includes('eadlock: device 1 cannot start 1B0 before 2B0')")
    assert page.run("[playground.runs[0].left, playground.runs[0].stop.length]") == [13, 3]
    put(page, own=MENDED)
    mended = f"{MAKESPAN} === {simulate(build(MENDED.splitlines())).makespan}"
    page.until(f"{mended} && !{faults}")
    copied = page.run("location.href")
    assert "own=F0.F1.F2.B0.B1.B2~" in copied
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=copied)
    page.until(f"window.playground && {LIVE} && {mended}")
    x, y = (page.run(f"playground.at(0, 0, 1).{axis}") for axis in "xy")
    to_x = page.run("playground.at(0, 0, 2).x") + 30
    for kind, place in (("Pressed", x), ("Moved", x + 9), ("Moved", to_x), ("Released", to_x)):
        pressed = {"button": "left", "buttons": int(kind != "Released"), "clickCount": 1}
        page.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=place, y=y, **pressed)
    page.until("document.getElementsByName('own')[0].value.startsWith('F0 F2 F1')")


@in_chromium
def test_a_certificate_comes_from_a_second_engine(page):
    page.until(LIVE)
    put(page, s="gpipe", vs="none", K=3, M=4)  # a run that comes later would take the answer away
    page.until(f"playground.runs[0].name === 'gpipe' && {MAKESPAN} === 18")
    press(page, "search")
    page.until("/proved to be the shortest/.test(document.getElementById('found').textContent)")


@in_chromium
def test_a_saved_file_can_be_read_again(page, tmp_path):
    page.until(LIVE)
    put(page, s="zb-h1", vs="none", K=3, M=4)
    trace = simulate(build("zb-h1", 3, 4))
    page.until(f"{MAKESPAN} === {trace.makespan}")
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))

    def saved(ending):
        page.run(f"document.querySelector('#save [data-as={ending}]').click()")
        for _ in range(500):
            found = [each for each in tmp_path.glob(f"*.{ending}") if each.stat().st_size]
            if found:
                time.sleep(0.1)
                return found[0].read_bytes()
            time.sleep(0.02)
        raise AssertionError(f"no file {ending}")

    assert mp.Schedule.from_csv(saved("csv").decode()).devices == build("zb-h1", 3, 4).devices
    events = json.loads(saved("json"))["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == len(trace.spans)
    picture = ElementTree.fromstring(saved("svg"))
    words = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "device 2" in words and any("weight gradient" in each for each in words if each)
    assert b"<!doctype html>" in saved("html")[:20]


@in_chromium
def test_without_an_engine_the_stored_run_stays(address, tmp_path):
    with Driven(tmp_path) as page:
        page.call("Page.navigate", url=address.replace("live", "without"))
        page.until("window.playground && document.getElementById('engine').classList.contains('failed')")
        assert page.run(MAKESPAN) == 33 and page.run(SENTENCE).startswith("1F1B takes 33 ticks")


@in_chromium
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_telephone_shows_it_without_scrolling_sideways(page, theme):
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    page.run(f"location.hash = 'vs=zb-h1&theme={theme}'")
    page.until(LIVE)
    time.sleep(0.3)
    assert page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.run("document.documentElement.dataset.theme") == theme


@in_chromium
def test_the_engine_of_the_page_answers_as_python_does(page):
    """Texts are equal, character for character, in the runs of the grid and in 300 random settings."""
    page.until(LIVE)
    draw = random.Random(0)
    asked = [each for each, _, machine in grid() if machine] + [random_settings(draw) for _ in range(300)]
    page.run("""new Promise(done => {
      window.lab = new Worker("worker.js", {type: "module"});
      lab.onmessage = ({data}) => data.ready && done();
    })""")
    for i in range(0, len(asked), 50):
        texts = page.run(f"""(async () => {{
          const texts = [];
          for (const settings of {json.dumps(asked[i:i + 50])}) texts.push(await new Promise(done => {{
            lab.onmessage = ({{data}}) => done(data.text || data.crashed);
            lab.postMessage({{id: 1, ask: "run", sides: [settings, null]}});
          }}));
          return texts;
        }})()""")
        for settings, text in zip(asked[i:i + 50], texts, strict=True):
            assert text == lab.answer("run", json.dumps({"sides": [settings, None]})), settings
