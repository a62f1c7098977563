"""An exchange is work that one sees: a box in all views, a cause of idle time, and its hidden part."""

import re
from fractions import Fraction

import numpy as np
import pytest
from ticks.programs import COMMUNICATION

import minipipe as mp
from minipipe.cluster import COMPUTE
from minipipe.order import Action, in_copies, with_all_reduce
from minipipe.plots.boxes import boxes, rows_of
from minipipe.plots.html import picture
from minipipe.schedules import build

LINK = mp.Link(latency=Fraction(3, 2))


def trained(**options):
    rng = np.random.default_rng(0)
    layers = [mp.Linear(4, 8), mp.Linear(8, 8), mp.Linear(8, 8), mp.Linear(8, 2)]
    net = mp.Parallel(layers, mp.MeanSquaredError(), microbatches=4, link=LINK, **options)
    batch = rng.standard_normal((4, 8)), rng.standard_normal((2, 8))
    if options.get("zero"):
        net.train([batch], mp.SGD(0.1))
    else:
        net.forward_backward(*batch)
    return net.trace


def copies(algorithm="owners", lead=with_all_reduce, n=2):
    return mp.simulate(lead(in_copies(build("looped", 2, 4), n)), link=LINK, all_reduce=algorithm)


def uneven():
    links = dict.fromkeys([(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1)], LINK)
    links |= dict.fromkeys([(2, 3), (3, 2)], mp.Link(latency=7))
    return mp.simulate(with_all_reduce(in_copies(build("gpipe", 2, 2), 2)), link=links)


