"""Which command does what, and how a mistake is answered."""

import argparse
import os
import sys

from ..schedules import BUILDERS
from . import bench, figures, timeline, train, verify

EXAMPLES = """examples:
  python3 -m minipipe                                      train on digits, prove the gradients, draw the run
  python3 -m minipipe timeline --schedule 1f1b --devices 4 --micro-batches 8
  python3 -m minipipe timeline --order "F0 F1 B0 B1" "F0 B0 F1 B1" --costs F=1,B=2
  python3 -m minipipe verify                               a table of verdicts
"""


def main(arguments=None):
    """Run the command line; returns 0, 1 where a verdict is negative, or 2 for a mistake of the user's."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parser()
    if arguments and arguments[0] not in commands and set(commands) & set(arguments):
        parser.error(f"the options of a command come after its name, got {' '.join(arguments)}")
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, RuntimeError, MemoryError, OSError, ArithmeticError) as error:
        print(f"minipipe: error: {error or 'out of memory'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minipipe: stopped", file=sys.stderr)
        return 130


def _parser():
    parser = argparse.ArgumentParser(
        prog="minipipe", description="Pipeline-parallel training in pure NumPy: one trace is the run, the proof and the picture.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=train.run)
    _add_training(parser)
    commands = parser.add_subparsers(title="commands (without one: train on the digits)", metavar="COMMAND")
    _add_timeline(_command(commands, "timeline", "run a schedule without arithmetic, and draw it"))
    command = _command(commands, "verify", "prove many combinations equal to the full batch, as a table")
    command.set_defaults(run=verify.run)
    command = _command(commands, "figures", "make the pictures of the README again")
    command.add_argument("--folder", default="figures", help="where to write them (default: %(default)s)")
    command.set_defaults(run=figures.run)
    command = _command(commands, "bench", "measure training steps and layers, beside PyTorch if it is installed, and the simulator")
    command.set_defaults(run=bench.run)
    return parser, list(commands.choices)


def _command(commands, name, purpose):
    return commands.add_parser(name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")


def _add_training(parser):
    _add_sizes(parser)
    parser.add_argument("--schedule", default="1f1b", help=f"one of {', '.join(BUILDERS)} (default: %(default)s)")
    parser.add_argument("--recompute", action="store_true", help="keep only each stage's input, and run its forward again")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the data (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples in a mini-batch (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.2, help="of plain SGD (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and shuffling (default: %(default)s)")
    parser.add_argument("--output", default="timeline.png", help="the picture to write (default: %(default)s)")


def _add_timeline(parser):
    _add_sizes(parser)
    parser.add_argument("--schedule", default="gpipe", help=f"one of {', '.join(BUILDERS)} (default: %(default)s)")
    parser.add_argument("--order", nargs="+", metavar="ACTIONS", 
                        help='your own schedule instead of --schedule, --devices and --micro-batches: one "F0 F1 B0 B1" per '
                             'device, with R0 for a recomputation and 2F0 for stage 2')
    parser.add_argument("--recompute", action="store_true", help="put a recomputation before each backward")
    parser.add_argument("--costs", default="F=1,B=2", help="ticks of F, B and R, with / between stages: F=1/1/2/1,B=2 (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0, help="ticks that a message takes (default: %(default)s)")
    parser.add_argument("--output", default="timeline.png", help="the picture to write (default: %(default)s)")
    parser.set_defaults(run=timeline.run)


def _add_sizes(parser):
    parser.add_argument("--devices", type=int, default=4, help="K, one stage on each (default: %(default)s)")
    parser.add_argument("--micro-batches", type=int, default=8, help="M, the parts of a mini-batch (default: %(default)s)")
