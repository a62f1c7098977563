"""The commands and their options, with the texts of `--help`."""

import argparse
from argparse import ArgumentParser
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

DEVICES, MICROBATCHES, SCHEDULE = 4, 8, "1f1b"
ENGINES = "cluster", "threads", "mpi"
SAYS_A_SCHEDULE = (
    "a name, such as 1f1b; a file: .csv, a table as PyTorch writes it, or .txt, a line such as F0 F1 B0 B1 "
    "for each device; or a function in a file, my_pipeline.py:one_f_one_b, from (device, K, M) to a list "
    'such as [("F", 0), ("B", 0)]'
)


class Command(NamedTuple):
    """A command, or the main job, which has no name.

    Args:
        name, purpose, epilog: texts of its help.
        place: "module.function" in `minipipe.cli`, which takes the parsed options.
        add_options: a function of a parser.
    """

    name: str
    purpose: str
    place: str
    add_options: Callable
    epilog: str


def whole(text: str) -> int:
    """Return the whole number in `text`, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> int | float | Fraction:
    """Return the `text` 4, 5.5 or 17/3 as an int, float or fraction, for argparse."""
    for kind in (int, float, Fraction):
        try:
            return kind(text)
        except (ValueError, ZeroDivisionError):
            pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number")


# Options of several commands.

def add_sizes(parser: ArgumentParser, or_file: str = ", or those of a file") -> None:
    parser.add_argument("-K", "--devices", type=whole, metavar="K",
                        help=f"devices (default: {DEVICES}{or_file})")
    parser.add_argument("-M", "--microbatches", type=whole, metavar="M",
                        help=f"micro-batches (default: {MICROBATCHES}{or_file})")


def add_depth(parser: ArgumentParser) -> None:
    parser.add_argument("--stages-per-device", type=whole, metavar="V",
                        help="stages on each device, for interleaved, looped and interleaved-zb (default: 2)")


def add_recompute(parser: ArgumentParser) -> None:
    parser.add_argument("--recompute", action="store_true",
                        help="run each forward again before its backward, and keep less")


def add_costs(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--costs", default="F=1,B=2", metavar="KIND=TICKS,...",
        help="ticks of F, B, I, W, R, FB, A and U for a device's share of the network, which its stages "
        "divide, and message_bytes; stage by stage with / between: F=1/1/2/1,B=2 (default: %(default)s)",
    )
    parser.add_argument("--latency", type=number, default=0, metavar="TICKS",
                        help="ticks of a message on its way (default: %(default)s)")


def add_links(parser: ArgumentParser) -> None:
    add_costs(parser)
    parser.add_argument("--bandwidth", type=number, metavar="BYTES",
                        help="bytes per tick of a link, for --costs ...,message_bytes=1e6 (default: any)")
    parser.add_argument("--blocking", action="store_true",
                        help="a device that sends waits until its message has arrived")


# The commands.

def add_train(parser: ArgumentParser) -> None:
    parser.add_argument("--schedule", default=SCHEDULE, metavar="SCHEDULE",
                        help="any of the names that `compare all` lists, or a file or a function in one, as "
                        "for `show` (default: %(default)s)")
    for letter, name, words in (
        ("D", "replicas", "copies of the network, which share each mini-batch"),
        ("T", "shards", "devices that share the work inside each layer"),
    ):
        parser.add_argument(f"-{letter}", f"--{name}", type=whole, default=1, metavar=letter,
                            help=f"{words} (default: %(default)s)")
    parser.add_argument("-K", "--devices", type=whole, metavar="K",
                        help=f"devices of each copy and shard, D x T x K in all (default: {DEVICES}; with "
                        "mpi, as many as mpiexec has started)")
    parser.add_argument("-M", "--microbatches", type=whole, metavar="M",
                        help=f"micro-batches of all copies together (default: {MICROBATCHES}; 1 for a "
                        "schedule that updates after each)")
    add_recompute(parser)
    parser.add_argument("--engine", choices=ENGINES, default="cluster",
                        help="simulated devices; threads of this computer; or processes that mpiexec has "
                        "started. The last two set a measured timeline beside the simulated one (default: "
                        "%(default)s)")
    parser.add_argument("--size", type=whole, metavar="N",
                        help="units of each hidden layer (default: 32 to 64; 1024 on threads and mpi, where "
                        "fewer cost more than they gain)")
    parser.add_argument("--epochs", type=whole, metavar="N",
                        help="passes over the data (default: 20; 5 on threads and mpi)")
    parser.add_argument("--batch-size", type=whole, metavar="m",
                        help="samples in a mini-batch (default: 32; 256 on threads and mpi)")
    parser.add_argument("--learning-rate", type=number, default=0.003, metavar="RATE",
                        help="of Adam (default: %(default)s)")
    parser.add_argument("--seed", type=whole, default=0, metavar="N",
                        help="of weights and shuffling (default: %(default)s)")
    parser.add_argument("--output", default="timeline.png", metavar="FILE",
                        help="the picture to write (default: %(default)s)")


def add_show(parser: ArgumentParser) -> None:
    parser.add_argument("schedule", nargs="?", default=SCHEDULE, metavar="SCHEDULE",
                        help=f"{SAYS_A_SCHEDULE} (default: {SCHEDULE})")
    add_sizes(parser)
    add_depth(parser)
    add_recompute(parser)
    add_links(parser)
    parser.add_argument("--explain", action="store_true",
                        help="say why devices are idle, and what the time consists of")
    parser.add_argument(
        "--output", metavar="FILE",
        help="also write it, as the ending says: .png, .svg, .pdf or .gif, pictures; .html, a page to step "
        "through; .json, a trace for ui.perfetto.dev; .py, a script for torchrun that runs it in PyTorch; "
        ".csv, a table that PyTorch loads, or .txt, which can both be shown again",
    )


def add_compare(parser: ArgumentParser) -> None:
    parser.add_argument("schedules", nargs="*", metavar="SCHEDULE",
                        help="each as for `show`; or all that fit (default: gpipe 1f1b zb-h1 zb-v)")
    add_sizes(parser)
    add_depth(parser)
    add_links(parser)
    parser.add_argument("--output", metavar="FILE", help="also write a picture of all, on one time axis")


def add_check(parser: ArgumentParser) -> None:
    parser.add_argument("schedule", nargs="?", metavar="SCHEDULE", help=SAYS_A_SCHEDULE)
    add_sizes(parser)
    parser.add_argument("--most-alive", type=number, metavar="N",
                        help="micro-batches that a device has memory for (default: no limit)")


def add_search(parser: ArgumentParser) -> None:
    add_sizes(parser, or_file="")
    add_costs(parser)
    parser.add_argument("--most-alive", type=number, nargs="+", metavar="N",
                        help="micro-batches that a device has memory for: one number, or one for each device "
                        "(default: no limit)")
    parser.add_argument("--halves", action="store_true", help="split each backward into I and W")
    parser.add_argument("--greedy", action="store_true",
                        help="make a good schedule by rules, for many devices: no search, no proof")
    parser.add_argument("--stages-per-device", type=whole, default=1, metavar="V",
                        help="with --greedy: stage s is on device s mod K (default: %(default)s)")
    parser.add_argument("--most-nodes", type=whole, default=20_000, metavar="N",
                        help="give up the proof after N partial schedules (default: %(default)s)")
    parser.add_argument("--seconds", type=number, metavar="S", help="give up the proof after S seconds")
    parser.add_argument("--output", metavar="FILE.csv", help="write it as a table that PyTorch loads")


def add_plan(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", default="llama-7b",
                        help="llama-7b, llama-13b, llama3-8b, llama3-70b, llama3-405b, gpt3-175b or gpt2-xl "
                        "(default: %(default)s)")
    parser.add_argument("--config", metavar="FILE",
                        help="in place of a name: a config.json of Hugging Face, of Llama, Mistral, Qwen2 "
                        "or GPT-2")
    parser.add_argument("--gpus", required=True, metavar="NODESxGPUSxGPU",
                        help="such as 2x4xh100: nodes, GPUs of a node, and h100, h100-500w, h200 or a100")
    parser.add_argument("--batch", type=whole, required=True, metavar="N",
                        help="samples of a step, in all replicas together")
    parser.add_argument("--seq", type=whole, metavar="N",
                        help="tokens of a sample (default: those of the model)")
    parser.add_argument("--nic", type=number, metavar="BYTES",
                        help="bytes a second that one GPU sends to other nodes: 12.5e9 is 100 Gbit/s "
                        "Ethernet (default: 25e9 with a100, else 50e9)")
    parser.add_argument("--no-flash", action="store_true", help="store attention scores: no fused kernel")
    parser.add_argument("--launch", type=number, default=0, metavar="SECONDS",
                        help="seconds to launch a kernel, such as 18e-6, where the work is too short to "
                        "hide them (default: %(default)s)")
    parser.add_argument("--confirm", action="store_true",
                        help="run the best way on the exact engine, exchanges included, beside the formulas")
    parser.add_argument("--output", metavar="FILE",
                        help="write the plan and its neighbours as a picture: .png, .svg or .pdf")


def add_site(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR",
                        help="where to write it: a new or an empty folder, or a site to be written again")
    parser.add_argument("--notebooks", metavar="FOLDER",
                        help="where the notebooks are (default: notebooks, if there is such a folder)")
    parser.add_argument("--pyodide", metavar="FOLDER",
                        help="the folder `package` out of `npm pack pyodide`, for a playground without a "
                        "network (default: browsers load it from jsdelivr.net)")
    parser.add_argument("--serve", action="store_true",
                        help="then serve the site to this computer alone, as its playground needs")


COMMANDS = {
    command.name: command for command in (
        Command(
            "show", "Run a schedule without numbers: its timeline as text, and what can be counted in it.",
            "show.show", add_show, """\
