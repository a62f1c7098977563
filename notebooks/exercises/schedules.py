"""What all checkers of a learner's schedule ask first: whether it can be read, and runs."""

from minipipe import Schedule, ScheduleError

from . import short


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
