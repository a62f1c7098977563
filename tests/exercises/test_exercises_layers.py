"""Exercises about layers, in notebooks 13 to 22: other solutions than the notebooks', and what the checkers
say to typical wrong answers.
"""

from notebooks.checkers import are_named, are_right, edits, judge_of

CONV_BACKWARD, UNFOLD, RECEPTIVE_FIELD = map(judge_of, ("conv_backward", "unfold", "receptive_field"))
# loops over the kernel only; lists instead of arrays; db as an array without axes
WITH_SLICES = """
def conv_backward(dZ, w, A_prev, stride):
    places = [slice(i, i + (len(dZ) - 1) * stride + 1, stride) for i in range(len(w))]
    dA_prev = np.zeros_like(A_prev)
    for i, here in enumerate(places):
        dA_prev[here] += w[i] * dZ
    return [dA_prev.tolist(), [(dZ * A_prev[here]).sum() for here in places], np.array(dZ.sum())]
"""
WITH_LOOPS = """
def unfold(A, k):
    C, L, m = A.shape
    return [[A[c, p + i, j] for p in range(L - k + 1) for j in range(m)] for c in range(C) for i in range(k)]
"""

BACK_FROM_THE_OUTPUT = """
def receptive_field(layers):
    width = 1
    for k, s, d in reversed(layers):
        width = (width - 1) * s + (k - 1) * d + 1
    return width
"""


MAX_POOL, BY_FORWARD = judge_of("max_pool_backward"), judge_of("backward_by_forward")
# without NumPy's argmax; lists instead of an array
BY_HAND = """
def max_pool_backward(dA, A_prev, size, stride):
    dA_prev = [[0.0] * A_prev.shape[1] for _ in A_prev]
    for (p, q), da in np.ndenumerate(dA):
        best = p * stride, q * stride
        for i in range(size):
            for j in range(size):
                here = p * stride + i, q * stride + j
                if A_prev[here] > A_prev[best]:
                    best = here
        dA_prev[best[0]][best[1]] += da
    return dA_prev
"""
WINDOW_BY_WINDOW = """
def backward_by_forward(dZ, W):
    O, C, k, l = W.shape
    dA_prev = np.zeros((C, dZ.shape[1] + k - 1, dZ.shape[2] + l - 1, dZ.shape[3]))
    for o, p, q in np.ndindex(dZ.shape[:3]):
        dA_prev[:, p:p + k, q:q + l] += W[o][..., None] * dZ[o, p, q]
    return dA_prev
"""


PUT_TOGETHER, MASKS = judge_of("put_together"), judge_of("masks")
BY_SQUARES = """
def put_together(sizes, means, variances):
    weights = np.array(sizes) / sum(sizes)
    mean = weights @ means
    return [mean, weights @ (np.array(variances) + np.array(means) ** 2) - mean ** 2]
"""
SKIPPED = """
def masks(key, first, m, n, p):
    rng = np.random.default_rng(key)
    rng.random((first, n))
    return (rng.random((m, n)) > p).T.tolist()
"""


SHARES, ATTENTION = judge_of("shares"), judge_of("attention_backward")
WITH_MINUS_INFINITY = """
def shares(Q, K):
    S = K.T @ Q / len(Q) ** 0.5
    S[np.tril_indices(len(S), -1)] = -np.inf
    E = np.exp(S - S.max(axis=0))
    return (E / E.sum(axis=0)).tolist()
"""
COLUMN_BY_COLUMN = """
def attention_backward(dO, Q, K, V, P):
    scale = len(Q) ** 0.5
    dS = np.zeros_like(P)
    for t, p in enumerate(P.T):
        jacobian = np.diag(p) - np.outer(p, p)
        dS[:, t] = jacobian @ (V.T @ dO[:, t])
    return [K @ dS / scale, Q @ dS.T / scale, dO @ P.T]
"""


test_solutions = are_right({
    CONV_BACKWARD: [WITH_SLICES],
    UNFOLD: [WITH_LOOPS],
    RECEPTIVE_FIELD: [BACK_FROM_THE_OUTPUT],
    MAX_POOL: [BY_HAND],
    BY_FORWARD: [WINDOW_BY_WINDOW],
    PUT_TOGETHER: [BY_SQUARES],
    MASKS: [SKIPPED],
    SHARES: [WITH_MINUS_INFINITY],
    ATTENTION: [COLUMN_BY_COLUMN],
})


