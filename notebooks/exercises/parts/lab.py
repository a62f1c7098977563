"""What notebook 11 asks for: two tests of a whole pipeline. They stay in the notebook."""

from types import SimpleNamespace

import numpy as np

from ..broken_versions import EDITS, passes, small, version
from ..judging import Part

SELF_AGREED = ("F", "K")     # wrong in the whole and in its parts alike: no test of this kind sees them
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
COUNT = ", len(parts) == len(whole.gradients)"
ALL_STAGES = f"""for stage in stages:
        parts.update(stage.gradients)
    equal = [J_parts == J{COUNT}]"""
IGNORES_J = ("Your test lets a pipeline pass in which a cut changes J alone: compare J, too, not only the "
             "gradients.")
ONE_STAGE = ("Your test looks at one stage alone: it lets a pipeline pass in which a cut changes the "
             "gradients of another. Compare those of all stages.")


def truth(said):
    """Return a truth value without NumPy's type; None as it is; for any other value a word for its type."""
    if isinstance(said, (bool, np.bool_)):
        return bool(said)
    return None if said is None else f"a {type(said).__name__}"


def watched(runs):
    """Return the right pipeline; it adds (K, M, m, whether in fractions) of each run to `runs`."""
    correct = version()

    def run(layers, X, Y, K, M, *more, **options):
        runs.append((K, M, X.shape[1], X.dtype == object))
        return correct.run(layers, X, Y, K, M, *more, **options)

    run.__qualname__ = "run"    # as an error should call it
    return SimpleNamespace(**vars(correct) | {"run": run})


def cut_changes(what):
    """Return the pipeline in which a run in several pieces gives another J, or other gradients.

    what: "J", or the places of the stages whose gradients change, as a slice.
    """
    correct = version()

    def run(layers, X, Y, K, M, *more, **options):
        J, stages, actions = correct.run(layers, X, Y, K, M, *more, **options)
        if max(K, M) > 1 and what == "J":
            J += 1
        elif max(K, M) > 1:
            for stage in stages[what]:
                stage.gradients = {layer: (dW + 1, db + 1) for layer, (dW, db) in stage.gradients.items()}
        return J, stages, actions

    return SimpleNamespace(**vars(correct) | {"run": run})


def of_healthy(my):
    """What `healthy` says of the pipeline without a mistake, in which runs, and what it lets pass."""
    runs = []
    try:
        said = truth(my.healthy(watched(runs)))
    except KeyError as error:
        if hasattr(error.args[0], "backward"):
            yield "the layer without gradients for which your test asks", type(error.args[0]).__name__
            return
        raise
    except TypeError:
        if any(M > m for _, M, m, _ in runs):
            yield "whether each of your micro-batches has a sample", False
            return
        raise
    yield "healthy(my) of the pipeline without a mistake", said
    if not isinstance(said, bool):
        return
    yield "whether your test runs the pipeline `my` that it is given", bool(runs)
    if not said:
        yield "whether all your runs are in fractions", all(exact for *_, exact in runs)
        for words, what in (("J", "J"), ("gradients", slice(None))):
            yield f"healthy(my) where a cut changes {words}", passes(my.healthy, cut_changes(what))
        return
    facts = {"several micro-batches": any(M > 1 for _, M, *_ in runs),
             "micro-batches of several sizes": any(m % M > 0 for _, M, m, _ in runs),
             "several devices": any(K > 1 for K, *_ in runs)}
    yield "what the runs of your test have", [words for words, there in facts.items() if there]
    missed = [letter for letter in EDITS if letter not in SELF_AGREED and passes(my.healthy, version(letter))]
    yield "the versions that your test lets pass", missed
    if missed:
        yield "whether a run is in one piece", any(M == 1 for _, M, *_ in runs)
        return
    for words, what in (("J", "J"), ("the gradients of the first stage", slice(1)),
                        ("the gradients of the last stage", slice(-1, None)),
                        ("the gradients of the second stage", slice(1, 2))):
        yield f"healthy(my) where a cut changes {words} alone", passes(my.healthy, cut_changes(what))


def with_cost_times(factor, correct):
    """The pipeline whose J is `factor` times what its derivatives belong to."""

    def run(*arguments, **options):
        J, stages, actions = correct.run(*arguments, **options)
        return factor * J, stages, actions

    return SimpleNamespace(**vars(correct) | {"run": run})


