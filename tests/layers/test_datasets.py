"""The digits and the book are the real ones, whole."""

import hashlib
import math
from collections import Counter
from importlib import resources

import numpy as np
import pytest
from compared import assert_refused
from hypothesis import given
from hypothesis import strategies as st

import minipipe as mp
from minipipe.datasets import Text, alice, bigram_cross_entropy, characters, digits

# --- images

def stored():
    """(pixels, labels) in the package's file."""
    path = resources.files("minipipe.datasets").joinpath("digits.npz")
    with path.open("rb") as file, np.load(file) as arrays:
        return arrays["pixels"], arrays["labels"]


def test_the_images_match_the_source():
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
        with pytest.raises(ValueError, match=f"length={length} must be at most {n - 1}"):
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
def test_the_bigram_cost_matches_the_counts(train, test):
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


def test_invalid_arguments_of_a_text_are_refused():
    assert_refused([
        (lambda: characters("abc").encode("abXc"),
         "character 2 is 'X', not one of the alphabet 'abc'"),
        (lambda: characters("abc").decode([0, 3]),
         "ids run from 0 to 3, but 0 to 2 are allowed"),
        (lambda: characters("abc").decode([[0, 1]]),
         "ids: shape (1, 2) of int64, pass at least 0 integers"),
        (lambda: characters(b"abc"), "text=b'abc' must be a str...read_text"),
        (lambda: characters("").windows(1), "length=1 must be at most -1"),
        (lambda: characters("abc").windows(0), "length=0 must be at least 1"),
        (lambda: characters("abc").windows(1, stride=0), "stride=0 must be at least 1"),
        (lambda: bigram_cross_entropy([0, 1], [0], n=2),
         "test_ids: shape (1,) of int64, pass at least 2 integers"),
        (lambda: bigram_cross_entropy([0.0, 1.0], [0, 1], n=2),
         "train_ids: shape (2,) of float64, pass at least 2"),
        (lambda: bigram_cross_entropy([0, 1], [0, 2], n=2),
         "test_ids run from 0 to 2, but 0 to 1 are allowed"),
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
