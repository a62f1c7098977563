"""Checkers for notebooks 16, 17 and 18, convolutional networks."""

import math

import numpy as np

from minipipe import AvgPool2d, Conv2d, MaxPool2d
from . import called, judged, numbers, same, shape_of

LENET = [("conv", 6, 5, 2), ("pool", 2), ("conv", 16, 5, 0), ("pool", 2), ("linear", 120), ("linear", 84),
         ("linear", 10)]


def check_max_pool_backward(backward):
    """Judge `backward(dA, A_prev, size, stride) -> dA_prev` of max pooling, for one image.

    A_prev and dA_prev (H, W), dA (windows, windows); a window is `size` by `size`. Of equal numbers the first
    counts, in the order of reading.
    """
    rng = np.random.default_rng(6)
    cases = [
        ("", rng.permutation(24).reshape(4, 6), 2, 2),
        ("With negative numbers: ", -1 - rng.permutation(16).reshape(4, 4), 2, 2),
        ("With equal numbers: ", np.array([[3, 3, 0, 0], [3, 1, 0, 0], [1, 2, 2, 5], [2, 2, 5, 5]]), 2, 2),
        ("With windows that overlap: ", rng.permutation(35).reshape(5, 7), 3, 2),
    ]
    for where, A_prev, size, stride in cases:
        A_prev = A_prev.astype(float)
        layer = MaxPool2d(size, stride)
        A = layer.forward(A_prev[None, ..., None])[0, ..., 0]
        dA = rng.integers(1, 40, A.shape) / 4
        value, sentence = called(backward, dA, A_prev, size, stride)
        if sentence is not None:
            return _with_shapes(sentence,
                                f"dA {dA.shape}, A_prev {A_prev.shape}, size {size}, stride {stride}")
        right = layer.backward_input(dA[None, ..., None])[0, ..., 0]
        sentence = _judge("dA_prev", value, right, dA, _max_pool_mistakes(dA, A_prev, size, stride),
                          "dA goes to the place of the largest number of its window, and nowhere else")
        if sentence is not None:
            return where + sentence
    return ("Right: each dA goes to the first of the largest numbers of its window, and windows that share a "
            "place add up. Where nothing overlaps, the sum of dA_prev is the sum of dA.")


def _max_pool_mistakes(dA, A_prev, size, stride):
    def routed(choose, stride=stride, overwrite=False, dA=dA):
        """dA_prev where window w gets dA times choose(w), an array of the shape of w."""
        dA_prev = np.zeros_like(A_prev)
        for (p, q), da in np.ndenumerate(dA):
            here = np.s_[p * stride:p * stride + size, q * stride:q * stride + size]
            part = da * choose(A_prev[here])
            dA_prev[here] = np.where(part != 0, part, dA_prev[here]) if overwrite else dA_prev[here] + part
        return dA_prev

    def one(place):
        """choose the one place of a window that `place(flat window)` names."""
        return lambda w: (np.arange(w.size) == place(w.ravel())).reshape(w.shape)

    def by_columns(w):
        return one(np.argmax)(w.T).T

    slope = np.ones_like(dA)
    return [
        (routed(lambda w: w == w.max()),
         "every one of the equal numbers gets the whole dA, so it counts several times: "
         "only the first gets it."),
        (routed(lambda w: (w == w.max()) / (w == w.max()).sum()),
         "you share dA among the equal numbers. That can be defended, but the package, like PyTorch, "
         "gives it to the first."),
        (routed(one(lambda w: w.size - 1 - w[::-1].argmax())),
         "of equal numbers, the last one gets dA: it goes to the first. Is there a >= that should be a >?"),
        (routed(by_columns), "of equal numbers, you take the first column by column: read row by row."),
        (routed(one(np.argmax), overwrite=True),
         "dA_prev is overwritten where windows share their largest number: add with +=."),
        (routed(one(np.argmax), stride=1),
         "the stride is forgotten: window (p, q) begins at (p * stride, q * stride)."),
        (routed(one(np.argmax), stride=size), "windows begin `stride` places apart, not `size`."),
        (routed(lambda w: np.ones_like(w)),
         "every number of a window gets dA: only the largest one moves A, the others get 0."),
        (routed(lambda w: np.full_like(w, 1 / w.size)),
         "that is average pooling: here the largest number alone moves A, so it gets all of dA."),
        (routed(one(np.argmin)), "dA goes to the smallest number of each window: it belongs to the largest."),
        (routed(lambda w: one(np.argmax)(w) * (w > 0)),
         "where all numbers of a window are negative, nobody gets dA: did your search for the largest begin "
         "at 0? Begin at the first number."),
        (routed(lambda w: one(np.argmax)(w) * w),
         "dA is multiplied by the largest number: A moves exactly as much as that "
         "number, so the factor is 1."),
        (routed(lambda w: one(np.argmax)(w) * w, dA=slope),
         "the largest numbers themselves stand in dA_prev: put dA there."),
        (routed(one(np.argmax), dA=slope),
         "you put 1 at the place of the largest number: that is the slope. Multiply by dA."),
    ]


