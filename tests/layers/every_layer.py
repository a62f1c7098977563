"""One list of all layers, and how to make one of them ready to run.

The tests of what every layer has to keep, of equivalence and of arrays without numbers all take their layers
from `LAYERS`: a new layer is added here and nowhere else.
"""

import numpy as np

import minipipe as mp
from minipipe.cluster import Buffers
from minipipe.functions import leaves
from minipipe.layers import every_layer
from minipipe.layers.through import put_aside, weight_gradients

CONVOLUTIONS = {  # name: (layer, spatial lengths)
    "1-D": (mp.Conv1d(2, 3, 5), (8,)),
    "1-D, dilated": (mp.Conv1d(1, 2, 3, stride=2, padding=3, dilation=4), (9,)),
    "2-D": (mp.Conv2d(2, 3, (3, 2)), (5, 7)),
    "2-D, same": (mp.Conv2d(1, 2, (4, 3), padding="same", dilation=(1, 2)), (3, 5)),
    "2-D, all options": (
        mp.Conv2d(4, 6, (2, 3), stride=(2, 3), padding=(1, 2), dilation=(3, 1), groups=2),
        (7, 9),
    ),
    "2-D, groups": (mp.Conv2d(4, 6, (2, 3), padding=1, groups=2), (3, 4)),
    "2-D, depthwise": (mp.Conv2d(3, 6, 3, padding=1, groups=3, bias=False), (5, 3)),
    "2-D, 1x1": (mp.Conv2d(3, 2, 1), (3, 4)),
    "2-D, gaps between windows": (mp.Conv2d(1, 1, 1, stride=3), (7, 5)),
    "3-D": (mp.Conv3d(2, 2, (2, 3, 1), stride=(1, 2, 1), padding=1, groups=2), (3, 5, 2)),
    "transposed 1-D": (mp.ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), (5,)),
    "transposed 2-D": (mp.ConvTranspose2d(4, 2, (3, 2), padding=(1, 0), groups=2, dilation=2), (3, 5)),
    "transposed 2-D, gaps": (mp.ConvTranspose2d(2, 2, 1, stride=3, output_padding=2, bias=False), (3, 2)),
    "transposed 3-D": (mp.ConvTranspose3d(1, 2, 2, stride=(1, 2, 3)), (2, 3, 1)),
}

LAYERS = {  # name: (layer, shape of a sample), where a Join has two samples
    "Linear": (mp.Linear(4, 3), (4,)),
    "Linear of one unit": (mp.Linear(1, 1), (1,)),
    "Linear of a sequence": (mp.Linear(4, 3), (4, 3)),
    "ReLU": (mp.ReLU(), (4,)),
    "Sigmoid": (mp.Sigmoid(), (4,)),
    "Tanh": (mp.Tanh(), (4,)),
    "LeakyReLU": (mp.LeakyReLU(), (4,)),
    "GELU": (mp.GELU(), (4,)),
    "GELU without tanh": (mp.GELU(approximate="none"), (4,)),
    "SiLU": (mp.SiLU(), (4,)),
    "Softplus": (mp.Softplus(), (4,)),
    "Softmax": (mp.Softmax(), (4,)),
    "Flatten": (mp.Flatten(), (2, 5, 7)),
    "Reshape": (mp.Reshape((7, 2, 5)), (2, 5, 7)),
    "Pad": (mp.Pad([(0, 1), 2]), (2, 5, 7)),
    "Pad of one place": (mp.Pad([(1, 0)]), (3, 1)),
    "MaxPool1d": (mp.MaxPool1d(3), (2, 7)),
    "MaxPool2d": (mp.MaxPool2d(2), (2, 5, 7)),
    "MaxPool2d, overlapping": (mp.MaxPool2d(3, stride=2, padding=1), (2, 5, 7)),
    "MaxPool3d": (mp.MaxPool3d((2, 1, 3), stride=1), (2, 3, 4, 5)),
    "AvgPool1d": (mp.AvgPool1d(3), (2, 7)),
    "AvgPool2d": (mp.AvgPool2d(2), (2, 5, 7)),
    "AvgPool2d, overlapping": (mp.AvgPool2d(3, stride=2, padding=1), (2, 5, 7)),
    "AvgPool3d": (mp.AvgPool3d((2, 1, 3), stride=1), (2, 3, 4, 5)),
    "GlobalAvgPool": (mp.GlobalAvgPool(), (2, 5, 7)),
    **{name: (layer, (layer.in_channels, *lengths)) for name, (layer, lengths) in CONVOLUTIONS.items()},
    "LayerNorm": (mp.LayerNorm(5), (5,)),
    "LayerNorm of a sequence": (mp.LayerNorm(5), (5, 3)),
    "GroupNorm": (mp.GroupNorm(2, 6), (6,)),
    "GroupNorm of images": (mp.GroupNorm(3, 6), (6, 3, 2)),
    "instance normalisation": (mp.GroupNorm(3, 3), (3, 7)),
    "BatchNorm": (mp.BatchNorm(3), (3,)),
    "BatchNorm of images": (mp.BatchNorm(3), (3, 5, 2)),
    "Dropout": (mp.Dropout(0.25), (9,)),
    "Dropout of a sequence": (mp.Dropout(0.5), (3, 5)),
    "Dropout of nothing": (mp.Dropout(0), (3,)),
    "Embedding": (mp.Embedding(7, 3), (5,)),
    "Embedding of one token": (mp.Embedding(3, 4), ()),
    "PositionalEmbedding": (mp.PositionalEmbedding(3, 7), (3, 5)),
    "MultiHeadAttention": (mp.MultiHeadAttention(6, 3), (6, 5)),
    "attention, causal": (mp.MultiHeadAttention(4, 2, causal=True), (4, 3)),
    "attention, one position": (mp.MultiHeadAttention(3, 1, causal=True), (3, 1)),
    "TransformerBlock": (mp.TransformerBlock(4, 2, n_hidden=5, causal=True, dropout=0.25), (4, 3)),
    "Chain": (mp.Chain(mp.Linear(3, 5), mp.Tanh(), mp.Linear(5, 2)), (3,)),
    "Chain that begins with tokens": (
        mp.Chain(mp.Embedding(7, 4), mp.PositionalEmbedding(4, 5), mp.Linear(4, 3)), (5,),
    ),
    "Residual": (mp.Residual(mp.Linear(3, 5), mp.Tanh(), mp.Linear(5, 3)), (3,)),
    "Residual in Residual": (
        mp.Residual(mp.Conv2d(2, 2, 3, padding=1), mp.Residual(mp.BatchNorm(2), mp.Tanh())), (2, 3, 4),
    ),
    "Add": (
        mp.Add(
            [mp.Linear(3, 2)],
            [mp.Linear(3, 4), mp.Dropout(0.5), mp.Linear(4, 2)],
            [mp.Tanh(), mp.Linear(3, 2)],
        ),
        (3,),
    ),
    "Concat": (mp.Concat([], [mp.Linear(3, 2), mp.LayerNorm(2)], mp.Tanh()), (3,)),
    "Concat beside nothing": (mp.Concat([], [mp.Linear(3, 2)]), (3,)),
    "Concat of sequences": (mp.Concat([mp.Linear(3, 2)], [mp.Residual(mp.Linear(3, 3))]), (3, 5)),
    "Fork": (mp.Fork("skip"), (3, 5)),
    "Join": (mp.Join("skip"), ((3, 5), (3, 5))),
    "Join by concat": (mp.Join("skip", how="concat"), ((3, 5), (2, 5))),
}
BEGIN_WITH_TOKENS = {"Embedding": 7, "Embedding of one token": 3, "Chain that begins with tokens": 7}
NEED_COMPANY = {"BatchNorm"}  # one sample has no variance
ALONE = [  # those that a network may hold by themselves, with samples that have an axis
    name for name, (layer, shape) in LAYERS.items() if shape and not layer.fork and not layer.join
]


