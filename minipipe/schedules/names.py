"""The schedules by name."""

from difflib import get_close_matches

from ..checks import whole_number
from .asynchronous import pipedream, pipedream_2bw
from .bidirectional import chimera, dualpipe, dualpipe_v
from .late_weights import gpipe_late_w, one_f_one_b_late_w
from .limits import check_sizes
from .one_stage_each import eager_one_f_one_b, gpipe, naive, one_f_one_b
from .controllable_memory import v_half, v_min
from .interleaved import interleaved_one_f_one_b, interleaved_zero_bubble, looped_breadth_first
from .zero_bubble import zero_bubble_h1, zero_bubble_h2, zero_bubble_v

BUILDERS = {  # name -> function (n_devices, n_microbatches)
    "naive": naive,
    "gpipe": gpipe,
    "gpipe-fifo": lambda n_devices, n_microbatches: gpipe(n_devices, n_microbatches, backward_order="fifo"),
    "1f1b": one_f_one_b,
    "eager-1f1b": eager_one_f_one_b,
    "interleaved": interleaved_one_f_one_b,
    "looped": looped_breadth_first,
    "zb-h1": zero_bubble_h1,
    "zb-h2": zero_bubble_h2,
    "zb-v": zero_bubble_v,
    "interleaved-zb": interleaved_zero_bubble,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe-v": dualpipe_v,
    "dualpipe": dualpipe,
    "chimera": chimera,
}
LATE_W = {  # their dW are sums in another order than all others'
    "gpipe-late-w": gpipe_late_w,
    "1f1b-late-w": one_f_one_b_late_w,
}
ASYNCHRONOUS = {
    "pipedream": pipedream,
    "pipedream-vertical": lambda K, M: pipedream(K, M, vertical_sync=True),
    "pipedream-2bw": pipedream_2bw,
}
STAGES_PER_DEVICE = dict.fromkeys(  # 1 for the others
    ["interleaved", "looped", "zb-v", "interleaved-zb", "v-half", "v-min", "dualpipe-v"], 2
)


def build(name, n_devices, n_microbatches):
    """The schedule called `name`, one of `BUILDERS`, `LATE_W` or `ASYNCHRONOUS`.

    `ValueError` names the nearest one.

    Those in `STAGES_PER_DEVICE` put two stages on each device. Those with two copies of the network have a
    stage of each on each device, and need an even number of devices.

    >>> build("1f1b", 2, 2) == one_f_one_b(2, 2)
    True
    >>> build("zb-v", 4, 8).n_stages
    8
    """
    builders = BUILDERS | LATE_W | ASYNCHRONOUS
    if not isinstance(name, str):
        raise ValueError(
            f"schedule={name!r} is not a name: pass one of {', '.join(builders)}, or Schedule.from_text(...)"
        )
    if name not in builders:
        nearest = get_close_matches(name.lower(), builders, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"unknown schedule {name!r}: {hint}there are {', '.join(builders)}")
    n_devices, n_microbatches, *_ = check_sizes(n_devices, n_microbatches)
    return builders[name](n_devices, n_microbatches)


def build_for_stages(name, n_stages, n_microbatches):
    """The schedule called `name` for a network of `n_stages`, as a `Pipeline` builds it.

    Raises `ValueError` for an odd number where each device has two, and what `build` does.

    >>> len(build_for_stages("1f1b", 4, 8).devices), len(build_for_stages("zb-v", 4, 8).devices)
    (4, 2)
    """
    n_stages = whole_number("n_stages", n_stages, 1)
    v = STAGES_PER_DEVICE.get(name, 1) if isinstance(name, str) else 1
    if n_stages % v:
        nearest = f"{n_stages - 1} or {n_stages + 1}" if n_stages > 1 else "2"
        raise ValueError(
            f"{name!r} puts {v} stages on each device, which n_stages={n_stages} does not allow: use "
            f"{nearest}"
        )
    return build(name, n_stages // v, n_microbatches)


def names_for(n_devices, n_microbatches):
    """The names of the synchronous schedules that exist for these sizes; `build` says why the others do not.

    >>> sorted(set(BUILDERS) - set(names_for(4, 7)))
    ['chimera', 'dualpipe', 'dualpipe-v']
    """
    return [name for name in BUILDERS if _exists(build, name, n_devices, n_microbatches)]


def names_for_stages(n_stages, n_microbatches):
    """The same for `build_for_stages`: those that a `Pipeline` of these sizes can have."""
    return [name for name in BUILDERS if _exists(build_for_stages, name, n_stages, n_microbatches)]


def _exists(make, name, n, n_microbatches):
    try:
        make(name, n, n_microbatches)
    except ValueError:
        return False
    return True
