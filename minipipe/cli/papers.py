"""`minipipe papers`: published tables, GPipe's above all, beside the same by simulation."""

from contextlib import redirect_stdout
from io import StringIO

from ..papers import (
    HARDWARE,
    P100,
    TPU_V2,
    TPU_V3,
    blocks_that_fit,
    chimera_table,
    idle_times,
    other_assumptions,
    table_1,
    table_2,
    table_3,
    text_of_cells,
    text_of_choices,
    text_of_hardware,
    text_of_largest,
    text_of_rates,
    torchgpipe_table,
    zero_bubble_table,
)
from ..papers.gpipe import BOUNDS, M as MICRO_BATCHES
from ..papers.tables import GIB, text_of_seconds
from ..watching import say, with_progress

PURPOSE = "GPipe's tables by simulation, beside the published cells, with the error of each"
EPILOG = """tables: 1, the largest network that fits; 2 and 3, throughput on TPUs and on GPUs;
formulas, idle times that papers state, and the ticks that are counted;
zero-bubble, its bubble rates, of schedules by name and of searched ones (takes about 20 seconds);
plans, how ten Transformers were divided among GPUs, and how an estimate would;
hardware, latencies and bandwidths; devices, what is assumed of them.

example:
  python3 -m minipipe papers 2 3
"""


def add_options(parser):
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"which ones: {', '.join(TABLES)} (default: all)"
    )


