"""Transformers that continue a text."""

from ..checks import whole_number
from ..layers import Dropout, Embedding, LayerNorm, Linear, PositionalEmbedding, TransformerBlock, xavier


def transformer(n_tokens, d, n_heads, n_layers, n_places=None, n_hidden=None, tied=False, dropout=0):
    """A decoder: from tokens (T, m) to logits (n_tokens, T, m) for the token that comes next.

    n_tokens: how many tokens there are; they are whole numbers below that.
    d: features of a position.
    n_heads: heads of each attention.
    n_layers: the number of blocks.
    n_places: the longest sequence that `PositionalEmbedding` knows; None leaves it out, for sequences of any
        length T.
    n_hidden: of the blocks; 4 d if None.
    tied: whether the Embedding and the last Linear share one W, by tie="tokens".
    dropout: the probability of 0, in the blocks and behind the embeddings.

        Embedding(n_tokens, d)
        PositionalEmbedding(d, n_places)
        n_layers of TransformerBlock         causal: a position sees itself and those before it
        LayerNorm(d)
        Linear(d, n_tokens)

    The labels, one-hot (n_tokens, T, m), are the tokens one position on; the loss is `SoftmaxCrossEntropy`.

    With V tokens, n_hidden = 4 d, no PositionalEmbedding and untied, there are n_layers (12 d^2 + 13 d) + 2
    V d + V + 2 d parameters, which gives all five sizes in table 1 of Huang et al. 2018, arXiv 1811.06965,
    with d = 2048 and V = 32,000.

    Sources: Vaswani et al. 2017, arXiv 1706.03762; Radford et al. 2019, "Language models are
    unsupervised multitask learners", for the LayerNorm at the end; Press and Wolf 2016, arXiv 1608.05859,
    for the shared W.

    >>> transformer(100, 16, n_heads=4, n_layers=1)     # doctest: +NORMALIZE_WHITESPACE
    [Embedding(100, 16), TransformerBlock(16, 4, causal=True), LayerNorm(16),
     Linear(16, 100, initialization=xavier)]
    """
    n_layers = whole_number("n_layers", n_layers, 1)
    tie = "tokens" if tied else None
    layers = [Embedding(n_tokens, d, tie)]
    if n_places is not None:
        layers.append(PositionalEmbedding(d, n_places))
    if dropout:
        layers.append(Dropout(dropout))
    layers += [TransformerBlock(d, n_heads, n_hidden, causal=True, dropout=dropout) for _ in range(n_layers)]
    return [*layers, LayerNorm(d), Linear(d, n_tokens, xavier, tie=tie)]
