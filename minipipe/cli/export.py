"""`minipipe export`: a schedule or its run as a file for another program."""

import json
from pathlib import Path

from .options import add_hardware, add_replicas, add_schedule, in_replicas, schedule_from, trace_of
from .output import checked_path, picture_formats, save_timeline, title_of

PURPOSE = "write a schedule as PyTorch's CSV, or its run for Perfetto, as a web page, text or picture"
EPILOG = """\
Formats: csv, a table that PyTorch's _PipelineScheduleRuntime._load_csv reads, though PyTorch runs none with
several copies of the network, such as chimera and dualpipe; chrome, a trace for
ui.perfetto.dev and chrome://tracing; html, a page to step and zoom through the run; text; png, svg, pdf and
the other formats of matplotlib. Without --output, what is text is printed.

examples:
  python3 -m minipipe export zb-v --devices 4 --micro-batches 8 --output zb-v.csv
  python3 -m minipipe export 1f1b --latency 0.5 --format chrome --tick "2 ms" --output 1f1b.json
  python3 -m minipipe export mine.csv --format text
  python3 -m minipipe export --devices 2 --replicas 2 --output copies.html
"""
ENDINGS = {"csv": "csv", "json": "chrome", "html": "html", "txt": "text"}
WRITERS = {
    "csv": lambda schedule, options: schedule.to_csv(),
    "chrome": lambda schedule, options: json.dumps(
        trace_of(schedule, options).to_chrome_trace(tick=options.tick)
    ) + "\n",
    "html": lambda schedule, options: trace_of(schedule, options).to_html(title=title_of(schedule)),
    "text": lambda schedule, options: trace_of(schedule, options).to_text() + "\n",
}


def add_options(parser):
    parser.instead = "the format is --format csv, or the ending of --output"
    add_schedule(parser)
    add_hardware(parser)
    add_replicas(parser)
    parser.add_argument(
        "--format", metavar="FORMAT",
        help=f"{', '.join(WRITERS)}, or a picture's (default: by the ending of --output, else csv)",
    )
    parser.add_argument(
        "--tick", default="1 ms", help='how long a tick is shown in a chrome trace (default: "%(default)s")'
    )
    parser.add_argument("--output", metavar="FILE", help="the file to write (default: print it)")


def run(options):
    form = _format(options)
    path = options.output and checked_path(options.output, None if form in WRITERS else [form])
    schedule = in_replicas(schedule_from(options), options)
    if form not in WRITERS:
        save_timeline(trace_of(schedule, options), path, title_of(schedule))
    elif path:
        path.write_text(WRITERS[form](schedule, options), encoding="utf-8", newline="\n")
        print(f"written: {path}")
    else:
        print(WRITERS[form](schedule, options), end="")


def _format(options):
    ending = Path(options.output or "printed.csv").suffix[1:].lower()
    form = (options.format or ENDINGS.get(ending, ending)).lower()
    formats = [*WRITERS, *picture_formats()]
    if form not in formats:
        what = f"--format {form!r}" if options.format else f"--output {options.output}"
        raise ValueError(f"{what} does not say what to write: use --format with one of {', '.join(formats)}")
    if form not in WRITERS and not options.output:
        raise ValueError(f"a picture needs a file to be written to: add --output schedule.{form}")
    return form
