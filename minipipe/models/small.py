"""Fully connected networks, and LeNet-5."""

from ..checks import shown, whole_numbers
from ..layers import AvgPool2d, Chain, Conv2d, Flatten, Layer, Linear, ReLU, Reshape, Tanh, he, xavier


def mlp(sizes, activation=ReLU, initialization=he):
    """A multi-layer perceptron: Linear(sizes[l], sizes[l + 1]) with an activation between each two.

    sizes: the numbers of units, at least two.
    activation: called without arguments for each of the layers, so a class, such as `ReLU`, or for
        instance `lambda: LeakyReLU(0.2)`; there is none at the end.
    initialization: `he` for ReLU and its relatives, `xavier` for Tanh.

    Returns a list of layers from (sizes[0], m) to (sizes[-1], m). Source: Rumelhart, Hinton, Williams 1986.

    >>> mlp([64, 32, 10])
    [Linear(64, 32), ReLU(), Linear(32, 10)]
    """
    sizes = list(whole_numbers("sizes", sizes))
    if len(sizes) < 2:
        raise ValueError(
            f"sizes={sizes} must have at least 2 numbers of units: those of the input and of the output"
        )
    if isinstance(activation, Layer) or not callable(activation):
        raise ValueError(
            f"activation={shown(activation)} must make a layer when called: pass a class, such as ReLU"
        )
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        layers += [Linear(n_prev, n, initialization), activation()]
    return layers[:-1]


# LeNet-5, which read the digits on cheques.

HIDDEN_UNITS = (120, 84)


def lenet5(
    input_shape=(1, 28, 28), n_classes=10, kernel_size=5, padding=(2, 0), channels=(6, 16), classic=False
):
    """LeNet-5 as a list of layers: two convolutions, each with pooling behind it, and three Linear layers.

    input_shape: (channels, H, W) of one image.
    n_classes: rows of the logits.
    kernel_size: of both convolutions.
    padding: of the convolutions, one number for each.
    channels: of the convolutions, one number for each.
    classic: whether to build the form of 1998.

        input             images (channels, H, W, m), or the same numbers as columns (channels * H * W, m)
        channels[0]       convolution; pooling halves H and W
        channels[1]       convolution; pooling halves H and W again
        120, 84 units     fully connected
        n_classes         logits (n_classes, m), for the loss SoftmaxCrossEntropy

    The plain form has ReLU, and as pooling the average of 2 by 2 numbers. The form of 1998 has tanh,
    and a sub-sampling with two parameters for each channel, tanh(coefficient * average + bias), which here
    is a convolution of one by one with as many groups as channels. It still differs from the original in
    three ways: the second convolution sees all 6 channels, where the original chose some of them by a table;
    logits and softmax take the place of distances to drawn characters; tanh is not stretched.

    For images of 8 by 8, kernel_size=3 and padding=(1, 1) fit. Raises `ValueError` where a kernel does not
    fit. Source: LeCun, Bottou, Bengio, Haffner 1998, Proceedings of the IEEE 86(11), section II.

    >>> layers = lenet5((1, 8, 8), kernel_size=3, padding=(1, 1))
    >>> layers[1:4]
    [Conv2d(1, 6, 3, padding=1), ReLU(), AvgPool2d(2)]
    """
    input_shape, padding = whole_numbers("input_shape", input_shape, 1), whole_numbers("padding", padding, 0)
    channels = whole_numbers("channels", channels, 1)
    if len(input_shape) != 3:
        raise ValueError(f"input_shape={input_shape} must be (channels, H, W), the shape of one image")
    if len(padding) != 2 or len(channels) != 2:
        raise ValueError(
            f"padding={padding} and channels={channels} must have one number for each of the two convolutions"
        )
    layers, n_prev = [Reshape(input_shape)], input_shape[0]
    for n, pad in zip(channels, padding):
        layers += _convolution_and_pooling(n_prev, n, kernel_size, pad, classic)
        n_prev = n
    layers.append(Flatten())
    n_features, _ = Chain(*layers).output_shape((*input_shape, 1))
    sizes = (n_features, *HIDDEN_UNITS, n_classes)
    return layers + (mlp(sizes, Tanh, xavier) if classic else mlp(sizes, ReLU, he))


def _convolution_and_pooling(n_prev, n, kernel_size, padding, classic):
    layers = [Conv2d(n_prev, n, kernel_size, padding=padding), Tanh() if classic else ReLU(), AvgPool2d(2)]
    return layers + [Conv2d(n, n, 1, groups=n), Tanh()] if classic else layers