test_mistakes = are_named({
    CONV_BACKWARD: edits(
        WITH_SLICES,
        ("+= w[i] * dZ", "= w[i] * dZ", "keeps one window's term only"),
        ("w[i] * dZ", "w[-1 - i] * dZ", "turns the kernel round once too often"),
        ("+ 1, stride)", "+ 1, 1)", "`conv_backward` stopped with ValueError"),
        ("dZ.sum()", "dZ.sum(axis=1)", "db, with n = 8, k = 5 and stride 1: yours has shape (4,)"),
        ("[dA_prev.tolist(), ", "[", "values that conv_backward returns: yours is 2, it must be 3"),
    ),
    UNFOLD: edits(
        WITH_LOOPS,
        ("for c in range(C) for i in range(k)", "for i in range(k) for c in range(C)", "entry by entry"),
        ("L - k + 1", "L - k", "Your last window is missing"),
        ("for p in range(L - k + 1) for j in range(m)", "for j in range(m) for p in range(L - k + 1)",
         "Your columns go sample by sample"),
        ("p + i, j]", "p, j]", "unfold(A, 3) for A of shape (1, 5, 1): yours is"),
    ),
    RECEPTIVE_FIELD: edits(
        BACK_FROM_THE_OUTPUT,
        (" * d", "", "Your dilations count nowhere"),
        ("(width - 1) * s", "width - 1", "Your strides count nowhere"),
        ("(k - 1) * d", "k * d - 1", "Your kernel covers too much"),
        ("reversed(layers)", "layers", "receptive_field(layers=[(3, 2, 1), (3, 1, 2)]): yours is 7, it must"),
    ),
    MAX_POOL: edits(
        BY_HAND,
        ("A_prev[here] > A_prev[best]", "A_prev[here] >= A_prev[best]", "Of equal numbers, your last one"),
        ("+= da", "= da", "overwritten where windows share"),
        ("+= da", "-= da", "dA_prev with all numbers different: yours is [[0, -4.75, 0,"),
        ("return dA_prev", "return np.transpose(dA_prev)", "yours has shape (6, 4), it must be (4, 6)"),
    ),
    BY_FORWARD: edits(
        WINDOW_BY_WINDOW,
        ("W[o]", "W[o, :, ::-1, ::-1]", "Your kernels are not turned"),
        ("+=", "=", "dA_prev, with W (2, 2, 3, 3) and dZ (2, 3, 4, 1): yours is"),
        ("return dA_prev", "return dZ", "yours has shape (2, 3, 4, 1), it must be (2, 5, 6, 1)"),
    ),
    PUT_TOGETHER: edits(
        BY_SQUARES,
        (" + np.array(means) ** 2", "", "var, with sizes [2, 2], means [2.0, 7.0]"),
        ("np.array(sizes) / sum(sizes)", "np.ones(len(sizes)) / len(sizes)", "micro-batches count alike"),
        ("return [mean, ", "return [[mean], ", "mean, with sizes [2, 2], means [2.0, 7.0] and"),
        ("[mean, weights", "[weights", "values that put_together returns: yours is 1, it must be 2"),
    ),
    MASKS: edits(
        SKIPPED,
        ("    rng.random((first, n))\n", "", "Your samples are counted from the start of the micro-batch"),
        ("default_rng(key)", "default_rng(0)", "Your key counts nowhere"),
        ("> p", "<= p", "Your mask is turned round"),
        ("default_rng(key)", "default_rng()", "Your dice fall differently each time"),
        ("(rng.random((m, n)) > p).T", "np.tile(rng.random(n) > p, (m, 1)).T", "one mask"),
    ),
    SHARES: edits(
        WITH_MINUS_INFINITY,
        ("-np.inf", "0", "e^0 = 1: a hidden place still gets a share"),
        ("(len(S), -1)", "(len(S))", "Your mask hides j = t, too"),
        ("len(Q) ** 0.5", "2", "P, with d_h = 2 and T = 5: yours is"),
        ("E.sum(axis=0)).tolist", "E.sum(axis=0)).T.tolist", "Your P is turned round"),
        ("tril_indices(len(S), -1)", "triu_indices(len(S), 1)", "You hide the wrong triangle"),
        ("K.T @ Q", "K @ Q", "`shares` stopped with ValueError"),
    ),
    ATTENTION: edits(
        COLUMN_BY_COLUMN,
        ("np.diag(p) - np.outer(p, p)", "np.diag(p)", "the others of its column shrink"),
        ("np.diag(p) - np.outer(p, p)", "np.outer(p, p) - np.diag(p)", "Your dS has the wrong sign"),
        ("len(Q) ** 0.5", "len(Q)", "You divide by d_h"),
        ("len(Q) ** 0.5", "1", "Your division by the root of d_h is missing"),
        ("K @ dS /", "K @ dS.T /", "In your dQ, dS is turned round"),
        ("Q @ dS.T", "Q @ dS", "In your dK, dS is not turned round"),
        ("[K @ dS / scale, ", "[", "values that attention_backward returns: yours is 2, it must be 3"),
    ),
})