examples:
  python3 -m minipipe show 1f1b -K 4 -M 8
  python3 -m minipipe show gpipe --costs F=1/1/2/1,B=2/2/4/2 --latency 1 --explain
  python3 -m minipipe show zb-v --output zb-v.csv            a table that PyTorch loads
  python3 -m minipipe show zb-h1 --output run.py             for torchrun --nproc-per-node 4 run.py
  python3 -m minipipe show mine.csv --output mine.html       a page to step through
  python3 -m minipipe show my_pipeline.py:one_f_one_b -K 2 -M 3
""",
        ),
        Command(
            "compare", "Run several schedules on the same devices, as a table; with --output, as a picture.",
            "show.compare", add_compare, """\
Costs are those of a device's share of the network: where a schedule has v stages on each device, a stage
costs 1/v of it, and so does what it keeps of a micro-batch.

examples:
  python3 -m minipipe compare gpipe 1f1b zb-h1 -K 4 -M 8
  python3 -m minipipe compare 1f1b eager-1f1b looped -M 32 --latency 1 --output slow_links.png
  python3 -m minipipe compare 1f1b interleaved -K 8 -M 64 --stages-per-device 4
  python3 -m minipipe compare 1f1b mine.csv
  python3 -m minipipe compare all --latency 0.5
