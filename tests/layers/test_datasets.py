"""The digits and the book are the real ones, whole; files that the user has are read, or refused."""

import gzip
import hashlib
import math
from collections import Counter
from importlib import resources

import numpy as np
import pytest
from doors.refused import assert_refused
from hypothesis import given
from hypothesis import strategies as st

import minipipe as mp
from minipipe.datasets import Text, alice, bigram_cross_entropy, characters, cifar10, digits, mnist

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
BATCH = "data_batch_3.bin"
MNIST_SITE = "get the original, from yann.lecun.com/exdb/mnist"
NOT_WHOLE = "but not a whole gzip file"
CIFAR10_SITE = "unpack the original there, cifar-10-binary.tar.gz"


# --- images

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


def test_the_split_has_each_image_once_and_is_stratified():
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
        assert_refused([
            (lambda: mnist(folder), f"{not_there} 4 files, {TRAIN_IMAGES} among them: {MNIST_SITE}"),
            (lambda: cifar10(folder),
             f"{not_there} 6 files, data_batch_1.bin among them: {CIFAR10_SITE}"),
        ], FileNotFoundError)


def test_all_missing_files_are_named(tmp_path, mnist_files, cifar10_files):
    missing = [TRAIN_LABELS, TEST_IMAGES], ["data_batch_2.bin", "data_batch_5.bin"]
    files = mnist_files | cifar10_files
    write(tmp_path, {name: data for name, data in files.items() if name not in sum(missing, [])})
    (tmp_path / TEST_IMAGES).mkdir()
    of_mnist, of_cifar10 = map(", ".join, missing)
    assert_refused([
        (lambda: mnist(tmp_path), f"lacks 2 of 4 files: {of_mnist}: {MNIST_SITE}"),
        (lambda: cifar10(tmp_path), f"lacks 2 of 6 files: {of_cifar10}: {CIFAR10_SITE}"),
    ], FileNotFoundError)


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


DAMAGED = [  # (file, what happens to its bytes, words)
    (TRAIN_IMAGES, lambda data: data[:-1],
        "holds 2,367 bytes, but its header announces 16 + 3 x 28 x 28 = 2,368"),
    (TEST_LABELS, lambda data: data + b"\0",
        "holds more than 10 bytes, but its header announces 8 + 2 = 10"),
    (TRAIN_LABELS, lambda data: b"", "holds 0 bytes, expected a header of 8 and more"),
    (TEST_IMAGES, lambda data: data[:15],
        "holds 15 bytes, expected a header of 16 and more"),
    (TRAIN_IMAGES, lambda data: idx(np.zeros(20)),
        "begins with 00 00 08 01, expected ... 00 00 08 03"),
    (TRAIN_IMAGES, lambda data: data[:2] + b"\x0d" + data[3:],
        "begins with 00 00 0d 03, expected ... 00 00 08 03, unsigned bytes in 3 dimensions"),
    (TRAIN_IMAGES, lambda data: b"<!DOCTYPE html><html>",
        "begins with 3c 21 44 4f, expected the magic number 00 00 08 03"),
    (TRAIN_IMAGES, lambda data: idx(np.zeros((3, 32, 28))),
        "holds images of 32 x 28, expected 28 x 28"),
    (TRAIN_IMAGES, lambda data: idx(np.zeros((0, 28, 28))), "holds 0 images, expected some"),
    (TRAIN_IMAGES, lambda data: bytes([0, 0, 8, 3]) + b"\xff" * 12,
        "announces ... = 79,228,162,458,924,105,385,300,197,391 bytes, above"),
    (TEST_LABELS, lambda data: data[:-1] + b"\x0a",
        "has the label 10 for image 1, expected 0 to 9"),
    (TRAIN_LABELS, lambda data: idx(np.array([9, 0])),
        "holds 3 images, but ... holds 2 labels, expected as many"),
    (TRAIN_IMAGES, lambda data: gzip.compress(data)[:99],
        f"holds 99 bytes, {NOT_WHOLE} (Compressed file ended"),
    (TRAIN_IMAGES, lambda data: gzip.compress(data)[:-8] + bytes(8),
        f"{NOT_WHOLE} (CRC check failed"),
    (TRAIN_IMAGES, lambda data: gzip.compress(data)[:10] + b"\xff" * 5,
        f"holds 15 bytes, {NOT_WHOLE} (Error -3"),
    (BATCH, lambda data: bytes(6145),
        "holds 6,145 bytes, expected a multiple of 1 + 3 x 32 x 32 = 3,073, in the original 30,730,000"),
    (BATCH, lambda data: b"", "holds 0 bytes, expected a multiple of"),
    (BATCH, lambda data: bytes(3073) + b"\x0b" + bytes(3072),
        "has the label 11 for image 1, expected 0 to 9"),
    (BATCH, lambda data: gzip.compress(bytes(3073))[:20],
        f"holds 20 bytes, {NOT_WHOLE} (Compressed file ended"),
]


