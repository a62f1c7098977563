"""How many bytes numbers take, by what they are for."""

from dataclasses import dataclass

import numpy as np

from ..arrays import floats
from ..checks import shown


@dataclass(frozen=True)
class Precision:
    """The bytes of a number, by what it is for: counted, never computed in.

    name: of the precision.
    numbers: of parameters, gradients and activations, 2, 4 or 8.
    state: of what an optimizer keeps for each parameter, such as Adam's two moments.
    master: of the second, longer copy of each parameter that the optimizer updates; 0: there is none.

    The "optimizer state" that is counted holds the master weights, too, as in Rajbhandari et al. 2020, arXiv
    1910.02054, section 3.1: for Adam in mixed precision 2 + 2 + 12 bytes a parameter.

    >>> PRECISIONS["mixed"]
    Precision(name='mixed', numbers=2, state=4, master=4)
    >>> [PRECISIONS[name].of_a_parameter(n_memories=2) for name in ("float32", "mixed")]
    [16, 16]
    """

    name: str
    numbers: int
    state: int
    master: int = 0

    @property
    def dtype(self):
        """Of arrays with numbers of so many bytes: float16 stands for every format of 16 bits."""
        return floats(f"f{self.numbers}")

    def of_a_parameter(self, n_memories):
        """The bytes of a parameter, its gradient, and all that an optimizer with so many memories keeps."""
        return 2 * self.numbers + self.master + n_memories * self.state

    def optimizer_state(self, gradients, kept):
        """The bytes beside parameters and gradients.

        gradients: those of one sum of them, one number for each parameter.
        kept: those that the optimizer would keep if all numbers were alike.
        """
        return gradients // self.numbers * self.master + kept // self.numbers * self.state


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float64", 8, 8),
        Precision("float32", 4, 4),
        Precision("mixed", 2, 4, master=4),  # bfloat16 or float16, beside float32
    )
}


def precision_of(precision, dtype):
    """The `Precision` of this name, or itself; that of a run in `dtype`, if it is None."""
    if precision is None:
        dtype = floats(dtype)
        return Precision(np.dtype(dtype).name, dtype.itemsize, dtype.itemsize)
    if isinstance(precision, Precision):
        return precision
    if not (isinstance(precision, str) and precision in PRECISIONS):
        raise ValueError(
            f"precision={shown(precision)} is not known: use one of {', '.join(PRECISIONS)}, or a Precision"
        )
    return PRECISIONS[precision]
