"""CIFAR-10, read from a folder that the user names."""

import numpy as np

from ..checks import path_of
from .files import Dataset, contents, located, one_hot_labels, samples_last

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
MOST_RECORDS = 10_000  # in a file
UNPACKED = "cifar-10-batches-bin"
FILES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
REMEDY = "unpack the original there, cifar-10-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html"


def cifar10(folder):
    """CIFAR-10 from its six binary files in `folder`: a `Dataset` of 50,000 and 10,000 images.

    X is (3, 32, 32, m), red, green and blue, from 0 to 1 in steps of 1/255; Y is (10, m), one-hot;
    both are float32 and contiguous. The training images take 614 MB so, the test images 123 MB,
    and loading needs 1.1 GB at its peak.

    The files are data_batch_1.bin to data_batch_5.bin and test_batch.bin, in `folder` or in its sub-folder
    cifar-10-batches-bin. Nothing is downloaded. Raises `FileNotFoundError` if the folder or a file
    is missing, and `ValueError` for a file that is damaged, with the remedy. These files have no header,
    so one that was cut exactly between two images cannot be told from a whole one.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.

    >>> X, Y = cifar10("not/yet").train                                     # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: not/yet is not a folder, expected one with 6 files, data_batch_1.bin among them: ...
    """
    unpacked = path_of("folder", folder) / UNPACKED
    paths = located(unpacked if unpacked.is_dir() else folder, [[file] for file in FILES], REMEDY)
    return Dataset(_part(paths[:-1]), _part(paths[-1:]))


def _part(paths):
    batches = [_read_batch(path) for path in paths]
    X = samples_last(np.concatenate([pixels for pixels, _ in batches]))
    return X, np.concatenate([Y for _, Y in batches], axis=1)


def _read_batch(path):
    """The pixels (m, 3, 32, 32) and the labels, one-hot.

    A record is one byte for the label and 3,072 for the pixels.
    """
    data = contents(path, REMEDY, most=MOST_RECORDS * RECORD)
    if len(data) == 0 or len(data) % RECORD:
        raise ValueError(
            f"{path} holds {len(data):,} bytes, expected a multiple of 1 + 3 x 32 x 32 = {RECORD:,}, "
            f"in the original {MOST_RECORDS * RECORD:,}: remove it, and {REMEDY}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, *SHAPE), one_hot_labels(records[:, 0], path, REMEDY)
