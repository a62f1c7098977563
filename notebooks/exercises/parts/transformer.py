"""What notebooks 17 and 18 ask for: attention, forward and backward; a shared W, and how many parameters."""

import numpy as np

from ..judging import Part, calls
from .convolution import as_array
from .layers import how_many


def of_shares(my):
    """Yield P of heads that are higher than wide, and wider than high."""
    rng = np.random.default_rng(8)
    for d_h, T in ((4, 3), (2, 5)):
        Q, K = (rng.integers(-4, 5, (d_h, T)) / 2 for _ in range(2))
        P = as_array(my.shares(Q, K))
        yield f"P, with d_h = {d_h} and T = {T}", P
        yield f"The sums of its columns, with d_h = {d_h} and T = {T}", P.sum(axis=0)


def of_attention_backward(my):
    """Yield dQ, dK and dV of two heads."""
    rng = np.random.default_rng(10)
    for d_h, T in ((4, 3), (2, 5)):
        dO, Q, K, V = (rng.integers(-4, 5, (d_h, T)) / 2 for _ in range(4))
        E = np.triu(np.exp(K.T @ Q / np.sqrt(d_h)))
        handed = my.attention_backward(dO, Q, K, V, E / E.sum(axis=0))
        yield "The number of values that attention_backward returns", how_many(handed)
        for name, value in zip(("dQ", "dK", "dV"), handed):
            yield f"{name}, with d_h = {d_h} and T = {T}", as_array(value)


EXPONENTIALS, SHARES = "np.triu(np.exp(K.T @ Q / np.sqrt(len(Q))))", "E / E.sum(axis=0)"
BLAME = "dS = P * (dP - (P * dP).sum(axis=0)) / np.sqrt(len(Q))"
PRODUCTS, RETURNED = "dV, dP = dO @ P.T, V.T @ dO", "return K @ dS, Q @ dS.T, dV"

SHARES_MISTAKES = [
    (EXPONENTIALS, EXPONENTIALS.replace("triu", "tril"),
     "You hide the wrong triangle: row j is the key, column t the query, and the future is j > t."),
    (EXPONENTIALS, "np.exp(K.T @ Q / np.sqrt(len(Q)))", "Your mask is missing: P[j, t] must be 0 for j > t."),
    (EXPONENTIALS, EXPONENTIALS.replace("np.exp(K.T @ Q / np.sqrt(len(Q)))",
     "np.exp(K.T @ Q / np.sqrt(len(Q))), 1"), "Your mask hides j = t, too. A place sees itself."),
    (SHARES, "E / E.sum(axis=1, keepdims=True)", "Your rows add up to 1. Each query is a column."),
    (SHARES, "E / E.sum(axis=1)", "You add up the rows of E: each query is a column, so take axis=0."),
    (EXPONENTIALS, "np.triu(np.exp(K.T @ Q))", "Your scores are not divided by the root of d_h, Q's rows."),
    (EXPONENTIALS, EXPONENTIALS.replace("np.sqrt(len(Q))", "len(Q)"), "You divide by d_h: take its root."),
    (EXPONENTIALS, EXPONENTIALS.replace("len(Q)", "len(Q[0])"), "Your root is of T: d_h is len(Q)."),
    (f"{EXPONENTIALS}\n    return {SHARES}",
     "np.exp(K.T @ Q / np.sqrt(len(Q)))\n    return np.triu(E / E.sum(axis=0))",
     "You mask after the softmax, so columns no longer add up to 1: mask before you divide."),
    (EXPONENTIALS, "np.exp(np.triu(K.T @ Q / np.sqrt(len(Q))))",
     "Your hidden scores are 0, but e^0 = 1: a hidden place still gets a share. Mask e^S."),
    (EXPONENTIALS, EXPONENTIALS.replace("K.T @ Q", "Q.T @ K"),
     "Your Q and K are exchanged: S[j, t] is how well key j fits query t, K^T Q."),
    (SHARES, "(E / E.sum(axis=0)).T", "Your P is turned round: a column for each query."),
    (SHARES, "np.triu(K.T @ Q / np.sqrt(len(Q)))", "Those are the scores: the softmax is missing."),
    (SHARES, "E", "Your exponentials are not divided by the sum of their column."),
]
ATTENTION_BACKWARD_MISTAKES = [
    (PRODUCTS, "dV, dP = dO @ P, V.T @ dO", "Your dV goes the way that P went forward. Back it is dO P^T."),
    (BLAME, BLAME.replace(" / np.sqrt(len(Q))", ""), "Your division by the root of d_h is missing."),
    (BLAME, BLAME.replace("np.sqrt(len(Q))", "len(Q)"), "You divide by d_h: it is its square root, once."),
    (RETURNED, "return K @ dS, Q @ dS, dV", "In your dK, dS is not turned round: it is keys times queries."),
    (RETURNED, "return K @ dS.T, Q @ dS.T, dV", "In your dQ, dS is turned round: dQ = K dS."),
    (RETURNED, "return Q @ dS, K @ dS.T, dV", "Your Q and K are exchanged: dQ needs K, and dK needs Q."),
    (BLAME, "dS = P * (1 - P) * dP / np.sqrt(len(Q))",
     "In your dS each score acts on its own share alone. It also shrinks the others of its column."),
    (BLAME, "dS = P * dP / np.sqrt(len(Q))",
     "In your dS the sum is missing: a share can grow only if the others of its column shrink."),
    (BLAME, BLAME.replace("sum(axis=0)", "sum(axis=1, keepdims=True)"),
     "The sum in your dS runs along the rows: each column of P is a softmax of its own."),
    (BLAME, BLAME.replace("P * (dP - (P", "P * ((P").replace(".sum(axis=0))", ".sum(axis=0) - dP)"),
     "Your dS has the wrong sign: dP less its mean."),
    (RETURNED, "return dV, K @ dS, Q @ dS.T", "The order is dQ, dK, dV."),
]


