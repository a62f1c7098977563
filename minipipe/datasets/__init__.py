"""Real data that ship with the package: handwritten digits, and a book.

A text becomes whole numbers, one for each character, for models that predict the next
character. `bigram_cross_entropy` is the cost that such a model has to beat.
"""

from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..arrays import floats, one_hot, real_numbers
from ..checks import real_number, shown, whole_number

__all__ = ["Dataset", "Text", "alice", "bigram_cross_entropy", "characters", "digits"]


class Dataset(NamedTuple):
    """Two pairs `(X, Y)`, to train on and to test; Y is one-hot."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def digits(dtype: DTypeLike = "float64") -> Dataset:
    """Return the UCI handwritten digits, 1,437 to train on and 360 to test.

    X is (64, m), the 8 x 8 pixels of an image row by row, from 0 (paper) to 1 (ink) in
    steps of 1/16; Y is (10, m), one-hot. The split is fixed: each digit has the same
    share in both parts, as nearly as whole numbers allow.

    Args:
        dtype: the dtype of X and Y, one of floats; the values are exact in each.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI
    Machine Learning Repository, 1998, doi 10.24432/C50P49, licence CC BY 4.0; the part
    that scikit-learn's `load_digits` has.

    >>> X, Y = digits().train
    >>> X.shape, Y.shape
    ((64, 1437), (10, 1437))
    """
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        pixels, labels, in_test = stored["pixels"], stored["labels"], stored["in_test"]
    dtype = floats(dtype)
    X, Y = (pixels.T / 16).astype(dtype), one_hot(labels, 10, dtype)
    parts = (~in_test, in_test)
    return Dataset(*((np.ascontiguousarray(X[:, part]), np.ascontiguousarray(Y[:, part])) for part in parts))


class Text(NamedTuple):
    """A text, its alphabet, and its characters as positions in that alphabet.

    Args:
        text: N characters.
        alphabet: V different characters.
        ids: (N,) whole numbers in 0..V-1, with text[k] = alphabet[ids[k]].

    `characters` makes one.
    """

    text: str
    alphabet: str
    ids: np.ndarray

    def encode(self, text: str) -> np.ndarray:
        """Return the ids (len(text),) of another `text`, such as a prompt.

        Each of its characters must be in the alphabet.

        >>> characters("banana").encode("nab")
        array([2, 0, 1])
        """
        return _encoded(text, self.alphabet)

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of the characters with these `ids` (n,).

        >>> characters("banana").decode([2, 0, 1])
        'nab'
        """
        ids = _checked_ids("ids", ids, len(self.alphabet), at_least=0)
        return "".join(self.alphabet[i] for i in ids.tolist())

    def split(self, test_share: float = 0.1) -> tuple["Text", "Text"]:
        """Return two `Text`s of one alphabet: one to train on, and one to test.

        The last `test_share` of the text, from 0 to 1, is the test.

        >>> [part.text for part in characters("a mad tea-party").split(test_share=0.4)]
        ['a mad tea', '-party']
        """
        share = real_number("test_share", test_share, least=0, most=1)
        n_train = len(self.text) - int(share * len(self.text))
        parts = slice(n_train), slice(n_train, None)
        train, test = (Text(self.text[part], self.alphabet, self.ids[part]) for part in parts)
        return train, test

    def windows(self, length: int, stride: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (X, Y): windows of T characters, and for each character the next one.

            X[t, k] = ids[k stride + t],  Y[:, t, k] = one-hot of ids[k stride + t + 1]

        X is (T, m), whole numbers; Y is (V, T, m), one-hot in float32, 4 V T m bytes.

        Args:
            length: T, from 1 to the text's length - 1.
            stride: the characters from the start of a window to that of the next; None:
                T, so that all characters but at most the last T are in exactly one
                window.

        >>> X, Y = characters("banana").windows(length=2)
        >>> X, Y.shape
        (array([[1, 2],
               [0, 0]]), (3, 2, 2))
        """
        length = whole_number("length", length, 1, len(self.ids) - 1)  # the last has a next
        stride = length if stride is None else min(whole_number("stride", stride, 1), len(self.ids))
        positions = np.arange(length)[:, None] + np.arange(0, len(self.ids) - length, stride)
        return self.ids[positions], one_hot(self.ids[positions + 1], len(self.alphabet), dtype=np.float32)


def characters(text: str) -> Text:
    """Return a `Text` of the str `text`, with its characters in Unicode order.

    >>> characters("banana")
    Text(text='banana', alphabet='abn', ids=array([1, 0, 2, 0, 2, 0]))
    """
    if not isinstance(text, str):
        raise ValueError(f"text={shown(text)} must be a str, such as Path('my.txt').read_text()")
    alphabet = "".join(sorted(set(text)))
    return Text(text, alphabet, _encoded(text, alphabet))


def alice() -> Text:
    """Return Lewis Carroll's "Alice's Adventures in Wonderland", 1865, as a `Text`.

    It has N = 141,655 characters, V = 65 different ones, and one line for each
    paragraph, heading and line of verse. It is in the public domain; see
    ATTRIBUTION.md.

    >>> book = alice()
    >>> book.text[:30], book.alphabet[:13]
    ('CHAPTER I\\nDown the Rabbit-Hole', '\\n !"\\'(),-.:;?')
    >>> train, test = book.split(test_share=0.1)
    >>> X, Y = train.windows(length=32)
    >>> X.shape, Y.shape
    ((32, 3984), (65, 32, 3984))
    """
    return characters(resources.files(__package__).joinpath("alice.txt").read_text(encoding="ascii"))


def bigram_cross_entropy(train_ids: ArrayLike, test_ids: ArrayLike, n: int) -> float:
    """Return the cost of guessing from the last character alone, in nats.

    It is the mean of -log P(next | this) over all characters of the test but the first:

        P(j | i) = (c[i, j] + 1) / (sum_k c[i, k] + n)

    c[i, j] is the number of times that j follows i in `train_ids`. The 1 (Laplace's
    add-one smoothing) makes the cost of pairs that were never seen finite. Equal
    probabilities cost log n.

    Args:
        train_ids, test_ids: (N,) whole numbers in 0..n-1, at least 2 each.
        n: the size of the alphabet.

    Source: C. Shannon, "Prediction and entropy of printed English", 1951.

    >>> bool(bigram_cross_entropy([0, 1, 0], [0, 1, 0], n=2) == -np.log(2 / 3))
    True
    """
    n = whole_number("n", n, 1)
    train_ids, test_ids = _checked_ids("train_ids", train_ids, n, 2), _checked_ids("test_ids", test_ids, n, 2)
    counts = np.bincount(train_ids[:-1] * n + train_ids[1:], minlength=n * n).reshape(n, n)
    P = (counts + 1) / (counts.sum(axis=1, keepdims=True) + n)
    return float(-np.log(P[test_ids[:-1], test_ids[1:]]).mean())


def _encoded(text: str, alphabet: str) -> np.ndarray:
    if not isinstance(text, str):
        raise ValueError(f"text={shown(text)} must be a str")
    ids = np.array([alphabet.find(character) for character in text], np.int64)
    if (ids < 0).any():
        position = int(np.argmax(ids < 0))
        raise ValueError(f"character {position} is {text[position]!r}, not one of the alphabet {alphabet!r}")
    return ids


def _checked_ids(name: str, ids: ArrayLike, n: int, at_least: int) -> np.ndarray:
    ids = real_numbers(name, ids)
    if ids.ndim != 1 or len(ids) < at_least or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"{name}: shape {ids.shape} of {ids.dtype}, pass at least {at_least} integers")
    if ids.size and not 0 <= ids.min() <= ids.max() < n:
        raise ValueError(f"{name} run from {ids.min()} to {ids.max()}, but 0 to {n - 1} are allowed")
    return ids.astype(np.int64)