def test_a_file_that_is_not_as_it_should_be_is_refused(tmp_path, mnist_files, cifar10_files):
    for number, (file, damage, words) in enumerate(DAMAGED):
        read, site = (cifar10, CIFAR10_SITE) if file == BATCH else (mnist, MNIST_SITE)
        files = mnist_files | cifar10_files
        files[file] = damage(files[file])
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, files)
        words = f"{words}...remove ...{site}"
        assert_refused([(lambda: read(folder), words), (lambda: read(folder), str(folder / file))])


# --- text

@pytest.fixture(scope="module")
def book():
    return alice()


def test_the_book_is_the_one_that_the_attribution_describes(book):
    assert (
        hashlib.sha256(book.text.encode()).hexdigest()
        == "aff887bd3fbfae0e66cc15e5c70853d0fad67b3bc6b8d67b51ba85506c7b0a35"
    )
    assert len(book.text) == 141_655 and len(book.alphabet) == 65 and book.text.isascii()
    assert book.text.startswith("CHAPTER I\n") and book.text.count("\nCHAPTER ") == 11
    assert book.text.endswith("remembering her own child-life, and the happy summer days.\n")


def test_ids_are_places_in_the_alphabet(book):
    assert book.alphabet == "".join(sorted(set(book.text)))
    assert book.ids.dtype == np.int64 and [book.alphabet[i] for i in book.ids.tolist()] == list(book.text)


@pytest.mark.slow
@given(st.text(min_size=1))
def test_decode_undoes_encode(text):
    made = characters(text)
    assert made.decode(made.ids) == text and np.array_equal(made.encode(text[::-1]), made.ids[::-1])
    assert made.encode("").shape == (0,) and made.decode([]) == ""


@given(st.integers(2, 20), st.integers(1, 6), st.integers(1, 6) | st.none())
def test_windows_hold_each_character_and_its_next(n, length, stride):
    text = characters("".join(chr(ord("A") + (7 * k * k + k) % 11) for k in range(n)))
    if length >= n:
        with pytest.raises(
            ValueError, match=f"do not fit a text of {n} characters.*length is at most {n - 1}"
        ):
            text.windows(length, stride)
        return
    X, Y = text.windows(length, stride)
    starts = range(0, n - length, stride or length)
    assert X.shape == (length, len(starts)) and Y.shape == (len(text.alphabet), length, len(starts))
    assert X.dtype == np.int64 and Y.dtype == np.float32 and set(np.unique(Y)) <= {0, 1}
    for k, start in enumerate(starts):
        assert text.decode(X[:, k]) == text.text[start:start + length]
        assert text.decode(Y[:, :, k].argmax(axis=0)) == text.text[start + 1:start + length + 1]
    assert np.array_equal(Y.sum(axis=0), np.ones(X.shape))