def check_average_pool_backward(backward):
    """Judge `backward(dA, shape, size, stride) -> dA_prev` of average pooling, for one image.

    shape: (H, W) of A_prev. dA (windows, windows), dA_prev (H, W); a window is `size` by `size`.
    """
    rng = np.random.default_rng(7)
    cases = [("", (4, 6), 2, 2), ("With numbers behind the last window: ", (5, 5), 2, 2),
             ("With windows that overlap: ", (5, 7), 3, 2)]
    for where, shape, size, stride in cases:
        layer = AvgPool2d(size, stride)
        A = layer.forward(np.zeros((1, *shape, 1)))
        dA = rng.integers(1, 40, A.shape[1:3]) / 4
        value, sentence = called(backward, dA, shape, size, stride)
        if sentence is not None:
            return _with_shapes(sentence, f"dA {dA.shape}, shape {shape}, size {size}, stride {stride}")
        right = layer.backward_input(dA[None, ..., None])[0, ..., 0]
        sentence = _judge("dA_prev", value, right, dA, _average_pool_mistakes(dA, shape, size, stride, right),
                          f"each of the {size * size} places of a window gets dA / {size * size}")
        if sentence is not None:
            return where + sentence
    return ("Right: every place of a window gets dA / size², whatever the numbers were: so the shape is "
            "enough. The sum of dA_prev is the sum of dA.")


def _average_pool_mistakes(dA, shape, size, stride, right):
    def painted(stride, places=np.s_[:, :], overwrite=False, dA=dA):
        """dA_prev where these places of each window get dA."""
        dA_prev = np.zeros(shape)
        for (p, q), da in np.ndenumerate(dA):
            window = dA_prev[p * stride:p * stride + size, q * stride:q * stride + size][places]
            window[...] = da if overwrite else window + da
        return dA_prev

    covers = painted(stride, dA=np.ones_like(dA))
    return [
        (right * size ** 2,
         f"you forgot to divide: A is a sum of {size * size} numbers / {size * size}, so each gets "
                            f"dA / {size * size}."),
        (right * size, f"you divided by {size}, but a window has {size} * {size} = {size * size} places."),
        (painted(stride, overwrite=True) / size ** 2,
         "dA_prev is overwritten where windows overlap: add with +=."),
        (right / np.maximum(covers, 1),
         "dA_prev is a mean over the windows that cover a place: it has to be their sum."),
        (painted(1) / size ** 2,
         "the stride is forgotten: window (p, q) begins at (p * stride, q * stride)."),
        (painted(stride, np.s_[:1, :1]),
         "only the first place of each window gets something: all of them moved A."),
        (painted(stride, np.s_[:1, :1]) / size ** 2,
         "only the first place of each window gets its share: all of them moved A."),
        (right / dA.size,
         f"you also divided by the number of windows, {dA.size}: each window has its own A."),
    ]


