"""The schedules by name."""

from difflib import get_close_matches

from ..checks import shown
from ..arguments import argument
from .limits import check_sizes
from .names import SCHEDULES, names_having


def build(name, n_devices, n_microbatches):
    """Return the schedule called `name`, one of `SCHEDULES`.

    `ValueError` names the nearest one.

    Some put two stages on each device, see `stages_per_device`. Those with two copies of the network have a
    stage of each on each device, and need an even number of devices.

    >>> from ..schedules.one_stage_each import one_f_one_b
    >>> build("1f1b", 2, 2) == one_f_one_b(2, 2)
    True
    >>> build("zb-v", 4, 8).n_stages
    8
    """
    SCHEDULES.load()
    if not isinstance(name, str):
        raise ValueError(
            f"schedule={shown(name)} is not a name: pass one of {', '.join(SCHEDULES)}, "
            "or Schedule.from_text(...)"
        )
    if name not in SCHEDULES:
        nearest = get_close_matches(name.lower(), SCHEDULES, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"unknown schedule {name!r}: {hint}there are {', '.join(SCHEDULES)}")
    n_devices, n_microbatches, *_ = check_sizes(n_devices, n_microbatches)
    return SCHEDULES[name](n_devices, n_microbatches)


def stages_per_device(name):
    """Return how many stages the schedule called `name` has on each device; 1 for what is not a name.

    >>> stages_per_device("zb-v"), stages_per_device("1f1b")
    (2, 1)
    """
    return SCHEDULES.facts[name].stages_per_device if is_name(name) else 1


def is_name(name):
    """Tell whether a schedule is called `name`, which may be anything."""
    return isinstance(name, str) and name in SCHEDULES.load()


def build_for_stages(name, n_stages, n_microbatches):
    """Return the schedule called `name` for a network of `n_stages`, as a `Pipeline` builds it.

    Raises `ValueError` for an odd number where each device has two, and what `build` does.

    >>> len(build_for_stages("1f1b", 4, 8).devices), len(build_for_stages("zb-v", 4, 8).devices)
    (4, 2)
    """
    n_stages = argument("n_stages", n_stages)
    v = stages_per_device(name)
    if n_stages % v:
        below, above = n_stages - n_stages % v, n_stages - n_stages % v + v
        nearest = f"{below} or {above}" if below else f"{above}"
        raise ValueError(
            f"{name!r} puts {v} stages on each device, which n_stages={n_stages} does not allow: use "
            f"{nearest}"
        )
    return build(name, n_stages // v, n_microbatches)


def names_for(n_devices, n_microbatches):
    """Return the names of the schedules that exist for these sizes; `build` says why the others do not.

    They are those of one mini-batch whose dW are sums over micro-batches: no schedule without a flush, and
    none with a late W.

    >>> everything = names_having(flush=True, late_w=False)
    >>> sorted(set(everything) - set(names_for(4, 7)))
    ['chimera', 'dualpipe', 'dualpipe-v']
    """
    return _existing(build, n_devices, n_microbatches)


def names_for_stages(n_stages, n_microbatches):
    """Return the same for `build_for_stages`: the names that a `Pipeline` of these sizes can have."""
    return _existing(build_for_stages, n_stages, n_microbatches)


def _existing(make, n, n_microbatches):
    n, n_microbatches = argument("n_devices", n), argument("n_microbatches", n_microbatches)
    names = names_having(flush=True, late_w=False)
    return [name for name in names if _exists(make, name, n, n_microbatches)]


def _exists(make, name, n, n_microbatches):
    try:
        make(name, n, n_microbatches)
    except ValueError:
        return False
    return True
