"""Networks that are split in one way alone: `Parallel` with the arguments that everybody types."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Sequence

from numpy.typing import DTypeLike

from ..arguments import argument, optional
from ..checks import items_of, shown
from ..layers import Layer
from ..losses import Loss
from .network import Parallel
from .options import Cut, Machine, Memory, Split, Sums, Weights
from .orders import Order


class Pipeline(Parallel):
    """A network cut into K stages on simulated devices, with the gradients and updates of `Sequential`.

    layers, loss, dtype: as for `Sequential`.
    n_stages: K, the parts that the layers are cut into; or a `Cut`, to say where.
    n_microbatches: M, the parts that each mini-batch is cut into, ragged ones if need be.
    schedule: the order of the work: one of the names in `minipipe.schedules.SCHEDULES`; a `Schedule`; or a
        function (n_stages, number of micro-batches) -> `Schedule`.
    recompute: "never", or what devices do not keep, see `Memory`.
    on: a `Machine`: engine, costs and links.
    count_bytes: whether the trace says what devices hold, see `Trace.peak_bytes`.

    It runs and trains as `Parallel` does. That has all other options, such as copies, ZeRO, a limit of memory
    or a seed: `Parallel(layers, loss, Split(stages=4, microbatches=8), "gpipe", Memory(limit=10**6))`.
    Source: Huang et al. 2018, arXiv 1811.06965.

    >>> import numpy as np
    >>> from minipipe import SGD, Linear, MeanSquaredError, ReLU
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 1)]
    >>> pipe = Pipeline(layers, MeanSquaredError(), n_stages=3, n_microbatches=2)
    >>> X, Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0]])
    >>> J = pipe.forward_backward(X, Y)
    >>> pipe.trace.makespan, [dW.shape for dW, db in pipe.gradients if dW is not None]
    (12, [(4, 2), (1, 4)])
    >>> stream = Pipeline(layers, MeanSquaredError(), 3, 1, "pipedream")
    >>> costs = stream.train([(X, Y)] * 8, SGD(learning_rate=0.1))
    >>> len(costs), stream.trace.makespan                                   # (M + K - 1)(F + B)
    (8, 30)
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, n_stages: int | Cut, n_microbatches: int,
        schedule: Order = "1f1b", recompute: str = "never", dtype: DTypeLike = "float64",
        on: Machine = Machine(), count_bytes: bool = False,
    ) -> None:
        if items_of(n_stages) is not None:
            raise ValueError(f"n_stages={shown(n_stages)} must be a whole number, or Cut({shown(n_stages)})")
        stages = n_stages if isinstance(n_stages, Cut) else argument("n_stages", n_stages)
        split = Split(stages=stages, microbatches=argument("n_microbatches", n_microbatches))
        memory = Memory(recompute, count_bytes=count_bytes)
        super().__init__(layers, loss, split, schedule, memory, on=on, weights=Weights(dtype=dtype))


class DataParallel(Parallel):
    """Copies of a network, each on a simulated device, which share the samples of each mini-batch.

    layers, loss, dtype: as for `Sequential`.
    n_replicas: D, the copies.
    n_microbatches: M, the parts of each mini-batch, at least D; left out, D. Each copy gets a run of
        them, and adds up its gradients, which are exchanged once.
    zero: 0; or 1, 2 or 3, and each copy updates a part of the parameters, see `Memory`.
    sums: a `Sums`: the all-reduce, buckets, synchronised batch norm.
    on: a `Machine`. F = 1 of its costs is the forward of the whole network.
    count_bytes: whether the trace says what devices hold, see `Trace.peak_bytes`.

        dW = sum over d of dW_d

    Each dW_d carries the 1/m of the whole mini-batch, so the copies' *sum* is the full batch's gradient, for
    runs of any sizes. Batch norm has the statistics of each micro-batch, which do not depend on D,
    unless `sums` synchronises them. It runs and trains as `Parallel` does, which has all other options.
    Source: Li et al. 2020, arXiv 2006.15704.

    >>> import numpy as np
    >>> from minipipe import Linear, MeanSquaredError
    >>> X, Y = np.array([[1.0, 2.0, 3.0, 5.0, 8.0]]), np.array([[1.0, 1.0, 2.0, 3.0, 5.0]])
    >>> net = DataParallel([Linear(1, 1)], MeanSquaredError(), n_replicas=2)
    >>> J = net.forward_backward(X, Y)
    >>> print(net.schedule)
    device 0: 0F0 0B0
    device 1: 0F1 0B1
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, n_replicas: int, n_microbatches: int | None = None,
        zero: int = 0, dtype: DTypeLike = "float64", sums: Sums = Sums(), on: Machine = Machine(),
        count_bytes: bool = False,
    ) -> None:
        D, M = argument("n_replicas", n_replicas), optional("n_microbatches", n_microbatches)
        split, memory = Split(replicas=D, microbatches=M), Memory(zero=zero, count_bytes=count_bytes)
        super().__init__(layers, loss, split, memory=memory, sums=sums, on=on, weights=Weights(dtype=dtype))


class TensorParallel(Parallel):
    """A network in which T simulated devices share the work inside each layer.

    layers, loss, dtype: as for `Sequential`.
    n_shards: T. `ways` says how each layer is divided.
    n_microbatches: M, the parts of each mini-batch: all forwards, then the backwards in reverse.
    recompute: "never", or what devices do not keep, see `Memory`.
    on: a `Machine`: engine, costs and links.
    count_bytes: whether the trace says what devices hold, see `Trace.peak_bytes`.

    Of two linear layers W and V, device t has some rows of W and the same columns of V:

        Z = [W_1; ...; W_T] A_prev        then, with A_t = g(Z_t), the sum over t of V_t A_t

    It runs and trains as `Parallel` does, which has all other options. Source: Shoeybi et al. 2019, arXiv
    1909.08053.

    >>> import numpy as np
    >>> from minipipe import Linear, MeanSquaredError, ReLU
    >>> W1, W2 = [[1, 2], [3, -1], [-2, 1], [0, 1]], [[1, 0, 2, -1], [0, 1, -1, 3]]
    >>> first = Linear(2, 4, W=W1, b=[[0], [1], [0], [-1]])
    >>> net = TensorParallel([first, ReLU(), Linear(4, 2, W=W2, b=[[10], [20]])], MeanSquaredError(), 2)
    >>> J = net.forward_backward(np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[17.0, 8.0], [26.0, 27.0]]))
    >>> J, net.ways
    (np.float64(1.25), ['by outputs', 'unit by unit', 'by inputs'])
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, n_shards: int, n_microbatches: int = 1,
        recompute: str = "never", dtype: DTypeLike = "float64", on: Machine = Machine(),
        count_bytes: bool = False,
    ) -> None:
        split = Split(
            shards=argument("n_shards", n_shards), microbatches=argument("n_microbatches", n_microbatches)
        )
        memory = Memory(recompute, count_bytes=count_bytes)
        super().__init__(layers, loss, split, "gpipe", memory, on=on, weights=Weights(dtype=dtype))