def of_tied_gradient(my):
    """Yield dW of two small models; some tokens occur more than once, the last one never."""
    rng = np.random.default_rng(9)
    for V, d, T, m in ((4, 2, 3, 4), (5, 3, 4, 3)):
        tokens = rng.integers(0, V - 1, (T, m))
        dE, A, dZ = (rng.integers(-4, 5, shape) / 2 for shape in ((d, T, m), (d, T, m), (V, T, m)))
        yield f"dW with V = {V}, d = {d}, T = {T}, m = {m}", my.tied_gradient(tokens, dE, A, dZ)


BLOCK, BLOCKS = "12 * d ** 2 + 13 * d", "n_blocks * (12 * d ** 2 + 13 * d)"
COUNT = f"V * d + T * d + {BLOCKS} + 2 * d + V"
LINEAR, ADDED, END = 'np.einsum("vtk,itk->vi", dZ, A)', "dW[tokens[t, k]] += dE[:, t, k]", "return dW"
EMBEDDING = f"    for t, k in np.ndindex(tokens.shape):\n        {ADDED}\n"

TIED_GRADIENT_MISTAKES = [
    (LINEAR, "np.zeros((len(dZ), len(dE)))",
     "That is the Embedding's part alone. W is also the last Linear's, whose dW is dZ A^T: add it."),
    (EMBEDDING, "", "That is the last Linear's part alone. W is also the Embedding's: add it."),
    (END, "return dW / 2", "That is the mean of the two parts. W acts in both places, so they are added."),
    (EMBEDDING, "    dW[tokens.ravel()] += dE.reshape(len(dE), -1).T\n",
     "A token counts only once: `dW[tokens] += ...` keeps the last one. Use np.add.at, or a loop."),
    (ADDED, "dW[tokens[t, k]] = dE[:, t, k]",
     "`=` overwrites what is in the row already: the Linear's part, and other places of this token."),
    (ADDED, "dW[tokens[t, k]] += dE[:, t, k] / (tokens == tokens[t, k]).sum()",
     "The Embedding's part is a mean over the places of a token. It has to be their sum."),
    (END, "return dW / tokens.shape[1]", "Did you divide by m? The loss has done so already."),
    (END, "return dW.T", "dW is turned round: W has a row for each token, (V, d)."),
]
COUNT_PARAMETERS_MISTAKES = [
    (COUNT, BLOCKS, "Those are the blocks alone: the embeddings, the last LayerNorm and b are missing."),
    ("V * d +", "2 * V * d +", "The shared W is counted twice: the two layers have one W between them."),
    (" + V\n", "\n", "The b of the last Linear is missing: it has V numbers, and is not shared."),
    ("T * d + ", "", "The positions are missing: d numbers for each of T places."),
    (" + 2 * d", "", "The last LayerNorm is missing: a scale and a shift for each of d rows."),
    (" + 13 * d", "", "In the blocks only the products are counted: biases and LayerNorms make 13 d more."),
    (BLOCK, "12 * d ** 2 + 10 * d", "The first b of the MLP has 4 d numbers, one for each hidden unit."),
    ("n_blocks * (", "(", "That has one block: multiply its numbers by n_blocks."),
]

PARTS = [
    Part("shares", 17, of_shares, SHARES_MISTAKES,
         "each column adds up to 1, and nothing comes from the future."),
    Part("attention_backward", 17, of_attention_backward, ATTENTION_BACKWARD_MISTAKES,
         "four products and a softmax. Where P is 0, so is dS: nothing comes from the future."),
    Part("tied_gradient", 18, of_tied_gradient, TIED_GRADIENT_MISTAKES,
         "W acts in two places, so its derivative is a sum. In a pipeline, a part of it travels."),
    Part("count_parameters", 18, calls("count_parameters", "V d n_blocks T", [
        (65, 64, 2, 32), (5, 4, 1, 3), (100, 16, 3, 10)]), COUNT_PARAMETERS_MISTAKES,
         "the number of heads does not occur."),
]
