"""Checkers for notebook 51, the same bubble with less memory."""


from minipipe import Costs, Schedule, ScheduleError, simulate
from minipipe.order import peak_microbatches
from minipipe.schedules import gpipe

from . import judged, short

STAGES, MICROBATCHES = 2, 3            # of the schedule to be written
BEST = (MICROBATCHES + STAGES - 1) * 3  # ticks, with F = 1 and B = 2


def check_idle_ticks(idle_ticks):
    """Judge `idle_ticks(K, M, F, B)`: the ticks in which devices are idle under GPipe, added up over all K
    devices.

    K stages, M micro-batches, F and B the ticks of a forward and of a backward. The truth is counted in runs.

    >>> check_idle_ticks(lambda K, M, F, B: (K - 1) * (F + B))
    'Your bubble counts only one device: each of the K devices idles that long.'
    """
    cases = [(4, 8, 1, 2), (3, 7, 2, 5), (5, 4, 3, 1), (6, 11, 2, 2), (1, 3, 1, 2)]
    mistakes = [
        (lambda K, M, F, B: (K - 1) * (F + B),
         "Your bubble counts only one device: each of the K devices idles that long."),
        (lambda K, M, F, B: K * (K - 1) * (F + B) / 2,
         "That is half of it, the idle time before a device's first and after its last action: a device also "
         "waits between its forwards and its backwards."),
        (lambda K, M, F, B: K * (K - 1) * F,
         "That is the bubble of the forwards only: the backwards leave gaps of B ticks, too."),
        (lambda K, M, F, B: K * (K - 1) * B,
         "That is the bubble of the backwards only: the forwards leave gaps of F ticks, too."),
        (lambda K, M, F, B: K * (K - 1),
         "That counts gaps, not ticks: a gap of one forward and one backward lasts F + B ticks."),
        (lambda K, M, F, B: 2 * K * (K - 1),
         "That counts gaps, not ticks: a forward's gap lasts F ticks, a backward's B."),
        (lambda K, M, F, B: K * K * (F + B),
         "One gap too many on each device: a device is idle while the K - 1 others are "
         "ahead or behind, not K."),
        (lambda K, M, F, B: (M + K - 1) * (F + B),
         "That is the makespan of GPipe: subtract from it the ticks in which a device works, "
         "and add up the devices."),
        (lambda K, M, F, B: K * (M + K - 1) * (F + B),
         "Those are all ticks of all devices, the busy ones too: subtract K M (F + B)."),
        (lambda K, M, F, B: K * M * (F + B), "Those are the busy ticks; asked were the idle ones."),
        (lambda K, M, F, B: K * (K - 1) * M * (F + B),
         "That is the naive schedule's: in GPipe the devices work at the same time."),
        (lambda K, M, F, B: (K - 1) / (M + K - 1), "That is the share of idle time; asked were ticks."),
        (lambda K, M, F, B: (K - 1) / M, "That is a share, idle / ideal time; asked were ticks."),
    ]
    right = [sum(span.end - span.start for span in simulate(gpipe(K, M), Costs(F, B)).idle)
             for K, M, F, B in cases]
    return judged(idle_ticks, "KMFB", cases, right, mistakes) or (
        "Right: K (K - 1)(F + B). M does not occur: more micro-batches make the bubble's share "
        "smaller, not the bubble.")


def check_own_schedule(schedule):
    """Judge a schedule for 2 devices and 3 micro-batches, as text, a list of lines, or a `Schedule`.

    Asked is the best makespan, with F = 1 and B = 2, and at most 2 micro-batches alive on device 0.

    >>> check_own_schedule(["F0 F1 F2 B2 B1 B0", "F0 F1 F2 B2 B1 B0"])
    'The makespan is the best, 12 ticks, but 3 micro-batches are alive on device 0: start a backward
    before the last forward.'
    """
    schedule, sentence = runnable(schedule, STAGES, MICROBATCHES)
    return sentence or _judge_run(simulate(schedule))


def runnable(answer, n_devices, n_microbatches):
    """(the learner's `Schedule`, None) if it runs, has these sizes and stage r on device r, or (None,
    sentence).

    answer: a text, a list of lines, or a `Schedule`.

    >>> runnable("F0 B0\\nB0 F0", 2, 1)
    (None, 'It cannot run: device 1: 1B0 comes before its forward 1F0.')
    """
    if answer is None or (isinstance(answer, (str, list, tuple)) and not "".join(map(str, answer)).strip()):
        return None, "Not solved yet: there is no action in it."
    try:
        schedule = _read(answer)
    except ScheduleError as error:
        return None, f"That cannot be read: {short(error, 200)}"
    if schedule is None:
        return None, "Write text with one line for each device, such as 'F0 F1 B0 B1'."
    sentence = _wrong_size(schedule, n_devices, n_microbatches)
    if sentence is not None:
        return None, sentence
    faults = schedule.faults()
    if faults:
        more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
        return None, f"It cannot run: {faults[0]}{more}."
    if schedule.placement != list(range(n_devices)):
        where = "exchange the two lines" if n_devices == 2 else "write the lines in the order of the stages"
        return None, f"Stage 0 belongs on device 0 and stage 1 on device 1: {where}."
    return schedule, None


def _read(schedule):
    """The `Schedule` of the learner, or None for what is no text."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        return Schedule.from_text(schedule)
    if isinstance(schedule, (list, tuple)) and all(isinstance(line, str) for line in schedule):
        return Schedule.from_text(list(schedule))
    return None


def _wrong_size(schedule, n_devices, n_microbatches):
    """A sentence about the number of devices and micro-batches, or None if they are as asked."""
    if len(schedule.devices) != n_devices:
        return f"Devices (lines) in your schedule: {len(schedule.devices)}; asked were {n_devices}."
    indices = {part.microbatch for device in range(n_devices) for part in schedule.parts(device)}
    asked = ", ".join(map(str, range(n_microbatches - 1))) + f" and {n_microbatches - 1}"
    if indices == set(range(1, n_microbatches + 1)):
        return f"Micro-batches are counted from 0: here they are {asked}."
    if not indices:
        return "Not solved yet: there is no action in it."
    if max(indices) != n_microbatches - 1:
        return (f"Your micro-batches are {', '.join(map(str, sorted(indices)))}; asked were "
                f"{n_microbatches}: {asked}.")
    return None


def _judge_run(trace):
    peak = peak_microbatches(trace)[0]
    if any(span.label.kind == "R" for span in trace.spans):
        return f"It recomputes, which nobody asked for, and takes {trace.makespan} ticks: leave the R out."
    if sum(trace.busy_ticks()) == trace.makespan:
        return (f"One device works at a time, as in the naive schedule: {trace.makespan} "
                f"ticks instead of {BEST}.")
    if trace.makespan > BEST:
        longest = max((span for span in trace.idle if span.reason == "wait"),
                      key=lambda span: span.end - span.start)
        return f"It takes {trace.makespan} ticks, the best is {BEST}. The longest wait: {longest}."
    if peak > 2:
        return (f"The makespan is the best, {BEST} ticks, but {peak} micro-batches are alive on device 0: "
                "start a backward before the last forward.")
    return f"Right: {BEST} ticks, and at most {peak} micro-batches alive on device 0. That is 1F1B."
