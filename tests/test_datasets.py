"""The digits are the real ones, whole, and split as the attribution says."""

import hashlib
from importlib import resources

import numpy as np

from minipipe.datasets import digits


def test_sizes_values_and_labels():
    (X, Y), (X_test, Y_test) = digits()
    assert (X.shape, Y.shape, X_test.shape, Y_test.shape) == ((64, 1437), (10, 1437), (64, 360), (10, 360))
    for pixels, labels in [(X, Y), (X_test, Y_test)]:
        assert pixels.dtype == labels.dtype == np.float64 and pixels.flags.c_contiguous
        assert np.array_equal(pixels * 16, np.round(pixels * 16)) and pixels.min() == 0 and pixels.max() == 1
        assert np.array_equal(labels.sum(axis=0), np.ones(labels.shape[1]))


def test_the_split_is_stratified():
    """Each digit's share of the 360 test images is its share of all 1,797, rounded down or up."""
    (_, Y), (_, Y_test) = digits()
    shares = 360 * (Y.sum(axis=1) + Y_test.sum(axis=1)) / 1797
    assert np.all(abs(Y_test.sum(axis=1) - shares) < 1)


def test_the_images_are_those_of_the_source():
    """The digest of the 1,797 x 64 pixels and of the labels, taken from scikit-learn's load_digits."""
    with resources.files("minipipe.datasets").joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        pixels, labels = stored["pixels"], stored["labels"]
    assert pixels.shape == (1797, 64)
    assert hashlib.sha256(pixels.astype(np.uint8).tobytes() + labels.astype(np.uint8).tobytes()).hexdigest() == (
        "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    )


def test_no_image_is_in_both_parts():
    train, test = digits()
    images = {tuple(image) for image in train[0].T.tolist()}
    assert not any(tuple(image) in images for image in test[0].T.tolist())