EXCHANGES = {  # name -> (a run, kinds, lanes and axes of its exchanges)
    "in the order": (copies, {("A", COMMUNICATION, "dp")}),
    "at the end": (lambda: copies(lead=lambda schedule: schedule), {("A", COMPUTE, "dp")}),
    "doubling": (lambda: copies("doubling", n=4), {("A", COMMUNICATION, "dp")}),
    "one copy later": (lambda: uneven(), {("A", COMMUNICATION, "dp")}),
    "a ring at the end": (lambda: copies("ring", lambda schedule: schedule, 4),
                          {("values", COMPUTE, "dp"), ("A", COMPUTE, "dp")}),
    "ZeRO 1": (lambda: trained(replicas=2, stages=2, zero=1),
               {("S", COMMUNICATION, "dp"), ("G", COMMUNICATION, "dp")}),
    "ZeRO 3": (lambda: trained(replicas=2, stages=2, zero=3),
               {("S", COMMUNICATION, "dp"), ("G", COMMUNICATION, "dp")}),
    "shards": (lambda: trained(replicas=2, shards=2, stages=2), {("A", COMPUTE, "tp"), ("A", COMPUTE, "dp")}),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_all_views_show_an_exchange_from_first_send_to_last_arrival(name):
    make, kinds = EXCHANGES[name]
    trace = make()
    assert {(each.label.kind, each.lane, each.axis) for each in trace.exchanges} == kinds
    calls = {}  # (device, lane, group, number of its call) -> its messages from and to there
    for each in trace.messages:
        call = re.match(r"(\D+\d+): (\D+?) (\d+)", str(each.label))
        for end in ((each.source, each.lane), (each.to, each.to_lane)) if call else ():
            number = int(call[3])
            if call[2] == "values" and end[1] == COMMUNICATION:
                number += 1  # the sum follows, and is one exchange with it
            calls.setdefault((*end, call[1], number), []).append(each)
    expected = []
    for (device, lane, *_), its in calls.items():
        sent = min(each.sent for each in its if each.source == device)
        expected.append((device, lane, sent, max(each.received for each in its if each.to == device)))
    found = sorted((each.device, each.lane, each.start, each.end) for each in trace.exchanges)
    assert found == sorted(expected) and found
    rows, names = rows_of(trace), list(rows_of(trace))
    long = [(each.start, each.end, names.index((each.device, each.lane))) for each in trace.exchanges]
    drawn = [box for box in boxes(trace) if box.kind in {kind for kind, _, _ in kinds}]
    assert {(box.left, box.right) for box in drawn} == {each[:2] for each in long}  # and no mark at the end
    middles = {round((box.top + box.bottom) / 2, 6) for box in drawn}
    assert middles == {round(rows[names[row]].middle, 6) for _, _, row in long}
    spans = picture(trace)["spans"]
    columns = zip(*(spans[name] for name in ("start", "end", "row", "exchange")))
    page = [row[:3] for row in columns if row[3]]
    assert sorted(page) == sorted(long)
    events = [event for event in trace.to_chrome_trace()["traceEvents"] if event["ph"] == "X"]
    shown = [(each["args"]["start"], each["args"]["end"], each["tid"] - 1) for each in events]
    assert not set(long) - set(shown)


def test_text_shows_an_exchange_as_wide_as_its_ticks():
    trace = mp.simulate(with_all_reduce(in_copies(build("gpipe", 2, 2), 2)), link=mp.Link(latency=2))
    assert trace.to_text().splitlines()[1:5] == [
        "device 0       F0F1..............B1--B0--........",
        "communication  ..........................A1------",
        "device 1       ......F0F1B1--B0--................",
        "communication  ..................A1------........",
    ]
    at_the_end = mp.simulate(in_copies(build("gpipe", 2, 2), 2), link=mp.Link(latency=2))
    assert at_the_end.to_text().splitlines()[1] == "device 0  F0F1..............B1--B0--A-------"


def test_explanations_say_which_exchange_devices_wait_for():
    trace = copies()
    explained, said = trace.explain(), str(trace.explain())
    assert "the all-reduce of the gradients of stage 1" in said and "owners all-reduce" not in said
    waits = [idle for idle in trace.idle if idle.lane == COMMUNICATION and idle.reason == "fill"]
    assert {part.cause for idle in waits for part in explained.parts[idle]} == {"fill", "exchange"}
    zero = trained(replicas=2, stages=2, zero=1).explain()
    last = [idle for idle in zero.parts if idle.reason == "drain" and idle.lane == COMPUTE]
    assert last and all(part.blame.label.kind == "G" for idle in last for part in zero.parts[idle][:1])
    assert zero.describe(last[0]).startswith("device 2 (d0 p1) is done and idle for")
    assert "communication: 1G1)" in zero.describe(last[0])


@pytest.mark.parametrize("name", EXCHANGES)
def test_busy_time_of_exchanges_is_hidden_or_exposed(name):
    """The same once more, instant by instant; exposed: an idle part that blames a message of the axis."""
    trace = EXCHANGES[name][0]()
    expected = {axis: {"busy": 0, "hidden": 0, "exposed": 0} for axis in ("tp", "dp", "pp")}
    explained = trace.explain()
    for device in range(trace.n_devices):
        periods = [(each.axis, each.start, each.end) for each in trace.exchanges if each.device == device]
        periods += [("pp", each.sent, each.arrived) for each in trace.messages
                    if device in (each.source, each.to) and isinstance(each.label, Action)]
        work = [(span.start, span.end) for span in trace.spans_of(device, COMPUTE)]
        ticks = sorted({tick for _, *period in [*periods, *((0, *span) for span in work)] for tick in period})
        for start, end in zip(ticks, ticks[1:]):
            now = (start + end) / 2
            computes = any(first < now < last for first, last in work)
            for axis in {axis for axis, first, last in periods if first < now < last}:
                expected[axis]["busy"] += end - start
                expected[axis]["hidden"] += (end - start) * computes
    found = explained.exchanges()
    for axis, times in found.items():
        assert times["exposed"] <= times["busy"] - times["hidden"]
        assert times == expected[axis] | {"exposed": times["exposed"]}
    assert [axis for axis in expected if expected[axis]["busy"]] == [*found]
    collective = sum(times["exposed"] for axis, times in found.items() if axis != "pp")
    own = [part.end - part.start for idle, parts in explained.parts.items() if idle.lane == COMPUTE
           for part in parts if part.cause == "exchange" and idle.device in blamed(part.blame)]
    assert collective == sum(own) > 0


def blamed(blame):
    return (blame.device,) if hasattr(blame, "device") else (blame.source, blame.to)
