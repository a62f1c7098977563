"""The tables as text, each published number beside the one of this package.

`minipipe papers` and notebooks 31 and 32 print them.
"""

from ..arguments import argument

GIB = 2 ** 30


def text_of_cells(cells, bound=None):
    """A line for each `Compared`: published, simulated, and the error.

    A star marks what is off by more than `bound`.

    >>> from minipipe.papers import table_3
    >>> print(text_of_cells(table_3()[3:], bound=0.03))
                  K   M  published  simulated     error
    Transformer   2  32          1      1.000    +0.0 %
    Transformer   4  32        1.8      1.885    +4.7 %  *
    Transformer   8  32        3.3      3.380    +2.4 %
    * off by more than 3 %
    """
    cells = argument("cells", cells)
    bound = None if bound is None else float(argument("text_of_cells.bound", bound))
    lines = [f"{'':13}{'K':>2}{'M':>4}{'published':>11}{'simulated':>11}{'error':>10}"]
    for cell in cells:
        mark = cell.reason if bound is None or abs(cell.error) <= bound else f"* {cell.reason}"
        family = cell.family.split(" with")[0]
        numbers = (
            f"{cell.K:>2}{cell.M:>4}{cell.published:>11g}{cell.simulated:>11.3f}{100 * cell.error:>+8.1f} %"
        )
        lines.append(f"{family:13}{numbers}  {mark}".rstrip())
    if bound is not None:
        lines.append(f"* off by more than {100 * bound:g} %")
    return "\n".join(lines)


def text_of_rates(rates, bound):
    """A line for each `Rate` of a bubble: published, found here, and the difference.

    A star marks what is above the published one by more than `bound`.

    >>> from minipipe.papers import ZERO_BUBBLE, zero_bubble_table
    >>> print(text_of_rates(zero_bubble_table(ZERO_BUBBLE[:1]), bound=0.002))
    model   p   m           published    here  difference
    1.5B    8  24  1F1B        0.2431  0.2431     +0.0000
    1.5B    8  24  ZB-H1       0.1585  0.1585     +0.0000
    1.5B    8  24  ZB-H2       0.1083  0.1083     +0.0000
    1.5B    8  24  ZB-1p       0.1585  0.1585     +0.0000  zb-h1
    1.5B    8  24  ZB-2p       0.0433  0.0436     +0.0003  greedy
    """
    rates, bound = argument("rates", rates), argument("text_of_rates.bound", bound)
    lines = [f"{'model':6}{'p':>3}{'m':>4}{'':9}{'published':>12}{'here':>8}{'difference':>12}"]
    for rate in rates:
        row, name = rate.profile, "" if rate.schedule == rate.column.lower() else rate.schedule
        mark = "  *" if rate.difference > bound else ""
        numbers = f"{rate.published:>12.4f}{rate.found:>8.4f}{round(rate.difference, 4) + 0:>+12.4f}"
        lines.append(f"{row.model:6}{row.p:>3}{row.m:>4}  {rate.column:7}{numbers}  {name}{mark}".rstrip())
    return "\n".join(lines)


def text_of_largest(estimates):
    """A line for each `Estimate` of table 1: parameters, their memory, activations, the fullest device."""
    estimates = argument("estimates", estimates)
    memory = f"{'published':>10}{'here':>8}{'error':>9}"
    lines = [
        f"{'':32}{'parameters (millions)':^29}"
        f"{'parameter memory (GB)':^27}{'activations (GB)':^28}{'fullest':>9}",
        f"{'network':28}{'K':>4}{'published':>11}{'here':>10}{'error':>8}{memory}{memory}{'device':>9}",
    ]
    for estimate in estimates:
        column = estimate.published
        size = column.size if len(column.size) > 1 else column.size[0]
        name = f"{column.family} {size}" if column.pipeline else f"{column.family} {size}, alone"
        errors = [f"{100 * error:+.1f} %" for error in estimate.errors]
        numbers = f"{column.parameters / 1e6:>11g}{estimate.parameters / 1e6:>10.1f}{errors[0]:>8}"
        weights = f"{column.parameter_memory:>10g}{estimate.parameter_memory:>8.2f}{errors[1]:>9}"
        activations = f"{column.activation_memory:>10g}{estimate.activation_memory:>8.2f}{errors[2]:>9}"
        sizes = f"{numbers}{weights}{activations}{estimate.fullest / GIB:>9.1f}"
        lines.append(f"{name:28}{column.n_devices:>4}{sizes}")
    return "\n".join(lines)


def text_of_hardware(rows, sources=True):
    """A line for each `Hardware`: latency, bandwidth, and how long a megabyte takes.

    sources: whether to add how that is known.

    >>> from minipipe.papers import HARDWARE
    >>> print(text_of_hardware([HARDWARE["Ethernet, 1 Gbit/s"]], sources=False))
                                       latency     bandwidth  1 MB takes
    Ethernet, 1 Gbit/s                  250 us    0.125 GB/s     8.25 ms
    """
    rows, sources = argument("text_of_hardware.rows", rows), argument("sources", sources)
    head = f"{'':32}{'latency':>10}{'bandwidth':>14}{'1 MB takes':>12}"
    lines = [f"{head}  how, and by whom" if sources else head]
    for row in rows:
        bandwidth = "" if row.bandwidth is None else f"{row.bandwidth / 1e9:,.3g} GB/s"
        whole = text_of_seconds(row.seconds(1e6)) if row.bandwidth else ""
        source = f"  {row.how}: {row.source}" if sources else ""
        lines.append(
            f"{row.name:32}{text_of_seconds(row.latency):>10}{bandwidth:>14}{whole:>12}{source}".rstrip()
        )
    return "\n".join(lines)


def text_of_seconds(time):
    """Three digits in s, ms, us or ns; nothing if there is no time.

    >>> text_of_seconds(1.5), text_of_seconds(0.00025), text_of_seconds(1e-10), text_of_seconds(None)
    ('1.5 s', '250 us', '0.1 ns', '')
    """
    if not time:
        return ""
    units = (1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")
    unit, name = next((pair for pair in units if time >= pair[0]), units[-1])
    return f"{time / unit:.3g} {name}"
