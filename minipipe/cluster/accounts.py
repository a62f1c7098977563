"""What each device holds, in bytes, whenever that changes."""

from ..arguments import argument
from .errors import MemoryLimitError, memory_message
from .memory import Counted, bytes_by_kind

NO_WORK = {"work": 0}


class Accounts:
    """Counts what is held, writes it into the record, and stops a run that passes the limit.

    holdings: for each device a function that returns {kind: nested lists of arrays}, or all that there is to
        count as `Counted`.
    limit: bytes per device, or None.
    """

    def __init__(self, holdings, limit, devices, record):
        holdings = argument("holdings", holdings)
        if len(holdings) != len(devices):
            count = f"{len(holdings)} functions for {len(devices)} devices"
            raise ValueError(f"holdings has {count}: pass one for each")
        self._holdings, self._limit, self._devices, self._record = holdings, limit, devices, record
        self._last = [{} for _ in devices]  # the bytes that each device was last seen to hold, by kind
        self._next = [None] * len(devices)  # those that it will hold when its only lane has done its Compute
        self._received = set()  # the devices that have received something since their last Compute

    def resumed(self, lane, now):
        """The lane goes on: its Compute, if it had one, is over."""
        lane.work = None
        number = lane.device
        self.check_limit(number, now)
        self._observe(number, now, self._next[number] or self._held(number))
        self._next[number] = None

    def call(self, lane, function, args, now):
        """function(*args); what the device holds before it or after it counts, whichever is more."""
        number = lane.device
        lane.work = args
        before = self._held(number)
        answer = function(*args)
        lane.work = args, answer
        after = self._held(number)
        self._observe(number, now, after if sum(after.values()) > sum(before.values()) else before)
        if len(self._devices[number].lanes) == 1:
            self._next[number] = after | NO_WORK
        self._received.discard(number)
        self.check_limit(number, now)
        return answer

    def has_received(self, number):
        """The device may hold more from now on."""
        self._received.add(number)

    def after_receiving(self, number, now):
        """Nothing else will be received in this tick; a Compute with a function counts by itself."""
        if number in self._received:
            self._observe(number, now, self._held(number))
            self._received.discard(number)

    def check_limit(self, number, now):
        """What the device has held since it was last looked at, and the messages that arrived before `now`.

        A device whose programs are over is not looked at again, so there all messages count, whenever they
        arrive.
        """
        if self._limit is None:
            return
        device = self._devices[number]
        messages = [
            message.value for message in device.inbox.values()
            if message.arrival is not None and (message.arrival < now or not device.n_running)
        ]
        held = self._last[number] | bytes_by_kind({"messages": messages})
        if sum(held.values()) > self._limit:
            raise MemoryLimitError(memory_message(number, now, held, self._limit))

    def _held(self, number):
        """{kind: bytes} of the device, and of what its lanes work with."""
        held = self._holdings[number]()
        works = []
        for lane in self._devices[number].lanes:
            if lane.work is not None:
                works.append(lane.work)
        if type(held) is Counted:
            return dict(held) if works else held | NO_WORK
        return bytes_by_kind(held | {"work": works} if works else held)

    def _observe(self, number, now, held):
        """Write down {kind: bytes}."""
        self._last[number] = held
        self._record.memory += (number, now, held)
