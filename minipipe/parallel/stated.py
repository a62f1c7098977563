"""Whether what a class says of itself, such as how its layers may be split, is true of what it computes."""

import sys
from functools import cache

from ..layers import LAYERS
from ..losses import LOSSES


def is_ours(kind: type) -> bool:
    """Tell whether a file of this package defines this class."""
    name, package = kind.__module__, __name__.partition(".")[0]
    return name.startswith(f"{package}.") and vars(sys.modules[name]).get(kind.__name__) is kind


@cache
def is_stated(kind: type, trait: str) -> bool:
    """Tell whether what `kind` has as `trait` was said of what it computes.

    A class from elsewhere that redefines something of a complete layer or loss computes something else, so
    what was said of that one counts no longer, until the class says it anew. What completes an abstract base,
    such as `Elementwise`, keeps what is said there.

    >>> from ..layers import Linear
    >>> class Named(Linear):
    ...     def name(self):
    ...         return "mine"
    >>> class Doubled(Linear):
    ...     def forward(self, A_prev):
    ...         return 2 * super().forward(A_prev)
    >>> is_stated(Named, "splits"), is_stated(Doubled, "splits")
    (True, False)
    """
    complete = {*LAYERS.values(), *LOSSES.values()}
    for place, base in enumerate(kind.__mro__):
        if trait in vars(base):
            return True
        inherited = [one for one in kind.__mro__[place + 1:] if one is not object]
        if is_ours(base) or not any(one in complete or not is_ours(one) for one in inherited):
            continue
        if any(name in vars(one) for one in inherited for name in vars(base) if not name.startswith("__")):
            return False
    return False
