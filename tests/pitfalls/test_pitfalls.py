"""One check for each bug that other frameworks shipped; each check was seen failing with the bug in.

`test_absent[name]` runs the check on minipipe as it is. `test_turns_red[name]` puts the bug of the same name
from `bugs.py` in and demands that the check fails.
"""

import math

import numpy as np
import pytest
from compared import J_and_gradients, assert_all_same, assert_equals_full_batch, assert_same, assert_same_bits
from pitfalls import checks_of_large_batches
from pitfalls import checks_of_servers
from pitfalls import checks_of_splits
from pitfalls.bugs import BUGS

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.partitioning import loads
from minipipe.schedules import build, peak_microbatches
from minipipe.verification import equals_full_batch

LAYERS = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]


def exact_mini_batch(m):
    rng = np.random.default_rng(m)
    return rational(rng.integers(-4, 5, (3, m))), mp.one_hot(rng.integers(0, 4, m), n_classes=4).astype(int)


def exact_layers():
    return [
        layer.copy(lambda p: rational(np.round(8 * p) / 8)) for layer in mp.Sequential(LAYERS, None).layers
    ]


def float_mini_batch(m, dtype=np.float64):
    X, Y = exact_mini_batch(m)
    return X.astype(dtype), Y.astype(dtype)


def check_gradient_scale():
    assert_equals_full_batch(
        mp.Pipeline(exact_layers(), mp.SoftmaxCrossEntropy(), 2, 4), *exact_mini_batch(8)
    )


def check_unequal_microbatches():
    assert_equals_full_batch(
        mp.Pipeline(exact_layers(), mp.SoftmaxCrossEntropy(), 2, 3), *exact_mini_batch(8)
    )
    copies = mp.DataParallel(exact_layers(), mp.SoftmaxCrossEntropy(), 3)
    assert_equals_full_batch(copies, *exact_mini_batch(8))


def check_reused_receive_buffer():
    pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 5, 4, "gpipe")
    assert_same_bits(pipe, *float_mini_batch(8))


def check_in_place_backward():
    """In a sum of branches, too, where each branch gets the same dZ."""
    layers = [
        mp.ReLU(), mp.Sigmoid(), mp.Tanh(), mp.Linear(2, 2, W=[[1.0, 2.0], [3.0, 4.0]], b=[[0.0], [0.0]]),
        mp.LayerNorm(2), mp.Dropout(), mp.Residual(mp.Tanh()), mp.Add([mp.ReLU()], [mp.Tanh()]),
        mp.Concat([mp.ReLU()]),
    ]
    for layer in layers:
        layer.initialize(np.random.default_rng(0))
        A_prev, dZ = np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
        layer.forward(A_prev)
        layer.backward(dZ)
        assert np.array_equal(A_prev, [[1.0, -2.0], [0.5, 3.0]]) and np.array_equal(
            dZ, [[1.0, 2.0], [3.0, 4.0]]
        )


def check_dtype_promotion():
    pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 5, 2, dtype=np.float32)
    J = pipe.forward_backward(*float_mini_batch(8, np.float32))
    assert J.dtype == np.float32
    assert all(part.dtype == np.float32 for pair in pipe.gradients for part in pair if part is not None)
    assert {message.n_bytes for message in pipe.trace.messages} == {4 * 4 * 4}  # 4 units, 4 samples, 4 bytes


def check_equal_shape_equal_weights():
    layers = mp.Sequential([mp.Linear(4, 4), mp.Linear(4, 4)], None).layers
    assert not np.array_equal(layers[0].W, layers[1].W)


def check_cost_depends_on_company():
    loss = mp.SoftmaxCrossEntropy()
    Z, Y = np.array([[1.0, 2000.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.0]])
    alone = loss.forward(Z[:, :1], Y[:, :1], m=2)
    dZ_alone = loss.backward()
    other = loss.forward(Z[:, 1:], Y[:, 1:], m=2)
    together = loss.forward(Z, Y, m=2)
    assert together == alone + other and np.array_equal(loss.backward()[:, :1], dZ_alone)


def check_attention_depends_on_company():
    """Scores of the second sample that are 10^6 larger leave the first one's shares as they were."""
    layer = mp.MultiHeadAttention(1, 1)
    layer.initialize(np.random.default_rng(0))
    A_prev = np.array([[[1.0, 1000.0], [2.0, 0.0]]])
    alone = layer.forward(A_prev[..., :1])
    assert np.array_equal(layer.forward(A_prev)[..., :1], alone)


def check_attention_sees_the_future():
    """What comes later changes nothing before: not the shares, and not their sum."""
    layer = mp.MultiHeadAttention(2, 1, causal=True)
    layer.initialize(np.random.default_rng(0))
    layer = layer.copy(rational)
    A_prev = rational([[[1], [2], [-1]], [[0], [1], [3]]])
    for t in (1, 2):
        assert np.array_equal(layer.forward(A_prev)[:, :t], layer.forward(A_prev[:, :t]))


