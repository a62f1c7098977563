"""What a network in stages adds to any other, beside its runs: updates, and what a checkpoint asks for."""

from ..network import Network
from ..optimizers import checked_optimizer


class InStages(Network):
    """A network whose layers lie in `stages`, each with what an optimizer keeps for its layers.

    `_optimizers` are those of an order that makes the updates itself, for each shard of the network one a
    stage; otherwise None. `_run` is the last run, or None; `_committed`, whether it has come to its end.
    `_place_of` has for each layer its (stage, index there).
    """

    def step(self, optimizer):
        """One update of all parameters by `optimizer`, with the current gradients.

        What it keeps for the parameters lies with their stages.
        """
        checked_optimizer(optimizer)
        if self._optimizers is not None:
            raise RuntimeError(
                f"the order of {self.schedule.name!r} updates the stages itself: "
                "a step would be a second update"
            )
        super().step(optimizer)
        self.keep_optimizer_state(optimizer)

    def keep_optimizer_state(self, optimizer):
        """The stages count what `optimizer` keeps for their layers among what they hold."""
        for stage, layers in zip(self.stages, self._layers_of_stages()):
            stage.keep_optimizer_state(optimizer.memory_of(layers))

    def optimizers(self, optimizer):
        """As for a `Network`; the optimizers of an order with updates are those of its stages."""
        if self._optimizers is None:
            return super().optimizers(optimizer)
        (of_stages,) = self._optimizers
        return list(zip(of_stages, self._layers_of_stages()))

    def forget_run(self):
        """Undo a run that has not come to its end, and forget what the last one has left."""
        if self._run is not None and not self._committed:
            self._run.restore()
        self._run = None
        super().forget_run()

    def _layers_of_stages(self):
        """For each stage, the indices of its layers in the network."""
        found = {}
        for index, (stage, _) in enumerate(self._place_of):
            found.setdefault(stage, []).append(index)
        return list(found.values())