def check_backward_by_forward(backward):
    """Judge `backward(dZ, W) -> dA_prev` of a 2-D convolution with stride 1 and no padding, as a convolution
    of dZ.

    dZ (O, H', W', m), W (O, C, kernel height, kernel width), dA_prev (C, H, W, m).
    """
    rng = np.random.default_rng(8)
    for n_out, n_in, kernel, m in ((2, 2, (3, 3), 1), (3, 2, (2, 3), 2)):
        conv = Conv2d(n_in, n_out, kernel, bias=False)
        conv.W = rng.integers(1, 20, (n_out, n_in, *kernel)) / 2
        dZ = rng.integers(1, 20, conv.forward(np.zeros((n_in, 5, 6, m))).shape) / 2
        value, sentence = called(backward, dZ, conv.W)
        if sentence is not None:
            return _with_shapes(sentence,
                                f"dZ {dZ.shape}, W {conv.W.shape}; dA_prev should become ({n_in}, 5, 6, {m})")
        sentence = _judge_convolved(value, conv.backward_input(dZ), dZ, conv.W)
        if sentence is not None:
            return sentence
    return ("Right: dA_prev is a convolution of dZ, with kernel size - 1 zeros around it, the kernels turned "
            "by 180 degrees, and input and output channels exchanged.")


def _judge_convolved(value, right, dZ, W):
    kernel = W.shape[2:]
    smaller = tuple(n - 2 * (k - 1) for n, k in zip(right.shape[1:3], kernel))
    got = shape_of(value)
    too_small = got is not None and len(got) == 4 and got[1:3] in (smaller, dZ.shape[1:3])
    if too_small and got[1:3] != right.shape[1:3]:
        return (f"dA_prev has shape {got}, but it must have shape {right.shape}: put kernel size - 1 zeros "
                "around dZ, so that the kernel also stands on its corners.")

    def convolved(W):
        conv = Conv2d(W.shape[1], W.shape[0], kernel, padding=tuple(k - 1 for k in kernel), bias=False)
        conv.W = W
        return conv.forward(dZ) if len(dZ) == W.shape[1] else np.nan

    exchanged = W.swapaxes(0, 1)
    square = kernel[0] == kernel[1]
    return _judge("dA_prev", value, right, dZ, [
        (convolved(exchanged),
         "the kernels are not flipped: entry (i, j) took A_prev at (p + i, q + j), so the way back is (-i, "
         "-j). Turn them with W[:, :, ::-1, ::-1]."),
        (convolved(exchanged[:, :, ::-1]), "the kernels are flipped along the rows only: flip both axes."),
        (convolved(exchanged[:, :, :, ::-1]),
         "the kernels are flipped along the columns only: flip both axes."),
        (convolved(exchanged.swapaxes(2, 3)) if square else np.nan,
         "rows and columns of the kernels are exchanged: turn them by 180 degrees, "
         "with W[:, :, ::-1, ::-1]."),
        (convolved(W[:, :, ::-1, ::-1]),
         "input and output channels are not exchanged: dZ has O channels, dA_prev C, so "
         "W becomes (C, O, ...)."),
        (convolved(W[::-1, ::-1, ::-1, ::-1].swapaxes(0, 1)),
         "the channels are in reverse order, too: flip only the last two axes of W."),
        (convolved(W), "the kernels are neither flipped nor are input and output channels exchanged."),
    ], "it is dZ with zeros around it, convolved with the turned kernels")


