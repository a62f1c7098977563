"""Where to cut a network into stages."""

from ..functions import even_slices


def equal_counts(n_layers, n_stages):
    """How many layers each stage gets if all get equally many; the first stages take what is left over.

    >>> equal_counts(7, 4)
    [2, 2, 2, 1]
    """
    if not 1 <= n_stages <= n_layers:
        raise ValueError(
            f"n_stages={n_stages} does not fit {n_layers} layers: use 1 to {n_layers} stages, so that each has a layer"
        )
    return [part.stop - part.start for part in even_slices(n_layers, n_stages)]


def cut(layers, counts):
    """`layers` as one list per stage, with `counts[s]` consecutive layers in stage s."""
    counts = list(counts)
    if any(count < 1 for count in counts) or sum(counts) != len(layers):
        raise ValueError(
            f"partition={counts} adds up to {sum(counts)} for {len(layers)} layers: "
            "give each stage at least 1 layer and all of them together every layer"
        )
    layers = iter(layers)
    return [[next(layers) for _ in range(count)] for count in counts]