def run(options):
    unknown = [name for name in options.tables if name not in TABLES]
    if unknown:
        raise ValueError(f"there is no table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    names = options.tables or list(TABLES)
    for name in with_progress(names, "tables"):
        with redirect_stdout(StringIO()) as table:
            TABLES[name]()
        say(table.getvalue() + "\n" * (name != names[-1]), end="")


def print_table_1():
    fit = ", ".join(f"{blocks_that_fit(K)} on {K}" for K in (1, 8, 32, 128))
    print(f"""\
GPipe's table 1: the largest network that fits, published and computed here; memory of all devices together
AmoebaNet-D, 128 images, devices of 8 GB; Transformer, 32 sequences, devices of 16 GB; 12 bytes a parameter

{text_of_largest(table_1())}

alone: without GPipe. GB is 10^9 bytes for AmoebaNet-D and 2^30 for the Transformer; the fullest device
always 2^30.
Parameters: the paper rounds, and cuts 542, 1055 and 1844 millions off; 318 should be 319. Parameter memory:
1.05 and 24.62 are not 12 bytes times the number of parameters that is printed above them.
Activations, assumed: {MICRO_BATCHES} micro-batches, float32, the caches that a stage of this package has
after a forward, counted in arrays without numbers; with GPipe N stage inputs, and the caches of one
micro-batch, O(N + L/K N/M). That is about half of what is published, and grows with K as that does. Alone,
it is the caches of all N samples, O(N L): that fits no device, so the paper's first columns had fewer samples
at once, or kept less. In "Transformer 3, alone" the paper prints 3.15 and 11.7 in each other's place; here
they are put back.
By this count the most Transformer blocks that fit are {fit}; published: 13, 103, 415, 1663.""")


def print_table_2():
    cells = table_2()
    speed = {cell.K: cell for cell in cells if cell.family == "Transformer" and cell.M == 32}
    print(f"""\
GPipe's table 2: throughput on TPUs relative to K = 2, M = 1; AmoebaNet-D (18, 256), Transformer of 48 layers
{text_of_cells(cells, BOUNDS["table 2"])}
Above what equal stages and free links give, stage costs do not explain a cell, but larger batches than in the
cell that all are relative to do; the paper says that it adjusted them. The Transformer's 1.3 and 4.8 no
schedule reaches with equal batches: M micro-batches, each of them 3 forwards long there and back, where
K = 2, M = 1 takes 3.5 (with recomputation before the gradient arrives; if it waits, that is 4, and the bounds
1.33 and 5.33). AmoebaNet-D's 1.13 could also come from a slow last stage, its 1.38 could not. Where a cell is
below, the stages were not equal; the first is taken to be the slowest. MACs are not time: pooling and
normalisation have none, and narrow convolutions fill a matrix unit badly.

From 2 to 8 devices the Transformer is {speed[8].published / speed[2].published:.2f} times as fast, \
as published, and {speed[8].simulated / speed[2].simulated:.2f} times by simulation.

The same AmoebaNet-D by torchgpipe, on other devices and cut by hand, beside the same simulation
{text_of_cells(torchgpipe_table())}""")


def print_table_3():
    print(f"""\
GPipe's table 3: throughput on P100s without NVLink relative to K = 2; AmoebaNet-D (18, 128), Transformer of \
24 layers
{text_of_cells(table_3(), BOUNDS["table 3"])}

The Transformer under assumptions that were not made
{text_of_cells(other_assumptions())}""")


def print_formulas():
    K, M = 4, 8
    print(
        "Idle times that papers state, and what is counted: "
        f"{K} devices, {M} micro-batches, T_F = T_B = T_W = 1"
    )
    _print_idle(idle_times(K, M))
    print(f"\nChimera's table 2: {K} devices, {K} micro-batches, a forward as long as a backward")
    for name, copies, *rows in chimera_table(K):
        print(f"{name}: weights {'once' if copies == 1 else 'twice'}")
        _print_idle(rows)


def _print_idle(rows):
    print(f"  {'':14}{'':26}{'stated':>8}{'counted':>9}")
    for row in rows:
        print(f"  {row.schedule:14}{row.what:26}{float(row.stated):>8.4g}{float(row.counted):>9.4g}")


def print_zero_bubble():
    print(f"""\
Zero Bubble's tables 5, 8 and 9: (T - work) / T, where T is the longest device span

{text_of_rates(zero_bubble_table(), bound=0.002)}
* above the published one by more than 0.002

ZB-1p, ZB-2p and ZB-V were searched, there and here, in the memory of p, 2p and p micro-batches; W needs the
share 32 h / (34 h + 5 a s) of it, 0.37 for 1.5B and 0.43 for the others. Behind such a row stands what was
found. The first ZB-2p cannot be below 0.0433: from the first device to the last and back it takes 264.7 ms,
and the last device can put off W to fill 214.8 of them. If a device had to keep all of a micro-batch until W,
it could put off 16 of 24, and no schedule would be below 0.1015.""")


def print_plans():
    print("How Narayanan et al. divided ten Transformers among A100s, and what an estimate would choose")
    print(text_of_choices())
    print("""\
T shards of a layer, P stages, D copies, b sequences in a micro-batch; TFLOP/s of a GPU. The estimate puts T
inside a node, as they do. It takes more stages and fewer copies: it lets one sequence at a time compute as
fast as many, messages between stages cost nothing, and bubbles of hundreds of micro-batches are short. From
76 billion parameters on it is below what they reach: it computes at half of the peak, they at more.""")


def print_hardware():
    print("Numbers every programmer should know: seconds to the first byte, bytes per second from then on")
    print(text_of_hardware(HARDWARE.values()))


def print_devices():
    print("The devices of the tables")
    print(f"{'':12}{'memory':>8}{'peak':>14}{'share':>7}{'link':>12}{'latency':>9}  recomputes")
    for device in (TPU_V2, TPU_V3, P100):
        when = "before the gradient is there" if device.early else "when the gradient is there"
        link = f"{device.link.bandwidth / 1e9:>7.3g} GB/s{text_of_seconds(device.link.latency):>9}"
        speed = f"{device.peak / 1e12:>7.4g} TFLOP/s{device.share:>6g}"
        print(f"{device.name:12}{device.memory / GIB:>4g} GiB{speed}{link}  {when}; {device.source}")
    print(
        "share: of the peak that is reached; "
        "a guess for TPUs, and the one free parameter of table 3 for P100s."
    )


TABLES = {
    "1": print_table_1,
    "2": print_table_2,
    "3": print_table_3,
    "formulas": print_formulas,
    "zero-bubble": print_zero_bubble,
    "plans": print_plans,
    "hardware": print_hardware,
    "devices": print_devices,
}
