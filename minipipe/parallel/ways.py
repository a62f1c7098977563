"""How a layer says that devices may share its work."""

from collections.abc import Sequence

from ..layers import Layer
from .proved import is_stated

WAYS = "outputs", "inputs", "units", "heads", "tokens", "positions", "rows"  # see `Layer.part`


def ways_of(layer: Layer) -> dict:
    """Return what `layer` says in `splits`, checked; an empty dictionary, if that was said of another class.

    Raise `ValueError` for a way that does not exist, or that leaves open where a parameter lies.
    """
    if not is_stated(type(layer), "splits"):
        return {}
    for how, axes in layer.splits.items():
        if how not in WAYS:
            raise ValueError(f"{layer!r} has splits[{how!r}]: use one of {', '.join(map(repr, WAYS))}")
        if layer.layers:
            _check_inner(layer, how, axes)
            continue
        for name in ("W", "b"):
            added_to_the_sum = how == "inputs" and name == "b"
            if getattr(layer, name) is not None and name not in axes and not added_to_the_sum:
                raise ValueError(
                    f"{layer!r} has a {name}, but splits[{how!r}] does not say where it lies: add the axis "
                    f"along which it is cut, {{{name!r}: 0}}, or None if each device has all of it"
                )
    return layer.splits


def _check_inner(layer: Layer, how: str, ways: Sequence[str]) -> None:
    """Raise `ValueError` unless a layer made of layers says of each how it is split, the last adding up."""
    if how != "heads" or len(ways) != len(layer.layers) or ways.count("inputs") != 1 or ways[-1] != "inputs":
        raise ValueError(
            f"{layer!r} is made of {len(layer.layers)} layers and has splits[{how!r}] = {ways!r}: "
            "use 'heads', with one word for each layer, of which the last alone is 'inputs'"
        )
    for inner, its_how in zip(layer.layers, ways, strict=True):
        if its_how not in ways_of(inner):
            raise ValueError(
                f"{layer!r} has splits[{how!r}] with {its_how!r} for {inner!r}, which is not split so: "
                f"leave splits[{how!r}] out, or use a layer that is"
            )
