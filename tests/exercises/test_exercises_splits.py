"""What judges say to answers about many devices, notebooks 23 to 27: other right ones, and mistakes."""

import numpy as np
from notebooks.checkers import are_named, are_right, edits, judge_of

import minipipe as mp
from exercises import split_pictures
from exercises.folds import solution
from minipipe.collectives import all_reduce_ticks

GATHER, PACKED, END = map(judge_of, ("all_gather", "rows_of_packed", "end"))
TO_ALL = """
def all_gather(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range(1, group.size):
        yield group.send(group.rank + step, "part", part)
    for step in range(1, group.size):
        parts[group.rank - step] = yield group.receive(group.rank - step, "part")
    return parts
"""
NEWEST_FIRST = """
def all_gather(group, part):
    parts = [part]
    while len(parts) < group.size:
        yield group.send(group.rank + 1, len(parts), parts[0])
        parts.insert(0, (yield group.receive(group.rank - 1, len(parts))))
    return [parts[(rank - group.rank - 1) % group.size] for rank in range(group.size)]
"""
ALL_THAT_IT_HAS = """
def all_gather(group, part):
    parts = {group.rank: part}
    for step in range(group.size - 1):
        yield group.send(group.rank + 1, step, parts)
        parts |= yield group.receive(group.rank - 1, step)
    return [parts[rank] for rank in range(group.size)]
"""
AS_ARRAY = """
def rows_of_packed(d, T, rank):
    return np.arange(3 * d).reshape(3, T, d // T)[:, rank].ravel()
"""
FROM_EACH_ON = """
def end(ready, c):
    return max(start + sum(c[k:]) for k, start in enumerate(ready))
"""

test_solutions = are_right({GATHER: [NEWEST_FIRST], PACKED: [AS_ARRAY], END: [FROM_EACH_ON]})
test_mistakes = are_named({
    GATHER: [
        ("def all_gather(group, part):\n    return [part]", "Without `yield` nothing travels"),
        (TO_ALL, "Whether all 3 ranks send to the next one alone: yours is False"),
        (ALL_THAT_IT_HAS, "The bytes that 3 ranks send: yours is 216, it must be 144."),
        *edits(
            solution(24, "all_gather"),
            ("part = yield", "new = yield", "Send on what came"),
            ("return parts", "return parts[::-1]", "What rank 0 of 2 returns: yours is"),
            ("group.size - 1", "group.size", "The bytes that 2 ranks send: yours is 96, it must be 48"),
            ("+ 1, step", "+ 0, step", "stopped with DeadlockError: deadlock: device 0 waits for 0 from"),
            ("parts[group.rank] = part", "1 / 0", "`all_gather` stopped with ZeroDivisionError"),
        ),
    ],
    PACKED: [
        *edits(
            AS_ARRAY,
            (".ravel()", ".ravel()[::-1]", "rows_of_packed(d=4, T=2, rank=0): yours is [9, 8, 5, 4, 1, 0]"),
            ("[:, rank].ravel()", "[0, rank]", "Those are its rows of q"),
            ("[:, rank].ravel()", "[:, rank].T.ravel()", "but in another order"),
            ("[:, rank]", "[:, 0]", "rows_of_packed(d=4, T=2, rank=1): yours is [0, 1, 4, 5, 8, 9]"),
        ),
        ("def rows_of_packed(d, T, rank):\n    return 3", "yours is 3, it must be [0, 1, 4, 5, 8, 9]"),
    ],
    END: edits(
        FROM_EACH_ON,
        ("sum(c[k:])", "c[k]", "run at the same time"),
        ("sum(c[k:])", "1", "end(ready=[2, 4, 6, 8], c=[3, 3, 3, 3]): yours is 9, it must be 14."),
    ),
})


def test_formulas_of_memory_and_of_a_ring_are_what_runs_count():
    names = {}
    exec(solution(23, "held") + solution(24, "ring_ticks"), names)
    for K, M, b, L, hidden in ((4, 8, 2, 12, 6), (5, 9, 1, 10, 4), (4, 2, 3, 8, 3), (6, 7, 2, 6, 5)):
        layers = [mp.Chain(mp.Linear(2, hidden), mp.Linear(hidden, 2)) for _ in range(L)]
        net = mp.Pipeline(layers, mp.MeanSquaredError(), K, M, recompute="always", count_bytes=True)
        net.forward_backward(np.ones((2, M * b)), np.ones((2, M * b)))
        counted = net.trace.peak_bytes(["stashed inputs", "caches"])[:K - 1]
        assert [names["held"](K, M, r, b, L, 16, 8 * (2 + hidden)) for r in range(K - 1)] == list(counted)
    for case in ((4, 1024, 100, 1 / 16), (8, 4096, 100, 1 / 16), (3, 30, 7, 1), (1, 8, 5, 1)):
        assert names["ring_ticks"](*case) == all_reduce_ticks("ring", *case)


def test_ledgers_are_drawn_on_one_scale_below_one_limit():
    layers = [mp.Linear(8, 8) for _ in range(4)]
    runs = {}
    for name in ("gpipe", "1f1b"):
        net = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 6, schedule=name, count_bytes=True)
        net.forward_backward(np.ones((8, 24)), np.ones((8, 24)))
        runs[name] = net.trace
    figure = split_pictures.ledgers(runs, 2048)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes] == ["gpipe", "1f1b"]
    assert [set(ax.lines[-1].get_ydata()) for ax in figure.axes] == [{2}, {2}]
    left, right = (ax.get_ylim() for ax in figure.axes)
    assert left == right and left[1] >= max(run.peak_bytes()[0] for run in runs.values()) / 1024
    assert {"caches", "parameters"} <= {text.get_text() for text in figure.legends[0].texts}


def test_f_and_g_are_drawn_as_mirrors():
    """One of them adds forward and the other backward; what is whole stands once, what is not, twice."""
    one, two = np.array([[1.0]]), [np.array([[2.0]]), np.array([[-3.0]])]
    texts = [[text.get_text() for text in ax.texts] for ax in
             split_pictures.mirrors([one, two, two, one], [one, two, two, one]).axes]
    signs = [[text.split("\n") for text in found if text.startswith(("$f$", "$g$"))] for found in texts]
    assert signs == [[["$f$", "copy"], ["$g$", "sum"]], [["$f$", "sum"], ["$g$", "copy"]]]
    assert [[found.count(f"{number:2d}") for number in (1, 2, -3)] for found in texts] == [[2, 2, 2]] * 2


def test_lines_of_a_numbering_join_the_devices_of_a_group():
    """An axis that crosses the nodes is bent, over the gap between them."""
    groups = {"tp": [[0, 1], [2, 3]], "dp": [[0, 2], [1, 3]], "pp": []}
    ax = split_pictures.nodes({"tp-dp": groups}, 2).axes[0]
    lines = [(text.xy, text.xyann, text.arrowprops) for text in ax.texts if text.get_text() == ""]
    drawn = {(one, other): (arrow["color"], arrow["connectionstyle"]) for other, one, arrow in lines}
    tp, dp = split_pictures.AXES["tp"], split_pictures.AXES["dp"]
    assert drawn == {((0, 0), (1, 0)): (tp, "arc3,rad=0"), ((2.6, 0), (3.6, 0)): (tp, "arc3,rad=0"),
                     ((0, 0), (2.6, 0)): (dp, "arc3,rad=-0.35"), ((1, 0), (3.6, 0)): (dp, "arc3,rad=-0.35")}
