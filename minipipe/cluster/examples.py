"""Four programs to read aloud: what devices can do with `Compute`, `Send` and `Receive`.

A program is a generator. It yields a request, and is resumed with the answer when the clock has reached it.
A cluster runs one program on each device, or several beside each other, in lanes.
"""

from operator import add

from .requests import ANY, Compute, Receive, Send


def ring(rank, n_ranks, parts):
    """Ring all-reduce: afterwards, the parts of every rank are the sums over all ranks.

    rank, n_ranks: which device this is, of how many.
    parts: its own array, cut into n_ranks parts; a list, whose entries are replaced.

    In each step, a rank sends one part to the next rank and receives another from the one before. In the
    first n_ranks - 1 steps it adds its own part to what has come; then each rank has the sum of one part, and
    in as many steps more these sums go round.

    >>> from minipipe.cluster import Cluster, Link
    >>> import numpy as np
    >>> data = [[np.array([1]), np.array([10])], [np.array([2]), np.array([20])]]
    >>> programs = [ring(rank, 2, parts) for rank, parts in enumerate(data)]
    >>> trace = Cluster(programs, link=Link(latency=3)).run()
    >>> data
    [[array([3]), array([30])], [array([3]), array([30])]]
    >>> trace.makespan      # two messages one after the other, and one sum between them
    7
    """
    following, before = (rank + 1) % n_ranks, (rank - 1) % n_ranks
    for step in range(2 * (n_ranks - 1)):
        mine, theirs = (rank - step) % n_ranks, (rank - step - 1) % n_ranks
        yield Send(step, parts[mine], to=following)
        part = yield Receive(step, source=before)
        if step < n_ranks - 1:
            part = yield Compute("add", add, part, parts[theirs])
        parts[theirs] = part


def server(parameters, n_updates, learning_rate=1):
    """A parameter server: whoever comes first is served first.

    parameters: an array, which is changed in place.

    >>> from minipipe.cluster import Cluster
    >>> import numpy as np
    >>> w = np.array([0])
    >>> programs = [server(w, n_updates=5), worker(3, ticks=2), worker(2, ticks=4)]
    >>> for span in Cluster(programs).run().spans_of(0):
    ...     print(f"tick {span.start}: {span.label}")
    tick 2: update of device 1
    tick 4: update of device 2
    tick 5: update of device 1
    tick 8: update of device 1
    tick 9: update of device 2
    >>> w
    array([-5])
    """
    def update(gradient):
        parameters[...] -= learning_rate * gradient

    for _ in range(n_updates):
        device, gradient = yield Receive("gradient", source=ANY)
        yield Compute(f"update of device {device}", update, gradient)
        yield Send("parameters", parameters, to=device)


def worker(n_updates, ticks):
    """A worker of `server`, which is device 0: it waits for the answer. Its gradient is always 1."""
    for _ in range(n_updates):
        yield Compute("gradient", ticks=ticks)
        yield Send("gradient", 1, to=0)
        yield Receive("parameters", source=0)


def backward(device, n_layers):
    """The lane that computes: it hands each gradient to the lane beside, and goes on with the next at once.

    >>> from minipipe.cluster import Cluster
    >>> lanes = {"compute": backward(0, n_layers=3), "communication": exchange(0, n_layers=3)}
    >>> trace = Cluster([lanes], duration=lambda label: 2).run()
    >>> for span in trace.spans:
    ...     print(f"{span.lane:13}  {span.start} to {span.end}  {span.label}")
    compute        0 to 2  backward 2
    compute        2 to 4  backward 1
    communication  2 to 4  all-reduce 2
    compute        4 to 6  backward 0
    communication  4 to 6  all-reduce 1
    communication  6 to 8  all-reduce 0
    >>> print(trace.idle[-1])      # all but one all-reduce is hidden behind the work
    device 0 idle from 6 to 8: wait, waiting for sum 0 from another lane of its own
    """
    for layer in reversed(range(n_layers)):
        yield Compute(f"backward {layer}")
        yield Send(f"gradient {layer}", None, to=device)
    for layer in reversed(range(n_layers)):
        yield Receive(f"sum {layer}", source=device)


def exchange(device, n_layers):
    """The lane of `backward` that communicates, with a Compute in the place of each all-reduce."""
    for layer in reversed(range(n_layers)):
        yield Receive(f"gradient {layer}", source=device)
        yield Compute(f"all-reduce {layer}")
        yield Send(f"sum {layer}", None, to=device)


def swap(neighbour):
    """Send first, then receive: what two neighbours do who swap something, and forget that a send may block.

    A message on a usual link sets out at once; so both have sent when they come to receive.

    >>> from minipipe.cluster import Cluster, Link
    >>> Cluster([swap(1), swap(0)], link=Link(latency=1)).run().makespan
    1

    With a rendezvous, it sets out only when the other one asks for it, and that never happens.

    >>> rendezvous = Link(latency=1, rendezvous=True)
    >>> Cluster([swap(1), swap(0)], link=rendezvous).run()      # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    minipipe.cluster.errors.DeadlockError: deadlock: device 0 waits until device 1 asks for news,
    device 1 waits until device 0 asks for news: a cycle, so none of them can ever go on

    It is enough that one of them receives first.

    >>> def polite(neighbour):
    ...     yield Receive("news", source=neighbour)
    ...     yield Send("news", None, to=neighbour)
    >>> Cluster([swap(1), polite(0)], link=rendezvous).run().makespan
    2
    """
    yield Send("news", None, to=neighbour)
    yield Receive("news", source=neighbour)
