"""Selective recomputation: layers that keep less for their backward, and make the rest again in it."""

from .layer import checked_layers, every_layer

SELECTIVE = "selective"  # the mode that needs to know the layers' insides


def recomputing(layers):
    """Copies of `layers`, in which each attention keeps Q, K and V, and makes its shares P from them again.

    That is where most bytes are for few products: of T positions, P has T^2 numbers a head, and takes the
    product K^T Q. No other layer keeps less, no action is added to the order, and no bit changes. For a
    backward in halves, the first one recomputes. A layer of one's own takes part if its class says
    `recomputes = False` and its methods look at `self.recomputes`, which is True here.

    Raises `ValueError` if there is no such layer. Source: Korthikanti et al. 2022, arXiv 2205.05198, section
    5.

    >>> from .attention import TransformerBlock
    >>> (block,) = recomputing([TransformerBlock(8, n_heads=2)])
    >>> [layer for layer in every_layer([block]) if layer.recomputes]
    [MultiHeadAttention(8, 2)]
    """
    layers = checked_layers(layers)
    if not can_recompute(layers):
        raise ValueError(
            f"none of these {len(layers)} layers is or has a MultiHeadAttention, "
            "which selective recomputation is for: use recompute='always', 'sqrt' or 'never'"
        )
    twins = [layer.copy() for layer in layers]
    for layer in every_layer(twins):
        if layer.recomputes is not None:
            layer.recomputes = True
    return twins


def can_recompute(layers):
    """Whether one of `layers`, or of those within them, can make a part of its cache again."""
    return any(layer.recomputes is not None for layer in every_layer(layers))
