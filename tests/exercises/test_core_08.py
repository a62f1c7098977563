"""What notebook 08 says to orders and runs that are not written as its solutions are, right and wrong."""

import pytest

from exercises.judging import judged, part_named

GPIPE, RUN = part_named("gpipe"), part_named("run")


def gpipe(body):
    return f"def gpipe(device, K, M):\n    {body}\n"


WRONG_GPIPE = {
    "gpipe-fifo": gpipe("return [(kind, i) for kind in 'FB' for i in range(M)]"),
    "begin with the last micro-batch": gpipe("return [(kind, M - 1 - i) for kind in 'FB' for i in range(M)]"),
    "forwards by K": gpipe("return [('F', i) for i in range(K)] + [('B', M - i - 1) for i in range(M)]"),
    "the naive order": gpipe("return sum(([('F', i), ('B', i)] for i in range(M)), [])"),
    "You list all devices": gpipe("return [(k, i) for d in range(K) for k, s in (('F', 1), ('B', -1)) "
                                  "for i in range(M)[::s]]"),
    "One backward is missing": gpipe("return [('F', i) for i in range(M)]"
                                     " + [('B', i) for i in range(M - 2, -1, -1)]"),
    "yours is F1": gpipe("return [('F', i + 1) for i in range(M)] + [('B', M - i) for i in range(M)]"),
    "returns nothing": gpipe("x = [('F', i) for i in range(M)]"),
}

BY_TICK = """def run(layers, X, Y, K, M, schedule, m=None, recompute=False):
    if m is None:
        m = X.shape[1]
    cuts = np.array_split(np.arange(len(layers)), K)
    stages = [Stage([layers[k] for k in cut], recompute={recompute}) for cut in cuts]
    actions = clock([schedule(d, K, M) for d in range(K)], {{"F": 1, "B": 2}})
    up, down, total = dict(enumerate(micro_batches(X, M))), {{}}, {start}
    labels = micro_batches(Y, M)
    for d, kind, i, *_ in actions:
        if kind == "F":
            A = stages[d].forward(i, up[i])
            up[i] = {sent}
            if d == {last}:
                J, down[i] = cost(up[i], labels[{label}], {size})
                total {add}= J
        else:
            down[i] = stages[d].backward(i, down[i])
    return total{share}, stages, actions
"""
RULES = {"recompute": "recompute", "start": "0", "sent": "A", "last": "K - 1", "label": "i", "size": "m",
         "add": "+", "share": ""}
WRONG_RUNS = {
    "the micro-batch's own m": {"size": "labels[i].shape[1]"},
    "take m from X": {"size": "X.shape[1]"},
    "that of the last micro-batch alone": {"add": ""},
    "the labels of the first one": {"label": "0"},
    "without any backward: J: yours is": {"last": "0"},
    "not told to recompute": {"recompute": "False"},
    "divide J by M": {"share": " / M"},
    "it must be": {"start": "1"},
}


@pytest.mark.parametrize("code", [
    gpipe("return [('F', i) for i in range(M)] + [('B', M - 1 - i) for i in range(M)]"),
    gpipe("up = [('F', i) for i in range(M)]; return up + [('B', i) for _, i in up[::-1]]"),
])
def test_other_right_orders(code):
    assert judged(GPIPE, code) == f"Right: {GPIPE.right}"


def test_a_run_with_two_dictionaries_is_right():
    assert judged(RUN, BY_TICK.format(**RULES)) == f"Right: {RUN.right}"


@pytest.mark.parametrize("words", WRONG_GPIPE)
def test_wrong_orders_are_named(words):
    assert words in judged(GPIPE, WRONG_GPIPE[words])


@pytest.mark.parametrize("words", WRONG_RUNS)
def test_wrong_runs_are_named(words):
    assert words in judged(RUN, BY_TICK.format(**RULES | WRONG_RUNS[words]))
