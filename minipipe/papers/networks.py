"""The two networks of GPipe's tables: described, cut into stages, and what they keep for a backward."""

from functools import lru_cache

import numpy as np

from ..cluster import bytes_by_kind
from ..description import describe
from ..models import amoebanet_d, transformer
from ..network import Sequential

IMAGE, SMALL_IMAGE, SMALL_D = 224, 128, 8
N_TOKENS, WIDTH, N_HEADS, LENGTH = 32_000, 2048, 32, 1024


@lru_cache
def amoebanet(L, D):
    """The `Description` of AmoebaNet-D (L, D) for 224 x 224 images and 1000 classes."""
    return describe(amoebanet_d(L, D), (3, IMAGE, IMAGE))


@lru_cache
def transformer_family(n_layers):
    """The `Description` of the Transformer of table 1: d = 2048, 32 heads, 32,000 tokens, sequences of 1024.

    >>> [transformer_family(L).parameters for L in (3, 13, 103)]
    [282182912, 785765632, 5318010112]
    """
    return describe(transformer(N_TOKENS, WIDTH, N_HEADS, n_layers), (LENGTH,))


def blocks(description):
    """The rows of a Transformer's blocks, without those of what comes before and after them."""
    return [row for row in description.rows if row.name.startswith("TransformerBlock")]


def stages_of(rows, counts):
    """`rows` as one list per stage."""
    rows = iter(rows)
    return [[next(rows) for _ in range(count)] for count in counts]


def amoebanet_kept(L, D):
    """Bytes that a backward of each layer of AmoebaNet-D (L, D) needs for one image in float32, as this package keeps them.

    Counted in the arrays of a network with D = 8 and images of 128 x 128, and scaled by D and by the area.
    """
    scale = D / SMALL_D * (IMAGE / SMALL_IMAGE) ** 2
    return [scale * n_bytes for n_bytes in _small_amoebanet_kept(L)]


@lru_cache
def _small_amoebanet_kept(L):
    return _kept(amoebanet_d(L, SMALL_D), np.ones((3, SMALL_IMAGE, SMALL_IMAGE, 1), np.float32))


@lru_cache
def transformer_kept():
    """The same for one sequence through (Embedding, a block, LayerNorm, the last Linear) of the Transformer of table 1.

    Counted in a network that is 32 times as narrow, with 1 head and 1000 tokens, but with sequences as long.
    """
    narrow = transformer(N_TOKENS // N_HEADS, WIDTH // N_HEADS, 1, n_layers=1)
    return [N_HEADS * n_bytes for n_bytes in _kept(narrow, np.zeros((LENGTH, 1), int))]


def _kept(layers, A):
    """The bytes of each layer's cache after a forward."""
    sizes = []
    for layer in Sequential(layers, loss=None, dtype=np.float32).layers:
        A = layer.forward(A)
        sizes.append(bytes_by_kind({"cache": layer.cache})["cache"])
    return sizes
