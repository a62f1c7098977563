"""Residual networks for small images."""

from ..checks import whole_number
from ..layers import Add, BatchNorm, Conv2d, GlobalAvgPool, Linear, ReLU, Residual, xavier

CHANNELS = (16, 32, 64)


def resnet(depth=20, n_classes=10, input_channels=3, last_gamma=1):
    """A residual network of `depth` = 6 n + 2 layers with weights, as a list of layers.

    depth: 8, 14, 20, 32, ...; `ValueError` for another.
    n_classes: rows of the logits.
    input_channels: of the images (input_channels, H, W, m), such as 3 x 32 x 32.
    last_gamma: what the scale of the last BatchNorm of each block's f starts from. With 0, each block is its
        shortcut at first: Goyal et al. 2017, arXiv 1706.02677, section 5.1.

        16 channels          convolution 3 x 3, BatchNorm, ReLU
        16 channels          n blocks
        32 channels          n blocks, the first of which halves H and W
        64 channels          n blocks, the first of which halves H and W
        n_classes            mean over the positions, then Linear: logits (n_classes, m)

    A block is ReLU(A_prev + f(A_prev)), with f two convolutions 3 x 3, each with BatchNorm, and ReLU between.
    Where the shape changes, a convolution 1 x 1 of stride 2, with BatchNorm, stands in for A_prev:
    the paper's option B, while its own networks for these images fill up with zeros (option A). In the list,
    a block is two layers, `Residual` or `Add`, and ReLU. Convolutions have no bias, since BatchNorm has one.
    The loss is `SoftmaxCrossEntropy`.

    Source: He, Zhang, Ren, Sun 2015, arXiv 1512.03385, sections 3.3 and 4.2.

    >>> [type(layer).__name__ for layer in resnet(8)[3:]]
    ['Residual', 'ReLU', 'Add', 'ReLU', 'Add', 'ReLU', 'GlobalAvgPool', 'Linear']
    """
    n_blocks, rest = divmod(whole_number("depth", depth) - 2, 6)
    if n_blocks < 1 or rest:
        raise ValueError(f"depth={depth} must be 6 n + 2 with n at least 1: 8, 14, 20, 32, 44, 56, 110, ...")
    channels = CHANNELS[0]
    layers = [*_convolution(input_channels, channels), ReLU()]
    for n in CHANNELS:
        for _ in range(n_blocks):
            layers += [_residual_block(channels, n, last_gamma), ReLU()]
            channels = n
    return [*layers, GlobalAvgPool(), Linear(channels, n_classes, xavier)]


def _residual_block(n_prev, n, last_gamma):
    stride = 1 if n == n_prev else 2
    f = [*_convolution(n_prev, n, stride=stride), ReLU(), *_convolution(n, n, gamma=last_gamma)]
    return Residual(*f) if n == n_prev else Add(f, _convolution(n_prev, n, kernel_size=1, stride=2))


def _convolution(n_prev, n, kernel_size=3, stride=1, gamma=1):
    convolution = Conv2d(n_prev, n, kernel_size, stride, padding=kernel_size // 2, bias=False)
    return [convolution, BatchNorm(n, gamma=gamma)]