def tree(function, *values):
    """`function` of the arrays at one position of nested tuples of one form; None stays None."""
    if values[0] is None:
        return None
    if isinstance(values[0], (tuple, list)):
        return tuple(tree(function, *parts) for parts in zip(*values, strict=True))
    return function(*values)


def same(left, right):
    """Whether nested tuples of arrays have one form, the same shapes and dtypes, and equal numbers."""
    if left is None or right is None:
        return left is right
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    return left.shape == right.shape and left.dtype == right.dtype and np.array_equal(left, right)


def arrays_in(value):
    """The arrays in nested tuples and lists, each once."""
    return list({id(array): array for array in leaves(value) if isinstance(array, np.ndarray)}.values())


def unread_between_the_halves(layer, A_prev, dZ):
    """What a stage keeps of `layer` between the halves of a backward although dW and db do not depend on it.

    That is an array without which they are the same, or one that keeps a larger one alive.
    """
    layer.forward(A_prev)
    layer.backward_input(dZ)
    half = put_aside(layer, dZ)
    right = weight_gradients(layer, half)

    def without(unwanted):
        spoilt = np.full_like(unwanted, np.nan if unwanted.dtype.kind == "f" else 0)
        return _replaced(half, unwanted, spoilt)

    unread = [array for array in arrays_in(half) if same(weight_gradients(layer, without(array)), right)]
    parts = {(array.ctypes.data, array.shape): array.nbytes for array in arrays_in(half)}
    if sum(parts.values()) < sum(Buffers(half).values()):
        unread.append(half)
    return unread


def _replaced(value, old, new):
    """Nested tuples and lists with one array instead of another."""
    if value is old:
        return new
    if not isinstance(value, (tuple, list)):
        return value
    parts = [_replaced(part, old, new) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def own_parameters(layer):
    """[(layer, "W" or "b")] for each array of parameters in `layer`, in the order of `leaves(dW)`,
    then `leaves(db)`.
    """
    return [
        (part, name)
        for name in "Wb"
        for part in every_layer([layer])
        if isinstance(getattr(part, name), np.ndarray)
    ]


def ready(name, m=5, dtype=np.float64, seed=0):
    """(a copy of the layer with parameters none of which is 0 or 1, A_prev, dZ)"""
    rng = np.random.default_rng(seed)
    layer, shape = LAYERS[name]
    layer = layer.copy()
    layer.initialize(rng, dtype)
    for part, which in own_parameters(layer):
        parameter = getattr(part, which)
        setattr(part, which, parameter + rng.standard_normal(parameter.shape).astype(dtype) / 2)

    def normal(shape):
        return rng.standard_normal(shape).astype(dtype)

    if name in BEGIN_WITH_TOKENS:
        A_prev = rng.integers(0, BEGIN_WITH_TOKENS[name], (*shape, m)).astype(dtype)
    elif layer.join:
        A_prev = tuple(normal((*of_one, m)) for of_one in shape)
    else:
        A_prev = normal((*shape, m))
    return layer, A_prev, tree(lambda A: normal(A.shape), layer.forward(A_prev))
