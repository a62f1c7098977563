"""Solutions of the exercises in notebook 18, and of the shares in 36, what their checkers say to typical
wrong answers, and the pictures of both.
"""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_refused, are_right, of_each
from notebooks.template import solutions
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import minipipe as mp
from exercises import transformer_pictures as pictures
from exercises.transformer import check_parameters, check_shares, check_tied_gradient
from minipipe.schedules import gpipe

CHECKERS = [check_shares, check_tied_gradient, check_parameters]

# ---------------------------------------------------------------- solutions

notebook = solutions("18")
shares = solutions("17").shares
tied_gradient = notebook.tied_gradient
parameters = notebook.parameters


def with_minus_infinity(Q, K):
    S = K.T @ Q / len(Q) ** 0.5
    S[np.tril_indices(len(S), -1)] = -np.inf
    E = np.exp(S - S.max(axis=0))
    return (E / E.sum(axis=0)).tolist()


def with_one_hot(tokens, dE, A, dZ):
    V = len(dZ)
    flat = [array.reshape(len(array), -1) for array in (mp.one_hot(tokens, V), dE, A, dZ)]
    return flat[0] @ flat[1].T + flat[3] @ flat[2].T


SOLUTIONS = [
    (check_shares, shares),
    (check_shares, with_minus_infinity),
    (check_tied_gradient, tied_gradient),
    (check_tied_gradient, with_one_hot),
    (check_parameters, parameters),
    (check_parameters, lambda V, d, n, T: np.int64(V * (d + 1) + d * (T + 2) + n * d * (12 * d + 13))),
]
test_solutions = are_right(SOLUTIONS)


def test_the_package_has_the_shares_and_the_tied_gradient_of_the_solutions():
    rng = np.random.default_rng(0)
    attention = mp.MultiHeadAttention(4, n_heads=1, causal=True)
    attention.initialize(rng)
    attention.forward(rng.standard_normal((4, 6, 1)))
    Q, K, _, P = attention.kept
    # a few roundings of numbers up to 1
    assert abs(P[0, 0] - shares(Q[0, 0], K[0, 0])).max() < 8 * np.finfo(float).eps

    tokens, dZ = rng.integers(0, 5, (3, 2)), rng.integers(-4, 5, (5, 3, 2)) / 4
    W = rng.integers(-4, 5, (5, 4)) / 4                                           # dyadic: nothing is rounded
    embedding, linear = mp.Embedding(5, 4), mp.Linear(4, 5, W=W, b=np.zeros((5, 1)))
    embedding.W = W
    A = embedding.forward(tokens)
    linear.forward(A)
    dE, dW, _ = linear.backward(dZ)
    both = dW + embedding.backward_weight(dE)[0]
    assert np.array_equal(tied_gradient(tokens, dE, A, dZ), both)
    assert np.array_equal(with_one_hot(tokens, dE, A, dZ), both)


# ---------------------------------------------------------------- typical wrong answers


def scores(Q, K):
    return K.T @ Q / np.sqrt(len(Q))


def softmax(E, axis=0):
    return E / E.sum(axis=axis, keepdims=True)


def strictly(Q, K):
    E = np.triu(np.exp(scores(Q, K)), 1)
    return E / E.sum(axis=0)


SHARES = [
    (lambda Q, K: softmax(np.tril(np.exp(scores(Q, K)))), "You hid the wrong triangle"),
    (lambda Q, K: softmax(np.exp(scores(Q, K))), "The mask is missing"),
    (lambda Q, K: softmax(np.triu(np.exp(scores(Q, K))), axis=1),
     "The softmax runs over the wrong axis: your rows"),
    (lambda Q, K: softmax(np.tril(np.exp(scores(Q, K))), axis=1),
     "the wrong axis, and the wrong triangle is hidden"),
    (lambda Q, K: softmax(np.exp(scores(Q, K)), axis=1), "the wrong axis, and the mask is missing"),
    (lambda Q, K: softmax(np.triu(np.exp(K.T @ Q))), "The division by sqrt(d_h) is missing"),
    (lambda Q, K: softmax(np.triu(np.exp(K.T @ Q / len(Q)))), "You divided by d_h: it is the square root"),
    (lambda Q, K: softmax(np.triu(np.exp(K.T @ Q * np.sqrt(len(Q))))), "You multiplied by sqrt(d_h)"),
    (lambda Q, K: softmax(np.triu(np.exp(K.T @ Q / np.sqrt(Q.shape[1])))), "You divided by sqrt(T)"),
    (lambda Q, K: np.triu(softmax(np.exp(scores(Q, K)))), "You masked after the softmax"),
    (lambda Q, K: softmax(np.exp(np.triu(scores(Q, K)))), "You set hidden scores to 0"),
    (strictly, "Column 0 is not a number"),
    (lambda Q, K: shares(K, Q), "Q and K are exchanged"),
    (lambda Q, K: shares(Q, K).T, "P is turned round: one column for each query"),
    (lambda Q, K: np.triu(scores(Q, K)), "Those are the scores S, masked"),
    (lambda Q, K: np.where(np.triu(np.ones_like(K.T @ Q)), scores(Q, K), -np.inf),
     "Those are the scores S, masked"),
    (lambda Q, K: np.triu(np.exp(scores(Q, K))),
     "The exponentials are not divided by the sum of their column"),
    (lambda Q, K: softmax(np.triu(np.exp(scores(Q, K)) + 1)), "P[0, 1] should be"),
    (lambda Q, K: 2 * shares(Q, K), "The columns of P must add up to 1, yours add up to [2.0, 2.0, 2.0]"),
    (lambda Q, K: shares(Q, K) if len(Q) == 4 else softmax(np.triu(np.exp(K.T @ Q / 2))),
     "for d_h = 2 and T = 5"),
    (lambda Q, K: shares(Q, K)[:2], "P has shape (2, 3), but it must have shape (3, 3)"),
    (lambda Q, K: K @ Q, "The shapes are Q (4, 3), K (4, 3)."),
]


