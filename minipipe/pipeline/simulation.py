"""The run of a schedule without any arithmetic."""

from ..cluster import Link, Links, Message, Record, Trace
from ..schedules import Action, Costs
from ..schedules.playing import devices_of_stages, play
from .program import DIRECTION, cluster_of, kinds_of_the_flush

ARRIVED, RECEIVED = map(Message._fields.index, ("arrived", "received"))


def simulate(schedule, costs=Costs(), link=Link()):
    """The `Trace` of `schedule`: when each action starts and ends, and why a device waits.

    link: a `Link` for all pairs of devices, or a dict {(source, to): Link}. The trace is that of a pipeline with these
    costs. Raises `ScheduleError` for a schedule with faults, `ValueError` for costs or links that do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    if schedule.n_copies > 1 or kinds_of_the_flush(schedule, costs):
        return cluster_of(schedule.validate(), costs, link).run()
    timing = _Timing(schedule, costs, link)
    if play(schedule, timing) is not None:
        schedule.validate()
    return timing.trace()


class _Timing:
    """When each action of a schedule starts and ends: what the cluster finds with programs, several times as fast.

    An action starts when the one before it on its device has ended and its messages have arrived. Tests hold the trace equal
    to the cluster's.
    """

    def __init__(self, schedule, costs, link):
        n_stages, n_microbatches, n_devices = schedule.n_stages, schedule.n_microbatches, len(schedule.devices)
        self.duration, self.sizes = costs.duration(n_stages), costs.bytes_sent(n_stages)
        self.links, self.placement = Links(link, n_devices), devices_of_stages(schedule)[0]
        self.record = Record(n_devices)
        self.now = [0] * n_devices
        # way -> stage -> micro-batch -> place in the record of the message that it has sent, None: to its own device
        self.places = {way: [[None] * n_microbatches for _ in range(n_stages + 1)] for way in (1, 0, -1)}

    def perform(self, device, action, parts):
        now, record = self.now[device], self.record
        messages = record.messages
        for kind, stage, i in parts:
            way = DIRECTION[kind]
            place = self.places[way][stage - way][i]
            if place is not None:
                arrival = messages[place + ARRIVED]
                if arrival > now:
                    record.waits += (device, now, arrival, place)
                    now = arrival
                messages[place + RECEIVED] = now
        end = now + self.duration(action)
        record.spans += (device, action, now, end)
        self.now[device] = end
        for part in parts:
            way = DIRECTION[part[0]]
            if way:
                to = self.placement.get(part[1] + way, device)
                if to != device:
                    self.send(device, to, part, way)

    def send(self, device, to, part, way):
        kind, stage, i = part
        now, messages = self.now[device], self.record.messages
        n_bytes = self.sizes[stage] if way == 1 else self.sizes[stage - 1]
        arrival = self.links.arrival(device, to, now, n_bytes)
        self.places[way][stage][i] = len(messages)
        if arrival > now and self.links.blocks(device, to):
            self.record.blocked += (device, now, arrival, len(messages))
            self.now[device] = arrival
        messages += (part if kind != "I" else Action("B", stage, i), device, to, now, arrival, None, n_bytes)

    def trace(self):
        self.record.finished = self.now
        return Trace(self.record)