def check_parameters(n_parameters):
    """Judge `n_parameters(shape, layers)`: the number of parameters, weights and biases, of a network of
    these layers.

    shape: (C, H, W) of an image. layers: ("conv", out_channels, kernel_size, padding), square kernels, stride
    1; ("pool", size), windows that do not overlap; ("linear", units), the first of them behind a Flatten.

    >>> check_parameters(lambda shape, layers: 61706)[:22]
    'That is LeNet-5 alone:'
    """
    cases = [
        ((1, 8, 8), [("conv", 2, 3, 0)]),
        ((3, 8, 8), [("conv", 4, 3, 1), ("conv", 5, 3, 0)]),
        ((2, 10, 8), [("conv", 4, 3, 0), ("pool", 2), ("linear", 3)]),
        ((1, 12, 10), [("conv", 3, 5, 1), ("pool", 3), ("linear", 6), ("linear", 2)]),
        ((1, 28, 28), LENET),
    ]
    right = [_count(*case) for case in cases]
    mistakes = [
        (lambda *case: right[-1],
         "That is LeNet-5 alone: go through the layers that you are given, and keep track of the shape."),
        (lambda *case: _count(*case, biases=lambda out, H, W: 0),
         "The biases are missing: one for each output channel or unit."),
        (lambda *case: _count(*case, channels=lambda C: 1),
         "Each kernel looks at all channels of its input: a convolution has O * C * k * k "
         "weights, not O * k * k."),
        (lambda *case: _count(*case, biases=lambda out, H, W: out * H * W),
         "A bias at every place is too many: the places of a channel share it, as they share the kernel."),
        (lambda *case: _count(*case, flat=lambda shape: shape[0]),
         "The first Linear layer sees every number, not every channel: it has C * H * W inputs."),
        (lambda *case: _count(*case, pooled=lambda n, size: n),
         "Pooling makes H and W smaller, and with them the inputs of the first Linear layer."),
        (lambda *case: _count(*case, pooled=lambda n, size: -(-n // size)),
         "You rounded up behind a pooling: what does not fill a window is dropped. Divide with //."),
        (lambda *case: _count(*case, length=lambda n, k, padding: n),
         "A convolution keeps H and W only with enough padding: there are n + 2 * padding - k + 1 windows."),
        (lambda *case: _count(*case, length=lambda n, k, padding: n - k + 1),
         "The padding is missing: there are n + 2 * padding - k + 1 windows."),
        (lambda *case: _count(*case, length=lambda n, k, padding: n + padding - k + 1),
         "The zeros stand on both sides: it is 2 * padding."),
        (lambda *case: _count(*case, length=lambda n, k, padding: n + 2 * padding - k),
         "Off by one: there are n + 2 * padding - k + 1 windows."),
        (lambda *case: _count(*case, of_pooling=2),
         "Pooling has no parameters here. (In 1998 it had two for each channel.)"),
    ]
    return judged(n_parameters, ("shape", "layers"), cases, right, mistakes) or (
        "Right: O (C k k + 1) for each convolution, n (n_prev + 1) for each Linear layer. "
        f"LeNet-5 has {right[-1]:,}.")


def _count(shape, layers, length=lambda n, k, padding: n + 2 * padding - k + 1,
           pooled=lambda n, size: n // size,
           channels=lambda C: C, biases=lambda out, H, W: out, flat=math.prod, of_pooling=0):
    """The number of parameters, with its rules as arguments, so that a wrong rule gives a wrong number."""
    total = 0
    for kind, n, *further in layers:
        if kind == "conv":
            C, H, W = shape
            k, padding = further
            shape = n, length(H, k, padding), length(W, k, padding)
            total += n * channels(C) * k * k + biases(*shape)
        elif kind == "pool":
            C, H, W = shape
            shape = C, pooled(H, n), pooled(W, n)
            total += of_pooling * C
        else:
            total += n * flat(shape) + biases(n, 1, 1)
            shape = (n,)
    return total


def _with_shapes(sentence, shapes):
    stopped = sentence.startswith("Your function stopped")
    return f"{sentence} You were given {shapes}." if stopped else sentence


def _judge(name, value, right, dA, mistakes, rule):
    """A sentence about one array, or None if it is right."""
    if shape_of(value) == dA.shape != right.shape:
        return (f"{name} has the shape of the derivative that came in, {dA.shape}: it must have that of "
                f"A_prev, {right.shape}.")
    got, sentence = numbers(name, value, right.shape)
    if sentence is not None or same(got, right):
        return sentence
    for wrong, sentence in mistakes:
        if same(got, wrong):
            return sentence
    if same(got, -right):
        return f"{name} has the wrong sign: {rule}."
    place = tuple(np.argwhere(~np.isclose(got, right))[0].tolist())
    return f"{name} at {place} should be {right[place]:g}, yours is {got[place]:g}: {rule}."
