"""What notebook 11 asks for: two tests of a whole pipeline. They stay in the notebook."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ..broken_versions import EDITS, passes, small, version
from ..judging import Part, truth

SELF_AGREED = ("F", "K")     # wrong in the whole and in its parts alike: no test of this kind sees them


class Run(NamedTuple):
    """One run that a test has made.

    K, M: the devices and the micro-batches. m: the samples.
    exact: whether it computed in fractions.
    way: how far the parameters have moved since the first run of these layers, as one vector.
    """

    K: int
    M: int
    m: int
    exact: bool
    way: np.ndarray


def with_run(run):
    """Return the right pipeline with another `run`."""
    run.__qualname__ = "run"    # as an error should call it
    return SimpleNamespace(**vars(version()) | {"run": run})


def watched(runs):
    """Return the right pipeline; it adds a `Run` to `runs` for each run."""
    starts = {}

    def run(layers, X, Y, K, M, *more, **options):
        arrays = [array for layer in layers if hasattr(layer, "W") for array in (layer.W, layer.b)]
        now = np.concatenate([array.ravel() for array in arrays]).astype(float)
        way = now - starts.setdefault(layers[0], now)
        runs.append(Run(K, M, X.shape[1], X.dtype == object, way))
        return version().run(layers, X, Y, K, M, *more, **options)

    return with_run(run)


def altered(change):
    """Return the pipeline in which a run returns `change(J, stages, whether it is cut)` as its J."""
    def run(layers, X, Y, K, M, *more, **options):
        J, stages, actions = version().run(layers, X, Y, K, M, *more, **options)
        return change(J, stages, max(K, M) > 1), stages, actions

    return with_run(run)


def cut_changes(places):
    """Return the pipeline in which a cut changes the gradients of the stages at `places`, a slice."""
    def change(J, stages, is_cut):
        for stage in stages[places] if is_cut else ():
            stage.gradients = {layer: (dW + 1, db + 1) for layer, (dW, db) in stage.gradients.items()}
        return J

    return altered(change)


def with_cost_times(factor):
    """Return the pipeline whose J is `factor` times the cost that its derivatives belong to."""
    return altered(lambda J, stages, is_cut: factor * J)


def without_b():
    """Return the pipeline in which J does not depend on b: it adds the first b, and db is 0."""
    class Linear(version().Linear):
        def forward(self, A_prev):
            vars(self).setdefault("first_b", self.b.copy())
            return super().forward(A_prev) - self.b + self.first_b

        def backward(self, dZ):
            dA_prev, dW, db = super().backward(dZ)
            return dA_prev, dW, 0 * db

    return SimpleNamespace(**vars(version()) | {"Linear": Linear})


def of_healthy(my):
    """Yield what `healthy` says of the right pipeline, in which runs, and what it lets pass."""
    runs = []
    try:
        said = truth(my.healthy(watched(runs)))
    except KeyError as error:
        if hasattr(error.args[0], "backward"):
            yield "the layer without gradients for which your test asks", type(error.args[0]).__name__
            return
        raise
    except TypeError:
        if any(run.M > run.m for run in runs):
            yield "whether each of your micro-batches has a sample", False
            return
        raise
    yield "healthy(my) of the pipeline without a mistake", said
    if not isinstance(said, bool):
        return
    yield "whether your test runs the pipeline `my` that it is given", bool(runs)
    if not said:
        yield "whether all your runs are in fractions", all(run.exact for run in runs)
        yield "healthy(my) where a cut changes all gradients", passes(my.healthy, cut_changes(slice(None)))
        return
    facts = {"several micro-batches": any(run.M > 1 for run in runs),
             "micro-batches of several sizes": any(run.m % run.M > 0 for run in runs),
             "several devices": any(run.K > 1 for run in runs)}
    yield "what the runs of your test have", [words for words, there in facts.items() if there]
    missed = [letter for letter in EDITS if letter not in SELF_AGREED and passes(my.healthy, version(letter))]
    yield "the versions that your test lets pass", missed
    if missed:
        yield "whether a run is in one piece", any(run.M == 1 for run in runs)
        return
    J_alone = altered(lambda J, stages, is_cut: J + is_cut)
    yield "healthy(my) where a cut changes J alone", passes(my.healthy, J_alone)
    for words, places in (("first", slice(1)), ("second", slice(1, 2)), ("last", slice(-1, None))):
        there = passes(my.healthy, cut_changes(places))
        yield f"healthy(my) where a cut changes the gradients of the {words} stage alone", there


def sum_over_squares():
    """Return the sum of all derivatives g over the sum of all g^2, in the network of seven samples."""
    layers, X, Y = small(version(), 7, float)
    _, [stage], _ = version().run(layers, X, Y, 1, 1, version().gpipe)
    slopes = np.concatenate([array.ravel() for pair in stage.gradients.values() for array in pair])
    return slopes.sum() / (slopes ** 2).sum()


def sides(runs):
    """Return how far the runs are from the start, along the longest way; without those at the start."""
    longest = max((run.way for run in runs), key=np.linalg.norm)
    far = np.linalg.norm(longest)
    found = [run.way @ longest / (far or 1) for run in runs]
    return sorted(place for place in found if abs(place) > 0.01 * far)


def of_slope(my):
    """Yield what `slope_fits` says of the right pipeline, and of some whose J and slopes differ."""
    runs = []
    try:
        said = truth(my.slope_fits(watched(runs)))
    except TypeError:
        if any(run.exact for run in runs):
            yield "whether your runs are in floats", False
            return
        raise
    yield "slope_fits(my) of the pipeline without a mistake", said
    if not isinstance(said, bool):
        return
    places = [] if said or not runs else sides(runs)
    if places:
        yield "whether all your runs are on one device", all(run.K == 1 for run in runs)
        is_far = max(map(abs, places)) > 1.5 * min(map(abs, places))
        yield "whether your costs are on both sides of the start", not (places[0] * places[-1] > 0 and is_far)
    passing = []
    wrong = {"minus the cost": -1, "half the cost": 0.5, "1.01 times the cost": 1.01,
             "1.1 times the cost": 1.1, "twice the cost": 2}
    for words, factor in wrong.items():
        passing.append(passes(my.slope_fits, with_cost_times(factor)))
        yield f"slope_fits(my) of a pipeline that returns {words} as its J", passing[-1]
    if any(passing):
        return
    if said:
        missed = [letter for letter in SELF_AGREED if passes(my.slope_fits, version(letter))]
        yield "the versions that both tests let pass", missed
        return
    others = without_b(), with_cost_times(sum_over_squares())
    found = [passes(my.slope_fits, other) for other in others]
    yield "slope_fits(my) where b does nothing, and where J changes by the sum of all g, not g^2", found
    if places and not any(found):
        far = max(map(abs, places))
        yield "the length of your steps", "too long" if far > 1e-3 else "too short" if far < 1e-11 else "good"


SOLVED = """_, [stage], _ = my.run(layers, X, Y, 1, 1, my.gpipe)
    promised = sum((dW ** 2).sum() + (db ** 2).sum() for dW, db in stage.gradients.values())
    my.step([stage], 1e-6)
    J_down = my.run(layers, X, Y, 1, 1, my.gpipe)[0]
    my.step([stage], -2e-6)
    J_up = my.run(layers, X, Y, 1, 1, my.gpipe)[0]
    return abs((J_up - J_down) / 2e-6"""
CUT_TWICE = """J, stages, _ = my.run(layers, X, Y, 3, 4, my.gpipe)
    whole = my.Stage(layers)
    for stage in stages:
        whole.gradients.update(stage.gradients)"""
HEALTHY_MISTAKES = [
    ("J, [whole], _ = my.run(layers, X, Y, 1, 1, my.gpipe)", CUT_TWICE,
     "Both of your runs are cut, so both break alike: one must be in one piece, on one device."),
    ("small(my, 7)", "small(my, 3)",
     "Some of your micro-batches are empty: you cut a mini-batch of m samples into M > m. Take a larger m."),
    ("small(my, 7)", "small(my, 8)",
     "Your test lets B and L pass: all your micro-batches are equal. Take an m that M does not divide."),
    ("3, 4, my.gpipe", "1, 4, my.gpipe",
     "Your test lets I pass: on one device there is no neighbour to wait for. Take several devices."),
    ("return all(equal)", "return J_parts == J",
     "Your test compares J alone. C, G and J have the right cost: compare each dW and db, too."),
    ("zip(sums, whole.gradients[layer])", "zip(sums[:1], whole.gradients[layer])",
     "Your test lets G pass, in which each dW is right: compare db, too."),
    ("return all(equal)", "return any(equal)",
     "Your test lets all versions pass that end without an error. One wrong number is enough: ask for all."),
    ("small(my, 7)", "small(my, 7, float)",
     "Your test calls the healthy pipeline ill. In floats the last bits of a sum differ: use fractions."),
    ("for stage in stages:", "for stage in stages[:1]:",
     "Your test calls every pipeline ill. Is one stage compared with the whole? Take all stages together."),
    ("my.run(layers, X, Y, 3, 4, my.gpipe)", "my.run(*small(my, 7), 3, 4, my.gpipe)",
     "Your test asks for the gradients of a Linear where there are none of it. Have both runs the same "
     "layers (a second `small` makes new ones)? Do you ask all stages?"),
    ("""for layer, sums in parts.items():
        equal += [np.array_equal(*pair) for pair in zip(sums,""",
     """for layer in layers:
        equal += [np.array_equal(*pair) for pair in zip(parts[layer],""",
     "Your test asks for the gradients of a ReLU, which has none: go through the layers in `gradients`."),
    ("return all(equal)", "return not all(equal)", "Your test is the wrong way round: True means healthy."),
]
SLOPE_MISTAKES = [
    ("(J_up - J_down)", "(J_down - J_up)",
     "Your slope has the wrong sign: J rises up the gradient, and a step with a positive rate goes down."),
    ("[stage], -2e-6", "[stage], 2e-6",
     "Both of your costs are on one side of the start. `step` goes down: then go up, with a negative rate."),
    ("[stage], -2e-6", "[stage], -1e-6",
     "Your two costs are one h apart, and you divide by 2h. Does the second step end above the start?"),
    ("/ 2e-6", "/ 1e-6", "Your slope is twice too large: from h below to h above, it is 2h."),
    ("small(my, 7, float)", "small(my, 7)",
     "Your network is in fractions. Floats such as h need `small(my, 7, float)`."),
    ("abs((J_up - J_down) / 2e-6 - promised)", "((J_up - J_down) / 2e-6 - promised)",
     "Half the cost passes your test, and minus the cost. A difference has two signs: take its abs."),
    (" + (db ** 2).sum()", "", "Your promise and your step count different parameters: one lacks b."),
    ("(dW ** 2).sum() + (db ** 2).sum()", "dW.sum() + db.sum()",
     "You promise the sum of all g. Each parameter moves by h g, and so changes J by h g^2: add squares."),
    (SOLVED, SOLVED.replace("1, 1, my.gpipe", "3, 3, my.gpipe").replace("[stage]", "[stage, *more]"),
     "Your test runs several devices, and a stage knows only the derivatives of its own layers. Take one."),
    (SOLVED, SOLVED.replace("2e-6", "0.2").replace("1e-6", "0.1"),
     "Your steps are too long: J is curved, and only near the start is its change g times h."),
    (SOLVED, SOLVED.replace("2e-6", "2e-14").replace("1e-6", "1e-14"),
     "Your steps are too short: the change of J is lost in its last digits, which are rounded."),
    ("abs((J_up - J_down) / 2e-6 - promised) < 1e-5 * promised", "(J_up - J_down) / 2e-6 == promised",
     "Your test calls every pipeline ill. Floats are rounded, so allow for a difference in the last digits. "
     "If you do, look at what you promise: the sum of all g^2, times the way from one cost to the other."),
]

GIVEN = (("small", small),)
PARTS = [
    Part("healthy", 11, of_healthy, HEALTHY_MISTAKES, "it sees ten of twelve.", given=GIVEN),
    Part("slope_fits", 11, of_slope, SLOPE_MISTAKES,
         "it asks the cost itself, and needs no second run that might err alike.", given=GIVEN),
]
