"""The digits are the real ones, whole, and split as the attribution says; files that the user has are read
or refused.
"""

import gzip
import hashlib
from importlib import resources

import numpy as np
import pytest

from minipipe.datasets import cifar10, digits, mnist

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
MNIST_SITE = "get the original, from yann.lecun.com/exdb/mnist"
NOT_WHOLE = "but not a whole gzip file"
CIFAR10_SITE = "unpack the original there, cifar-10-binary.tar.gz"


def stored():
    """(pixels, labels) in the package's file."""
    path = resources.files("minipipe.datasets").joinpath("digits.npz")
    with path.open("rb") as file, np.load(file) as arrays:
        return arrays["pixels"], arrays["labels"]


def test_the_images_are_those_of_the_source():
    """The digest of the 1,797 x 64 pixels and of the labels, taken from scikit-learn's load_digits."""
    found = b"".join(array.astype(np.uint8).tobytes() for array in stored())
    assert hashlib.sha256(found).hexdigest() == (
        "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    )


def test_the_split_has_each_image_once_with_its_label_and_is_stratified():
    """Each digit's share of the 360 test images is its share of all 1,797, rounded down or up."""
    (X, Y), (X_test, Y_test) = digits()
    assert (X.shape, Y.shape, X_test.shape, Y_test.shape) == ((64, 1437), (10, 1437), (64, 360), (10, 360))
    for array in (X, Y, X_test, Y_test):
        assert array.dtype == np.float64 and array.flags.c_contiguous
    pixels, labels = stored()
    images = np.vstack([np.hstack([16 * X, 16 * X_test]), np.hstack([Y, Y_test])]).T
    expected = np.hstack([pixels, np.eye(10)[labels]])
    assert sorted(images.tolist()) == sorted(expected.tolist())
    assert len(set(map(tuple, pixels.tolist()))) == 1797  # so no image is in both parts
    shares = 360 * (Y.sum(axis=1) + Y_test.sum(axis=1)) / 1797
    assert np.all(abs(Y_test.sum(axis=1) - shares) < 1)


def idx(array):
    """The bytes of an IDX file: 0, 0, 8 for unsigned bytes, the number of dimensions; the dimensions;
    the entries.
    """
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def images():
    """Two parts of 3 and 2 images; no two pixels at one place of an image are the same."""
    pixels = np.random.default_rng(0).permuted(np.tile(np.arange(256), (28 * 28, 1)), axis=1)
    return pixels[:, :3].T.reshape(3, 28, 28), pixels[:, 3:5].T.reshape(2, 28, 28)


@pytest.fixture
def mnist_files(images):
    train, test = images
    return {
        TRAIN_IMAGES: idx(train), TRAIN_LABELS: idx(np.array([9, 0, 4])),
        TEST_IMAGES: idx(test), TEST_LABELS: idx(np.array([1, 9])),
    }


def write(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)


def with_a_dot(files):
    return {name.replace("-idx", ".idx"): data for name, data in files.items()}


def packed(files):
    return {f"{name}.gz": gzip.compress(data) for name, data in files.items()}


SPELLINGS = {
    "as they are": lambda files: files,
    "with a dot": with_a_dot,
    "packed": packed,
    "packed, with a dot": lambda files: packed(with_a_dot(files)),
    "packed, under the plain name": lambda files: {name: gzip.compress(files[name]) for name in files},
    "unpacked, under the packed name": lambda files: {f"{name}.gz": files[name] for name in files},
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_mnist_has_every_pixel_and_label_in_its_place(tmp_path, images, mnist_files, spelling):
    write(tmp_path, spelling(mnist_files))
    parts = mnist(str(tmp_path))
    for (X, Y), pixels, labels in zip([parts.train, parts.test], images, [[9, 0, 4], [1, 9]]):
        m = len(labels)
        assert (X.shape, Y.shape) == ((1, 28, 28, m), (10, m))
        assert X.dtype == Y.dtype == np.float32
        assert X.flags.c_contiguous and Y.flags.c_contiguous and X.flags.writeable
        for k in range(m):
            assert np.array_equal(X[0, :, :, k], pixels[k].astype(np.float32) / np.float32(255))
            assert np.array_equal(Y[:, k], np.arange(10) == labels[k])


def test_a_missing_folder_is_named_with_what_belongs_there(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "none", tmp_path / "file"):
        not_there = f"{folder.name} is not a folder, expected one with"
        with pytest.raises(
            FileNotFoundError, match=f"{not_there} 4 files, {TRAIN_IMAGES} among them: {MNIST_SITE}"
        ):
            mnist(folder)
        with pytest.raises(
            FileNotFoundError, match=f"{not_there} 6 files, data_batch_1.bin among them: {CIFAR10_SITE}"
        ):
            cifar10(folder)


def test_all_missing_files_of_mnist_are_named(tmp_path, mnist_files):
    del mnist_files[TRAIN_LABELS], mnist_files[TEST_IMAGES]
    write(tmp_path, mnist_files)
    (tmp_path / TEST_IMAGES).mkdir()
    with pytest.raises(
        FileNotFoundError, match=f"lacks 2 of 4 files: {TRAIN_LABELS}, {TEST_IMAGES}: {MNIST_SITE}"
    ):
        mnist(tmp_path)


DAMAGED = {
    "truncated images": (
        TRAIN_IMAGES,
        lambda data: data[:-1],
        r"holds 2,367 bytes, but its header announces 16 \+ 3 x 28 x 28 = 2,368",
    ),
    "bytes too many": (
        TEST_LABELS,
        lambda data: data + b"\0",
        r"holds more than 10 bytes, but its header announces 8 \+ 2 = 10",
    ),
    "an empty file": (TRAIN_LABELS, lambda data: b"", "holds 0 bytes, expected a header of 8 and more"),
    "half a header": (
        TEST_IMAGES,
        lambda data: data[:15],
        "holds 15 bytes, expected a header of 16 and more",
    ),
    "labels for images": (
        TRAIN_IMAGES,
        lambda data: idx(np.zeros(20)),
        "begins with 00 00 08 01, expected .* 00 00 08 03",
    ),
    "floats": (
        TRAIN_IMAGES,
        lambda data: data[:2] + b"\x0d" + data[3:],
        "begins with 00 00 0d 03, expected .* 00 00 08 03, unsigned bytes in 3 dimensions",
    ),
    "a web page": (
        TRAIN_IMAGES,
        lambda data: b"<!DOCTYPE html><html>",
        "begins with 3c 21 44 4f, expected the magic number 00 00 08 03",
    ),
    "other sizes": (
        TRAIN_IMAGES,
        lambda data: idx(np.zeros((3, 32, 28))),
        "holds images of 32 x 28, expected 28 x 28",
    ),
    "no images": (
        TRAIN_IMAGES,
        lambda data: idx(np.zeros((0, 28, 28))),
        "holds 0 images, expected some",
    ),
    "sizes beyond 64 bits": (
        TRAIN_IMAGES,
        lambda data: bytes([0, 0, 8, 3]) + b"\xff" * 12,
        "announces .* = 79,228,162,458,924,105,385,300,197,391 bytes, above",
    ),
    "a label out of range": (
        TEST_LABELS,
        lambda data: data[:-1] + b"\x0a",
        "has the label 10 for image 1, expected 0 to 9",
    ),
    "a label missing": (
        TRAIN_LABELS,
        lambda data: idx(np.array([9, 0])),
        "holds 3 images, but .* holds 2 labels, expected as many",
    ),
    "half a gzip file": (
        TRAIN_IMAGES,
        lambda data: gzip.compress(data)[:99],
        rf"holds 99 bytes, {NOT_WHOLE} \(Compressed file ended",
    ),
    "a wrong checksum": (
        TRAIN_IMAGES,
        lambda data: gzip.compress(data)[:-8] + bytes(8),
        rf"{NOT_WHOLE} \(CRC check failed",
    ),
    "garbage in gzip": (
        TRAIN_IMAGES,
        lambda data: gzip.compress(data)[:10] + b"\xff" * 5,
        rf"holds 15 bytes, {NOT_WHOLE} \(Error -3",
    ),
}


@pytest.mark.parametrize("file, damage, message", DAMAGED.values(), ids=list(DAMAGED))
def test_a_file_of_mnist_that_is_not_as_it_should_be_is_refused(tmp_path, mnist_files, file, damage, message):
    mnist_files[file] = damage(mnist_files[file])
    write(tmp_path, mnist_files)
    with pytest.raises(ValueError, match=rf"{message}.*remove .*{MNIST_SITE}") as refused:
        mnist(tmp_path)
    assert str(tmp_path / file) in str(refused.value)


@pytest.fixture
def cifar10_files():
    """Five files of 2 images each and the test file; every byte is drawn."""
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    rng = np.random.default_rng(0)
    records = {name: rng.integers(0, 256, (2, 3073)).astype(np.uint8) for name in names}
    for number, name in enumerate(names):
        records[name][:, 0] = number, 9 - number
    return {name: record.tobytes() for name, record in records.items()}


@pytest.mark.parametrize("sub_folder", [".", "cifar-10-batches-bin"])
def test_cifar10_has_every_pixel_and_label_in_its_place(tmp_path, cifar10_files, sub_folder):
    (tmp_path / sub_folder).mkdir(exist_ok=True)
    write(tmp_path / sub_folder, cifar10_files)
    parts = cifar10(str(tmp_path))
    records = np.frombuffer(b"".join(cifar10_files.values()), np.uint8).reshape(12, 3073)
    for (X, Y), expected in [(parts.train, records[:10]), (parts.test, records[10:])]:
        m = len(expected)
        assert (X.shape, Y.shape) == ((3, 32, 32, m), (10, m))
        assert X.dtype == Y.dtype == np.float32 and X.flags.c_contiguous and Y.flags.c_contiguous
        for k, record in enumerate(expected):
            assert np.array_equal(Y[:, k], np.arange(10) == record[0])
            for channel, row in [(0, 0), (0, 31), (1, 0), (2, 17), (2, 31)]:
                begin = 1 + 1024 * channel + 32 * row
                assert np.array_equal(
                    X[channel, row, :, k], record[begin : begin + 32].astype(np.float32) / np.float32(255)
                )


def test_all_missing_files_of_cifar10_are_named(tmp_path, cifar10_files):
    del cifar10_files["data_batch_2.bin"], cifar10_files["data_batch_5.bin"]
    write(tmp_path, cifar10_files)
    missing = "data_batch_2.bin, data_batch_5.bin"
    with pytest.raises(FileNotFoundError, match=f"lacks 2 of 6 files: {missing}: {CIFAR10_SITE}"):
        cifar10(tmp_path)


@pytest.mark.parametrize(
    "data, message",
    [
        (
            bytes(6145),
            r"holds 6,145 bytes, expected a multiple of 1 \+ 3 x 32 x 32 = 3,073, in the original 30,730,000",
        ),
        (b"", "holds 0 bytes, expected a multiple of"),
        (bytes(3073) + b"\x0b" + bytes(3072), "has the label 11 for image 1, expected 0 to 9"),
        (gzip.compress(bytes(3073))[:20], rf"holds 20 bytes, {NOT_WHOLE} \(Compressed file ended"),
    ],
    ids=["truncated", "empty", "a label out of range", "a damaged gzip file"],
)
def test_a_file_of_cifar10_that_is_not_as_it_should_be_is_refused(tmp_path, cifar10_files, data, message):
    write(tmp_path, cifar10_files | {"data_batch_3.bin": data})
    with pytest.raises(ValueError, match=rf"data_batch_3.bin {message}.*remove it, and {CIFAR10_SITE}"):
        cifar10(tmp_path)
