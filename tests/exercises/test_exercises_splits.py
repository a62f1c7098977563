"""What checkers say to answers about many devices, notebooks 23 to 27: other right ones, and mistakes."""

import numpy as np
from notebooks.checkers import are_named, are_right

import minipipe as mp
from exercises import layer_split, memory, three_splits
from exercises.layer_split import check_rows_of_packed
from exercises.sums import check_all_gather

ALL_GATHER = """
def all_gather(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range(group.size - 1):
        yield group.send(group.rank + 1, step, part)
        part = yield group.receive(group.rank - 1, step)
        parts[(group.rank - step - 1) % group.size] = part
    return parts
"""


def edited(old, new):
    """The solution with `new` in the place of `old`."""
    assert old in ALL_GATHER
    names = {}
    exec(ALL_GATHER.replace(old, new), names)
    return names["all_gather"]


def gather_by_sending_to_all(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range(1, group.size):
        yield group.send(group.rank + step, "part", part)
    for step in range(1, group.size):
        parts[group.rank - step] = yield group.receive(group.rank - step, "part")
    return parts


def sends_all_that_it_has(group, part):
    parts = {group.rank: part}
    for step in range(group.size - 1):
        yield group.send(group.rank + 1, step, parts)
        parts |= yield group.receive(group.rank - 1, step)
    return [parts[rank] for rank in range(group.size)]


def rows(d, T, rank):
    return np.arange(3 * d).reshape(3, T, d // T)[:, rank].ravel()


test_solutions = are_right({
    check_all_gather: [gather_by_sending_to_all],
    check_rows_of_packed: [rows],
})
test_mistakes = are_named({
    check_all_gather: [
        (lambda group, part: [part], "must `yield` each of its sends and receives"),
        (edited("part = yield", "new = yield"), "rank 0 has a wrong part in place"),
        (edited("(group.rank - step - 1) % group.size", "step"), "rank 0 has nothing in place 1 of its list"),
        (edited("return parts", "return parts[::-1]"), "not in the order of the ranks"),
        (edited("group.size - 1", "group.size"), "With 2 ranks: the ranks send 96 bytes; 48 are enough"),
        (edited("+ 1, step", "+ 0, step"), "nobody can go on: deadlock: device 0 waits for 0 from device 1"),
        (edited("return parts", "return parts[0]"), "rank 0 must return a list of 2 parts"),
        (edited("parts[group.rank] = part", "1 / 0"), "Your program stopped with ZeroDivisionError"),
        (sends_all_that_it_has, "With 3 ranks: the ranks send 216 bytes; 144 are enough"),
    ],
    check_rows_of_packed: [
        (lambda d, T, rank: range(3 * d // T * rank, 3 * d // T * (rank + 1)), "all of q and half of k"),
        (lambda d, T, rank: range(d // T * rank, d // T * (rank + 1)), "Those are its rows of q"),
        (lambda d, T, rank: rows(d, T, rank)[::-1], "but in another order"),
        (lambda d, T, rank: rows(d, T, 0), "With d = 4 and T = 2, device 1 has 6 rows, [2, 3, 6] and so on"),
        (lambda d, T, rank: 3, "Return the numbers of the rows"),
        (lambda d, T, rank: [[0, 1], [4, 5]], "Return the numbers of the rows"),
    ],
})


def test_ledgers_are_drawn_on_one_scale_below_one_limit():
    layers = [mp.Linear(8, 8) for _ in range(4)]
    sizes = mp.footprints(layers, mp.MeanSquaredError(), 2, (8,), 4)
    runs = {name: mp.simulate(mp.schedules.build(name, 2, 6), footprints=sizes) for name in ("gpipe", "1f1b")}
    figure = memory.ledgers(runs, 2048)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes] == ["gpipe", "1f1b"]
    assert [set(ax.lines[-1].get_ydata()) for ax in figure.axes] == [{2}, {2}]
    left, right = (ax.get_ylim() for ax in figure.axes)
    assert left == right and left[1] >= max(run.peak_bytes()[0] for run in runs.values()) / 1024
    assert {"caches", "parameters"} <= {text.get_text() for text in figure.legends[0].texts}


def test_f_and_g_are_drawn_as_mirrors():
    """One of them adds forward and the other backward; what is whole stands once, what is not, twice."""
    one, two = np.array([[1.0]]), [np.array([[2.0]]), np.array([[-3.0]])]
    texts = [[text.get_text() for text in ax.texts] for ax in
             layer_split.mirrors([one, two, two, one], [one, two, two, one]).axes]
    signs = [[text.split("\n") for text in found if text.startswith(("$f$", "$g$"))] for found in texts]
    assert signs == [[["$f$", "copy"], ["$g$", "sum"]], [["$f$", "sum"], ["$g$", "copy"]]]
    assert [[found.count(f"{number:2d}") for number in (1, 2, -3)] for found in texts] == [[2, 2, 2]] * 2


def test_lines_of_a_numbering_join_the_devices_of_a_group():
    """An axis that crosses the nodes is bent, over the gap between them."""
    groups = {"tp": [[0, 1], [2, 3]], "dp": [[0, 2], [1, 3]], "pp": []}
    ax = three_splits.nodes({"tp-dp": groups}, 2).axes[0]
    lines = [(text.xy, text.xyann, text.arrowprops) for text in ax.texts if text.get_text() == ""]
    drawn = {(one, other): (arrow["color"], arrow["connectionstyle"]) for other, one, arrow in lines}
    tp, dp = three_splits.AXES["tp"], three_splits.AXES["dp"]
    assert drawn == {((0, 0), (1, 0)): (tp, "arc3,rad=0"), ((2.6, 0), (3.6, 0)): (tp, "arc3,rad=0"),
                     ((0, 0), (2.6, 0)): (dp, "arc3,rad=-0.35"), ((1, 0), (3.6, 0)): (dp, "arc3,rad=-0.35")}
