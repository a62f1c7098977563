"""What all checkers of a learner's schedule ask first: whether it can be read, and runs."""

from minipipe.order import Schedule, ScheduleError

from . import short


def runnable(answer, devices, microbatches):
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
    sentence = _wrong_size(schedule, devices, microbatches)
    if sentence is not None:
        return None, sentence
    faults = schedule.faults()
    if faults:
        more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
        return None, f"It cannot run: {faults[0]}{more}."
    if schedule.placement != list(range(devices)):
        where = "exchange the two lines" if devices == 2 else "write the lines in the order of the stages"
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


def _wrong_size(schedule, devices, microbatches):
    """A sentence about the number of devices and micro-batches, or None if they are as asked."""
    if len(schedule.devices) != devices:
        return f"Devices (lines) in your schedule: {len(schedule.devices)}; asked were {devices}."
    indices = {part.microbatch for device in range(devices) for part in schedule.parts(device)}
    asked = ", ".join(map(str, range(microbatches - 1))) + f" and {microbatches - 1}"
    if indices == set(range(1, microbatches + 1)):
        return f"Micro-batches are counted from 0: here they are {asked}."
    if not indices:
        return "Not solved yet: there is no action in it."
    if max(indices) != microbatches - 1:
        return (f"Your micro-batches are {', '.join(map(str, sorted(indices)))}; asked were "
                f"{microbatches}: {asked}.")
    return None
