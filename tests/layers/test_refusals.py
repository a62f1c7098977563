"""What no layer, block or model can be made of, or take, is refused with the numbers met and the remedy.

Bounds of arguments, such as "must be at least 1", are rows of `minipipe.arguments`, which tests/doors sweeps.
"""

import numpy as np
import pytest

import minipipe as mp

TANH = mp.Tanh()


def embedded(tokens):
    return mp.Sequential([mp.Embedding(5, 2)], None).layers[0].forward(np.array(tokens))


@pytest.mark.parametrize("make, words", [
    # Linear
    (lambda: mp.Linear(3, 2).forward(np.zeros((4, 5))),
     r"Linear\(3, 2\) needs A_prev of shape \(3, m\), got \(4, 5\)"),
    (lambda: mp.Linear(3, 2, W=np.zeros((3, 2))), r"W has shape \(3, 2\), but Linear\(3, 2\) needs \(2, 3\)"),
    # convolutions
    (lambda: mp.Conv2d(4, 6, 3, groups=4),
     "groups=4 does not divide both in_channels=4 and out_channels=6: use a divisor of 2"),
    (lambda: mp.Conv2d(1, 1, (3, 3, 3)),
     r"kernel_size=\(3, 3, 3\) has 3 numbers for 2 spatial axes: give one per axis"),
    (lambda: mp.Conv1d(1, 1, 0), "kernel_size=0 must be at least 1 on each axis, got 0"),
    (lambda: mp.Conv1d(1, 1, 2.5),
     "kernel_size=2.5 must be a whole number, or a tuple of one per spatial axis"),
    (lambda: mp.Conv1d(1, 1, 3, padding="full"), "padding='full' is not known: use \"same\""),
    (lambda: mp.Conv1d(1, 1, 3, padding="same", stride=2),
     r'padding="same" keeps the length, which stride=\(2,\) cannot'),
    (lambda: mp.ConvTranspose1d(1, 1, 3, padding="same"), r'padding="same" is for convolutions'),
    (lambda: mp.ConvTranspose1d(1, 1, 3, stride=2, output_padding=2),
     "output_padding=2 must be below the larger of stride=2 and dil"),
    (lambda: mp.Conv2d(3, 2, 3).forward(np.zeros((3, 5, 3))),
     r"needs A_prev of shape \(3, H, W, m\), got \(3, 5, 3\)"),
    (lambda: mp.Conv2d(3, 2, 3).forward(np.zeros((2, 5, 5, 3))),
     r"needs A_prev of shape \(3, H, W, m\), got \(2, 5, 5, 3\)"),
    (lambda: mp.Conv2d(3, 2, 5, padding=1).output_shape((3, 6, 2, 3)),
     r"spans \(5, 5\) places does not fit .* lengths \(6, 2\) "
     r"with padding \(\(1, 1\), \(1, 1\)\): 5 > 2 \+ 2"),
    (lambda: mp.ConvTranspose1d(1, 1, 1, padding=1).output_shape((1, 1, 3)),
     r"lengths \(1,\) would become \(-1,\), but each must be at least 1: use less padding"),
    # pooling and reshaping
    (lambda: mp.MaxPool1d(3, padding=2), "padding=2 exceeds half of kernel_size=3, .*: use at most 1"),
    (lambda: mp.MaxPool2d(2).forward(np.zeros((3, 4, 5))),
     r"needs A_prev of 4 axes, channels, 2 spatial and samples, got \(3, 4, 5\)"),
    (lambda: mp.GlobalAvgPool().forward(np.zeros((3, 4))), r"needs A_prev of at least 3 axes.* got \(3, 4\)"),
    (lambda: mp.Reshape((0, 2)), r"shape\[0\]=0 must be at least 1"),
    (lambda: mp.Reshape((3, 4)).forward(np.zeros((2, 5, 7))),
     r"needs 12 numbers in a sample, got 10 in A_prev of shape \(2, 5, 7\)"),
    (lambda: mp.Pad([-1]), r"widths\[0\]\[0\]=-1 must be at least 0"),
    (lambda: mp.Pad([1, 1]).forward(np.zeros((1, 2, 3))),
     r"needs A_prev of 4 axes, channels, 2 spatial and samples, got \(1, 2, 3\)"),
    # activations and normalisation
    (lambda: mp.GELU(approximate="erf"), "approximate='erf' must be one of 'tanh', 'none'"),
    (lambda: mp.GroupNorm(4, 6), "n_groups=4 does not divide the n=6 channels: use a divisor of 6"),
    (lambda: mp.LayerNorm(2, epsilon=0),
     "epsilon=0 must be above 0: it keeps equal numbers from being divided by 0"),
    (lambda: mp.LayerNorm(3).forward(np.ones((4, 2))),
     r"needs A_prev of shape \(3, ..., m\), got \(4, 2\): rows first, samples last"),
    (lambda: mp.GroupNorm(3, 3).forward(np.ones(3)), r"got \(3,\)"),
    (lambda: mp.BatchNorm(3).forward(np.ones((4, 2))), r"needs A_prev of shape \(3, ..., m\), got \(4, 2\)"),
    # sequences
    (lambda: mp.MultiHeadAttention(6, 4), "n_heads=4 does not divide d=6: use a divisor of 6"),
    (lambda: mp.TransformerBlock(6, 4), "n_heads=4 does not divide d=6: use a divisor of 6"),
    (lambda: embedded([[0, 5]]),
     r"Embedding\(5, 2\): tokens run from 0 to 5, but it knows 0 to 4: use a larger n_tokens"),
    (lambda: embedded([[-1, 3]]), "tokens run from -1 to 3, but it knows 0 to 4"),
    (lambda: embedded([[0, 0.5]]), "needs whole numbers as tokens, got 0.5"),
    (lambda: mp.PositionalEmbedding(2, 3).output_shape((2, 4, 1)),
     "a sequence of T=4 exceeds n_places=3: shorten it, or use more places"),
    (lambda: mp.PositionalEmbedding(2, 3).output_shape((3, 3, 1)),
     r"needs A_prev of shape \(2, T, m\), got \(3, 3, 1\)"),
    (lambda: mp.MultiHeadAttention(4, 2).output_shape((4, 3)),
     r"needs A_prev of shape \(4, T, m\), got \(4, 3\): samples are the last axis"),
    (lambda: mp.MultiHeadAttention(4, 2).output_shape((5, 3, 1)),
     r"needs A_prev of shape \(4, T, m\), got \(5, 3, 1\)"),
    # layers made of layers
    (lambda: mp.Chain(mp.ReLU),
     r"Chain is made of layers, got <class .*: pass layer objects, such as ReLU\(\)"),
    (lambda: mp.Residual([mp.ReLU()]), r"made of layers, got \[ReLU\(\)\]: pass layer objects"),
    (lambda: mp.Add(3), "made of layers, got 3: pass layer objects"),
    (lambda: mp.Concat(), "Concat needs at least 1 branch, got 0: pass lists of layers"),
    (lambda: mp.Residual(mp.Fork("a")),
     r"Fork\('a'\) stands inside a layer made of layers: skip connections by name and ties belong"),
    (lambda: mp.Chain(mp.Add([mp.Join("a")])), r"Join\('a'\) stands inside a layer made of layers"),
    (lambda: mp.Add([mp.Linear(2, 2, tie="a")]),
     r"Linear\(2, 2, tie='a'\) stands inside a layer made of layers"),
    (lambda: mp.Chain(TANH, mp.Linear(2, 2), TANH),
     r"the same Tanh\(\) stands in two places, but it has one cache: make an object"),
    (lambda: mp.Add([TANH], [mp.Residual(TANH)]), r"the same Tanh\(\) stands in two places"),
    # models
    (lambda: mp.models.mlp([3]), r"sizes=\[3\] must have at least 2 numbers of units"),
    (lambda: mp.models.mlp([3, 2.5]), r"sizes\[1\]=2.5 must be a whole number"),
    (lambda: mp.models.mlp([3, 2], mp.ReLU()),
     r"activation=ReLU\(\) must make a layer when called: pass a class, such as ReLU"),
    (lambda: mp.models.lenet5((28, 28)), r"input_shape=\(28, 28\) must be \(channels, H, W\)"),
    (lambda: mp.models.lenet5(padding=(1, 1, 1)),
     r"padding=\(1, 1, 1\) and channels=\(6, 16\) must have one number for each of the two"),
    (lambda: mp.models.lenet5(channels=(6,)),
     r"channels=\(6,\) must have one number for each of the two convolutions"),
    (lambda: mp.models.resnet(18), r"depth=18 must be 6 n \+ 2 with n at least 1: 8, 14, 20"),
    (lambda: mp.models.amoebanet_d(4, 16), "L=4 normal cells must be a multiple of 3"),
    (lambda: mp.models.amoebanet_d(0, 16), "L=0 normal cells"),
    (lambda: mp.models.amoebanet_d(3, 12), "D=12 filters must be a multiple of 8"),
    # descriptions, which name the place
    (lambda: mp.describe([mp.Linear(3, 4), mp.ReLU(), mp.Linear(5, 2)], (3,)),
     r"layers\[2\], Linear\(5, 2\), does not fit: Linear\(5, 2\) needs A_prev of shape \(5, m\), got "
     r"\(4, 1\)"),
    (lambda: mp.describe(mp.models.lenet5(), (3, 28, 28)),
     r"layers\[0\], Reshape\(\(1, 28, 28\)\), does not fit: .* needs 784 numbers in a sample, got 2352"),
    (lambda: mp.describe(mp.models.amoebanet_d(3, 8), (3, 40, 40)),
     r"layers\[6\], ReductionCell\(16\), does not fit"),
    (lambda: mp.describe([mp.Conv2d(1, 1, 3), mp.models.First()], (1, 8, 8)),
     r"layers\[1\], First\(\), does not fit"),
    (lambda: mp.describe([mp.Fork("a"), mp.ReLU()], (3,)), r"Fork\('a'\) has no Join"),
    (lambda: mp.describe([mp.ReLU, mp.ReLU()], (3,)), r"layers\[0\] is <class .*ReLU'>: pass a layer object"),
    (lambda: mp.describe([mp.ReLU()], 3),
     r"input_shape=3 must be the shape of one sample, a tuple such as \(64,\)"),
    (lambda: mp.describe([mp.ReLU()], (3, 0)), r"input_shape\[1\]=0 must be at least 1"),
])
def test_what_cannot_be_is_refused_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()
