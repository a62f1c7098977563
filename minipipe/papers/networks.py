"""The two networks of GPipe's tables: described, cut into stages, and without numbers."""

from functools import lru_cache

import numpy as np

from ..arguments import argument
from ..description import describe
from ..losses import SoftmaxCrossEntropy
from ..models import amoebanet_d, transformer
from ..planning.without_numbers import WithoutNumbers

IMAGE = 224
N_TOKENS, WIDTH, N_HEADS, LENGTH = 32_000, 2048, 32, 1024
FAMILIES = {  # what makes (layers, shape of a sample) from a size
    "AmoebaNet-D": lambda L, D: (amoebanet_d(L, D), (3, IMAGE, IMAGE)),
    "Transformer": lambda n_layers: (transformer(N_TOKENS, WIDTH, N_HEADS, n_layers), (LENGTH,)),
}


def amoebanet(L, D):
    """The `Description` of AmoebaNet-D (L, D) for 224 x 224 images and 1000 classes."""
    return _described("AmoebaNet-D", argument("amoebanet_d.L", L), argument("amoebanet_d.D", D))


def transformer_family(n_layers):
    """The `Description` of the Transformer of table 1: d = 2048, 32 heads, 32,000 tokens, sequences of 1024.

    >>> [transformer_family(L).parameters for L in (3, 13, 103)]
    [282182912, 785765632, 5318010112]
    """
    return _described("Transformer", argument("transformer.n_layers", n_layers))


@lru_cache
def _described(family, *size):
    return describe(*FAMILIES[family](*size))


def without_numbers(family, size):
    """The network as `WithoutNumbers`, in float32 and with its loss."""
    layers, shape = FAMILIES[family](*size)
    return WithoutNumbers(layers, SoftmaxCrossEntropy(), shape, np.float32, optimizer=None)
