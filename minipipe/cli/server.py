"""`minipipe server`: digits through a parameter server, with the timeline, the staleness and the error."""

import argparse

import numpy as np

from ..arrays import accuracy
from ..cluster import Link, duration, ports
from ..datasets import digits
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import SGD
from ..parallel.options import Machine, Weights
from ..plots import curves, staleness, text
from ..plots.canvas import new_figure
from ..plots.timeline import timeline
from ..servers import MODES, Pace, ParameterServer, Servers, mini_batches, speeds_with
from .options import add_latency, add_picture, latency_from, number, one_of
from .output import checked_picture, save_figure

PURPOSE = "train on digits through a parameter server: who waits, how stale the updates are, and the error"
EPILOG = """Each worker takes --batch-size samples at a time. Where the gradients of all workers make one
update ("sync"), it has the learning rate of all of them together.

examples:
  python3 -m minipipe server --mode async --workers 8 --slow 1=4
  python3 -m minipipe server --mode ssp --bound 2 --workers 4 --slow 3=3 --delay 0.5
  python3 -m minipipe server --workers 4 --slow 3=3 --backups 1
  python3 -m minipipe server --mode async --workers 3 --threads
"""
LAYER_SIZES = (64, 128, 64, 10)
FIRST = 24     # gradients of the run that is drawn
N_SCORES = 12  # errors on the way


def add_options(parser):
    parser.add_argument("--mode", type=one_of(MODES), choices=MODES, default=MODES[0],
                        help="when a server updates, and answers (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--servers", type=int, default=1, metavar="S",
                        help="devices that share the parameters (default: %(default)s)")
    parser.add_argument("--slow", nargs="+", default=[], metavar="WORKER=TIMES",
                        help="workers that take so many times as long as the others: 1=4")
    parser.add_argument("--delay", type=float, default=0, metavar="TICKS",
                        help="mean of a random delay of a gradient, besides its tick (default: %(default)s)")
    parser.add_argument("--bound", type=int, metavar="S",
                        help="of ssp: by how many gradients a worker may be ahead of the slowest")
    parser.add_argument("--backups", type=int, default=0, metavar="B",
                        help="of sync: workers that an update does without (default: %(default)s)")
    parser.add_argument("--compensation", type=float, default=0, metavar="LAMBDA",
                        help="of async and ssp: how much of a delay is made up for (default: %(default)s)")
    parser.add_argument("--update-ticks", type=float, default=0, metavar="TICKS",
                        help="of an update; in hogwild, from a load to its store (default: %(default)s)")
    add_latency(parser)
    parser.add_argument("--bandwidth", type=float, metavar="BYTES",
                        help="per tick, of a server's way in and of its way out (default: no limit)")
    parser.add_argument("--gradients", type=int, default=800, metavar="N",
                        help="of all workers together (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.1,
                        help="of plain SGD, for one worker's gradient (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, shuffling and delays (default: 0)")
    parser.add_argument("--threads", action="store_true",
                        help="run on threads of this computer, and repeat the run on the cluster, to the bit")
    add_picture(parser, "server.png")


