"""What tests of splits ask of two networks: are all their numbers the same?"""

import numpy as np

from minipipe.functions import leaves


def equal(a, b):
    """Whether nested arrays have the same numbers, in as many arrays."""
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(map(np.array_equal, a, b))


def parameters(layers):
    """All W and b, those of layers inside of others, too: a list of arrays."""
    return leaves([(layer.W, layer.b) for layer in layers])
