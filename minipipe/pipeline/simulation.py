"""The run of a schedule without any arithmetic."""

from ..cluster import Link, Links, Message, Record, Trace
from ..schedules import Action, Costs, Schedule
from ..schedules.costs import checked_costs
from ..schedules.playing import play
from ..schedules.validation import wrong_form
from .foresight import Foresight
from .program import DIRECTION, Neighbours, kinds_of_the_flush

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
    if footprints is not None or schedule.asynchronous or wrong_form(schedule):
        schedule.validate()  # before its bytes, updates and tables are looked up
    timing = _Timing(schedule, costs, link, footprints)
    if play(schedule, timing) is not None:
        schedule.validate()
    if schedule.n_copies > 1:
        timing.exchange_copies(*schedule.placements)
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
            if not way or to is None or (to == device and foresight is None):
                continue
            label = part if kind != "I" else Action("B", stage, i)
            n_bytes = self.sizes[min(stage, stage + way)] if foresight is None else foresight.sent(kind, stage, i)
            places[way][stage][i] = self.send(label, device, to, n_bytes)

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
        stages, foresight = range(len(first)), self.foresight
        sizes = [foresight.bytes_of_sums(1, stage) if foresight else 0 for stage in stages]
        totals = [foresight.footprints[0][stage] if foresight else None for stage in stages]
        sums = [self.send(f"sums of stage {stage}", second[stage], first[stage], sizes[stage]) for stage in stages]
        back = []
        for stage in stages:
            self.receive(first[stage], sums[stage])
            n_bytes = totals[stage].gradients + totals[stage].statistics if foresight else 0
            back.append(self.send(f"totals of stage {stage}", first[stage], second[stage], n_bytes))
        for stage in stages:
            self.receive(second[stage], back[stage])

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