def running_statistics(recompute, *sizes):
    """Of the numbers 0, 1, 2, ... in mini-batches of these sizes, in rational numbers; the newest mini-batch
    counts alone.
    """
    layers = [mp.BatchNorm(1, momentum=1), mp.Linear(1, 1)]
    layers = [layer.copy(rational) for layer in mp.Sequential(layers, None).layers]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 2, recompute=recompute)
    for m in sizes:
        pipe.forward_backward(rational([range(m)]), rational([range(m)]))
        pipe.step(mp.SGD(Rational(1, 8)))
    return pipe.layers[0].running_mean[0, 0], pipe.layers[0].running_var[0, 0]


def check_batch_norm_statistics_leak():
    """0, 1, 2, 3 have mean 3/2 and unbiased variance 5/3, in one mini-batch of two micro-batches,
    recomputed or not.
    """
    for recompute in (False, True):
        assert running_statistics(recompute, 4) == (Rational(3, 2), Rational(5, 3))


def check_batch_norm_sums_leak_into_the_next_mini_batch():
    assert running_statistics(False, 10, 4) == running_statistics(False, 4)


def check_dropout_differs_on_recomputation():
    layers = [
        mp.Linear(3, 4),
        mp.Dropout(),
        mp.Linear(4, 4),
        mp.Residual(mp.Dropout(), mp.Tanh(), mp.Dropout()),
    ]
    pipes = [
        mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 4, recompute=recompute)
        for recompute in (False, True)
    ]
    assert_same(*(J_and_gradients(pipe, *float_mini_batch(8)) for pipe in pipes))


def check_missing_and_phantom_actions():
    for order in build("1f1b", 4, 6).devices:
        assert sorted((kind, i) for kind, _, i in order) == [(kind, i) for kind in "BF" for i in range(6)]
    table = "F0 F1 B0 B1", "F1 B0 F2 B1"
    faults = mp.Schedule.from_text(table, n_microbatches=2).faults()
    assert any("1F0 (missing)" in fault for fault in faults) and any(
        "1F2 is unknown" in fault for fault in faults
    )


def check_duplicated_action_passes():
    faults = mp.Schedule.from_text(["F0 F0 B0", "F0 B0"]).faults()
    assert faults == ["device 0 does 0F0 2 times (duplicated): once is enough"]


def check_deadlock_passes():
    faults = mp.Schedule.from_text(["F0 B0 F1 B1", "F1 B1 F0 B0"]).faults()
    assert len(faults) == 1 and "device 0 cannot start 0B0 before 1B0 on device 1" in faults[0]
    assert "device 1 cannot start 1F1 before 0F1 on device 0" in faults[0]


def check_hang_when_M_is_less_than_K():
    for K in range(2, 6):
        for M in range(1, K):
            schedule = build("1f1b", K, M)
            assert schedule.faults() == []
            assert mp.simulate(schedule).makespan == 3 * (M + K - 1)


def check_gradients_kept_M_wide():
    X, Y = float_mini_batch(64)
    for schedule in ("naive", "gpipe", "gpipe-fifo", "1f1b"):
        pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 2, 64, schedule)
        pipe.start(X, Y)
        most = 0
        while pipe.tick():
            most = max(most, *(stage.totals.n_held()[0] for stage in pipe.stages))
        assert 0 < most <= math.log2(64) + 1


def check_the_picture_is_not_the_run():
    from matplotlib.figure import Figure

    trace = mp.simulate(build("gpipe", 3, 4), mp.Costs(F=[1, 5, 1], B=[2, 4, 2]))
    idle = sum(span.end - span.start for span in trace.idle)
    assert trace.bubble("total") == idle / (3 * trace.makespan) != 2 / 6
    ax = trace.plot(ax=Figure().add_subplot())
    drawn = [path.get_extents() for collection in ax.collections for path in collection.get_paths()]
    assert sorted((round(box.y0 + 0.4), box.x0, box.x1) for box in drawn) == sorted(
        (span.device, span.start, span.end) for span in trace.spans
    )


def check_stale_weights_in_a_synchronous_schedule():
    X, Y = float_mini_batch(8)
    pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 3, 4, "1f1b")
    before = [layer.copy() for layer in pipe.layers]
    pipe.forward_backward(X, Y)
    for layer, old in zip(pipe.layers, before):
        assert layer.W is None or (np.array_equal(layer.W, old.W) and np.array_equal(layer.b, old.b))


def check_dropped_micro_batches():
    """Chimera with a last unit that is smaller: nothing is missing."""
    for K, M in [(2, 4), (4, 6), (4, 10), (6, 2)]:
        assert build("chimera", K, M).faults() == []


