"""`minipipe papers`: GPipe's tables by simulation, beside the published cells."""

from ..papers import (
    HARDWARE, P100, TPU_V2, TPU_V3, blocks_that_fit, chimera_table, idle_times, other_assumptions, table_1, table_2, table_3,
    torchgpipe_table,
)
from ..papers.largest import M as MICRO_BATCHES
from ..papers.throughput import BOUNDS

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
    print("GPipe's table 1: the largest network that fits, published and computed here; memory of all devices together")
    print("AmoebaNet-D, 128 images, devices of 8 GB; Transformer, 32 sequences, devices of 16 GB; 12 bytes a parameter\n")
    print(f"{'':32}{'parameters (millions)':^29}{'parameter memory (GB)':^27}{'activations (GB)':^28}{'fullest':>9}")
    memory = f"{'published':>10}{'here':>8}{'error':>9}"
    print(f"{'network':28}{'K':>4}{'published':>11}{'here':>10}{'error':>8}{memory}{memory}{'device':>9}")
    for estimate in table_1():
        column = estimate.published
        name = f"{column.family} {column.size if len(column.size) > 1 else column.size[0]}{'' if column.pipeline else ', alone'}"
        errors = [f"{100 * error:+.1f} %" for error in estimate.errors]
        print(f"{name:28}{column.n_devices:>4}{column.parameters / 1e6:>11g}{estimate.parameters / 1e6:>10.1f}{errors[0]:>8}"
              f"{column.parameter_memory:>10g}{estimate.parameter_memory:>8.2f}{errors[1]:>9}"
              f"{column.activation_memory:>10g}{estimate.activation_memory:>8.2f}{errors[2]:>9}{estimate.fullest / GIB:>9.1f}")
    print(f"""
alone: without GPipe. GB is 10^9 bytes for AmoebaNet-D and 2^30 for the Transformer; the fullest device always 2^30.
Parameters: the paper rounds, and cuts 542, 1055 and 1844 millions off; 318 should be 319. Parameter memory: 1.05 and 24.62 are
not 12 bytes times the number of parameters that is printed above them.
Activations, assumed: {MICRO_BATCHES} micro-batches, float32, what the layers of this package keep; with GPipe N stage inputs and one
micro-batch of the layers, O(N + L/K N/M). That is about half of what is published, and grows with K as that does. Alone,
it is N times all layers, O(N L): that fits no device, so the paper's first columns had fewer samples at once, or kept less.""")
    fit = ", ".join(f"{blocks_that_fit(K)} on {K}" for K in (1, 8, 32, 128))
    print(f"By this count the most Transformer blocks that fit are {fit}; published: 13, 103, 415, 1663.")


def print_table_2():
    print("GPipe's table 2: throughput on TPUs relative to K = 2, M = 1; AmoebaNet-D (18, 256), Transformer of 48 layers")
    cells = table_2()
    _print_cells(cells, BOUNDS["table 2"])
    print("""Above what equal stages and free links give, stage costs do not explain a cell, but larger batches than in the cell that all are
relative to do; the paper says that it adjusted them. The Transformer's 1.3 and 4.8 no schedule reaches with equal batches: M
micro-batches, each of them 3 forwards long there and back, where K = 2, M = 1 takes 3.5. AmoebaNet-D's 1.13 could also come from a
slow last stage, its 1.38 could not. Where a cell is below, the stages were not equal; the first is taken to be the slowest. MACs
are not time: pooling and normalisation have none, and narrow convolutions fill a matrix unit badly.""")
    speed = {cell.K: cell for cell in cells if cell.family == "Transformer" and cell.M == 32}
    published, simulated = (getattr(speed[8], of) / getattr(speed[2], of) for of in ("published", "simulated"))
    print(f"\nFrom 2 to 8 devices the Transformer is {published:.2f} times as fast, as published, and {simulated:.2f} times by simulation.")
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
    K, M = 4, 8
    print(f"Idle times that papers state, and what is counted: {K} devices, {M} micro-batches, T_F = T_B = T_W = 1")
    _print_idle(idle_times(K, M))
    print(f"\nChimera's table 2: {K} devices, {K} micro-batches, a forward as long as a backward")
    for name, copies, *rows in chimera_table(K):
        print(f"{name}: weights {'once' if copies == 1 else 'twice'}")
        _print_idle(rows)


def _print_idle(rows):
    print(f"  {'':14}{'':26}{'stated':>8}{'counted':>9}")
    for row in rows:
        print(f"  {row.schedule:14}{row.what:26}{float(row.stated):>8.4g}{float(row.counted):>9.4g}")


def print_hardware():
    print("Numbers every programmer should know: seconds to the first byte, bytes per second from then on")
    print(f"{'':32}{'latency':>10}{'bandwidth':>14}{'1 MB takes':>12}  how, and by whom")
    for row in HARDWARE.values():
        bandwidth = "" if row.bandwidth is None else f"{row.bandwidth / 1e9:,.3g} GB/s"
        whole = _seconds(row.seconds(1e6)) if row.bandwidth else ""
        print(f"{row.name:32}{_seconds(row.latency):>10}{bandwidth:>14}{whole:>12}  {row.how}: {row.source}")


def _seconds(time):
    if not time:
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
