"""Solution of the exercise about attention's way back in notebook 17, and what its checker says to typical
wrong answers.
"""

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.transformer import check_attention_backward

CHECKERS = [check_attention_backward]
backward = solutions("17").attention_backward


def derived(dO, Q, K, V, P, of_dP=lambda P, dP: P * (dP - (dP * P).sum(axis=0)), scale=2, part="dQ"):
    """The right answer with another softmax's derivative, another scale or another product."""
    dS = of_dP(P, V.T @ dO) / scale
    return (K @ dS.T if part == "turned" else K @ dS), Q @ dS.T, dO @ P.T


def changed(**how):
    return lambda *arrays: derived(*arrays, **how)


test_solutions = are_right([(check_attention_backward, backward), (check_attention_backward, derived)])
test_stubs = are_not_solved_yet([(check_attention_backward, lambda dO, Q, K, V, P: (None, None, dO @ P.T))])
test_mistakes = are_named([(check_attention_backward, *pair) for pair in [
    (lambda dO, Q, K, V, P: (Q, K, dO @ P), "it is turned round, dO P^T"),
    (lambda dO, Q, K, V, P: (Q, K, V), "dV[0, 0] should be"),
    (changed(scale=1), "dQ is wrong. The division by sqrt(d_h) is missing"),
    (changed(scale=4), "You divided by d_h"),
    (changed(part="turned"), "dS is turned round"),
    (changed(of_dP=lambda P, dP: P * dP), "the others of its column shrink"),
    (changed(of_dP=lambda P, dP: P * (dP - (dP * P).sum(axis=1, keepdims=True))), "runs along the rows"),
    (changed(of_dP=lambda P, dP: P * (dP - dP.sum(axis=0))), "not of dP alone"),
    (changed(of_dP=lambda P, dP: dP), "dQ[0, 0] should be"),
    (lambda dO, Q, K, V, P: (derived(dO, Q, K, V, P)[0], K, dO @ P.T), "dK[0, 0] should be"),
    (lambda dO, Q, K, V, P: dO @ P.T, "Return three things"),
    (lambda dO, Q, K, V, P: (Q.T, K, dO @ P.T), "dQ has shape (3, 4), but it must have shape (4, 3)"),
    (lambda dO, Q, K, V, P: dO @ Q, "All are (4, 3), but P (3, 3)."),
]])


def test_the_package_has_the_derivatives_of_the_solution():
    """With W_q = W_k = W_v = W_o = 1 and one head, Q, K and V are A_prev, and dA_prev is the sum."""
    rng = np.random.default_rng(0)
    attention = mp.MultiHeadAttention(4, n_heads=1, causal=True)
    attention.initialize(rng)
    for layer in attention.layers:
        layer.W = np.eye(4)
    A_prev, dA = rng.integers(-4, 5, (2, 4, 6)) / 2
    attention.forward(A_prev[:, :, None])
    Q, K, V, P = (kept[0, 0] for kept in attention.kept)
    dA_prev = attention.backward(dA[:, :, None])[0][:, :, 0]
    # sums of 20 numbers up to 10
    assert np.allclose(sum(backward(dA, Q, K, V, P)), dA_prev, rtol=0, atol=1e-13)
