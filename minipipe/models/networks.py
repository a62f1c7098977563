"""Fully connected networks, LeNet-5, and Transformers that continue a text."""

from collections.abc import Callable, Sequence

from ..checks import shown, whole_number, whole_numbers
from ..layers import (
    AvgPool2d, Chain, Conv2d, Dropout, Embedding, Flatten, Layer, LayerNorm, Linear, PositionalEmbedding,
    ReLU, Reshape, TransformerBlock, he, xavier,
)


def mlp(
    sizes: Sequence[int], activation: Callable[[], Layer] = ReLU, initialization: Callable = he
) -> list[Layer]:
    """Return a multi-layer perceptron, from (sizes[0], m) to (sizes[-1], m).

    It has Linear(sizes[l], sizes[l + 1]), with activations in between.

    Args:
        sizes: the numbers of units, at least two.
        activation: a class, such as `ReLU`, or a function without arguments, such as
            `lambda: LeakyReLU(0.2)`, called for each activation.
        initialization: `he` for ReLU and its relatives, `xavier` for Tanh.

    Source: Rumelhart, Hinton, Williams 1986.

    >>> mlp([64, 32, 10])
    [Linear(64, 32), ReLU(), Linear(32, 10)]
    """
    sizes = list(whole_numbers("sizes", sizes))
    if len(sizes) < 2:
        raise ValueError(f"sizes={sizes} must have at least 2 numbers of units: of the input and the output")
    if isinstance(activation, Layer) or not callable(activation):
        raise ValueError(f"activation={shown(activation)} must make a layer: pass a class, such as ReLU")
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        layers += [Linear(n_prev, n, initialization), activation()]
    return layers[:-1]


def lenet5(
    input_shape: Sequence[int] = (1, 28, 28), n_classes: int = 10, kernel_size: int = 5,
    padding: Sequence[int] = (2, 0),
) -> list[Layer]:
    """Return LeNet-5 as a list of layers, for images or for columns of their pixels.

    Args:
        input_shape: (channels, H, W) of one image.
        n_classes: rows of the logits.
        kernel_size: the kernel size of both convolutions.
        padding: a pair, the padding of each convolution.

        6 channels        convolution, ReLU; average pooling halves H and W
        16 channels       convolution, ReLU; average pooling halves H and W again
        120, 84 units     fully connected, with ReLU
        n_classes         logits (n_classes, m), for the loss SoftmaxCrossEntropy

    As is usual today, ReLU replaces tanh, pooling has no parameters, and the second
    convolution sees all channels of the first. For images of 8 x 8, use kernel_size=3
    and padding=(1, 1). Source: LeCun, Bottou, Bengio, Haffner 1998, Proceedings of the
    IEEE 86(11), section II.

    >>> layers = lenet5((1, 8, 8), kernel_size=3, padding=(1, 1))
    >>> layers[1:4]
    [Conv2d(1, 6, 3, padding=1), ReLU(), AvgPool2d(2)]
    """
    input_shape, padding = whole_numbers("input_shape", input_shape, 1), whole_numbers("padding", padding, 0)
    if len(input_shape) != 3:
        raise ValueError(f"input_shape={input_shape} must be (channels, H, W), the shape of one image")
    if len(padding) != 2:
        raise ValueError(f"padding={padding} must have one number for each of the two convolutions")
    layers: list[Layer] = [Reshape(input_shape)]
    n_prev = input_shape[0]
    for n, pad in zip((6, 16), padding):
        layers += [Conv2d(n_prev, n, kernel_size, padding=pad), ReLU(), AvgPool2d(2)]
        n_prev = n
    layers.append(Flatten())
    n_features, _ = Chain(*layers).output_shape((*input_shape, 1))
    return layers + mlp((n_features, 120, 84, n_classes))


def transformer(
    n_tokens: int, d: int, n_heads: int, n_layers: int, n_places: int | None = None,
    n_hidden: int | None = None, tied: bool = False, dropout: float = 0,
) -> list[Layer]:
    """Return a decoder: from tokens (T, m) to logits (n_tokens, T, m) for the next one.

    Args:
        n_tokens: the number of different tokens 0, 1, ..., n_tokens - 1.
        d: features of a position.
        n_heads: heads of each attention.
        n_layers: the number of blocks.
        n_places: the longest sequence that `PositionalEmbedding` allows; None: leave
            this layer out, and allow any length T.
        n_hidden: hidden units of the blocks; 4 d if None.
        tied: whether the Embedding and the last Linear share one W, by tie="tokens".
        dropout: the p of `Dropout`, in the blocks and after the embeddings.

        Embedding(n_tokens, d)
        PositionalEmbedding(d, n_places)
        n_layers of TransformerBlock         causal: a position sees itself and earlier
            ones
        LayerNorm(d)
        Linear(d, n_tokens)

    The labels, one-hot (n_tokens, T, m), are the next tokens; the loss is
    `SoftmaxCrossEntropy`. With V tokens, n_hidden = 4 d, no PositionalEmbedding and
    untied, there are n_layers (12 d^2 + 13 d) + 2 V d + V + 2 d parameters, which gives
    all five sizes in table 1 of Huang et al. 2018, arXiv 1811.06965, with d = 2048, V =
    32,000.

    Sources: Vaswani et al. 2017, arXiv 1706.03762; Radford et al. 2019, "Language
    models are unsupervised multitask learners", for the LayerNorm at the end; Press and
    Wolf 2016, arXiv 1608.05859, for the shared W.

    >>> transformer(100, 16, n_heads=4, n_layers=1)     # doctest: +NORMALIZE_WHITESPACE
    [Embedding(100, 16), TransformerBlock(16, 4, causal=True), LayerNorm(16),
     Linear(16, 100, initialization=xavier)]
    """
    n_layers = whole_number("n_layers", n_layers, 1)
    tie = "tokens" if tied else None
    layers: list[Layer] = [Embedding(n_tokens, d, tie)]
    if n_places is not None:
        layers.append(PositionalEmbedding(d, n_places))
    if dropout:
        layers.append(Dropout(dropout))
    layers += [TransformerBlock(d, n_heads, n_hidden, causal=True, dropout=dropout) for _ in range(n_layers)]
    return [*layers, LayerNorm(d), Linear(d, n_tokens, xavier, tie=tie)]
