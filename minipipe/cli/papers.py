"""`minipipe papers`: GPipe's tables by simulation, beside the published cells."""

from ..cluster import Link
from ..papers import (
    HARDWARE, P100, TPU_V2, TPU_V3, blocks_that_fit, chimera_bubble, costs_of, gpipe_bubble, megatron_bubble, other_assumptions,
    table_1, table_2, table_3, torchgpipe_table, zero_bubble_h1_idle, zero_bubble_h2_idle,
)
from ..papers.largest import M as MICRO_BATCHES
from ..papers.throughput import BOUNDS
from ..pipeline import simulate
from ..schedules import chimera, gpipe, interleaved_one_f_one_b, one_f_one_b, zero_bubble_h1, zero_bubble_h2

PURPOSE = "GPipe's tables by simulation, beside the published cells, with the error of each"
EPILOG = """tables: 1, the largest network that fits; 2 and 3, throughput on TPUs and on GPUs; formulas, idle times that papers state,
and the ticks that are counted; hardware, latencies and bandwidths; devices, what is assumed of them.

example:
  python3 -m minipipe papers 2 3
"""
GIB = 2 ** 30


def add_options(parser):
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"which ones: {', '.join(TABLES)} (default: all)")


def run(options):
    unknown = [name for name in options.tables if name not in TABLES]
    if unknown:
        raise ValueError(f"there is no table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    for place, name in enumerate(options.tables or TABLES):
        print("\n" * (place > 0), end="")
        TABLES[name]()


def print_table_1():
    print("GPipe's table 1: the largest network that fits. 12 bytes a parameter; memory of all devices together")
    print("AmoebaNet-D on devices of 8 GiB, 128 images; Transformer on devices of 16 GiB, 32 sequences. published > computed here")
    print(f"{'network':24}{'K':>4}  {'parameters':>26}  {'parameter memory':>27}  {'activations':>25}{'fullest device':>17}")
    for estimate in table_1():
        column = estimate.published
        name = f"{column.family} {column.size if len(column.size) > 1 else column.size[0]}"
        # the paper's memory is in 10^9 bytes for AmoebaNet, where it says GB, and in 2^30 bytes for the Transformer, where it says G
        unit, its_name = (1e9, "GB") if column.parameter_memory.endswith("GB") else (GIB, "GiB")
        memory = f"{column.parameter_memory} > {estimate.parameter_memory / unit:.2f} {its_name}"
        activations = f"{column.activation_memory} > {estimate.activation_memory / unit:.2f} {its_name}"
        print(f"{name:24}{column.n_devices:>4}  {column.parameters + ' > ' + format(estimate.parameters, ','):>26}  {memory:>27}  "
              f"{activations:>25}{estimate.fullest / GIB:>13.2f} GiB{'' if column.pipeline else '  without GPipe'}")
    print(f"Assumed: {MICRO_BATCHES} micro-batches, float32, what this package's layers keep; with GPipe N stage inputs and the layers")
    print("of one micro-batch. That is about half of what the paper prints, and grows with K as the paper's does. Without GPipe it is")
    print("N times all layers: 128 images or 32 sequences at once do not fit, so the paper's first columns had fewer, or kept less.")
    fit = ", ".join(f"{blocks_that_fit(K)} on {K}" for K in (1, 8, 32, 128))
    print(f"By the same count, the most Transformer blocks that fit are {fit}; published are 13, 103, 415, 1663.")


def print_table_2():
    print("GPipe's table 2: throughput on TPUs relative to K = 2, M = 1; AmoebaNet-D (18, 256), Transformer of 48 layers")
    cells = table_2()
    _print_cells(cells, BOUNDS["table 2"])
    speed = {cell.K: cell for cell in cells if cell.family == "Transformer" and cell.M == 32}
    published, simulated = (getattr(speed[8], of) / getattr(speed[2], of) for of in ("published", "simulated"))
    print(f"From 2 to 8 devices the Transformer is {published:.2f} times as fast, as published, and {simulated:.2f} times by simulation.")
    print("\nThe same AmoebaNet-D by torchgpipe, on other devices and cut by hand, beside the same simulation")
    _print_cells(torchgpipe_table())


def print_table_3():
    print("GPipe's table 3: throughput on P100s without NVLink relative to K = 2; AmoebaNet-D (18, 128), Transformer of 24 layers")
    _print_cells(table_3(), BOUNDS["table 3"])
    print("\nThe Transformer under assumptions that were not made")
    _print_cells(other_assumptions())


def _print_cells(cells, bound=None):
    print(f"{'':13}{'K':>2}{'M':>4}{'published':>11}{'simulated':>11}{'error':>10}")
    for cell in cells:
        mark = cell.reason if bound is None or abs(cell.error) <= bound else f"* {cell.reason}"
        family = cell.family.split(" with")[0]
        print(f"{family:13}{cell.K:>2}{cell.M:>4}{cell.published:>11g}{cell.simulated:>11.3f}{100 * cell.error:>+8.1f} %  {mark}".rstrip())
    if bound is not None:
        print(f"* off by more than {100 * bound:g} %")


def print_formulas():
    """Closed forms of papers beside counted ticks: F = I = W = 1 where a backward has two halves, else F = B = 1."""
    K, M, costs = 4, 8, costs_of(1, 1, 1)[0]
    equal = costs_of(2, 1, 1)[0]
    print(f"Idle times that papers state, and what is counted in the simulation: {K} devices, {M} micro-batches")
    rows = [
        ("GPipe", "idle / total", gpipe_bubble(K, M), simulate(gpipe(K, M), costs).bubble("total")),
        ("Megatron, 1F1B", "idle / ideal", megatron_bubble(K, M), simulate(one_f_one_b(K, M), costs).bubble("ideal")),
        ("Megatron, v = 2", "idle / ideal", megatron_bubble(K, M, 2), simulate(interleaved_one_f_one_b(K, M, 2), costs).bubble("ideal")),
        ("Chimera", "idle / total", chimera_bubble(K, M), simulate(chimera(K, M), equal).bubble("total")),
        ("ZB-H1", "ticks idle", zero_bubble_h1_idle(K, 1, 1, 1), _idle(zero_bubble_h1(K, M), costs)),
        ("ZB-H2", "ticks idle", zero_bubble_h2_idle(K, 1, 1, 1), _idle(zero_bubble_h2(K, M), costs)),
    ]
    for name, what, stated, counted in rows:
        print(f"{name:18}{what:14}{float(stated):>8.4f}{float(counted):>9.4f}")


def _idle(schedule, costs):
    """The ticks that the first device is idle between its first action and its last."""
    spans = simulate(schedule, costs, Link()).spans_of(0)
    return spans[-1].end - spans[0].start - sum(span.end - span.start for span in spans)


def print_hardware():
    print("Numbers every programmer should know: seconds to the first byte, bytes per second from then on")
    print(f"{'':32}{'latency':>10}{'bandwidth':>14}{'1 MB takes':>12}  how, and by whom")
    for row in HARDWARE.values():
        bandwidth = "" if row.bandwidth is None else f"{row.bandwidth / 1e9:,.3g} GB/s"
        whole = _seconds(row.seconds(1e6)) if row.bandwidth else ""
        print(f"{row.name:32}{_seconds(row.latency):>10}{bandwidth:>14}{whole:>12}  {row.how}: {row.source}")


def _seconds(time):
    if time is None:
        return ""
    unit, name = next((unit, name) for unit, name in ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")) if time >= unit or name == "ns")
    return f"{time / unit:.3g} {name}"


def print_devices():
    print("The devices of the tables")
    print(f"{'':12}{'memory':>8}{'peak':>14}{'share':>7}{'link':>12}{'latency':>9}  recomputes")
    for device in (TPU_V2, TPU_V3, P100):
        when = "before the gradient is there" if device.early else "when the gradient is there"
        print(f"{device.name:12}{device.memory / GIB:>4g} GiB{device.peak / 1e12:>7.4g} TFLOP/s{device.share:>6g}"
              f"{device.link.bandwidth / 1e9:>7.3g} GB/s{_seconds(device.link.latency):>9}  {when}; {device.source}")
    print("share: of the peak that is reached; a guess for TPUs, and the one free parameter of table 3 for P100s.")


TABLES = {
    "1": print_table_1, "2": print_table_2, "3": print_table_3, "formulas": print_formulas, "hardware": print_hardware,
    "devices": print_devices,
}
