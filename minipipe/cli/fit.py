"""`minipipe fit`: which way of training fits into the memory of some devices, and is the fastest."""

import ast
import re
from dataclasses import replace
from functools import partial
from inspect import signature

from .. import models
from ..cluster import Link
from ..description import describe
from ..losses import SoftmaxCrossEntropy
from ..optimizers import SGD, Adam, RMSProp
from ..papers import A100, H100, P100, TPU_V2, TPU_V3, V100
from ..planning import PRECISIONS, what_fits
from ..planning.fitting import DEVICE_COUNTS, RECOMPUTE_MODES, modes_for
from ..schedules import names_having
from ..watching import say
from ..sums import SUMS
from .options import one_of

PURPOSE = (
    "for each number of devices, the fastest schedule, micro-batches and recomputation that fit into memory; "
    "nothing is built"
)
EPILOG = """\
Bytes are counted as a run would hold them: parameters, gradients, the optimizer's state, stashed
inputs, caches and messages. Gradients are summed in one running buffer; a network does so with
Sums(accumulate="running"). In mixed precision a parameter, its gradient and an activation take 2 bytes each,
and the optimizer keeps 4 bytes for a second copy of the parameter and for each of its memories: with Adam
2 + 2 + 12 bytes a parameter. Time is that of the multiply-accumulates, a backward taking two forwards, and of
the links.

examples:
  python3 -m minipipe fit --memory 2GiB
  python3 -m minipipe fit --memory 16GiB --model "transformer(32000, 2048, 32, 24)" --input 1024 -M 8 16
  python3 -m minipipe fit --memory 4GiB --device A100 --precision mixed --optimizer adam
  python3 -m minipipe fit --memory 1MiB --model "lenet5()" --batch-size 64 -K 1 2 --schedules gpipe 1f1b
"""
ACCELERATORS = {"TPUv2": TPU_V2, "TPUv3": TPU_V3, "P100": P100, "V100": V100, "A100": A100, "H100": H100}
OPTIMIZER_CHOICES = {
    "sgd": SGD(0.1), "momentum": SGD(0.1, momentum=0.9), "rmsprop": RMSProp(), "adam": Adam(),
}
INPUTS = {"amoebanet_d": (3, 224, 224), "lenet5": (1, 28, 28), "resnet": (3, 32, 32)}
MODELS = [name for name in models.__all__ if name.islower()]
ACCUMULATE_TEXTS = {"running": "gradients in one running buffer", "tree": "gradients along the tree"}
HEADER = "devices  micro-batches  schedule     recompute        samples/s  fullest device  and inside, to"
BYTE_UNITS = {"": 1, "B": 1, **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
              **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}}
NEEDS_UNIT = 10**6  # as fewer bytes without a unit, the unit was forgotten
FLUSHING_SCHEDULES = names_having(flush=True, late_w=False)
COMMON = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "v-half")


