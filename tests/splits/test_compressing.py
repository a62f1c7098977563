"""Compressed gradients: with feedback, nothing is lost, in rational numbers with ==; bytes are counted."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from compared import assert_all_same, assert_same, assert_within

from minipipe.cluster import Cluster, Compute, Receive, Send
from minipipe.collectives import Group
from minipipe.compressing import (
    Feedback, LowRank, Majority, MomentumFeedback, Quantised, ScaledSign, TopK,
)
from minipipe.exact import Rational, rational

N = 3


def steps(gradients, make, is_on=True, n_ranks=N, feedback=Feedback):
    """([the sums of each step, of each rank], [each rank's Feedback], trace).

    gradients: for each step, for each rank a list of arrays.

    Each device has two lanes: one that computes, and hands its gradients to one that communicates.
    """
    feedbacks = [feedback(make(rank), is_on=is_on) for rank in range(n_ranks)]
    found = [[None] * n_ranks for _ in gradients]

    def compute(rank):
        for step, of_ranks in enumerate(gradients):
            gradient = yield Compute(f"backward {step}", lambda: of_ranks[rank])
            yield Send(f"gradient {step}", gradient, to=rank)

    def communicate(rank):
        group = Group(rank, range(n_ranks))
        for step in range(len(gradients)):
            gradient = yield Receive(f"gradient {step}", source=rank)
            found[step][rank] = yield from feedbacks[rank].all_reduce(group, gradient)

    lanes = [{"compute": compute(rank), "communication": communicate(rank)} for rank in range(n_ranks)]
    return found, feedbacks, Cluster(lanes).run()


def random_gradients(n_steps, convert, seed=0):
    rng = np.random.default_rng(seed)
    return [[[convert(rng.integers(-9, 10, shape)) for shape in ((4, 3), (5, 1))] for _ in range(N)]
            for _ in range(n_steps)]


COMPRESSORS = {
    "top-k": lambda rank: TopK(2), "a share": lambda rank: TopK(0.25), "sign": lambda rank: ScaledSign(),
    "rank 1": lambda rank: LowRank(1), "rank 2": lambda rank: LowRank(2, seed=3),
}


@pytest.mark.parametrize("make", COMPRESSORS.values(), ids=COMPRESSORS)
def test_what_was_sent_and_what_is_left_are_all_gradients(make):
    """Over five steps, summed over the ranks, array by array; and all ranks have the same sums."""
    gradients = random_gradients(5, rational)
    found, feedbacks, _ = steps(gradients, make)
    for index in range(2):
        sent = sum(of_ranks[0][index] for of_ranks in found)
        left = sum(feedback.left[index] for feedback in feedbacks)
        everything = sum(gradient[index] for of_ranks in gradients for gradient in of_ranks)
        assert np.array_equal(sent + left, everything)
    for of_ranks in found:
        assert_all_same(of_ranks)
    if make is not COMPRESSORS["rank 2"]:
        assert any((feedback.left[0] != 0).any() for feedback in feedbacks)


@pytest.mark.parametrize("make", [*COMPRESSORS.values(), lambda rank: Quantised(3, 4, seed=rank)])
def test_float32_stays_and_all_ranks_have_the_same_bits(make):
    found, feedbacks, _ = steps(random_gradients(3, lambda array: array.astype(np.float32) / 7), make)
    for of_ranks in found:
        assert_all_same(of_ranks)
        assert all(array.dtype == np.float32 for array in of_ranks[0])
    assert all(e.dtype == np.float32 for feedback in feedbacks for e in feedback.left)


@pytest.mark.parametrize("is_on, sent, left", [
    (True, [[3, 0, 0], [0, 3, 0], [0, 0, 3]], [2, 1, 0]),
    (False, [[3, 0, 0], [1, 0, 0], [1, 0, 0]], None),
], ids=["with feedback", "without"])
def test_the_golden_sends_of_top_1(is_on, sent, left):
    """(3, 2, 1), (1, 1, 1), (1, 1, 1): without feedback what is dropped is lost."""
    gradients = [[[rational(g)]] for g in ([3, 2, 1], [1, 1, 1], [1, 1, 1])]
    found, (feedback,), _ = steps(gradients, lambda rank: TopK(1), is_on=is_on, n_ranks=1)
    assert [of_ranks[0][0].tolist() for of_ranks in found] == sent
    assert left is None or feedback.left[0].tolist() == left


def test_ties_go_to_the_lower_place():
    places, numbers = TopK(2).encode(np.array([1.0, -2.0, 2.0, 2.0]))
    assert places.tolist() == [1, 2] and numbers.tolist() == [-2, 2]


@pytest.mark.parametrize("make, shape, of_a_message", [
    (lambda rank: TopK(0.001), (250, 40), 10 * (4 + 4)),        # places of 32 bits beside the numbers
    (lambda rank: ScaledSign(), (250, 40), 10_000 // 8 + 4),
    (lambda rank: Quantised(), (250, 40), 10_000 + 20 * 4),     # a byte each, and 20 norms
])
def test_each_rank_sends_its_message_to_all_others(make, shape, of_a_message):
    """In a ring, each message passes N - 1 links: counted by the cluster."""
    drawn = np.random.default_rng(0).standard_normal((N, *shape)).astype(np.float32)
    _, _, trace = steps([[[gradient] for gradient in drawn]], make)
    sent = [m.n_bytes for m in trace.messages if m.source != m.to]
    assert sum(sent) == N * (N - 1) * of_a_message


def test_low_rank_sends_narrow_matrices():
    """128 x 64 of float32 in rank 1 and 2: 192 and 384 numbers in the place of 8,192, there and back."""
    gradient = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    for rank in (1, 2):
        _, _, trace = steps([[[gradient]] * 2], lambda _: LowRank(rank), n_ranks=2)
        assert sum(m.n_bytes for m in trace.messages if m.source == 0 and m.to == 1) == 4 * 192 * rank


def test_a_matrix_of_low_rank_comes_back():
    """And the sum of the ranks is what one rank with the sum has: the compression is linear."""
    a, b = rational([[2], [-1], [3], [5]]), rational([[1, 4, -2]])
    shares = [a @ b * Rational(n) for n in (1, 2, -7)]
    found, feedbacks, _ = steps([[[share] for share in shares]], lambda rank: LowRank(1))
    assert np.array_equal(found[0][0][0], sum(shares))
    assert all((feedback.left[0] == 0).all() for feedback in feedbacks)
    gradients = random_gradients(1, rational, 5)
    apart, _, _ = steps(gradients, lambda rank: LowRank(1))
    total = [[[sum(parts) for parts in zip(*gradients[0])]]]
    together, _, _ = steps(total, lambda rank: LowRank(1), n_ranks=1)
    assert np.array_equal(apart[0][0][0], together[0][0][0])


def test_a_gradient_of_zeros_and_one_of_less_rank_are_no_trouble():
    for convert in (rational, np.asarray):
        zeros, ones = convert(np.zeros((4, 3))), convert(np.ones((4, 3)))
        found, _, _ = steps([[[zeros]], [[ones]]], lambda rank: LowRank(2), n_ranks=1)
        assert (found[0][0][0] == 0).all()
        if convert is rational:
            assert_same(found[1][0][0], ones)
        else:
            # the columns of 4 x 2 numbers become orthogonal to some 3 * 4 * 2 roundings (Higham 2002, theorem
            # 19.4), which come in twice, and two products add 4 and 2 terms of at most 2
            assert_within(found[1][0][0], ones, roundings=2 * 24 + 6, of=2)
    (found,), _, _ = steps([[[np.zeros(4)]]], lambda rank: Quantised(2), n_ranks=1)
    assert (found[0][0] == 0).all()


@pytest.mark.parametrize("levels, square", [(1, 35), (2, Rational(55, 2)), (4, Rational(205, 8))])
def test_rounding_at_random_is_right_on_average(levels, square):
    """(3, 4), over all outcomes with their probabilities: E Q = v, and E |Q|^2 the golden ones."""
    v = rational([3, 4])
    low, up, size = Quantised(levels).rounding(v)
    mean, mean_square = 0 * v, 0
    for bits in product((0, 1), repeat=2):
        p = np.prod(np.where(bits, up, 1 - up))
        Q = size * (low + rational(bits)) / levels
        mean, mean_square = mean + p * Q, mean_square + p * (Q @ Q)
    assert_same(mean, v)
    assert mean_square == square


def test_drawn_levels_are_those_of_the_rounding():
    """4,000 times (3, -4) at one level: a 5 with probability 3/5 and 4/5; within five standard deviations."""
    compressor = Quantised(1, bucket=2)
    message = compressor.encode(np.array([3.0, -4.0] * 4000))
    decoded = compressor.decode(message, np.zeros(8000)).reshape(-1, 2)
    assert set(decoded[:, 0]) == {0, 5} and set(decoded[:, 1]) == {0, -5}
    assert (abs(decoded.mean(axis=0) - [3, -4]) < 5 * 5 * np.sqrt([0.24, 0.16]) / np.sqrt(4000)).all()


def test_what_is_left_belongs_to_its_arrays():
    feedback = Feedback(TopK(1))
    list(feedback.all_reduce(Group(0, [0]), [np.ones(3)]))
    with pytest.raises(ValueError, match=r"arrays of shapes \[\(4,\)\], but \[\(3,\)\] are left"):
        list(feedback.all_reduce(Group(0, [0]), [np.ones(4)]))
    assert feedback.left[0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("call, words", [
    (lambda: TopK(1.5), "k=1.5 must be a whole number"),
    (lambda: TopK(4).encode(np.ones(3)), "k=4 exceeds the 3 numbers of an array"),
    (lambda: Quantised(128), "levels=128 must be at most 127"),
])
def test_impossible_compressions_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("masked, sums", [(False, [1, Rational(3, 2), Rational(7, 4)]), (True, [1, 1, 1])])
def test_momentum_before_the_compression_where_all_is_sent(masked, sums):
    """Without the mask it is SGD with momentum 1/2, with it plain SGD."""
    feedback = partial(MomentumFeedback, momentum=Rational(1, 2), masked=masked)
    gradients = [[[rational([1, 1])]]] * 3
    found, _, _ = steps(gradients, lambda rank: TopK(2), n_ranks=1, feedback=feedback)
    assert [of_ranks[0][0].tolist() for of_ranks in found] == [[total] * 2 for total in sums]


def test_what_waits_gathers_speed_and_begins_anew_when_it_is_sent():
    """Momentum 1/2, gradients (4, 1) each time, one number sent: of the second, 1 + 3/2 + 7/4 have waited
    when they pass 4; the first, which waits then, goes on with u = 4/2 + 4, and the second with 1.
    """
    feedback = partial(MomentumFeedback, momentum=Rational(1, 2))
    gradients = [[[rational([4, 1])]]] * 4
    found, (rank,), _ = steps(gradients, lambda rank: TopK(1), n_ranks=1, feedback=feedback)
    assert [of_ranks[0][0].tolist() for of_ranks in found] == [[4, 0], [4, 0], [0, Rational(17, 4)], [10, 0]]
    assert rank.left[0].tolist() == [0, 1]


def test_a_vote_may_point_the_wrong_way():
    """Gradients 4, -1, -1, -1: the sum is 1, the vote -1; two against two is a tie."""
    gradients = [[[np.float32(g)] for g in ([4, 1], [-1, 1], [-1, -1], [-1, -1])]]
    found, _, _ = steps(gradients, lambda rank: Majority(), is_on=False, n_ranks=4)
    for total, in found[0]:
        assert total.dtype == np.float32 and total.tolist() == [-1, 0]
