"""Networks that are split along one axis only: `Parallel` with the other axes at 1."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Sequence

from numpy.typing import DTypeLike

from ..cluster import Link, Port
from ..layers import Layer
from ..losses import Loss
from ..order import Costs
from .network import Parallel
from .options import CLUSTER, Cut, Sums
from .orders import Order


class Pipeline(Parallel):
    """A network cut into K stages on simulated devices: a `Parallel` with one replica.

    Args:
        stages: K, the number of stages; or a `Cut`, which says where to cut.
        microbatches: M, the parts of each mini-batch.
        schedule: a name, a `Schedule`, a text, a file, or a function of yours, see
            `minipipe.schedules.build`.
        layers, loss, recompute, sums, engine, costs, link, ports, count_bytes,
            memory_limit, seed, dtype: as for `Parallel`, which also has the methods and
            attributes.

    Source: Huang et al. 2018, arXiv 1811.06965.

    >>> import numpy as np
    >>> from minipipe import SGD, Linear, MeanSquaredError, ReLU
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 1)]
    >>> pipe = Pipeline(layers, MeanSquaredError(), stages=3, microbatches=2)
    >>> X, Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0]])
    >>> J = pipe.forward_backward(X, Y)
    >>> pipe.trace.makespan, [dW.shape for dW, db in pipe.gradients if dW is not None]
    (12, [(4, 2), (1, 4)])
    >>> stream = Pipeline(layers, MeanSquaredError(), 3, 1, schedule="pipedream")
    >>> costs = stream.train([(X, Y)] * 8, SGD(learning_rate=0.1))
    >>> len(costs), stream.trace.makespan                                   # (M + K - 1)(F + B)
    (8, 30)
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, stages: int | Cut, microbatches: int, *,
        schedule: Order = "1f1b", recompute: str = "never", sums: Sums = Sums(), engine: str = CLUSTER,
        costs: Costs = Costs(), link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
        count_bytes: bool = False, memory_limit: float | None = None, seed: int = 0,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            layers, loss, stages=stages, microbatches=microbatches, schedule=schedule, recompute=recompute,
            sums=sums, engine=engine, costs=costs, link=link, ports=ports, count_bytes=count_bytes,
            memory_limit=memory_limit, seed=seed, dtype=dtype,
        )


class DataParallel(Parallel):
    """Replicas of a network, each on a simulated device, which share the samples.

    Args:
        replicas: D.
        microbatches: M, the parts of each mini-batch, a multiple of D or, with the
            default schedule, at least D; left out, D. Each replica gets consecutive
            micro-batches and sums their gradients; the sums are exchanged once.
        layers, loss, schedule, recompute, zero, sums, engine, costs, link, ports,
            count_bytes, memory_limit, seed, dtype: as for `Parallel`, which also has
            the methods and attributes.

        dW = sum over d of dW_d

    Each dW_d carries the 1/m of the whole mini-batch, so the replicas' *sum* is the
    full batch's gradient, however many samples each replica has. Batch norm uses the
    statistics of each micro-batch, which do not depend on D, unless `sums` synchronises
    them. Source: Li et al. 2020, arXiv 2006.15704.

    >>> import numpy as np
    >>> from minipipe import Linear, MeanSquaredError
    >>> X, Y = np.array([[1.0, 2.0, 3.0, 5.0, 8.0]]), np.array([[1.0, 1.0, 2.0, 3.0, 5.0]])
    >>> net = DataParallel([Linear(1, 1)], MeanSquaredError(), replicas=2)
    >>> J = net.forward_backward(X, Y)
    >>> print(net.schedule)
    device 0: 0F0 0B0
    device 1: 0F1 0B1
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, replicas: int, *, microbatches: int | None = None,
        schedule: Order = "1f1b", recompute: str = "never", zero: int = 0,
        sums: Sums = Sums(), engine: str = CLUSTER, costs: Costs = Costs(),
        link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
        count_bytes: bool = False, memory_limit: float | None = None, seed: int = 0,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            layers, loss, replicas=replicas, microbatches=microbatches, schedule=schedule,
            recompute=recompute, zero=zero, sums=sums, engine=engine, costs=costs, link=link, ports=ports,
            count_bytes=count_bytes, memory_limit=memory_limit, seed=seed, dtype=dtype,
        )


class TensorParallel(Parallel):
    """A network in which T simulated devices share the work inside each layer.

    Args:
        shards: T. `ways` says how each layer is split.
        microbatches: M, the parts of each mini-batch; left out, 1.
        layers, loss, schedule, recompute, sums, engine, costs, link, ports,
            count_bytes, memory_limit, seed, dtype: as for `Parallel`, which also has
            the methods and attributes.

    Of two linear layers W and V, device t has some rows of W and the same columns of V:

        Z = [W_1; ...; W_T] A_prev,   with A_t = g(Z_t), the sum over t of V_t A_t

    Source: Shoeybi et al. 2019, arXiv 1909.08053.

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
        self, layers: Sequence[Layer], loss: Loss, shards: int, *, microbatches: int | None = None,
        schedule: Order = "1f1b", recompute: str = "never", sums: Sums = Sums(), engine: str = CLUSTER,
        costs: Costs = Costs(), link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
        count_bytes: bool = False, memory_limit: float | None = None, seed: int = 0,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            layers, loss, shards=shards, microbatches=microbatches, schedule=schedule, recompute=recompute,
            sums=sums, engine=engine, costs=costs, link=link, ports=ports, count_bytes=count_bytes,
            memory_limit=memory_limit, seed=seed, dtype=dtype,
        )