def add_options(parser):
    parser.instead = "a size is one word, such as --memory 16GB"
    parser.add_argument(
        "--memory",
        required=True,
        metavar="SIZE",
        help="of a device: 8GiB, 512MiB, 16GB, or a number of bytes",
    )
    parser.add_argument(
        "--model",
        default="amoebanet_d(18, 208)",
        metavar="CALL",
        help=f"a network of minipipe.models with its arguments: {', '.join(MODELS)} (default: %(default)s)",
    )
    parser.add_argument(
        "--input",
        type=int,
        nargs="+",
        metavar="N",
        help="the shape of one sample "
        "(default: 3 224 224 for amoebanet_d, 1 28 28 for lenet5, 3 32 32 for resnet)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=128, metavar="N",
        help="samples of a mini-batch (default: %(default)s)",
    )
    parser.add_argument("--devices", type=int, nargs="+", metavar="K",
                        help="how many, -K for short (default: 1 2 4 8, as far as there are layers)")
    parser.add_argument(
        "--micro-batches",
        type=int,
        nargs="+",
        metavar="M",
        help="how many, -M for short; they divide the mini-batch (default: all powers of two that do, up to "
        "64)",
    )
    parser.add_argument("--schedules", nargs="+", default=COMMON, metavar="NAME",
                        help=f"out of {', '.join(FLUSHING_SCHEDULES)}; or all (default: {' '.join(COMMON)})")
    parser.add_argument(
        "--recompute",
        nargs="+",
        metavar="MODE",
        help=f"out of {', '.join(RECOMPUTE_MODES)} (default: all, the last one for networks with attention)",
    )
    parser.add_argument(
        "--optimizer", type=one_of(OPTIMIZER_CHOICES), choices=OPTIMIZER_CHOICES, default="rmsprop",
        help="whose state counts (default: %(default)s)",
    )
    parser.add_argument(
        "--accumulate", type=one_of(SUMS), choices=SUMS, default="running",
        help="how gradients are summed: in one running buffer, or along the tree that keeps the bits in all "
        "schedules, with up to about log2(M) sums more (default: %(default)s)",
    )
    parser.add_argument(
        "--precision", type=one_of(PRECISIONS), choices=PRECISIONS, default="float32",
        help="whose bytes count, and whose speed (default: %(default)s)",
    )
    parser.add_argument(
        "--device", type=one_of(ACCELERATORS), choices=ACCELERATORS, default="TPUv2",
        help="its speed and its link (default: %(default)s)",
    )
    parser.add_argument(
        "--bandwidth", type=float, metavar="BYTES", help="per second, of a link instead of the device's own"
    )
    parser.add_argument("--latency", type=float, metavar="SECONDS",
                        help="of a link (default: the device's own, or 0 with --bandwidth)")


def run(options):
    """Print the table, row by row as it is found, and what follows from it; 1 if nothing fits."""
    limit, layers = bytes_from(options.memory), layers_from(options.model)
    device, shape = ACCELERATORS[options.device], input_shape_from(options)
    schedules = FLUSHING_SCHEDULES if options.schedules == ["all"] else options.schedules
    of_network = describe(layers, shape)
    modes = modes_for(layers) if options.recompute is None else options.recompute
    print(
        f"{options.model}: {len(layers)} layers, "
        f"{of_network.parameters:,} parameters, {of_network.macs:,} multiply-accumulates a sample\n"
        f"{options.batch_size} samples a mini-batch, "
        f"{options.device}, {text_of_bytes(limit)} a device, {options.optimizer}, "
        f"{options.precision}, {ACCUMULATE_TEXTS[options.accumulate]}\n"
        f"trying {len(schedules)} schedules with {len(modes)} modes of recomputation "
        "for each number of devices\n",
        flush=True,
    )
    n_bytes = PRECISIONS[options.precision].numbers
    seconds = partial(device.seconds, n_bytes=n_bytes)
    found = []
    for K in [K for K in DEVICE_COUNTS if K <= len(layers)] if options.devices is None else options.devices:
        found += what_fits(
            layers, SoftmaxCrossEntropy(), shape, options.batch_size, limit, [K], options.micro_batches,
            schedules, modes, seconds, accelerator_link(options),
            optimizer=OPTIMIZER_CHOICES[options.optimizer], accumulate=options.accumulate,
            precision=options.precision,
        )
        if len(found) == 1:
            say(HEADER)
        say(row_of(found[-1], options.batch_size))
    print(
        "\nsamples/s: if only multiply-accumulates take time, "
        f"at {device.share:.0%} of a peak of {device.peak_of(n_bytes) / 1e12:.4g} TFLOP/s ({device.name}), "
        "and the links\n"
        "fullest device: the most bytes at the start or the end of an action; "
        "and up to so many more inside a layer's action"
    )
    fitting = [fit for fit in found if fit.fits]
    print(text_of_fastest(min(fitting, key=lambda fit: fit.makespan)) if fitting else text_of_remedy(found))
    return 0 if fitting else 1


def row_of(fit, batch_size):
    """A `Setting` as a row of the table."""
    speed = batch_size / float(fit.makespan)
    speed = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
    verdict = "" if fit.fits else "   does not fit; this is the lowest"
    return (
        f"{fit.n_devices:7}  {fit.n_microbatches:13}  {fit.schedule:<11}  {fit.recompute:<11}  {speed:>13}  "
        f"{text_of_bytes(fit.peak_bytes):>14}  {text_of_bytes(fit.inside_bytes):>14}{verdict}"
    )


