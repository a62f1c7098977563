"""Changes of several objects that are all made, or none of them."""

from collections.abc import Callable


class Changes:
    """What several objects shall become, worked out on twins of them and then handed over.

    Until `make`, nothing has changed. Each object then takes over, at once, what its twin has; so `make` may
    be called again after an interrupt, and goes on where it was.

    >>> from types import SimpleNamespace
    >>> one, other = SimpleNamespace(dollars=5), SimpleNamespace(dollars=0)
    >>> changes = Changes()
    >>> changes.twin(one).dollars, changes.twin(other).dollars = 2, 3
    >>> one.dollars, other.dollars
    (5, 0)
    >>> changes.make()
    >>> one.dollars, other.dollars
    (2, 3)
    """

    def __init__(self) -> None:
        self._twins = {}  # id of the attributes of an object -> its twin; two objects may share them
        self._new = []    # [(attributes of an object, what they become)]
        self._last = []   # functions that are called once all that is made

    def twin(self, one: object) -> object:
        """Return a shallow copy of an object, in which its dictionaries and inner layers are copies, too."""
        attributes = vars(one)
        if id(attributes) not in self._twins:
            twin = self._twins[id(attributes)] = type(one).__new__(type(one))
            vars(twin).update(attributes)
            for name, value in attributes.items():
                if type(value) is dict:
                    setattr(twin, name, dict(value))
            if attributes.get("layers"):
                twin.layers = tuple(map(self.twin, one.layers))
            self._new.append((attributes, vars(twin)))
        return self._twins[id(attributes)]

    def of(self, one: object, **new) -> None:
        """Let an object have these attributes, too."""
        self._new.append((vars(one), new))

    def then(self, function: Callable[[], None]) -> None:
        """Call a function at the end of `make`. It may be called again after an interrupt, too."""
        self._last.append(function)

    def make(self) -> None:
        """Give each object what it shall have; layers stay made of their own layers."""
        for attributes, new in self._new:
            attributes.update({name: value for name, value in new.items() if name != "layers"})
        for function in self._last:
            function()