def without_b():
    """The pipeline in which J does not depend on b: what is added is the first b, and db is 0."""
    correct = version()

    class Linear(correct.Linear):
        def forward(self, A_prev):
            vars(self).setdefault("first_b", self.b.copy())
            return super().forward(A_prev) - self.b + self.first_b

        def backward(self, dZ):
            dA_prev, dW, db = super().backward(dZ)
            return dA_prev, dW, 0 * db

    return SimpleNamespace(**vars(correct) | {"Linear": Linear})


class Watched:
    """The pipeline without a mistake. It notes where a test runs it, measured along the first gradient.

    K: the devices of each run.
    places: how far the parameters are from the start at each run, in gradients: h for a step up by h.
    stretch: a run is made `stretch` times as far away, and its change of J is divided by it.
    """

    def __init__(self, stretch=1):
        self.K, self.places, self.stretch, self.starts, self.exact = [], [], stretch, {}, False

    def pipeline(self):
        """Return it as a module."""
        return SimpleNamespace(**vars(version()) | {"run": self._run()})

    def _run(self):
        def run(layers, X, Y, K, *more, **options):
            self.exact = self.exact or X.dtype == object
            linears = [layer for layer in layers if hasattr(layer, "W")]
            now = [(layer.W, layer.b) for layer in linears]
            start, gradients, J_start = self.starts.get(linears[0], (now, None, 0))
            for layer, (W, b), (W_start, b_start) in zip(linears, now, start):
                layer.W = W_start + self.stretch * (W - W_start)
                layer.b = b_start + self.stretch * (b - b_start)
            J, stages, actions = version().run(layers, X, Y, K, *more, **options)
            for layer, (W, b) in zip(linears, now):
                layer.W, layer.b = W, b
            if gradients is None:
                found = {layer: pair for stage in stages for layer, pair in stage.gradients.items()}
                gradients, J_start = [found[layer] for layer in linears], J
                self.starts[linears[0]] = [(W.copy(), b.copy()) for W, b in now], gradients, J
            self.K.append(K)
            self.places.append(_along(gradients, now, start))
            return (J - J_start) / self.stretch, stages, actions

        run.__qualname__ = "run"    # as an error should call it
        return run

    def remark(self, slope_fits):
        """Return why a right formula would not fit in the runs that were made, or ""."""
        far = max(map(abs, self.places), default=0)
        there = sorted(place for place in self.places if abs(place) > 0.01 * far)
        if any(K > 1 for K in self.K):
            return "several devices"
        if 0 < far < 1e-9:
            return "steps too short"
        if there and there[0] * there[-1] > 0 and far > 1.5 * min(map(abs, there)):
            return "both costs on one side of the start"
        return "steps too long" if passes(slope_fits, near()) else ""


def near():
    """The pipeline without a mistake, in which each step is a thousandth of what a test asks for."""
    return Watched(1e-3).pipeline()


def _along(gradients, now, start):
    """Return how far parameters have moved, as a multiple of the gradients."""
    pairs = [(float(((new - old) * slope).sum()), float((slope ** 2).sum()))
             for there, here, slopes in zip(now, start, gradients)
             for new, old, slope in zip(there, here, slopes)]
    return sum(moved for moved, _ in pairs) / sum(squares for _, squares in pairs)


def sum_over_squares():
    """Return the sum of all derivatives g over the sum of all g^2, in the network of seven samples."""
    layers, X, Y = small(version(), 7, float)
    _, [stage], _ = version().run(layers, X, Y, 1, 1, version().gpipe)
    slopes = np.concatenate([array.ravel() for pair in stage.gradients.values() for array in pair])
    return slopes.sum() / (slopes ** 2).sum()


def of_slope(my):
    """What `slope_fits` says of the pipeline without a mistake, and of some whose J and slopes differ."""
    watched = Watched()
    try:
        said = truth(my.slope_fits(watched.pipeline()))
    except TypeError:
        if watched.exact:
            yield "whether your runs are in floats", False
            return
        raise
    yield "slope_fits(my) of the pipeline without a mistake", said
    if not isinstance(said, bool):
        return
    remark = "" if said else watched.remark(my.slope_fits)
    if remark:
        yield "what is wrong with your runs", remark
        return
    passing = []
    wrong = {"minus the cost": -1, "half the cost": 0.5, "1.01 times the cost": 1.01,
             "1.1 times the cost": 1.1, "twice the cost": 2}
    for words, factor in wrong.items():
        passing.append(passes(my.slope_fits, with_cost_times(factor, version()))
                       or (not said and passes(my.slope_fits, with_cost_times(factor, near()))))
        yield f"slope_fits(my) of a pipeline that returns {words} as its J", passing[-1]
    if any(passing):
        return
    if said:
        missed = [letter for letter in SELF_AGREED if passes(my.slope_fits, version(letter))]
        yield "the versions that both tests let pass", missed
    else:
        yield "slope_fits(my) where b does nothing", passes(my.slope_fits, without_b())
        there = passes(my.slope_fits, with_cost_times(sum_over_squares(), near()))
        yield "slope_fits(my) where J changes by the sum of all g, not g^2", there

