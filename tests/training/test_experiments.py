"""Trainings that differ in one thing, and the command that runs many of them."""

import struct

import numpy as np
import pytest
from compared import assert_within

from minipipe.cli.main import main
from minipipe.datasets import Dataset
from minipipe.experiments import Recipe, mean_and_spread, steps_to_target, train, with_batch_norm
from minipipe.figures.batch_sizes import VARIANTS, digits_in_float32, errors_of
from minipipe.models import mlp
from minipipe.rates import rates_of

LAYERS = mlp([64, 16, 10])
SHORT = Recipe(base=0.1, n_epochs=3, warm_up=1)


def few(m=200):
    (X, Y), (X_test, Y_test) = digits_in_float32()
    return Dataset((X[:, :m].copy(), Y[:, :m].copy()), (X_test, Y_test))


def run(capsys, *arguments):
    try:
        status = main(["batch-size", *map(str, arguments)])
    except SystemExit as exit:
        status = exit.code
    return status, *capsys.readouterr()


def test_the_recipe_is_that_of_the_paper():
    """Reference rate 0.1, k = 8: from 0.1 by equal steps to 0.8, which falls at 1/3, 2/3 and 8/9."""
    recipe = Recipe(n_epochs=9, warm_up=2)
    rates = rates_of(recipe.rate(256), [1] * 9)
    tops = [epoch[0] for epoch in rates]
    expected = [0.1, 0.45, 0.8, 0.08, 0.08, 0.08, 0.008, 0.008, 0.0008]
    # those of 0.1, of three drops by 0.1 and their products, and of the number expected
    assert_within(tops, expected, roundings=8)
    assert recipe.rate(256, "linear", "constant")(1) == 0.1 and recipe.rate(256, "linear", "none")(0) == 0.8
    assert recipe.rate(512, "square root")(2) == 0.4 and recipe.rate(512, "fixed")(2) == 0.1


def test_a_training_is_the_same_again_and_another_with_another_seed():
    first, again, other = (train(LAYERS, few(), SHORT, 50, seed=seed) for seed in (0, 0, 1))
    assert first == again != other and len(first.costs) == 3 and first.costs[-1] < first.costs[0]


def test_a_training_that_overflows_is_an_outcome_and_not_a_mistake():
    assert train(LAYERS, few(), Recipe(base=1e30, n_epochs=2, warm_up=1), 50) == (100, [])


def test_variants_with_one_rate_are_trained_once(monkeypatch):
    """At the reference, k = 1, all four are one."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return train(*arguments)

    monkeypatch.setattr("minipipe.figures.batch_sizes.train", counted)
    found = errors_of(LAYERS, few(), SHORT, (32, 100), VARIANTS, 2)
    assert len(calls) == 2 * (1 + 4) and len(found) == 2 * len(VARIANTS)
    assert len({tuple(found[name, 32]) for name in VARIANTS}) == 1


def test_steps_to_a_target_are_the_fewest_of_all_rates():
    """No step reaches less than the cost that it stops at; one more rate can only help."""
    data = few()
    slow, rate = steps_to_target(LAYERS, data, 50, [0.1], target=1.5)
    best, of_best = steps_to_target(LAYERS, data, 50, [0.1, 0.4], target=1.5)
    assert rate == 0.1 and 1 < best < slow and of_best == 0.4
    assert steps_to_target(LAYERS, data, 50, [1e-9, 1e30], target=0.1, most=20) == (21, None)


def test_mean_and_spread():
    assert mean_and_spread([2.0]) == (2.0, 0.0) and mean_and_spread([1.0, 2.0, 3.0]) == (2.0, 1.0)


@pytest.mark.slow  # 20 trainings of 15 epochs: ten seconds
def test_the_rule_beats_the_fixed_rate_and_the_square_root_where_epochs_are_few():
    """Batch 512, rate 0.02 for 32 samples, 15 epochs: measured 4.4, 8.6 and 21 % in the mean of 5 seeds."""
    data, recipe = digits_in_float32(), Recipe(base=0.02, n_epochs=15, warm_up=3)
    found = errors_of(with_batch_norm([64] * 6 + [10]), data, recipe, (512,), VARIANTS, 5)
    medians = {name: np.median(errors) for (name, _), errors in found.items()}
    linear, _, root, fixed = (medians[name] for name in VARIANTS)
    assert linear < 0.8 * root and root < 0.8 * fixed and linear < 7 and fixed > 12


def test_the_command_prints_a_table_and_draws(capsys, tmp_path):
    picture = tmp_path / "errors.png"
    status, out, _ = run(
        capsys, "--sizes", 256, 719, "--seeds", 2, "--epochs", 2, "--warm-up", 1, "--output", picture,
        "--variants", "linear, gradual warm-up", "fixed rate",
    )
    assert status == 0 and "1,437 digits, network mlp, 2 epochs, 2 seeds, rate 0.1 for 32 samples" in out
    rows = [line for line in out.splitlines() if "±" in line]
    assert [row[:30].strip() for row in rows] == ["linear, gradual warm-up", "fixed rate"]
    assert all(row.count("±") == 2 for row in rows) and picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_trains_on_the_users_files_of_mnist(capsys, tmp_path):
    rng = np.random.default_rng(0)
    for name, m in (("train", 40), ("t10k", 20)):
        images, labels = rng.integers(0, 256, (m, 28, 28)), np.arange(m) % 10
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
            (tmp_path / f"{name}-{kind}-ubyte").write_bytes(header + array.astype(np.uint8).tobytes())
    status, out, _ = run(
        capsys, "--mnist", tmp_path, "--network", "lenet", "--samples", 30, "--sizes", 10, "--seeds", 1,
        "--epochs", 1, "--warm-up", 1, "--output", tmp_path / "errors.png",
    )
    assert status == 0 and "30 images of MNIST, network lenet" in out


@pytest.mark.parametrize("arguments, words", [
    (["--sizes", 2000], "--sizes 2000 exceeds the 1437 samples"),
    (["--sizes", 0], "--sizes[0]=0 must be at least 1"),
    (["--epochs", 5], "a warm-up of 8 epochs in a training of 5"),
    (["--base", "nan"], "base=nan must be above 0"),
    (["--variants", "cubic"], "must be a list of names out of linear, gradual warm-up"),
    (["--network", "lenet"], "--network lenet needs larger images: add --mnist or --cifar10"),
    (["--samples", 5000], "--samples 5000 of 1,437: use from 1 to that many"),
    (["--mnist", "nowhere"], "nowhere is not a folder"),
    (["--output", "errors.txt"], "its name must end in one of"),
])
def test_mistakes_are_answered_before_the_first_training(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    status, _, said = run(capsys, *arguments)
    assert status == 2 and words in said and not list(tmp_path.iterdir())
