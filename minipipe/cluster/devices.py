"""Where the devices and their programs stand."""

from ..checks import checked_name, listed, whole_number, whole_numbers

COMPUTE = "compute"  # the lane of a device that runs one program


def lane_name(device, lane):
    """What a text calls a lane; the one that computes is the device.

    >>> lane_name(2, "compute"), lane_name(2, "communication")
    ('device 2', 'device 2 communication')
    """
    device, lane = whole_number("device", device, 0), checked_name("lane", lane)
    return f"device {device}" if lane == COMPUTE else f"device {device} {lane}"


class Device:
    """One device.

    inbox: {(source, label): a message that nobody has received yet}.
    waiting: {(source, label): the lane that waits for this message}.
    choosing: {label: the lane that waits for a message of this name from anybody}.
    n_running: how many of its programs are not over.
    """

    __slots__ = ("choosing", "inbox", "lanes", "n_running", "waiting")

    def __init__(self):
        self.lanes, self.inbox, self.waiting, self.choosing, self.n_running = [], {}, {}, {}, 0


class Lane:
    """One program of a device, and where it stands.

    number: its place among the lanes of all devices.
    program, resume: a generator; `resume(answer)` goes on with it, up to its next request.
    answer: what the program is resumed with.
    starts: a Compute that it has come to in this tick.
    waits_for: (label, other device, whether that one is to ask for it) of a message that nobody knows the
        arrival of.
    since: the tick at which it came to the Compute, or began to wait.
    work: the arguments of its Compute, and what that has returned.
    """

    __slots__ = (
        "answer", "device", "name", "number", "program", "resume", "since", "starts", "waits_for", "work",
    )

    def __init__(self, number, device, name, program):
        self.number, self.device, self.name = number, device, name
        self.program, self.resume = program, program.send
        self.answer = self.starts = self.waits_for = self.work = None
        self.since = 0


def devices_of(programs):
    """(the devices, their lanes device by device) that run `programs`; `ValueError` if they cannot."""
    if hasattr(programs, "send"):
        raise ValueError("programs is one program: pass a list, [program], with one for each device")
    devices, lanes = [], []
    for number, program in enumerate(listed("programs", programs, least=0)):
        device = Device()
        for name, of_lane in _lanes_of(program, number).items():
            lane = Lane(len(lanes), number, name, of_lane)
            lanes.append(lane)
            device.lanes.append(lane)
        device.n_running = len(device.lanes)
        devices.append(device)
    first = {}
    for lane in lanes:
        other = first.setdefault(lane.program, lane)
        if other is not lane:
            who = f"{lane_name(lane.device, lane.name)} and {lane_name(other.device, other.name)}"
            raise ValueError(f"{who} have the same generator to run: call its function once for each")
    return devices, lanes


def _lanes_of(program, number):
    """{name of a lane: its program} of device `number`."""
    lanes = program if isinstance(program, dict) else {COMPUTE: program}
    if COMPUTE not in lanes:
        names = f"the lanes {', '.join(map(repr, lanes))}" if lanes else "no lanes"
        raise ValueError(f"device {number} has {names}, and nothing to compute: call one of them {COMPUTE!r}")
    for name, of_lane in lanes.items():
        if not hasattr(of_lane, "send"):
            what = "a function" if callable(of_lane) else repr(of_lane)
            raise ValueError(
                f"the lane {name!r} of device {number} has {what} to run: give it a generator, as a call "
                "of a function with yield makes one, or leave the lane out"
            )
    return lanes


def shares_of(shares, devices):
    """Return for each device how many stages share it: 1, unless `shares` says otherwise."""
    if shares is None:
        return [1] * devices
    shares = list(whole_numbers("shares", shares, 0))
    if len(shares) != devices:
        raise ValueError(f"shares has {len(shares)} numbers for {devices} devices: give one for each")
    return shares
