"""The programs of a round: device 0 is the server, device 1 + k the k-th of the chosen clients."""

from typing import NamedTuple

from ..cluster import Compute, Label, Receive, Send
from ..collectives.group import flattened
from ..layers.parameters import pairs_of_layers
from ..parallel.own_part import put_together
from ..servers.share import counted_places
from .secure import secret
from .uploads import Upload, hidden

DOWN, UP, MISSING, SECRETS = "weights", "update", "missing", "secrets"  # the names of the messages


class Pass(NamedTuple):
    """A client goes over its samples once, or makes its local steps.

    >>> print(Pass(client=17, number=2, round=3))
    c17.2
    """

    client: int
    number: int
    round: int

    @property
    def kind(self):
        return "local training"

    def __str__(self):
        return f"c{self.client}.{self.number}"


def state_of(layers):
    """What a round sends: the parameters and what the layers have counted, as vectors."""
    counted = [getattr(*place) for place in counted_places(layers)]
    return flattened([pairs_of_layers(layers), counted])


def take(layers, state):
    """`layers` go on with what `state_of` has given."""
    n = len(flattened(pairs_of_layers(layers)))
    put_together(layers, [state[:n]])
    for (layer, name), vector in zip(counted_places(layers), state[n:], strict=True):
        setattr(layer, name, vector.reshape(getattr(layer, name).shape))


def server(state, chosen, n_least, is_secure, average, found):
    """The server: it sends out the weights, collects what those send who report, and averages.

    state: what each client starts from.
    chosen: the clients.
    n_least: how many must report, or the round counts for nothing.
    is_secure: whether what they send has masks.
    average: average(uploads, secrets) is (new state, J) of {client: `Upload`}; secrets as for `revealed`.
    found: a dict that takes up "reported", the clients; and "state" and "J", if these are enough.
    """
    for device in range(1, len(chosen) + 1):
        yield Send(DOWN, state, to=device)
    uploads, devices = {}, {}
    for device, client in enumerate(chosen, start=1):
        upload = yield Receive(UP, source=device)
        if upload is not None:
            uploads[client], devices[client] = upload, device
    is_enough, secrets = len(uploads) >= n_least, {}
    if is_secure:
        missing = [client for client in chosen if client not in uploads] if is_enough else []
        for device in devices.values():
            yield Send(MISSING, missing, to=device)
        if missing:
            for client, device in devices.items():
                secrets[client] = yield Receive(SECRETS, source=device)
    if is_enough:
        found["reported"] = list(uploads)
        found["state"], found["J"] = yield Compute(Label("average", "U"), average, uploads, secrets, ticks=0)


def client(one, chosen, n_passes, ticks, number, drops_out, seed):
    """A client: it gets the weights, trains on its own samples, and sends back what it has come to.

    one: the `Client`.
    chosen: all clients of the round.
    n_passes: E.
    ticks: of a sample.
    number: of the round.
    drops_out: whether the server never hears of it again; None in the place of its message stands for the
        time at which the server gives it up.
    seed: of the secrets between each two clients; None, and they send their numbers as they are.
    """
    state = yield Receive(DOWN, source=0)
    take(one.layers, state)
    anchor, costs = one.anchor(), []
    for done in range(n_passes):
        label = Pass(one.number, done, number)
        costs.append((yield Compute(label, one.work, anchor, ticks=one.samples() * ticks)))
    if drops_out:
        yield Send(UP, None, to=0)
        return
    upload = Upload(one.n, state_of(one.layers), costs[-1])
    if seed is not None:
        others = [other for other in chosen if other != one.number]
        upload = yield Compute(Label("masks", "masks"), hidden, upload, one.number, others, seed, ticks=0)
    yield Send(UP, upload, to=0)
    if seed is not None:
        missing = yield Receive(MISSING, source=0)
        if missing:
            yield Send(SECRETS, {other: secret(seed, one.number, other) for other in missing}, to=0)