def run(options):
    path = checked_picture(options.output)
    (X, Y), test = ((part.astype(np.float32) for part in pair) for pair in digits())
    test = tuple(test)
    of_all = options.workers if options.mode == "sync" else 1
    n_updates = max(1, options.gradients // of_all)
    batches = mini_batches(X, Y, options.batch_size * of_all, n_updates, options.seed)
    net = _network(options, "threads" if options.threads else "cluster")
    print(
        f"{X.shape[1]:,} handwritten digits, {options.workers} workers, mode {options.mode}, "
        f"{n_updates} updates of {options.batch_size * of_all} samples\n"
    )
    net.train(batches, _optimizer(options), keep_every=max(1, n_updates // N_SCORES))
    repeated = _repeats_bits(options, net, batches) if options.threads else True
    trained, scores = _trace_and_scores(net, test)
    first = _network(options, "cluster")
    first.train(batches[:-(-FIRST // of_all)], _optimizer(options))
    print(f"The first {FIRST} gradients; 5@3 is that of mini-batch 5, at the weights after 3 updates:\n")
    print(text(first.trace))
    _print_counts(net, trained, scores)
    figure = new_figure(10, 7)
    top, below = figure.subfigures(2, 1, height_ratios=[1.2, 1])
    timeline(first.trace, top.subplots(), title=f"{options.mode}: the first {FIRST} gradients")
    left, right = below.subplots(1, 2)
    curves({options.mode: scores}, left, f"time ({trained.unit})", "test error (%)")
    staleness({options.mode: net.updates}, right)
    save_figure(figure, path)
    return 0 if repeated else 1


def _network(options, engine):
    slower = dict(_slow(text) for text in options.slow)
    limited = () if options.bandwidth is None else ports(options.servers, options.bandwidth)
    servers = Servers(
        options.servers, mode=options.mode, bound=options.bound, backups=options.backups,
        compensation=options.compensation,
    )
    speeds = speeds_with(options.workers, slower)
    return ParameterServer(
        mlp(LAYER_SIZES), SoftmaxCrossEntropy(), options.workers, servers,
        pace=Pace(speeds=speeds, delay=options.delay, update_ticks=options.update_ticks),
        on=Machine(engine, link=Link(latency_from(options)), ports=limited),
        weights=Weights(options.seed, np.float32),
    )


def _optimizer(options):
    return SGD(options.learning_rate * (options.workers if options.mode == "sync" else 1))


def _slow(text):
    """(worker, times) of a text such as 1=4."""
    worker, _, times = text.partition("=")
    try:
        return int(worker), number(times)
    except (ValueError, argparse.ArgumentTypeError):
        raise ValueError(
            f"--slow {text} must name a worker, and how many times as long it takes: 1=4"
        ) from None


def _repeats_bits(options, net, batches):
    """Whether the cluster, in the order in which the gradients came, gets the same bits."""
    again = _network(options, "cluster")
    again.train(batches, _optimizer(options), arrivals=net.arrivals)
    same = all(
        np.array_equal(getattr(ours, name), getattr(theirs, name))
        for ours, theirs in zip(net.layers, again.layers) for name in ours.arrays
        if getattr(ours, name) is not None
    )
    print(f"repeated on the cluster, in the order of arrival: {'the same bits' if same else 'WRONG'}\n")
    return same


def _trace_and_scores(net, test):
    """(the trace, [(time, error in %)] at the updates that were kept)."""
    ends = [span.end for span in net.trace.spans_of(0) if getattr(span.label, "kind", "") == "U"]
    scores, last = [], [array.copy() for array in net.kept[max(net.kept)]]
    for version, weights in net.kept.items():
        net.use(weights)
        error = 100 * (1 - accuracy(net.predict(test[0]), test[1]))
        scores.append((ends[version - 1] if version else 0, error))
    net.use(last)
    return net.trace, scores


def _print_counts(net, trace, scores):
    unit = "ticks" if trace.unit == "ticks" else "s"
    print(f"\n{f'time ({unit})':>12}{'test error':>12}")
    for time, error in scores:
        print(f"{float(time):12.4g}{error:10.2f} %")
    stale = [update.staleness for update in net.updates]
    workers = [device for device, name in enumerate(trace.names) if name.startswith("worker")]
    busy = trace.busy_ticks()
    idle = [f"{100 * (1 - float(busy[device] / trace.makespan)):.0f} %" for device in workers]
    print(f"\nmakespan                 {duration(trace.makespan, trace.unit)}")
    print(f"idle, worker by worker   {' '.join(idle)}")
    print(f"staleness                mean {np.mean(stale):.2f}, at most {max(stale)}")
    if net.late:
        print(f"thrown away, too late    {len(net.late)} gradients")
    lost = sum(bool(update.lost) for update in net.updates)
    if lost:
        print(f"over others' writes      {lost} updates")
