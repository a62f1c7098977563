"""`minipipe threads`: the main job on threads of this computer, with a measured timeline."""

from . import on_hardware

PURPOSE = "train on threads of this computer, and set the measured timeline beside the simulated one"
EPILOG = """examples:
  python3 -m minipipe threads --devices 2 --size 1024 --batch-size 512
  python3 -m minipipe threads --devices 4 zb-h1 --replicas 2
"""


def add_options(parser):
    parser.add_argument(
        "--devices", type=int, default=4, metavar="K",
        help="how many threads, -K for short (default: %(default)s)",
    )
    on_hardware.add_options(parser)


def run(options):
    return on_hardware.train_on_digits(options, "threads", options.devices, "threads")
