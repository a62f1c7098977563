"""What copies, servers, collectives, engines and checkpoints are handed: all but what fits is refused in a
sentence."""

import numpy as np
import pytest

import minipipe as mp
from minipipe.collectives import (
    Group, all_gather, all_reduce, all_reduce_ticks, all_to_all, broadcast, numbers_sent, reduce,
    reduce_scatter,
)
from minipipe.parallel import in_buckets
from minipipe.schedules import data_parallel, with_zero

LAYERS, LOSS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 1)], mp.MeanSquaredError()
TWO, MASKED = np.ones(2), np.ma.masked_array([1.0, 2], [True, False])


def copies(**options):
    return mp.DataParallel(LAYERS, LOSS, 2, 2, optimizer=mp.Adam(), **options)


def server(**options):
    return mp.ParameterServer(LAYERS, LOSS, 2, mp.SGD(0.1), **options)


def network():
    return mp.Sequential(LAYERS, LOSS)


def run(program, n=2):
    return mp.Cluster([program(Group(rank, range(n))) for rank in range(n)]).run()


MISTAKES = {
    "an array for a level": (lambda: with_zero(data_parallel(2, 2), TWO), "zero=array([1., 1.]) must be"),
    "a masked level": (lambda: copies(zero=MASKED), "must be 1, 2 or 3"),
    "a truth for a level": (lambda: with_zero(data_parallel(2, 2), True), "zero=True must be 1, 2 or 3"),
    "an array for a truth": (lambda: copies(sync_batch_norm=TWO), "sync_batch_norm=array([1., 1.]) must be"),
    "an array for positions": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 2, sequence=TWO), "sequence=array([1., 1.]) must be True or"
    ),
    "an array for rows": (lambda: mp.TensorParallel(LAYERS, LOSS, 2, rows=TWO), "rows=array([1., 1.]) must"),
    "a number for sizes": (lambda: in_buckets(3), "sizes=3 must be a list"),
    "a text for a size": (lambda: in_buckets(["a"]), "sizes[0]='a' must be a number"),
    "one cap": (lambda: in_buckets([1], 2), "caps=2 must be a list"),
    "three caps": (lambda: in_buckets([1], (1, 2, 3)), "caps has 3 numbers: pass a pair"),
    "a text for a cap": (lambda: in_buckets([1], ("a", 1)), "caps[0]='a' must be a number"),
    "an array for micro-batches": (
        lambda: server(mode="async", n_microbatches=MASKED), "n_microbatches=masked_array("
    ),
    "half a device": (lambda: Group(0, 2.5), "devices=2.5 must be a list of whole numbers"),
    "an array for a rank": (lambda: Group(TWO, [0, 1]), "rank=array([1., 1.]) must be a whole number"),
    "a rank that is not there": (lambda: Group(2, [0, 1]), "rank=2 is not in the group of 2: ranks count"),
    "a text for gamma": (lambda: Group(0, [0, 1], gamma="a"), "gamma='a' must be a number"),
    "an array for a root": (lambda: run(lambda group: reduce(group, 1, TWO)), "root=array([1., 1.]) must be"),
    "half a root": (lambda: run(lambda group: broadcast(group, 1, 0.5)), "root=0.5 must be a whole number"),
    "a set for a sum": (lambda: run(lambda group: all_reduce(group, {1})), "{1} is neither a number nor"),
    "a class for a sum": (
        lambda: run(lambda group: reduce(group, np.float32)), "<class 'numpy.float32'> is neither a number"
    ),
    "an array of nothing for a sum": (
        lambda: run(lambda group: reduce(group, np.array([None]))), "array([None], dtype=object) is neither a"
    ),
    "a number for parts": (lambda: run(lambda group: reduce_scatter(group, 3)), "values=3 must be a list"),
    "a number for values": (lambda: run(lambda group: all_to_all(group, 3)), "values=3 must be a list"),
    "a generator for a value": (
        lambda: run(lambda group: all_gather(group, (x for x in ()))), "cannot be sent, because cannot pickle"
    ),
    "a number for an algorithm": (lambda: all_reduce_ticks(7, 2, 2), "algorithm=7 must be one of 'naive'"),
    "an array for an algorithm": (lambda: numbers_sent(TWO, 2, 2), "algorithm=array([1., 1.]) must be one"),
    "half a rank": (lambda: all_reduce_ticks("ring", 2.5, 2), "N=2.5 must be a whole number"),
    "no bytes": (lambda: all_reduce_ticks("ring", 2, None), "n=None must be a number"),
    "a complex beta": (lambda: all_reduce_ticks("ring", 2, 2, beta=1j), "beta=1j must be a number"),
    "half a number": (lambda: numbers_sent("ring", 2, 2.5), "n=2.5 must be a whole number"),
    "no ranks": (lambda: numbers_sent("ring", 0, 2), "N=0 must be at least 1"),
    "too many ranks": (lambda: numbers_sent("ring", 10**12, 2), "N=1000000000000 must be at most 1,000,000"),
    "a number for programs": (lambda: mp.engines.Threads(3), "programs=3 must be a list"),
    "nothing for programs": (lambda: mp.Cluster(None), "programs=None must be a list"),
    "a number for a file to write": (lambda: mp.save(3, network()), "path=3 must be a path"),
    "a number for a file to read": (lambda: mp.load(3, network()), "path=3 must be a path"),
    "half a character for a file": (lambda: mp.save("\ud800", network()), "path='\\ud800' must be a path"),
    "a character that no file has": (lambda: mp.load("\0", network()), "path='\\x00' must be a path"),
    "nobody's home": (lambda: mp.load("~nobody-of-this-name/a", network()), "/a' must be a path"),
    "a list for a network to save": (lambda: mp.save("a.npz", LAYERS), "ReLU(), Linear(3, 1)] is no network"),
    "nothing for a network to load": (lambda: mp.load("a.npz", None), "model=None is no network: pass a"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence(name):
    call, words = MISTAKES[name]
    with pytest.raises(ValueError) as complaint:
        call()
    assert words in str(complaint.value)


def test_numpys_numbers_do_not_overflow_in_the_cost_of_an_all_reduce():
    assert all_reduce_ticks("ring", np.int8(100), np.int32(10**9), 100, beta=np.int8(2)) == 3960019800
    assert numbers_sent("naive", 3, np.int8(100)) == [200, 100, 100]


def test_a_bucket_may_take_all_gradients():
    assert in_buckets([1, 2, 3], (1, float("inf"))) == [[2], [1, 0]]
