"""Solutions of the exercises in notebook 35, and what their checkers say to typical wrong answers; and the
picture of a job on ranks."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions
from engines.jobs import on_ranks

import minipipe as mp
from exercises import real_processes_pictures as pictures
from exercises.real_processes import check_lead, check_speed_up, check_swap

CHECKERS = [check_speed_up, check_lead, check_swap]
notebook = solutions("35")


def listens_first(rank, value):
    if rank == 1:
        yield mp.Send("there", value, to=0)
    theirs = yield mp.Receive("there" if rank == 0 else "back", source=1 - rank)
    if rank == 0:
        yield mp.Send("back", value, to=1)
    return theirs


test_solutions = are_right([
    (check_speed_up, notebook.speed_up), (check_lead, notebook.lead), (check_swap, notebook.swap),
    (check_swap, listens_first),
])


def both_send_first(rank, value):
    yield mp.Send("mine", value, to=1 - rank)
    return (yield mp.Receive("mine", source=1 - rank))


def both_receive_first(rank, value):
    theirs = yield mp.Receive("mine", source=1 - rank)
    yield mp.Send("mine", value, to=1 - rank)
    return theirs


def returns_its_own(rank, value):
    yield mp.Compute("nothing")
    return value


def raises(rank, value):
    yield mp.Compute("nothing")
    return value[7]


test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda K, M: K, "without the bubble"),
        (lambda K, M: M / (M + K - 1), "the share of the time in which one device works"),
        (lambda K, M: (M + K - 1) / (K * M), "the speed-up is one over it"),
        (lambda K, M: (K - 1) / (M + K - 1), "That is the bubble"),
        (lambda K, M: K * M / (M + K), "K = 1, must have a speed-up of 1"),
        (lambda K, M: 0, "With K = 2, M = 8 the count is 1.77778"),
    ],
    [
        (lambda t0, t1, t2: t1 - t0, "the way there for no time"),
        (lambda t0, t1, t2: t1 - t2, "the way back for no time"),
        (lambda t0, t1, t2: (t0 + t2) / 2 - t1, "the sign is wrong"),
        (lambda t0, t1, t2: t1 - (t2 - t0) / 2, "the length of one way"),
    ],
    [
        (both_send_first, "Nobody can go on, where a send waits for its receive: deadlock"),
        (both_receive_first, "Nobody can go on, even where messages are stored: deadlock"),
        (returns_its_own, "Rank 0 must return what the other rank had, [1.0, 1.0]"),
        (lambda rank, value: value, "must `yield` its send and its receive"),
        (raises, "Your program stopped with IndexError"),
    ],
]))


def test_the_recorded_picture_stands_in_where_there_is_no_mpi(monkeypatch):
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    assert np.array_equal(pictures.on_ranks(2, ["--size", "8"]), plt.imread(pictures.RECORDED))


@on_ranks
def test_ranks_draw_a_picture_of_their_own():
    picture = pictures.on_ranks(2, ["--size", "8", "--epochs", "1"])
    assert picture.ndim == 3 and not np.array_equal(picture, plt.imread(pictures.RECORDED))


@on_ranks
def test_what_goes_wrong_on_ranks_is_said():
    with pytest.raises(RuntimeError, match="--replicas 3 cannot share 2 devices"):
        pictures.on_ranks(2, ["--replicas", "3"])


def test_shares_of_a_run_add_up():
    trace = mp.simulate(mp.schedules.gpipe(2, 2))
    ax = plt.figure().add_subplot()
    pictures.shares(ax, {"run": trace})
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 2)
    assert abs(widths.sum(axis=0) - 100).max() <= 100 * 6 * 2**-53  # six roundings
    assert abs(widths[0] - 100 * 2 / 3).max() <= 100 * 2 * 2**-53
    assert [text.get_text() for text in ax.get_yticklabels()] == ["run, device 0", "run, device 1"]