def test_split_cuts_off_the_last_part_and_loses_nothing(book):
    train, test = book.split(test_share=0.1)
    assert isinstance(train, Text) and train.alphabet == test.alphabet == book.alphabet
    assert train.text + test.text == book.text and len(test.text) == 14_165
    assert np.array_equal(np.concatenate([train.ids, test.ids]), book.ids)
    assert train.decode(train.ids) == train.text


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=12), st.lists(st.integers(0, 3), min_size=2, max_size=12)
)
def test_the_bigram_cost_is_that_of_the_counts(train, test):
    """Both take logarithms of the same quotients, and all terms are positive.

    Relative to the largest: NumPy's logarithm is off by at most 4 eps, Python's by 1, fsum by 1/2;
    10 additions of floats by 10/2; the two divisions by 1: below 12 eps.
    """
    pairs, firsts = Counter(zip(train, train[1:])), Counter(train[:-1])
    costs = [-math.log((pairs[i, j] + 1) / (firsts[i] + 4)) for i, j in zip(test, test[1:])]
    found = bigram_cross_entropy(np.array(train, np.uint8), test, n=4)
    bound = 12 * np.finfo(float).eps * max(costs)
    assert isinstance(found, float) and abs(found - math.fsum(costs) / len(costs)) <= bound


def test_what_the_bigram_costs_on_the_book(book):
    """The baseline that the notebook states: far below log 65 = 4.174, which knowing nothing costs."""
    train, test = book.split(test_share=0.1)
    found = bigram_cross_entropy(train.ids, test.ids, n=65)
    assert f"{found:.3f}" == "2.414"
    assert bigram_cross_entropy(train.ids.astype(np.uint8), test.ids.astype(np.uint8), n=65) == found


def test_a_model_that_never_saw_the_pairs_knows_nothing():
    assert bigram_cross_entropy([0, 0], [3, 1, 2], n=4) == -math.log(1 / 4)


def test_what_a_text_cannot_be_asked_is_refused():
    assert_refused([
        (lambda: characters("abcdefghij").split(0),
         "test_share=0 of 10 characters leaves 10 to train on and 0 for the test"),
        (lambda: characters("abcdefghij").split(0.9),
         "test_share=0.9 of 10 characters leaves 1 to train on and 9 for the test"),
        (lambda: characters("abc").encode("abXc"),
         "character 2 is 'X', not one of the 3 of ... use only 'abc'"),
        (lambda: characters("abc").decode([0, 3]),
         "ids run from 0 to 3, but an alphabet of 3 allows 0 to 2"),
        (lambda: characters("abc").decode([[0, 1]]),
         "ids: shape (1, 2) of int64, expected one row"),
        (lambda: characters(b"abc"), "text is of type bytes, expected a str...read_text"),
        (lambda: characters(""), "text is empty, expected a str of 1 character or more"),
        (lambda: characters("abc").windows(0),
         "length=0 and stride=0 do not fit a text of 3 ... both are at least 1"),
        (lambda: characters("abc").windows(1, stride=0), "length=1 and stride=0 do not fit"),
        (lambda: bigram_cross_entropy([0, 1], [0], n=2),
         "test_ids: shape (1,) of int64, expected one row of at least 2"),
        (lambda: bigram_cross_entropy([0.0, 1.0], [0, 1], n=2),
         "train_ids: shape (2,) of float64, ... whole numbers"),
        (lambda: bigram_cross_entropy([0, 1], [0, 2], n=2),
         "test_ids run from 0 to 2, ... of 2 allows 0 to 1"),
        (lambda: bigram_cross_entropy([-1, 1], [0, 1], n=2), "train_ids run from -1 to 1"),
    ])


def test_one_hot_of_windows_and_the_accuracy_at_each_place():
    labels = np.array([[0, 2, 1], [2, 2, 0]])
    Y = mp.one_hot(labels, n_classes=4)
    assert Y.shape == (4, 2, 3) and Y.dtype == np.float64
    for t in range(2):
        assert np.array_equal(Y[:, t], mp.one_hot(labels[t], n_classes=4))
    A = np.random.default_rng(0).random((4, 2, 3)) / 2 + Y
    A[3, 1, 2] = A[1, 0, 0] = 2
    assert mp.accuracy(A, Y) == 4 / 6
