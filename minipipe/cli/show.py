"""The commands `show`, `compare` and `site`: runs of schedules without numbers."""

from pathlib import Path

from .. import comparison
from ..cluster import BUBBLES, describe_path
from ..order import simulate, with_recompute
from ..order.names import SCHEDULES
from ..plots.saving import checked_path, picture_formats
from ..site import write_site
from .schedules import (
    check_depth, machine_of, print_trace, schedule_of, title_of, with_depth, write_text,
)

DEFAULT = "gpipe", "1f1b", "zb-h1", "zb-v"  # of `compare`
TEXTS = {  # of schedules that can be read again
    "csv": lambda schedule: schedule.to_csv(),
    "txt": lambda schedule: "".join(f"{' '.join(map(str, order))}\n" for order in schedule.devices),
}
PAGES = "gif", "html", "json"  # beside pictures
NOTEBOOKS = "notebooks"


def show(options):
    """Print the timeline of a schedule, say why devices are idle if asked to, and write it as a file."""
    ending = Path(options.output or "").suffix[1:].lower()
    if options.output:
        known = [ending] if ending in (*TEXTS, *PAGES) else [*picture_formats(), *TEXTS, *PAGES]
        checked_path(options.output, sorted({*known}))
    check_depth([options.schedule], options)
    schedule = with_depth(options.schedule, options)
    if options.recompute:
        schedule = with_recompute(schedule, "always")
    trace, title = simulate(schedule, *machine_of(options)), title_of(schedule)
    print(title)
    print_trace(trace)
    if options.explain:
        print(f"\n{trace.explain()}\n\nfour shares that are called the bubble:")
        for of, words in BUBBLES.items():
            print(f"{words:40}{float(100 * trace.bubble(of)):.2f} %")
        print(f"\nthe critical path:\n{describe_path(trace.critical_path())}")
    if ending in TEXTS:
        write_text(options.output, TEXTS[ending](schedule))
    elif options.output:
        trace.save(options.output, title)
        print(f"written: {options.output}")


def compare(options):
    """Print a table of several schedules on the same devices, and write their picture if asked to."""
    if options.output:
        checked_path(options.output, picture_formats())
    texts = [word for words in options.schedules or DEFAULT for word in words.split(",") if word]
    every = "all" in map(str.lower, texts)
    if every:
        texts = [*SCHEDULES.load(), *(one for one in texts if one.lower() != "all")]
    check_depth(texts, options)
    for one in texts:  # a file says what the sizes are that nobody has given
        if Path(one).suffix in (".csv", ".txt"):
            schedule = schedule_of(one)
            if options.devices is None:
                options.devices = len(schedule.devices)
            if options.microbatches is None:
                options.microbatches = schedule.n_microbatches
    costs, link = machine_of(options)
    schedules, refused = [], []
    for one in texts:
        try:
            schedules.append(with_depth(one, options))
        except ValueError as error:
            if not every:
                raise ValueError(f"{one}: {error}") from None
            refused.append(f"{one}: {error}")
    found = comparison.compare(*schedules, costs=costs, link=link)
    K, M = len(schedules[0].devices), schedules[0].n_microbatches
    print(f"{K} devices, {M} micro-batches, costs of a device {costs.to_text()}\n\n{found}")
    for error in refused:
        print(f"left out: {error}")
    if options.output:
        found.save(options.output)
        print(f"written: {options.output}")


def site(options):
    """Write the web site."""
    default = NOTEBOOKS if Path(NOTEBOOKS).is_dir() else None
    write_site(options.folder, options.notebooks or default)
