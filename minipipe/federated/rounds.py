"""What a round of federated averaging is like: plain data, which checks its own fields."""

from dataclasses import dataclass

from ..arguments import argument, optional
from ..parallel.options import Plain


@dataclass(frozen=True, repr=False)
class Rounds(Plain):
    """What the clients do in each round.

    fraction: C, above 0; of K clients, C K are chosen, rounded to a whole number.
    n_epochs: E, the passes that each makes over its own samples.
    batch_size: B, of its mini-batches; None for all n_k samples at once.
    n_steps: None; or a number H of mini-batches that each client takes in a round in the place of E passes:
        local SGD (Stich 2018, arXiv 1805.09767).
    proximal: mu of `minipipe.federated.clients.pull`: FedProx.
    drop_out: the probability that a chosen client does not report.
    secure: whether the server sees the sum only, see `minipipe.federated.programs`; in steps of
        2^-24.
    keep_memory: whether each client's optimizer remembers from one round to the next, as in DiLoCo.
    """

    example = "Rounds(n_epochs=5)"
    fraction: float = 1
    n_epochs: int = 1
    batch_size: int | None = None
    n_steps: int | None = None
    proximal: float = 0
    drop_out: float = 0
    secure: bool = False
    keep_memory: bool = False

    def __post_init__(self) -> None:
        names = "fraction", "n_epochs", "proximal", "drop_out", "secure", "keep_memory"
        self._keep(**{name: argument(name, getattr(self, name)) for name in names})
        self._keep(
            batch_size=optional("batch_size", self.batch_size), n_steps=optional("n_steps", self.n_steps)
        )
        if self.n_steps is not None and self.n_epochs > 1:
            raise ValueError(f"n_steps={self.n_steps} and n_epochs={self.n_epochs}: give one of them")