HEALTHY_MISTAKES = [
    ("J, [whole], _ = my.run(layers, X, Y, 1, 1, my.gpipe)", CUT_TWICE,
     "Both of your runs are cut. Whatever cutting breaks, it breaks in both: one of them must be the whole, "
     "in one piece on one device."),
    ("layers, X, Y = small(my, 7)", "return True",
     "Your test never runs the pipeline `my`: it says True of every one."),
    ("3, 4, my.gpipe", "3, 1, my.gpipe",
     "Your test lets A, B, C and others pass: with M = 1 nothing is cut into parts. Take several "
     "micro-batches."),
    ("small(my, 7)", "small(my, 3)",
     "Some of your micro-batches are empty: you cut a mini-batch of m samples into M > m. Take a larger m."),
    ("small(my, 7)", "small(my, 8)",
     "Your test lets B and L pass: all your micro-batches are equal. Take an m that M does not divide."),
    ("3, 4, my.gpipe", "1, 4, my.gpipe",
     "Your test lets I pass: on one device there is no neighbour to wait for. Take several devices."),
    ("3, 4, my.gpipe", "1, 4, my.one_f_one_b",
     "Your test lets D, E and I pass: one device under 1F1B has one micro-batch at a time. Take several "
     "devices."),
    ("return all(equal)", "return J_parts == J",
     "Your test compares J alone. Versions C, G and J have the right cost and wrong derivatives: compare "
     "each dW and db, too."),
    ("J_parts == J, ", "", IGNORES_J),
    (ALL_STAGES, ALL_STAGES.replace("in stages:", "in stages[:1]:").replace(COUNT, ""), ONE_STAGE),
    (ALL_STAGES, ALL_STAGES.replace("in stages:", "in stages[-1:]:").replace(COUNT, ""), ONE_STAGE),
    ("zip(sums, whole.gradients[layer])", "zip(sums[:1], whole.gradients[layer])",
     "Your test lets G pass, in which each dW is right: compare db, too."),
    ("zip(sums, whole.gradients[layer])", "zip(sums[1:], whole.gradients[layer][1:])",
     "Your test lets versions pass in which each db is right: compare dW, too."),
    ("return all(equal)", "return any(equal)",
     "Your test lets all versions pass that end without an error. One wrong number is enough to be ill: "
     "compare J and all derivatives, and be content only if all of them agree."),
    ("small(my, 7)", "small(my, 7, float)",
     "Your test calls the healthy pipeline ill. In floats the last bit depends on the order of a sum: use "
     "fractions, or allow a few last bits."),
    ("for stage in stages:", "for stage in stages[:1]:",
     "Your test calls every pipeline ill, the healthy one, too. So it compares two things that are never "
     "equal, such as one stage with the whole: a stage has the gradients of its own layers only. Did you "
     "compare all stages?"),
    ("my.run(layers, X, Y, 3, 4, my.gpipe)", "my.run(*small(my, 7), 3, 4, my.gpipe)",
     "Your test asks for the gradients of a Linear where there are none of it. Have both runs the same "
     "layers (a second `small` makes new ones)? Do you ask all stages?"),
    ("""for layer, sums in parts.items():
        equal += [np.array_equal(*pair) for pair in zip(sums,""",
     """for layer in layers:
        equal += [np.array_equal(*pair) for pair in zip(parts[layer],""",
     "Your test asks for the gradients of a ReLU, which has no parameters: go through the layers in "
     "`gradients`."),
    ("[J_parts == J,", "[J_parts != J,",
     "Your test calls the healthy pipeline ill, and lets one pass in which a cut changes J. Is the "
     "comparison of J the wrong way round?"),
    ("[np.array_equal(*pair) for", "[not np.array_equal(*pair) for",
     "Your test calls the healthy pipeline ill, and lets one pass in which a cut changes all gradients. Is "
     "the comparison of dW and db the wrong way round?"),
    ("return all(equal)", "return not all(equal)",
     "Your test is the wrong way round: True means that the pipeline is healthy."),
]
SLOPE_MISTAKES = [
    ("(J_up - J_down)", "(J_down - J_up)",
     "Your slope has the wrong sign: up the gradient, J rises. A step subtracts, so a step with a positive "
     "rate goes down."),
    ("[stage], -2e-6", "[stage], 2e-6",
     "Both of your costs are on one side of the start. `step` subtracts: the first step goes down, so the "
     "second must go up, with a negative rate."),
    ("[stage], -2e-6", "[stage], -1e-6",
     "Your two costs are one h apart, and you divide by 2h. Is the second step long enough to come out on "
     "the other side of the start?"),
    ("/ 2e-6", "/ 1e-6",
     "Your slope is twice what it should be: from h below to h above, the distance is 2h."),
    ("< 1e-5 * promised", "< 10 * promised",
     "Your test forgives too much: minus the cost passes, and twice the cost. Either the two numbers agree "
     "to many digits, or there is a mistake. How small is the promise itself?"),
    ("small(my, 7, float)", "small(my, 7)",
     "Your network is in fractions, and they take no floats such as h: `small(my, 7, float)` gives it in "
     "floats."),
    ("< 1e-5 * promised", "< 0.3 * promised",
     "Your test forgives too much: 1.1 times the cost passes. Let the two numbers differ by a very small "
     "part of the promise, such as 1e-5 of it."),
    ("< 1e-5 * promised", "< 0.05 * promised",
     "Your test forgives too much: 1.01 times the cost passes. Let the two numbers differ by a very small "
     "part of the promise, such as 1e-5 of it."),
    ("< 1e-5 * promised", "< 0.6 * promised",
     "Your test forgives too much: half the cost passes. Either the two numbers agree to many digits, or "
     "there is a mistake."),
    ("return abs((J_up - J_down) / 2e-6 - promised) < 1e-5 * promised", "return J_up > J_down",
     "Your test forgives too much: half the cost passes, and twice the cost. Do not only look whether J "
     "rises, but by how much: to many digits."),
    ("abs((J_up - J_down) / 2e-6 - promised)", "((J_up - J_down) / 2e-6 - promised)",
     "Your test sees a J that rises too fast, but half the cost passes, and minus the cost. A difference has "
     "two signs: take its absolute value."),
    (" + (db ** 2).sum()", "",
     "Your promise and your step do not count the same parameters: one of them leaves out b."),
    ("(dW ** 2).sum() + (db ** 2).sum()", "dW.sum() + db.sum()",
     "You promise the sum of all g. But each parameter moves by h times its own g, and so changes J by about "
     "h g times g: add up the squares."),
    (SOLVED, SOLVED.replace("1, 1, my.gpipe", "3, 3, my.gpipe").replace("[stage]", "[stage, *more]"),
     "Your test calls the healthy pipeline ill: it has several devices, and a stage knows only the "
     "derivatives of its own layers. Here one device is enough, with one micro-batch."),
    (SOLVED, SOLVED.replace("2e-6", "0.2").replace("1e-6", "0.1"),
     "Your test calls the healthy pipeline ill: your steps are too long. J is curved, and only near the "
     "start is its change g times h. Take a smaller h."),
    (SOLVED, SOLVED.replace("2e-6", "2e-14").replace("1e-6", "1e-14"),
     "Your test calls the healthy pipeline ill: your steps are too short. The change of J is lost in its "
     "last digits, which are rounded. Take a larger h."),
    ("abs((J_up - J_down) / 2e-6 - promised) < 1e-5 * promised", "(J_up - J_down) / 2e-6 == promised",
     "Your test calls every pipeline ill, the healthy one, too. Floats are rounded, so two ways to the same "
     "number differ in the last digits: allow for that. If you do, look at what you promise: the sum of all "
     "g^2, times the way from one cost to the other."),
]

PARTS = [
    Part("healthy", 11, of_healthy, HEALTHY_MISTAKES,
         "it sees ten of the twelve.", given=(("small", small),)),
    Part("slope_fits", 11, of_slope, SLOPE_MISTAKES,
         "it asks the cost itself, and so it needs no second run that might make the same "
         "mistake.", given=(("small", small),)),
]
