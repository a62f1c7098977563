"""Checkers for notebook 47, the traps of large mini-batches."""

from . import judged


def check_step(step):
    """Judge `step(v, g, m, old, new)`: the next v of momentum, where the rate has changed from old to new.

    >>> check_step(lambda v, g, m, old, new: m * v + new * g)
    'That is the form as it is written: v still carries the old rate.'
    """
    cases = [(1.0, 2.0, 0.5, 0.5, 2.0), (-1.0, 4.0, 0.25, 2.0, 0.5), (3.0, 1.0, 0.5, 1.0, 1.0)]
    mistakes = [
        (lambda v, g, m, old, new: m * v + new * g,
         "That is the form as it is written: v still carries the old rate."),
        (lambda v, g, m, old, new: m * (old / new) * v + new * g,
         "Upside down: v = old * u is to become new * u, so multiply it by new / old."),
        (lambda v, g, m, old, new: (new / old) * (m * v + new * g),
         "The new gradient has its rate already: only v is corrected."),
        (lambda v, g, m, old, new: m * (new / old) * v + g,
         "That forgets the rate of the new gradient: in this form it stands inside v."),
        (lambda v, g, m, old, new: (new / old) * v + new * g, "That forgets the momentum m: nothing fades."),
    ]
    right = [m * (new / old) * v + new * g for v, g, m, old, new in cases]
    return judged(step, ("v", "g", "m", "old", "new"), cases, right, mistakes) or (
        "Right: v stays the rate times u, whatever the rate does.")


def check_local(local):
    """Judge `local(size, size_of_g, decay, trust)`: the ratio of LARS.

    >>> check_local(lambda size, size_of_g, decay, trust: trust * size / size_of_g if size_of_g else 1)
    'Without the weight decay below the line: g + decay * w is what the step is made of.'
    """
    cases = [(8.0, 2.0, 0.75, 0.5), (4.0, 1.0, 0.0, 0.5), (0.0, 2.0, 0.5, 0.25), (8.0, 0.0, 0.5, 0.25)]

    def right(size, size_of_g, decay, trust):
        return trust * size / (size_of_g + decay * size) if size and size_of_g else 1

    mistakes = [
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size),
         "Right for most parameters. But one of zeros gets the ratio 0 so, and never moves: it is 1 there."),
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size) if size else 1,
         "Nearly: without a gradient, too, the ratio is 1."),
        (lambda size, size_of_g, decay, trust: trust * size / size_of_g if size_of_g else 1,
         "Without the weight decay below the line: g + decay * w is what the step is made of."),
        (lambda size, size_of_g, decay, trust: trust * (size_of_g + decay * size) / size if size else 1,
         "Upside down: a long parameter takes long steps."),
    ]
    names = ("size", "size_of_g", "decay", "trust")
    return judged(local, names, cases, [right(*case) for case in cases], mistakes) or (
        "Right: a step of rate 1 is at most the share `trust` of the parameter's length.")
