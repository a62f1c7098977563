"""`minipipe federated`: digits with many clients, round by round."""

import numpy as np

from ..checks import whole_number
from ..datasets import digits
from ..federated import FederatedAveraging, Rounds, clients_of
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import SGD
from ..parallel.options import Weights
from ..plots import curves
from ..plots.canvas import new_figure
from .options import add_picture
from .output import checked_picture, save_figure

PURPOSE = "train on digits that many clients keep to themselves, by averaging what they come to"
EPILOG = """examples:
  python3 -m minipipe federated --clients 100 --fraction 0.1 --epochs 5 --skewed
  python3 -m minipipe federated --epochs 1 --batch-size 0 --learning-rate 1             FedSGD
  python3 -m minipipe federated --clients 20 --secure --drop-out 0.1
"""
LAYER_SIZES = (64, 64, 10)


def add_options(parser):
    parser.add_argument("--clients", type=int, default=20, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--fraction", type=float, default=0.2, metavar="C",
                        help="the share of them in a round (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=5, metavar="E",
                        help="passes of a client over its samples in a round (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=10, metavar="B",
                        help="of a client's mini-batches; 0 for all its samples (default: %(default)s)")
    parser.add_argument("--skewed", action="store_true",
                        help="each client has samples of two classes, hardly more; by default, of all")
    parser.add_argument("--learning-rate", type=float, default=0.3,
                        help="of plain SGD (default: %(default)s)")
    parser.add_argument("--proximal", type=float, default=0, metavar="MU",
                        help="FedProx: how much clients are held back (default: %(default)s)")
    parser.add_argument("--drop-out", type=float, default=0, metavar="P",
                        help="how probable it is that a client is not heard of again (default: %(default)s)")
    parser.add_argument("--secure", action="store_true", help="the server sees only the clients' sum")
    parser.add_argument("--rounds", type=int, default=60, help="at most (default: %(default)s)")
    parser.add_argument("--target", type=float, default=95, metavar="PERCENT",
                        help="of the test digits, at which it stops (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, split and choice (default: 0)")
    add_picture(parser, "federated.png")


def run(options):
    path, most_rounds = checked_picture(options.output), whole_number("--rounds", options.rounds, least=1)
    train, test = ([part.astype(np.float32) for part in pair] for pair in digits())
    clients = clients_of(*train, options.clients, options.skewed, seed=options.seed)
    rounds = Rounds(
        options.fraction, options.epochs, options.batch_size or None, proximal=options.proximal,
        drop_out=options.drop_out, secure=options.secure,
    )
    weights = Weights(options.seed, np.float32)
    net = FederatedAveraging(mlp(LAYER_SIZES), SoftmaxCrossEntropy(), clients, rounds, weights=weights)
    sizes = [Y.shape[-1] for _, Y in clients]
    classes = [int(Y.any(axis=-1).sum()) for _, Y in clients]
    print(
        f"{options.clients} clients with {min(sizes)} to {max(sizes)} digits of {min(classes)} to "
        f"{max(classes)} classes each; {net.n_chosen} in a round, {options.epochs} passes\n"
    )
    history = []
    while len(history) < most_rounds and not (history and 100 * history[-1].score >= options.target):
        history += net.train(1, SGD(options.learning_rate), test)
        _print_round(history[-1])
    down, up = (sum(getattr(done, name) for done in history) for name in ("bytes_down", "bytes_up"))
    best = max(100 * done.score for done in history)
    if best >= options.target:
        print(f"\n{options.target:g} % reached in round {len(history)}")
    else:
        print(f"\n{options.target:g} % not reached in {len(history)} rounds; the best is {best:.2f} %")
    print(f"sent: {down:,} bytes to the clients, {up:,} bytes back")
    figure = new_figure(6.5, 3.5)
    name = "skewed clients" if options.skewed else "even clients"
    curves({name: [(done.number, 100 * done.score) for done in history]}, figure.subplots(), "rounds",
           "test accuracy (%)")
    save_figure(figure, path)


def _print_round(done):
    J = "too few reported" if done.J is None else f"J {float(done.J):.4f}"
    print(f"round {done.number:3}   {len(done.reported)} of {len(done.chosen)}   {J}   "
          f"score {100 * done.score:.2f} %", flush=True)
