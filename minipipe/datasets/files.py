"""Files of pictures that the user has: where they lie, what is in them, and the form in which they train."""

import gzip
import zlib
from typing import NamedTuple

import numpy as np

from ..arrays import one_hot
from ..checks import path_of

N_CLASSES = 10


class Dataset(NamedTuple):
    """Two pairs `(X, Y)`: samples are the last axis, Y is one-hot."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def located(folder, files, remedy):
    """The path of each of the `files` in `folder`; `FileNotFoundError` names all that are missing.

    files: for each file, the names that it may go by; the first that is there is taken.
    """
    folder = path_of("folder", folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder, "
            f"expected one with {len(files)} files, {files[0][0]} among them: {remedy}"
        )
    paths = [next((folder / name for name in names if (folder / name).is_file()), None) for names in files]
    missing = [names[0] for names, path in zip(files, paths) if path is None]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {len(missing)} of {len(files)} files: {', '.join(missing)}: {remedy}"
        )
    return paths


def contents(path, remedy, most):
    """The bytes of a file, unpacked if they are a gzip file's; `ValueError` for a damaged one.

    most: one more than that, and no further one, is read: a small gzip file can unpack to gigabytes.
    """
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    try:
        with (gzip.open if is_packed else open)(path, "rb") as file:
            return file.read(most + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} holds {path.stat().st_size:,} bytes, but not a whole gzip file ({error}): "
            f"remove it, and {remedy}"
        ) from error


def samples_last(pixels):
    """X (C, H, W, m), float32 from 0 to 1, of pixels (m, C, H, W) from 0 to 255."""
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1)) / np.float32(255)


def one_hot_labels(labels, path, remedy):
    """Y (10, m), float32; `ValueError` for a label out of 0..9."""
    wrong = np.flatnonzero(labels >= N_CLASSES)
    if wrong.size:
        raise ValueError(
            f"{path} has the label {labels[wrong[0]]} for image {wrong[0]:,}, expected 0 to {N_CLASSES - 1}: "
            f"remove it, and {remedy}"
        )
    return one_hot(labels, N_CLASSES, dtype=np.float32)