def check_three_bubbles_one_name():
    """GPipe, K = 4, M = 8, F = 1, B = 2: 9 ticks idle of 33; of 24; and within each device's own span."""
    trace = mp.simulate(build("gpipe", 4, 8))
    own = sum(3 * 8 + 3 * (3 - r) for r in range(4))
    assert [trace.bubble(of) for of in ("total", "ideal", "span")] == [9 / 33, 9 / 24, 18 / own]


def check_one_f_one_b_has_a_smaller_bubble():
    """At equal K and M only the memory is smaller: a comparison at different M started the myth."""
    for K, M in [(2, 2), (4, 8), (4, 3), (8, 32)]:
        gpipe, one_f_one_b = mp.simulate(build("gpipe", K, M)), mp.simulate(build("1f1b", K, M))
        assert gpipe.bubble("total") == one_f_one_b.bubble("total")
        assert max(peak_microbatches(one_f_one_b)) == min(M, K) <= max(peak_microbatches(gpipe)) == M


def check_weight_decay_by_scaling_the_loss():
    """W - rate decay W - rate g, with the rate of this very update in both places."""
    layer = mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])
    optimizer = mp.SGD(0.125, weight_decay=0.5)
    W = 1.0
    for rate in (0.125, 0.5):
        optimizer.learning_rate = rate
        optimizer.update([layer], [(np.array([[0.25]]), np.array([[0.0]]))])
        W = W - rate * 0.5 * W - rate * 0.25
        assert layer.W[0, 0] == W


def check_momentum_after_a_rate_change():
    """v = m v + rate g stays rate * u, with u = m u + g, when the rate changes."""
    layers = [mp.Linear(1, 1, W=[[1.0]], b=[[0.0]]) for _ in range(2)]
    optimizers = mp.SGD(0.5, momentum=0.5), mp.SGD(0.5, momentum=0.5, rate_inside=True)
    for rate in (0.5, 0.125, 0.25):
        for layer, optimizer in zip(layers, optimizers):
            optimizer.learning_rate = rate
            optimizer.update([layer], [(np.array([[0.25]]), np.array([[1.0]]))])
        assert layers[0].W[0, 0] == layers[1].W[0, 0] and layers[0].b[0, 0] == layers[1].b[0, 0]


def check_balancing_by_shifted_costs():
    """Three layers each have 30 and 32; shifted to 0, 0, 0, 0, 1, 1 they would be cut into [5, 1],
    with 51 and 11.
    """
    costs = [10, 10, 10, 10, 11, 11]
    assert max(loads(costs, mp.partition([mp.ReLU()] * 6, 2, by=costs))) == 32
    assert max(loads(costs, [5, 1])) == 51


CHECKS = {
    name.removeprefix("check_"): check
    for room in (globals(), vars(checks_of_splits), vars(checks_of_large_batches), vars(checks_of_servers))
    for name, check in list(room.items()) if name.startswith("check_")
}


def test_every_bug_has_its_check():
    assert set(CHECKS) == set(BUGS)


@pytest.mark.parametrize("name", CHECKS)
def test_absent(name):
    CHECKS[name]()


@pytest.mark.parametrize("name", CHECKS)
def test_turns_red(name, monkeypatch):
    BUGS[name](monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[name]()


# What shows that a check looks where it must


def test_copies_that_agree_may_all_be_wrong(monkeypatch):
    """Both have the same numbers, in each stage; and copies of one stage alone are right."""
    BUGS["replicas_agree_on_a_wrong_gradient"](monkeypatch)
    X, Y = checks_of_splits.mini_batch(8)
    net = checks_of_splits.two_copies_of_two_stages()
    assert not equals_full_batch(net, X, Y)
    for copies in checks_of_splits.sums_of_copies(net).values():
        assert len(copies) == 2
        assert_all_same(copies)
    assert_equals_full_batch(mp.DataParallel(net.layers, net.loss, 2, 4), X, Y)


def test_two_copies_hide_in_which_order_they_are_added(monkeypatch):
    BUGS["bits_change_with_buckets"](monkeypatch)
    checks_of_splits.assert_buckets_have_the_same_bits(2)
    for D in (3, 5):
        with pytest.raises(AssertionError, match="differs at"):
            checks_of_splits.assert_buckets_have_the_same_bits(D)


def test_what_the_bugs_of_shards_make_of_a_gradient_of_4(monkeypatch):
    """Samples with 1, 2, 3, 4 and 10 alone, on two copies: (2 + 7)/2; and 21/6 with the first once more."""
    found = {}
    for name in ("mean_of_means", "padded_sampler"):
        with monkeypatch.context() as patch:
            BUGS[name](patch)
            found[name] = checks_of_splits.per_sample_gradients(2, 2)
    assert found == {"mean_of_means": Rational(9, 2), "padded_sampler": Rational(7, 2)}
