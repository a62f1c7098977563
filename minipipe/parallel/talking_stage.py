"""A stage with layers that talk to other devices: its forward and its backward are programs."""

from collections.abc import Generator, Sequence
from functools import partial

from ..layers import Layer
from ..layers.exchange import Exchange, backward_input_program, exchanges_of, forward_program
from ..losses import Loss
from ..order import Action
from ..order.programs import NOTHING
from .grains import given_to_grains, together
from .stage import PASSING, Stage


class TalkingStage(Stage):
    """A `Stage` whose actions, its forward, recompute and backward, are programs.

    They yield an `Exchange` wherever a layer, or the loss, talks to other devices, and return what those of a
    `Stage` return.
    """

    talks = True

    def __init__(self, index: int, layers: Sequence[Layer], loss: Loss | None = None) -> None:
        super().__init__(index, layers, loss)
        self._n_exchanges = exchanges_of(self.layers, loss, index > 0)

    def n_exchanges(self, part: Action) -> int:
        return self._n_exchanges.get(part.kind, 0) * len(self.line.grains_of(part))

    def act(self, part: Action, incoming, skips: dict) -> Generator:
        if part.kind not in PASSING:  # a generator for these, too
            return super().act(part, incoming, skips)
        results = []
        for j, given in given_to_grains(self.line, part, incoming, skips):
            results.append((yield from self._pass(part, j, *given)))
        return together(results)

    def forward(
        self, i: int, A_prev, skips: dict, keep_input_only: bool = False, is_known: bool = False
    ) -> Generator:
        kept, call = self._begin_forward(i, A_prev, skips, keep_input_only)
        A, J = (yield from forward_program(self.layers, A_prev, skips, call)), None
        if self.loss is not None:
            J = self.loss.forward(A, self.line.labels[i], self.line.origins[i].m)
            if self.loss.exchanges[0]:
                J = yield Exchange(self.loss, J, A)
        return self._end_forward(i, A, J, skips, kept, is_known)

    def recompute(self, i: int) -> Generator:
        yield from self.forward(i, *self.inputs.pop(i), is_known=True)
        return NOTHING

    def backward(self, i: int, dA, skips: dict) -> Generator:
        dA = self._begin_backward(i, dA)
        add = partial(self._add_gradient, i)
        dA_prev = yield from backward_input_program(self.layers, dA, skips, self.index > 0, add)
        self._used_version(i)
        return dA_prev, skips

    def backward_input(self, i: int, dA, skips: dict) -> Generator:
        dA = self._begin_backward(i, dA)
        keep = self.halves.setdefault(i, {}).__setitem__
        return (yield from backward_input_program(self.layers, dA, skips, self.index > 0, keep)), skips


def stage_of(index: int, layers: Sequence[Layer], loss: Loss | None = None) -> Stage:
    """Return a `Stage`; a `TalkingStage`, if one of the layers or the loss talks to other devices."""
    talks = any(True in owner.exchanges for owner in [*layers, loss] if owner is not None)
    return (TalkingStage if talks else Stage)(index, layers, loss)