def part_of_embedding(tokens, dE, dZ):
    return mp.one_hot(tokens, len(dZ)).reshape(len(dZ), -1) @ dE.reshape(len(dE), -1).T


def part_of_linear(A, dZ):
    return np.einsum("vtk,itk->vi", dZ, A)


def repeated_once(tokens, dE, A, dZ):
    dW = part_of_linear(A, dZ)
    dW[tokens] += np.moveaxis(dE, 0, -1)
    return dW


def assigned(tokens, dE, A, dZ):
    dW = np.zeros((len(dZ), len(dE)))
    dW[tokens] = np.moveaxis(dE, 0, -1)
    return dW


def mean_over_places(tokens, dE, A, dZ):
    counts = np.maximum(np.bincount(tokens.ravel(), minlength=len(dZ)), 1)[:, None]
    return part_of_embedding(tokens, dE, dZ) / counts + part_of_linear(A, dZ)


TIED = [
    (lambda tokens, dE, A, dZ: part_of_embedding(tokens, dE, dZ), "That is the Embedding's part only"),
    (lambda tokens, dE, A, dZ: part_of_linear(A, dZ), "That is the last Linear's part only"),
    (lambda *a: tied_gradient(*a) / 2, "That is the mean of the two parts"),
    (lambda tokens, dE, A, dZ: part_of_embedding(tokens, dE, dZ) - part_of_linear(A, dZ),
     "The parts are subtracted"),
    (lambda tokens, dE, A, dZ: part_of_linear(A, dZ) - part_of_embedding(tokens, dE, dZ),
     "The parts are subtracted"),
    (repeated_once, "counts only once: `dW[tokens] += ...` keeps the last one"),
    (assigned, "And the last Linear's part is missing"),
    (mean_over_places, "The Embedding's part is a mean over the places of a token"),
    (lambda tokens, *a: tied_gradient(tokens, *a) / tokens.shape[1], "Did you divide by m?"),
    (lambda tokens, *a: tied_gradient(tokens, *a) / tokens.size, "Did you divide by T m?"),
    (lambda *a: tied_gradient(*a).T, "dW has shape (2, 4), turned round"),
    (lambda *a: tied_gradient(*a) + 1, "dW should be [["),
    (lambda *a: tied_gradient(*a)[:-1], "dW has shape (3, 2), but it must have shape (4, 2)"),
    (lambda tokens, dE, A, dZ: dZ @ A.T, "Your function stopped with ValueError"),
    (lambda tokens, dE, A, dZ: dZ @ A.T, "The shapes are tokens (3, 4), dE (2, 3, 4)"),
]


def without(missing):
    """The right number of parameters, less `missing(V, d, n, T)`."""
    return lambda V, d, n, T: parameters(V, d, n, T) - missing(V, d, n, T)


