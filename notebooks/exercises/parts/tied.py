"""What notebook 18 asks for: the derivative of a W that two layers share, and a model's parameters."""

import numpy as np

from ..judging import Part, calls


def of_tied_gradient(my):
    """dW of two small models; some tokens occur more than once, the last one never."""
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
    (END, "return dW / tokens.shape[1]",
     "Did you divide by m? A layer never does: the loss has divided already."),
    (END, "return dW.T", "dW is turned round: W has a row for each token, (V, d)."),
]
COUNT_PARAMETERS_MISTAKES = [
    (COUNT, BLOCKS, "Those are the blocks alone: the embeddings, the last LayerNorm and b are missing."),
    ("V * d +", "2 * V * d +", "The shared W is counted twice: the two layers have one W between them."),
    (" + V\n", "\n", "The b of the last Linear is missing: it has V numbers, and is not shared."),
    ("T * d + ", "", "The positions are missing: d numbers for each of T places."),
    (" + 2 * d", "", "The last LayerNorm is missing: a scale and a shift for each of d rows."),
    (" + 13 * d", "", "In the blocks only the products are counted: biases and LayerNorms make 13 d more."),
    ("13 * d", "9 * d", "The two LayerNorms of each block are missing: 4 d numbers."),
    (BLOCK, "11 * d ** 2 + 12 * d",
     "Attention has four Linear, not three: the one after the heads is missing."),
    (BLOCK, "8 * d ** 2 + 9 * d", "The attention of the blocks is missing: 4 (d^2 + d)."),
    (BLOCK, "4 * d ** 2 + 8 * d", "The MLP of the blocks is missing: 8 d^2 + 5 d."),
    ("n_blocks * (", "(", "That has one block: multiply its numbers by n_blocks."),
]

PARTS = [
    Part("tied_gradient", 18, of_tied_gradient, TIED_GRADIENT_MISTAKES,
         "W acts on the cost in two places, so its derivative is a sum. In a pipeline, a part of it "
         "travels."),
    Part("count_parameters", 18, calls("count_parameters", "V d n_blocks T", [
        (65, 64, 2, 32), (5, 4, 1, 3), (100, 16, 3, 10)]), COUNT_PARAMETERS_MISTAKES,
         "the number of heads does not occur."),
]
