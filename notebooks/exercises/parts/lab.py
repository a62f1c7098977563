"""What notebook 11 asks for: two tests of a whole pipeline. They stay in the notebook."""

from types import SimpleNamespace

import numpy as np

from ..broken_versions import EDITS, passes, small, version
from ..judging import Part

SELF_AGREED = ("F", "K")     # wrong in the whole and in its parts alike: no test of this kind sees them
CUT_TWICE = """J, stages, _ = my.run(layers, X, Y, 3, 4, my.gpipe)
    whole = my.Stage(layers)
    for stage in stages:
        whole.gradients.update(stage.gradients)"""


def type_of(said):
    """Return the name of a value's type; NumPy's truth values count as `bool`."""
    return "bool" if isinstance(said, np.bool_) else type(said).__name__


def watched(runs):
    """Return the right pipeline; it adds (K, M, m, whether in fractions) of each run to `runs`."""
    correct = version()

    def run(layers, X, Y, K, M, *more, **options):
        runs.append((K, M, X.shape[1], X.dtype == object))
        return correct.run(layers, X, Y, K, M, *more, **options)

    run.__qualname__ = "run"    # as an error should call it
    return SimpleNamespace(**vars(correct) | {"run": run})


def of_healthy(my):
    """What `healthy` says of the pipeline without a mistake, in which runs, and what it lets pass."""
    runs = []
    said = my.healthy(watched(runs))
    yield "the type of what `healthy` returns for a pipeline without a mistake", type_of(said)
    if type_of(said) != "bool":
        return
    yield "whether your test runs the pipeline `my` that it is given", bool(runs)
    yield "healthy(my) of the pipeline without a mistake", bool(said)
    if not said:
        yield "whether all your runs are in fractions", all(exact for *_, exact in runs)
        yield "healthy(my) of version A", passes(my.healthy, version("A"))
        return
    facts = {"several micro-batches": any(M > 1 for _, M, *_ in runs),
             "micro-batches of several sizes": any(m % M > 0 for _, M, m, _ in runs),
             "several devices": any(K > 1 for K, *_ in runs)}
    yield "what the runs of your test have", [words for words, there in facts.items() if there]
    missed = [letter for letter in EDITS if letter not in SELF_AGREED and passes(my.healthy, version(letter))]
    yield "the versions that your test lets pass", missed
    if missed:
        yield "whether a run is in one piece", any(M == 1 for _, M, *_ in runs)


def with_cost_times(factor):
    """The pipeline whose J is `factor` times what its derivatives belong to."""
    correct = version()

    def run(*arguments, **options):
        J, stages, actions = correct.run(*arguments, **options)
        return factor * J, stages, actions

    return SimpleNamespace(**vars(correct) | {"run": run})


def without_b():
    """The pipeline in which b is not added, and db is 0."""
    correct = version()

    class Linear(correct.Linear):
        def forward(self, A_prev):
            return super().forward(A_prev) - self.b

        def backward(self, dZ):
            dA_prev, dW, db = super().backward(dZ)
            return dA_prev, dW, 0 * db

    return SimpleNamespace(**vars(correct) | {"Linear": Linear})


def of_slope(my):
    """What `slope_fits` says of the pipeline without a mistake, and of some whose J and slopes differ."""
    said = my.slope_fits(version())
    yield "the type of what `slope_fits` returns for a pipeline without a mistake", type_of(said)
    if type_of(said) != "bool":
        return
    yield "slope_fits(my) of the pipeline without a mistake", bool(said)
    factors = (-1, 0.5, 1, 2)
    yield ("the factors c for which a pipeline with c J as its cost passes",
           [c for c in factors if passes(my.slope_fits, with_cost_times(c))])
    yield "whether it passes one that has no b", passes(my.slope_fits, without_b())
    yield "the versions that both tests let pass", [letter for letter in SELF_AGREED
                                                    if passes(my.slope_fits, version(letter))]


PARTS = [
    Part(
        "healthy", 11, of_healthy,
        (
            ("J, [whole], _ = my.run(layers, X, Y, 1, 1, my.gpipe)", CUT_TWICE,
             "Both of your runs are cut. Whatever cutting breaks, it breaks in both: one of them must be "
             "the whole, in one piece on one device."),
            ("3, 4, my.gpipe", "3, 1, my.gpipe",
             "Your test lets A, B, C and others pass: with M = 1 nothing is cut into parts. Take several "
             "micro-batches."),
            ("small(my, 7)", "small(my, 8)",
             "Your test lets B and L pass: all your micro-batches are equal. Take an m that M does not "
             "divide."),
            ("3, 4, my.gpipe", "1, 4, my.gpipe",
             "Your test lets I pass: on one device there is no neighbour to wait for. Take several "
             "devices."),
            ("3, 4, my.gpipe", "1, 4, my.one_f_one_b",
             "Your test lets D, E and I pass: one device under 1F1B has one micro-batch at a time. Take "
             "several devices."),
            ("return all(equal)", "return J_parts == J",
             "Your test compares J alone. Versions C, G and J have the right cost and wrong derivatives: "
             "compare each dW and db, too."),
            ("zip(sums, whole.gradients[layer])", "zip(sums[:1], whole.gradients[layer])",
             "Your test lets G pass, in which each dW is right: compare db, too."),
            ("zip(sums, whole.gradients[layer])", "zip(sums[1:], whole.gradients[layer][1:])",
             "Your test lets versions pass in which each db is right: compare dW, too."),
            ("return all(equal)", "return any(equal)",
             "Your test lets all versions pass that end without an error. One wrong number is enough to "
             "be ill: compare J and all derivatives, and be content only if all of them agree."),
            ("small(my, 7)", "small(my, 7, float)",
             "Your test calls the healthy pipeline ill. In floats the last bit depends on the order of a "
             "sum: use fractions, or allow a few last bits."),
            ("for stage in stages:", "for stage in stages[:1]:",
             "Your test calls every pipeline ill, the healthy one, too. Did you compare all stages? Each "
             "of them has the gradients of its own layers only, and one alone is never equal to the "
             "whole."),
            ("return all(equal)", "return not all(equal)",
             "Your test is the wrong way round: True means that the pipeline is healthy."),
        ),
        "it sees ten of the twelve.",
        kept=False,
        given=(("small", small),),
    ),
    Part(
        "slope_fits", 11, of_slope,
        (
            ("(J_up - J_down)", "(J_down - J_up)",
             "Your slope has the wrong sign: up the gradient, J rises. A step subtracts, so a step with "
             "a positive rate goes down."),
            ("[stage], -2e-6", "[stage], -1e-6",
             "Your two costs are one h apart, and you divide by 2h. Is the second step long enough to "
             "come out on the other side of the start?"),
            ("/ 2e-6", "/ 1e-6",
             "Your slope is twice what it should be: from h below to h above, the distance is 2h."),
            ("< 1e-5 * promised", "< 10 * promised",
             "Your test forgives too much: a J that is twice as large passes. Either the two numbers "
             "agree to many digits, or there is a mistake."),
            (" + (db ** 2).sum()", "",
             "Your promise and your step do not count the same parameters: one of them leaves out b."),
            ("(dW ** 2).sum() + (db ** 2).sum()", "dW.sum() + db.sum()",
             "Your test calls every version ill, the healthy one, too. Each parameter moves by h times "
             "its own derivative, so J changes by h times the sum of all squares. Measure on both sides "
             "of the start, and allow for rounding."),
        ),
        "it asks the cost itself, and so it needs no second run that might make the same mistake.",
        kept=False,
        given=(("small", small),),
    ),
]