""",
        ),
        Command(
            "check", "Say what is wrong with a schedule; without one, prove gradients exact, as a table.",
            "check.check", add_check, """\
The status is 0 where all holds, 1 where something does not, and 2 where there is nothing to check. A layer
of your own is checked in Python: help(minipipe.check).

examples:
  python3 -m minipipe check mine.csv --most-alive 4
  python3 -m minipipe check my_pipeline.py:one_f_one_b -K 2 -M 3
  python3 -m minipipe check                                  the proofs, in some seconds
""",
        ),
        Command(
            "search", "Search for the fastest schedule with one stage a device; prove it where time allows.",
            "show.search", add_search, """\
The time of a search grows fast with the devices and micro-batches; --most-nodes and --seconds limit it.

examples:
  python3 -m minipipe search -K 3 -M 4 --most-alive 3 2 1
  python3 -m minipipe search -K 3 -M 4 --halves --costs F=1,I=1,W=1 --output best.csv
  python3 -m minipipe search --greedy --halves -K 8 -M 32 --most-alive 8
""",
        ),
        Command(
            "plan", "Plan the training of a Transformer on a cluster: the best split, and why others lose.",
            "plan.print_plan", add_plan, """\
Seconds and bytes are those of closed formulas, held to published runs: most are within 10 %.

examples:
  python3 -m minipipe plan --model llama-7b --gpus 2x4xh100 --batch 64 --confirm --output plan.png
  python3 -m minipipe plan --model llama-7b --gpus 8x1xh100 --batch 64 --nic 12.5e9
  python3 -m minipipe plan --config config.json --gpus 16x8xa100 --batch 512 --seq 2048
""",
        ),
        Command(
            "site", "Write a web site: a playground, the schedules, the reference, the notebooks.",
            "show.site", add_site, """\
All but the playground needs no server and no network: open DIR/index.html. The reference needs pdoc:
pip install -e ".[docs]". The notebooks become pages if nbconvert and latex2mathml are installed:
pip install -e ".[notebooks]".

examples:
  python3 -m minipipe site public
  python3 -m minipipe site public --pyodide package --serve
""",
        ),
    )
}
TRAIN = Command(
    "", "Pipeline-parallel training in pure NumPy. Without a command: prove the gradients of a network on "
    "several\ndevices, draw its run, and train it on handwritten digits.",
    "train.train", add_train, "\n".join([
        "commands, each with a --help of its own:",
        *(f"  {name:10}{command.purpose}" for name, command in COMMANDS.items()), """
examples:
  python3 -m minipipe
  python3 -m minipipe --schedule zb-v -K 2 -D 2
  python3 -m minipipe --engine threads --schedule zb-h1
  mpiexec -n 4 python3 -m minipipe --engine mpi              needs pip install mpi4py mpich
  python3 -m minipipe show 1f1b -K 4 -M 8
""",
    ]),
)
