"""One check for each bug that other frameworks shipped; each check was seen failing with the bug in.

`test_absent[name]` runs the check on minipipe as it is. `test_turns_red[name]` puts the bug of the same name
in, see `bugs.py`, and demands that the check fails.
"""

from inspect import isfunction, signature

import pytest
from compared import assert_all_same, assert_equals_full_batch
from pitfalls import copies
from pitfalls.bugs import BUGS, CHECKS, THEMES
from pitfalls.arithmetic import mini_batch

import minipipe as mp
from minipipe.exact import Rational
from minipipe.verification import equals_full_batch


def test_every_bug_has_its_check():
    functions = {name: part for theme in THEMES for name, part in vars(theme).items() if isfunction(part)}
    bugs = {name for name, part in functions.items() if [*signature(part).parameters] == ["monkeypatch"]}
    assert bugs == {*BUGS} == {*CHECKS}


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
    X, Y = mini_batch(8)
    net = copies.two_copies_of_two_stages()
    assert not equals_full_batch(net, X, Y)
    for sums in copies.sums_of_copies(net).values():
        assert len(sums) == 2
        assert_all_same(sums)
    assert_equals_full_batch(mp.DataParallel(net.layers, net.loss, 2, microbatches=4), X, Y)


def test_two_copies_hide_in_which_order_they_are_added(monkeypatch):
    BUGS["bits_change_with_buckets"](monkeypatch)
    copies.assert_buckets_have_the_same_bits(2)
    for D in (3, 5):
        with pytest.raises(AssertionError, match="differs at"):
            copies.assert_buckets_have_the_same_bits(D)


def test_what_the_bugs_of_shards_make_of_a_gradient_of_4(monkeypatch):
    """Samples with 1, 2, 3, 4 and 10 alone, on two copies: (2 + 7)/2; and 21/6 with the first once more."""
    found = {}
    for name in ("mean_of_means", "padded_sampler"):
        with monkeypatch.context() as patch:
            BUGS[name](patch)
            found[name] = copies.per_sample_gradients(2, 2)
    assert found == {"mean_of_means": Rational(9, 2), "padded_sampler": Rational(7, 2)}