def text_of_fastest(fit):
    """What was asked for."""
    per_device = len(fit.partition) // fit.n_devices
    stages = "a stage" if per_device == 1 else f"{per_device} stages"
    return (
        f"the fastest that fits: {fit.schedule} on {text_of_devices(fit)}, "
        f"{fit.n_microbatches} micro-batches, recompute {fit.recompute}, "
        f"accumulate {fit.accumulate}\nlayers of each stage, "
        f"{stages} on each device: {' '.join(map(str, fit.partition))}"
    )


def text_of_remedy(found):
    """What would have to change."""
    least = min(found, key=lambda fit: fit.peak_bytes)
    return (
        f"nothing fits: give each device {text_of_bytes(least.peak_bytes)}, "
        f"which is the lowest on {text_of_devices(least)}, or try more devices, or smaller micro-batches"
    )


def text_of_devices(fit):
    """How many they are."""
    return "1 device" if fit.n_devices == 1 else f"{fit.n_devices} devices"


def accelerator_link(options):
    """The device's own, but for what is given."""
    own = ACCELERATORS[options.device].link
    link = own if options.bandwidth is None else Link(bandwidth=options.bandwidth)
    return link if options.latency is None else replace(link, latency=options.latency)


def input_shape_from(options):
    """The shape of one sample."""
    name = options.model.partition("(")[0].strip()
    if options.input is None and name not in INPUTS:
        raise ValueError(
            f"--input is missing: give the shape of one sample for {name}, "
            "such as 784, 3 32 32, or 1024 for as many tokens"
        )
    return INPUTS[name] if options.input is None else tuple(options.input)


def bytes_from(text):
    """The number of bytes that a size such as 8GiB stands for.

    >>> bytes_from("8GiB"), bytes_from("1.5 MB"), bytes_from("100B"), bytes_from("2000000")
    (8589934592, 1500000, 100, 2000000)
    """
    match = re.fullmatch(r"([\d.]+) ?([a-zA-Z]*)", text.strip())
    units = {unit.lower(): n_bytes for unit, n_bytes in BYTE_UNITS.items()}
    try:
        n_bytes = int(float(match[1]) * units[match[2].lower()])
    except (TypeError, KeyError, ValueError):
        n_bytes = 0
    if n_bytes < 1:
        raise ValueError(f"--memory {text!r} is not a size: write 8GiB, 512MiB, 16GB, or a number of bytes")
    if n_bytes < NEEDS_UNIT and not match[2]:
        unit = "GiB" if n_bytes < 1024 else "MiB"
        raise ValueError(f"--memory {text} has no unit: write {text}{unit}, or {text}B if you mean bytes")
    return n_bytes


def text_of_bytes(n_bytes):
    """Return a number of bytes in words, with three digits or more.

    >>> text_of_bytes(3 * 2**29), text_of_bytes(1000)
    ('1.50 GiB', '1000 bytes')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n_bytes >= 1024**power:
            return f"{n_bytes / 1024**power:.2f} {unit}"
    return f"{n_bytes} bytes"


def layers_from(text):
    """The layers that a call of a function of `minipipe.models` makes, such as "amoebanet_d(18, 208)"."""
    try:
        call = ast.parse(text, mode="eval").body
        name, arguments = call.func.id, [ast.literal_eval(node) for node in call.args]
        named = {option.arg: ast.literal_eval(option.value) for option in call.keywords}
    except (SyntaxError, AttributeError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(
            f'--model {text!r} is not a call: write for instance --model "amoebanet_d(18, 208)"'
        ) from None
    if name not in MODELS:
        raise ValueError(f"--model {text!r}: minipipe.models has {', '.join(MODELS)}, but no {name}")
    try:
        return getattr(models, name)(*arguments, **named)
    except TypeError as error:
        raise ValueError(
            f"--model {text!r}: {error}; it is {name}{signature(getattr(models, name))}"
        ) from error