PARAMETERS = [
    (lambda V, d, n, T: n * (12 * d**2 + 13 * d), "Those are the blocks alone"),
    (without(lambda V, d, n, T: -V * d), "The shared W is counted twice: Embedding"),
    (without(lambda V, d, n, T: V), "The b of the last Linear is missing"),
    (without(lambda V, d, n, T: V - V * d), "The shared W is counted twice, and the b"),
    (without(lambda V, d, n, T: d * T), "The positions are missing"),
    (without(lambda V, d, n, T: 2 * d), "The last LayerNorm is missing"),
    (without(lambda V, d, n, T: d), "The last LayerNorm has a scale and a shift"),
    (without(lambda V, d, n, T: n * 13 * d), "In the blocks only the products are counted"),
    (without(lambda V, d, n, T: n * 4 * d), "The two LayerNorms of each block are missing"),
    (without(lambda V, d, n, T: n * (d**2 + d)), "Attention has four Linear, not three"),
    (without(lambda V, d, n, T: n * 4 * (d**2 + d)), "The attention of the blocks is missing"),
    (without(lambda V, d, n, T: n * (8 * d**2 + 5 * d)), "The MLP of the blocks is missing"),
    (without(lambda V, d, n, T: (n - 1) * (12 * d**2 + 13 * d)), "That has one block"),
    (without(lambda V, d, n, T: 1),
     "With V = 65, d = 64, n_blocks = 2, T = 32 the count is 106369, yours is 106368."),
    (lambda V, d, n, T: 106369,
     "Right for some numbers, but not for all. With V = 5, d = 4, n_blocks = 1, T = 3"),
    (106369, "Pass the function itself"),
]
# not of the checker
of_an_answer = pytest.mark.filterwarnings("ignore:invalid value encountered in divide:RuntimeWarning")
test_mistakes = of_an_answer(are_named(of_each(CHECKERS, (SHARES, TIED, PARAMETERS))))
test_junk = are_refused(CHECKERS, [
    lambda *a: np.full((3, 3), np.nan), lambda *a: np.full((4, 2), np.inf),
    lambda *a: np.full((3, 3), np.inf),
    lambda *a: np.full((3, 3), object()), lambda *a: np.full((3, 3), 1 / 3),
])


# ---------------------------------------------------------------- pictures


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_shares_are_dark_where_they_are_large_and_hatched_where_they_are_hidden(ax):
    P = np.array([[1.0, 0.25, 0.2], [0.0, 0.75, 0.3], [0.0, 0.0, 0.5]])
    pictures.shares(ax, P, names="abc", title="title", largest=0.8)
    assert np.array_equal(ax.images[0].get_array(), P) and ax.images[0].get_clim() == (0, 0.8)
    hidden = {(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in ax.patches}
    assert hidden == {(0, 1), (0, 2), (1, 2)} and all(patch.get_hatch() for patch in ax.patches)
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert (texts[0, 0], texts[1, 0], texts[0, 2]) == ("1", "0.25", "0") and len(texts) == 9
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b",
                                                                    "c"] and ax.get_title() == "title"
    assert ax.get_xlabel().startswith("query") and ax.get_ylabel().startswith("key")


def test_large_shares_have_no_numbers_written_in(ax):
    pictures.shares(ax, np.eye(6))
    assert not ax.texts and [label.get_text() for label in ax.get_yticklabels()] == list("012345")


def test_a_sampled_text_is_darker_where_it_was_more_probable(ax):
    pictures.sampled(ax, "a b\n$", [0.1, 0.9, 0.5, 0.2, 0.0], per_line=3)
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert texts == {(0, 0): "a", (1, 0): "\u00b7", (2, 0): "b", (0, 1): "\u21b5", (1, 1): "$"}
    brightness = [sum(patch.get_facecolor()[:3]) for patch in ax.patches]
    assert np.argsort(brightness).tolist() == [1, 2, 3, 0, 4]
    assert [text.get_color() for text in ax.texts] == ["black", "white", "black", "black", "black"]
    ax.figure.canvas.draw()                           # a lone $ begins no formula


def test_messages_are_arrows_from_sender_to_receiver(ax):
    layers = [mp.Linear(2, 2), mp.Fork("a"), mp.Tanh(), mp.Join("a"), mp.Linear(2, 2)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 2, partition=[2, 1, 2], link=mp.Link(latency=1))
    pipe.forward_backward(np.ones((2, 2)), np.ones((2, 2)))
    pictures.messages(ax, pipe.trace, {" a": "detour"})
    arrows = {(*note.xyann, *note.xy) for note in ax.texts if note.get_text() == ""}
    detours = [message for message in pipe.trace.messages if str(message.label).endswith(" a")]
    assert arrows == {(message.sent, message.source, message.arrived, message.to) for message in detours}
    assert [(message.source, message.to) for message in detours] == [(0, 2), (0, 2), (2, 0), (2, 0)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["detour"]
    assert to_hex(ax.get_legend().get_lines()[0].get_color()) == to_hex(pictures.COLOURS[0])


def test_a_simulated_schedule_has_no_named_messages(ax):
    pictures.messages(ax, mp.simulate(gpipe(2, 2)), {" a": "detour"})
    assert not [note for note in ax.texts if note.get_text() == ""]
