"""Settings as rows of data, and the one function that builds the network of a row.

A row is a dict of plain values, one for each name in `OPTIONS`, so it can be printed, pasted and run again.
The net of pairs draws rows, and goldens are recorded of rows. Only this file knows how minipipe is called:
where a constructor changes, `network` changes, and no test.
"""

import tempfile
from pathlib import Path

import numpy as np

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.layers import ReLU, every_layer
from minipipe.order import in_copies, with_updates
from minipipe.schedules import build, data_parallel, names_having

ASYNCHRONOUS = names_having(flush=False)
OPTIONS = {  # name: its values; a row that leaves a name out has the first
    "network": ("perceptron", "image", "normal", "image normal", "tokens", "signal"),
    "ties": (False, True),
    "dropout": (False, True),
    "dtype": ("rational", "float64", "float32"),
    "schedule": ("1f1b", *(name for name in names_having(flush=True) if name != "1f1b"),
                 "data-parallel", *ASYNCHRONOUS),
    "D": (1, 2, 3),                      # copies of the network
    "T": (1, 2, 3),                      # shards of each layer
    "K": (1, 2, 3, 4),                   # stages
    "M": (1, 2, 3, 4, 6),                # micro-batches of all copies
    "cut": ("even", "front", "back"),    # where the stages with more layers are
    "place": ("tp-dp-pp", "pp-dp-tp"),
    "samples": ("equal", "ragged"),      # in the micro-batches
    "grain": (None, 1, 2),
    "recompute": ("never", "always", "except_last", "sqrt", "selective"),
    "zero": (0, 1, 2, 3),
    "buckets": (None, 64, "ddp", "layer"),
    "sync_batch_norm": (False, True),
    "accumulate": ("tree", "running"),
    "all_reduce": ("owners", "naive", "tree", "doubling", "halving", "ring"),
    "optimizer": ("sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "lars", "lamb"),
    "weights_only": (False, True),
    "updates": ("step", "order"),        # by step(optimizer), or as actions U
    "clip": (None, 0.25),
    "how": ("forward_backward", "tick", "train", "fit"),
    "again": (False, True),              # each mini-batch is run twice; where that updates, a call for each
    "checkpoint": (False, True),         # in the middle: the rest is trained by another network
    "n_updates": (2, 3),
    "engine": ("cluster", "threads"),
    "links": ("free", "slow"),
}
DEFAULTS = {name: values[0] for name, values in OPTIONS.items()} | {"seed": 0, "count_bytes": False}


def filled(row):
    """Return `row` with the default of each name that it leaves out."""
    return DEFAULTS | row


class Rounded(ReLU):
    """A ReLU that rounds rational numbers, both ways, so that they do not grow long from layer to layer.

    A rounding is a function of one number, so exact equations of sums over samples stay exact. Devices may
    share the work as they do for a ReLU.
    """

    splits = ReLU.splits

    def forward(self, Z):
        return rounded(super().forward(Z))

    def backward_input(self, dA):
        return rounded(super().backward_input(dA))


def rounded(array):
    """Return rational numbers with 1024 below the line."""
    return rational([round(x * 1024) for x in array.flat]).reshape(array.shape) / 1024


def layers_of(row):
    """Return (layers, loss, shape of a sample); weights and keys are drawn, from the seed of the row."""
    tied, words = ({"tie": name} if row["ties"] else {} for name in ("W", "words"))
    drop = [mp.Dropout(0.25)] if row["dropout"] else []
    bend = Rounded if row["dtype"] == "rational" else ReLU
    head = [mp.Linear(3, 3, **tied), bend(), *drop, mp.Linear(3, 3, **tied)]
    layers, shape = {
        "perceptron": ([mp.Linear(2, 4), bend(), mp.Linear(4, 3), mp.Fork("skip"), *head,
                        mp.Join("skip")], (2,)),
        "normal": ([mp.Linear(2, 4), mp.BatchNorm(4), bend(), mp.Linear(4, 3), *head], (2,)),
        "tokens": ([mp.Embedding(5, 4, **words), mp.PositionalEmbedding(4, 2), *drop,
                    mp.Residual(mp.LayerNorm(4), bend(), mp.MultiHeadAttention(4, 2, causal=True), *drop),
                    bend(),
                    mp.Residual(mp.LayerNorm(4), mp.Linear(4, 3), bend(), mp.Linear(3, 4), *drop),
                    bend(), mp.Linear(4, 5, **words)], (2,)),
        "image": ([mp.Conv2d(1, 2, 3, padding=1), bend(), mp.Conv2d(2, 2, (3, 1), padding=(1, 0)),
                   bend(), mp.MaxPool2d((2, 2)), mp.Flatten(), mp.Linear(4, 3), *head], (1, 4, 2)),
        "image normal": ([mp.Conv2d(1, 2, (1, 2)), mp.BatchNorm(2), bend(), mp.Flatten(), mp.Linear(8, 3),
                          *head], (1, 4, 2)),
        "signal": ([mp.Conv1d(1, 3, 2), bend(), mp.Conv1d(3, 2, 2),
                    mp.Residual(mp.Conv1d(2, 2, 1), bend()), mp.GlobalAvgPool(), mp.Linear(2, 3), *head],
                   (1, 4)),
    }[row["network"]]
    loss = mp.SoftmaxCrossEntropy() if row["network"] == "tokens" else mp.MeanSquaredError()
    drawn = mp.Sequential(layers, loss, seed=row["seed"]).layers
    number = numbers(row)
    return [layer.copy(lambda W: number(W / 2)) for layer in drawn], loss, shape  # smaller, to stay finite


def numbers(row):
    """Return a function that converts an array to the dtype of the row, or to rational numbers."""
    if row["dtype"] == "rational":
        return lambda array: rational(np.round(8 * array) / 8)
    return np.dtype(row["dtype"]).type


def batches_of(row):
    """Return the mini-batches (X, Y); a micro-batch has 2 samples, as batch norm needs them, or a grain."""
    rng, number = np.random.default_rng([row["seed"], 1]), numbers(row)
    m = row["M"] * max(2, row["grain"] or 0) + (row["samples"] == "ragged")
    shape = layers_of(row)[2]
    if row["network"] == "tokens":
        X = rng.integers(0, 5, (row["n_updates"], *shape, m))
        Y = mp.one_hot(rng.integers(0, 5, (row["n_updates"], 2, m)), 5).swapaxes(0, 1)
    else:
        X, Y = (rng.standard_normal((row["n_updates"], *size, m)) for size in (shape, (3,)))
    return [(number(x), number(y)) for x, y in zip(X, Y, strict=True)]


def optimizer_of(row):
    """Return a new optimizer of the row, with exact numbers for rational networks."""
    number = Rational if row["dtype"] == "rational" else float
    rate, half, decay = number(1) / 64, number(1) / 2, number(1) / 16
    rest = {"weight_decay": decay, "weights_only": row["weights_only"]}
    small = {"epsilon": number(1) / 64}
    return {
        "sgd": lambda: mp.SGD(rate, **rest),
        "momentum": lambda: mp.SGD(rate, half, rate_inside=True, decoupled=True, **rest),
        "nesterov": lambda: mp.SGD(rate, half, nesterov=True, **rest),
        "rmsprop": lambda: mp.RMSProp(rate, half, **small, **rest),
        "adam": lambda: mp.Adam(rate, (half, number(3) / 4), **small, **rest),
        "adamw": lambda: mp.AdamW(rate, (half, number(3) / 4), **small, **rest),
        "lars": lambda: mp.LARS(rate, half, trust=half, **rest),
        "lamb": lambda: mp.LAMB(rate, (half, number(3) / 4), **small, **rest),
    }[row["optimizer"]]()


def clip_of(row):
    """Return the longest norm of the gradients, or None."""
    return row["clip"] and (Rational if row["dtype"] == "rational" else float)(row["clip"])


def order_of(row):
    """Return the schedule of a row: a name, or a `Schedule` where its copies or updates are in the order."""
    name, D, K, M = (row[key] for key in ("schedule", "D", "K", "M"))
    if name == "data-parallel":
        order = data_parallel(D, M, K)
    elif row["updates"] == "step" or row["zero"] or name in ASYNCHRONOUS:
        return name
    elif M % D:
        raise ValueError(f"M={M} micro-batches over D={D} copies: use a multiple of {D}")
    else:
        order = in_copies(build(name, stages=K, microbatches=M // D), D)
    if row["updates"] == "order" and not row["zero"]:
        order = with_updates(order)
    return order


def counts_of(row, n_layers):
    """Return how many layers each of K stages has."""
    K, rest = row["K"], [1] * (row["K"] - 1)
    if row["cut"] == "even":
        return [n_layers // K + (stage < n_layers % K) for stage in range(K)]
    return [n_layers - K + 1, *rest] if row["cut"] == "front" else [*rest, n_layers - K + 1]


def network(row, layers, loss):
    """Return the network of a row; without a schedule, a `Sequential`.

    Raise `ValueError` where minipipe, or its constructors of today, refuse the row.
    """
    net = _network(row, layers, loss)
    net.check_training(optimizer_of(row), clip_of(row))
    return net


def _network(row, layers, loss):
    dtype = "float64" if row["dtype"] == "rational" else row["dtype"]
    if row["schedule"] is None:
        return mp.Sequential(layers, loss, dtype=dtype, grain=row["grain"])
    machine = dict(engine=row["engine"])
    if row["links"] == "slow":
        devices = range(row["T"])  # those of the first stage share a port
        link, ports = mp.Link(latency=1, bandwidth=256), [mp.Port(64, sends=devices)]
        machine = dict(engine=row["engine"], link=link, ports=ports)
    cut = mp.Cut(row["K"] if row["cut"] == "even" else counts_of(row, len(layers)))
    sums = mp.Sums(
        row["accumulate"], row["all_reduce"], row["buckets"], row["grain"], row["sync_batch_norm"]
    )
    return mp.Parallel(
        layers, loss, replicas=row["D"], shards=row["T"], stages=cut, microbatches=row["M"],
        numbering=row["place"], schedule=order_of(row), recompute=row["recompute"], zero=row["zero"],
        count_bytes=row["count_bytes"], sums=sums, dtype=dtype, **machine,
    )


def trained(row, found=None):
    """Train the network of a row; return {name: number or array} of all that this shows, in order.

    found: a dict that gets these names and values, so that they are there even if an error comes.
    """
    return run(row, found)[0]


def run(row, found=None):
    """Train the network of a row; return what `trained` does, the network, and its optimizer."""
    found, (layers, loss, _) = {} if found is None else found, layers_of(row)
    net, optimizer = network(row, layers, loss), optimizer_of(row)
    for part, batches in enumerate(parts_of(row)):
        if part and row["checkpoint"]:
            net, optimizer = reloaded(row, net, optimizer)
        HOW[row["how"]](row, net, optimizer, batches, found)
    found["prediction"] = net.predict(batches_of(row)[0][0])  # on MPI ranks, this brings all parameters here
    found.update(arrays_of(net))
    return found, net, optimizer


def arrays_of(net):
    """Return {name: array} of the parameters, statistics and keys of a network."""
    return {
        f"{name} of layer {index}, {type(layer).__name__}": getattr(layer, name)
        for index, layer in enumerate(every_layer(net.layers)) if not layer.layers
        for name in layer.arrays if getattr(layer, name) is not None
    }


def memories_of(net, optimizer):
    """Return {name: array} of what the optimizer of a network remembers."""
    return {
        f"memory {number} of {name} of layer {index}.{position}": array
        for (index, name, position), remembered in sorted(net.collect(optimizer).memory.items())
        for number, array in enumerate(remembered)
    }


def parts_of(row):
    """Return the mini-batches in one list, or in two where there is a break between."""
    batches = batches_of(row)
    return [batches[:1], batches[1:]] if row["again"] or row["checkpoint"] else [batches]


def reloaded(row, net, optimizer):
    """Return a new network and optimizer that go on from a file."""
    with tempfile.TemporaryDirectory() as folder:
        mp.save(Path(folder) / "net.npz", net, optimizer)
        return loaded(row, Path(folder) / "net.npz")


def loaded(row, path):
    """Return a new network of a row, and its optimizer, with what is in a file."""
    layers, loss, _ = layers_of(row | {"seed": row["seed"] + 1})
    net, optimizer = network(row, layers, loss), optimizer_of(row)
    mp.load(path, net, optimizer)
    return net, optimizer


def by_steps(row, net, optimizer, batches, found):
    """Run each mini-batch, by the clock or to its end; then step, unless the order has updates."""
    has_U = row["updates"] == "order"
    for X, Y in batches:
        for _ in range(2 if row["again"] and not has_U else 1):
            if row["how"] == "tick":
                net.start(X, Y, optimizer if has_U else None)
                while net.tick():
                    pass
                J = net.J
            elif has_U and row["schedule"] not in ASYNCHRONOUS:  # whose mini-batches are to follow each other
                J, = net.train([(X, Y)], optimizer)
            else:
                J = net.forward_backward(X, Y)
        t = net.n_steps - has_U
        found[f"J of mini-batch {t}"] = J
        if has_U:
            continue
        for index, pair in enumerate(net.gradients):
            for name, gradient in zip(("dW", "db"), map(leaves, pair)):
                found |= {f"{name} of layer {index}.{k}, mini-batch {t}": g for k, g in enumerate(gradient)}
        found[f"norm of the gradients of mini-batch {t}"] = net.gradient_norm()
        net.step(optimizer, clip_of(row))


def by_train(row, net, optimizer, batches, found):
    """Hand all mini-batches to `train`."""
    first = net.n_steps
    costs = net.train(batches, optimizer, clip_of(row))
    found |= {f"J of mini-batch {first + t}": J for t, J in enumerate(costs)}


def by_fit(row, net, optimizer, batches, found):
    """Let `fit` train for an epoch, with data that its shuffling puts into these mini-batches."""
    X, Y = (np.concatenate(arrays, axis=-1) for arrays in zip(*batches))
    order = np.argsort(np.random.default_rng([0, optimizer.n_epochs + 1]).permutation(X.shape[-1]))
    X, Y, size = X[..., order], Y[..., order], batches[0][0].shape[-1]
    epoch, = mp.fit(net, X, Y, optimizer, 1, size, report=None, clip=clip_of(row))
    found[f"mean J up to mini-batch {net.n_steps}"] = epoch.J


HOW = {"forward_backward": by_steps, "tick": by_steps, "train": by_train, "fit": by_fit}
