"""MNIST and the datasets that share its files, read from a folder that the user names."""

import math

import numpy as np

from .files import Dataset, contents, located, one_hot_labels, samples_last

FILES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]
REMEDY = (
    "get the original, from yann.lecun.com/exdb/mnist "
    "or, Fashion-MNIST, github.com/zalandoresearch/fashion-mnist"
)

MOST_BYTES = 2**30  # of a file, unpacked: the largest of the originals has 47 million


def mnist(folder):
    """MNIST, or Fashion-MNIST, from its four IDX files in `folder`: a `Dataset` of 60,000 and 10,000 images.

    X is (1, 28, 28, m), from 0 to 1 in steps of 1/255; Y is (10, m), one-hot; both are float32
    and contiguous. The training images take 188 MB so, the test images 31 MB, and loading needs 0.3 GB
    at its peak.

    The files are train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte
    and t10k-labels-idx1-ubyte, each with .gz or without, and .idx for -idx is fine. Nothing is downloaded.
    Raises `FileNotFoundError` if the folder or a file is missing, and `ValueError` for a file that is damaged
    or does not fit, with the remedy.

    Sources: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"; H. Xiao, K. Rasul,
    R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", 2017.

    >>> X, Y = mnist("not/yet").train                                       # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: not/yet is not a folder, expected one with 4 files, train-images-idx3-ubyte among ...
    """
    paths = located(folder, [_file_names(file) for file in FILES], REMEDY)
    return Dataset(_part(*paths[:2]), _part(*paths[2:]))


def _file_names(file):
    return [name + packed for name in (file, file.replace("-idx", ".idx")) for packed in ("", ".gz")]


def _part(images, labels):
    pixels, classes = _read_idx(images, n_dimensions=3), _read_idx(labels, n_dimensions=1)
    if not len(pixels):
        raise ValueError(f"{images} holds 0 images, expected some: remove it, and {REMEDY}")
    if pixels.shape[1:] != (28, 28):
        raise ValueError(
            f"{images} holds images of {_sizes(pixels.shape[1:])}, expected 28 x 28: remove it, and {REMEDY}"
        )
    if len(pixels) != len(classes):
        raise ValueError(
            f"{images} holds {len(pixels):,} images, but {labels} holds {len(classes):,} labels, "
            f"expected as many: remove the wrong one, and {REMEDY}"
        )
    return samples_last(pixels[:, None]), one_hot_labels(classes, labels, REMEDY)


def _read_idx(path, n_dimensions):
    """The array in an IDX file of unsigned bytes.

    Its header is the magic number (two zero bytes, the type 8 for unsigned bytes, the number of dimensions),
    then the dimensions, each in four bytes, the highest first; the entries follow row by row.
    """
    header = 4 + 4 * n_dimensions
    data = contents(path, REMEDY, header)
    if len(data) < header:
        raise ValueError(
            f"{path} holds {len(data)} bytes, expected a header of {header} and more: remove it, and {REMEDY}"
        )
    magic = 0x0800 + n_dimensions
    if int.from_bytes(data[:4], "big") != magic:
        raise ValueError(
            f"{path} begins with {data[:4].hex(' ')}, "
            f"expected the magic number {magic.to_bytes(4, 'big').hex(' ')}, "
            f"unsigned bytes in {n_dimensions} dimensions: remove it, and {REMEDY}"
        )
    shape = np.frombuffer(data, ">u4", n_dimensions, offset=4).tolist()
    expected = header + math.prod(shape)
    announced = f"its header announces {header} + {_sizes(shape)} = {expected:,}"
    if expected > MOST_BYTES:
        raise ValueError(
            f"{path}: {announced} bytes, above the limit of {MOST_BYTES:,}: remove it, and {REMEDY}"
        )
    data = contents(path, REMEDY, expected)
    if len(data) != expected:
        found = f"{len(data):,}" if len(data) < expected else f"more than {expected:,}"
        raise ValueError(f"{path} holds {found} bytes, but {announced}: remove it, and {REMEDY}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _sizes(shape):
    return " x ".join(f"{size:,}" for size in shape)
