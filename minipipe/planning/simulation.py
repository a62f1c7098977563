"""The run of a schedule without any arithmetic."""

from ..cluster import Link, Links, Message, Record, Trace
from ..schedules import Action, Costs, Schedule
from ..schedules.costs import checked_costs
from ..schedules.playing import play
from ..schedules.rules import CLOSING
from ..schedules.validation import wrong_form
from .foresight import Foresight
from ..pipeline.program import DIRECTION, MESSAGE, Neighbours, Routes, kinds_of_the_flush, label_of_skip

ARRIVED, RECEIVED = map(Message._fields.index, ("arrived", "received"))


def simulate(schedule, costs=Costs(), link=Link(), footprints=None):
    """The `Trace` of `schedule`: when each action starts and ends, and why a device waits.

    link: a `Link` for all pairs of devices, or a dict {(source, to): Link}. footprints: the bytes of a micro-batch on each
    stage, by `footprints` or `measure`, or a list of these, one for each micro-batch, where their sizes differ; given them, the trace
    foresees the bytes that each device holds, and messages have their size. The trace is that of a pipeline with these
    costs. Raises `ScheduleError` for a schedule with faults, `ValueError` for costs or links that do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule={schedule!r} is none: pass a Schedule, such as build('1f1b', n_stages, n_microbatches)")
    checked_costs(costs)
    if footprints is not None or schedule.kinds & CLOSING or wrong_form(schedule):
        schedule.validate()  # before its bytes, updates and tables are looked up
    timing = _Timing(schedule, costs, link, footprints)
    if play(schedule, timing) is not None:
        schedule.validate()
    if schedule.n_copies > 1:
        timing.exchange_copies(*schedule.placements)
    if footprints is not None and not schedule.asynchronous:
        timing.exchange_tied(schedule.placement)
    timing.flush(schedule, kinds_of_the_flush(schedule, costs))
    return timing.trace()


class _Timing:
    """When each action of a schedule starts and ends: what the cluster finds with programs, several times as fast.

    An action starts when the one before it on its device has ended and its messages have arrived. Tests hold the trace equal
    to the cluster's.
    """

    def __init__(self, schedule, costs, link, footprints):
        n_stages, n_microbatches, n_devices = schedule.n_stages, schedule.n_microbatches, len(schedule.devices)
        self.duration, self.sizes = costs.duration(n_stages), costs.bytes_sent(n_stages)
        self.links, self.placements = Links(link, n_devices), schedule.device_of
        self.copy_of = schedule.copy_of or bytes(n_microbatches)
        self.record = Record(n_devices)
        self.foresight = None if footprints is None else Foresight(schedule, footprints, self.record)
        routes = Routes() if footprints is None else self.foresight.routes()
        self.arriving, self.leaving = routes.table(n_stages) if routes.skips else (None, None)
        self.skips = {}  # (name, kind of message, micro-batch) -> place in the record
        self.now = [0] * n_devices
        # way -> stage -> micro-batch -> place in the record of the message that it has sent, None: to itself
        self.places = {way: [[None] * n_microbatches for _ in range(n_stages + 1)] for way in (1, 0, -1)}

    def perform(self, device, action, parts):
        """`play` says that this device comes to this action."""
        places, foresight = self.places, self.foresight
        for kind, stage, i in parts:
            way = DIRECTION[kind]
            place = places[way][stage - way][i]
            if place is not None:
                self.receive(device, place)
            for name, _ in self.arriving[kind][stage] if self.arriving else ():
                self.receive(device, self.skips.pop((name, MESSAGE[kind], i)))
        start = self.now[device]
        self.now[device] = end = start + self.duration(action)
        self.record.spans += (device, action, start, end)
        if foresight is not None:
            foresight.perform(device, parts, start, end)
        for part in parts:
            kind, stage, i = part
            way = DIRECTION[kind]
            to = self.placements[self.copy_of[i]].get(stage + way)
            # what a device sends to itself takes no time, but memory
            if way and to is not None and (to != device or foresight is not None):
                label = part if kind != "I" else Action("B", stage, i)
                n_bytes = self.sizes[min(stage, stage + way)] if foresight is None else foresight.sent(kind, stage, i)
                places[way][stage][i] = self.send(label, device, to, n_bytes)
            for name, target in self.leaving[kind][stage] if self.leaving else ():
                message, to = MESSAGE[kind], self.placements[self.copy_of[i]][target]
                n_bytes = foresight.footprints[i][stage].skips[message, name]
                self.skips[name, message, i] = self.send(label_of_skip(message, stage, i, name), device, to, n_bytes)

    def meet(self, actions):
        """`play` says that an all-reduce takes place: each device has paid for it when it came to its action."""

    def send(self, label, device, to, n_bytes):
        """The message's place in the record."""
        now, messages = self.now[device], self.record.messages
        place = len(messages)
        begin, arrival = self.links.transfer(device, to, now, n_bytes)
        if begin > now:
            self.record.queued += (place, begin)
        if arrival > now and self.links.blocks(device, to):
            self.record.blocked += (device, now, arrival, place)
            self.now[device] = arrival
        messages += (label, device, to, now, arrival, None, n_bytes)
        return place

    def receive(self, device, place):
        now, messages = self.now[device], self.record.messages
        arrival = messages[place + ARRIVED]
        if arrival > now:
            self.record.waits += (device, now, arrival, place)
            self.now[device] = now = arrival
        messages[place + RECEIVED] = now

    def exchange_copies(self, first, second):
        """At the end, each stage of the second copy hands its sums over to that of the first, and gets the totals back."""
        foresight, stages = self.foresight, range(len(first))
        sizes, totals = [[0, 0]] * len(first), [0] * len(first)
        if foresight is not None:
            sizes = [[foresight.bytes_of_sums(copy, stage) for copy in (0, 1)] for stage in stages]
            totals = [of_stage.gradients + of_stage.statistics for of_stage in foresight.footprints[0]]
        sums = [self.send(f"sums of stage {stage}", second[stage], first[stage], sizes[stage][1]) for stage in stages]
        back = []
        for stage in stages:
            self.receive_sums(first[stage], sums[stage], totals[stage] - sizes[stage][0])
            back.append(self.send(f"totals of stage {stage}", first[stage], second[stage], totals[stage]))
        for stage in stages:
            self.receive_sums(second[stage], back[stage], totals[stage] - sizes[stage][1])

    def receive_sums(self, device, place, n_bytes):
        """The device then holds so many bytes more, or fewer."""
        self.receive(device, place)
        if self.foresight is not None:
            self.foresight.keep_sums(device, n_bytes, self.now[device])

    def exchange_tied(self, placement):
        """At the end, tied layers send their dW to the first of them, which sends the sum back."""
        foresight = self.foresight
        ties = {name: [(layer, placement[stage], n_bytes) for layer, stage, n_bytes in layers] for name, layers in foresight.ties().items()}
        parts, totals = {}, []
        for name, ((_, first, _), *others) in ties.items():
            parts[name] = [self.send(f"dW of layer {layer} ({name})", device, first, n_bytes) for layer, device, n_bytes in others]
        for name, ((_, first, n_bytes), *others) in ties.items():
            for place in parts[name]:
                self.receive(first, place)
            foresight.keep_sums(first, n_bytes, self.now[first])
            for layer, device, n_bytes in others:
                totals.append((device, self.send(f"sum for layer {layer} ({name})", first, device, n_bytes), n_bytes))
        for device, place, n_bytes in totals:
            self.receive_sums(device, place, n_bytes)

    def flush(self, schedule, kinds):
        """What costs time at the end of a mini-batch."""
        for device in range(len(schedule.devices) if kinds else 0):
            stages_on_device = Neighbours(schedule).stages_on(device)
            for kind in kinds:
                for _, stage in stages_on_device:
                    action, start = Action(kind, stage, schedule.n_microbatches - 1), self.now[device]
                    self.now[device] += self.duration(action)
                    self.record.spans += (device, action, start, self.now[device])

    def trace(self):
        """What has happened."""
        self.record.finished = self.now
        return Trace(self.record)
