"""Checkers for notebooks 19 and 20, batch norm and dropout."""

import numpy as np

from . import called, numbers, same


def check_put_together(put_together):
    """Judge `put_together(sizes, means, variances) -> (mean, var)`: the moments of a mini-batch from its
    micro-batches'.

    sizes, means, variances: lists with one number for each micro-batch. Every variance is the mean squared
    distance.

    >>> check_put_together(lambda sizes, means, variances: (np.mean(means), np.mean(variances)))[:44]
    'The mean is right for equal sizes only: a mi'
    """
    cases = [_moments([[1, 3], [6, 8]]), _moments([[1, 2, 6], [4, 4, 7], [0, 2], [9, 5]]),
             _moments([[5, 7, 1, 2, 5], [12]])]
    mistakes = {
        "mean": [
            (lambda n, means, variances: np.mean(means),
             "The mean is right for equal sizes only: a micro-batch of 3 must count more than "
             "one of 2. Weigh by size."),
            (lambda n, means, variances: n @ means,
             "The mean is not divided yet: that is the sum of all numbers."),
            (lambda n, means, variances: np.sum(means),
             "The means are only added up: weigh each by its size / n."),
        ],
        "var": [
            (lambda n, means, variances: n @ variances / n.sum(),
             "var has only the spread within the micro-batches: the distances between "
             "their means are missing."),
            (lambda n, means, variances: np.mean(variances),
             "var is the plain average of the variances: the distances between the means are "
             "missing, and the sizes, too."),
            (lambda n, means, variances: np.mean(variances) + np.var(means),
             "var is right for equal sizes only: weigh each micro-batch by its size, in both "
             "terms and in the mean."),
            (lambda n, means, variances: n @ variances / n.sum() + _between(n, means) * n.sum() / len(n),
             "In var the distances between the means are divided by the number of micro-batches: "
             "divide by n, like the rest."),
            (lambda n, means, variances:
             n @ variances / n.sum() + ((means - n @ means / n.sum()) ** 2).mean(),
             "In var each mean counts once: all n_i numbers of a micro-batch are that far away, so "
             "multiply by its size."),
            (lambda n, means, variances: n @ variances / n.sum() + ((means - n @ means / n.sum()) ** 2).sum(),
             "In var each mean counts once, and is not divided: weigh each squared distance by size / n."),
            (lambda n, means, variances: (variances.sum() + _between(n, means) * n.sum()) / n.sum(),
             "A variance is no sum of squares yet: multiply each by its size before you add."),
            (lambda n, means, variances: n @ variances + _between(n, means) * n.sum(),
             "That is M2, the sum of squared distances: divide it by n to have var."),
            (lambda n, means, variances:
             (n @ variances / n.sum() + _between(n, means)) * n.sum() / (n.sum() - 1),
             "var is divided by n - 1; asked was the mean squared distance, with n below the line."),
            (_between, "That is the spread between the means alone: the spread within the "
                       "micro-batches is missing."),
            (lambda n, means, variances: np.sqrt(n @ variances / n.sum() + _between(n, means)),
             "That is the root of var: asked was var."),
        ],
    }
    what = "(mean, var) of sizes {}, means {}, variances {}"
    return _judge_pair(put_together, what, cases, _whole, mistakes) or (
        "Right: the spread within the micro-batches plus the spread between their means, "
        "each weighed by its size.")


def check_running(update_running):
    """Judge `update_running(running_mean, running_var, n, mean, var, momentum)`: the pair after one
    mini-batch.

    The mini-batch has n numbers with this mean, and var, their mean squared distance from it. momentum is the
    share of the newest mini-batch, as in `minipipe.BatchNorm`.
    """
    cases = [(0.0, 1.0, 4, 2.0, 6.0, 0.25), (2.0, 8.0, 2, -1.0, 3.0, 0.125), (-3.0, 0.5, 9, 4.0, 16.0, 0.5)]

    def mixed(share, old, new):
        return (1 - share) * old + share * new

    mistakes = {
        "running_mean": [
            (lambda rm, rv, n, mean, var, p: mixed(1 - p, rm, mean),
             "The two shares of running_mean are exchanged: momentum is the share of the "
             "newest mini-batch here."),
            (lambda rm, rv, n, mean, var, p: rm + p * mean,
             "The old running_mean must shrink, too: its share is 1 - momentum, so that "
             "the shares add up to 1."),
            (lambda rm, rv, n, mean, var, p: mean,
             "running_mean forgets all mini-batches before: mix the old and the new."),
            (lambda rm, rv, n, mean, var, p: rm, "running_mean has not moved."),
        ],
        "running_var": [
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, var),
             "You took n where n - 1 belongs: the distances are from the sample's own mean, so var is "
             "too small, by (n-1)/n."),
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, var * (n - 1) / n),
             "The factor is turned round: var has n below the line already, so multiply by n / (n - 1)."),
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, var / (n - 1)),
             "var has been divided by n already: multiply by n first, then divide by n - 1."),
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, var * n),
             "That takes in M2, the sum of squared distances: divide it by n - 1."),
            (lambda rm, rv, n, mean, var, p: mixed(1 - p, rv, var * n / (n - 1)),
             "The two shares of running_var are exchanged: momentum is the share of the "
             "newest mini-batch here."),
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, np.sqrt(var * n / (n - 1))),
             "running_var takes in the root of the variance: it holds variances."),
            (lambda rm, rv, n, mean, var, p: mixed(p, rv, var) * n / (n - 1),
             "Only the new variance is to be multiplied by n / (n - 1): the old running_var has had that."),
            (lambda rm, rv, n, mean, var, p: rv, "running_var has not moved."),
        ],
    }

    def right(rm, rv, n, mean, var, p):
        return mixed(p, rm, mean), mixed(p, rv, var * n / (n - 1))

    where = "the result for running_mean = {}, running_var = {}, n = {}, mean = {}, var = {}, momentum = {}"
    return _judge_pair(update_running, where, cases, right, mistakes) or (
        "Right: one step of size momentum towards the mini-batch, with the variance that has "
        "n - 1 below the line.")


def check_dropout(dropout):
    """Judge `dropout(A_prev, D, p, training) -> A`, for a mask D of zeros and ones, both (n, m).

    >>> check_dropout(lambda A_prev, D, p, training: A_prev * D)[:43]
    'In training: the division by 1 - p is missi'
    """
    rng = np.random.default_rng(7)
    for p in (0.25, 0.5):
        A_prev, D = rng.integers(1, 9, (3, 4)) / 2, (rng.random((3, 4)) >= p).astype(np.float64)
        D[0, :2] = 0, 1                                   # both occur
        results = {}
        for training in (True, False):
            value, sentence = called(dropout, A_prev, D, p, training)
            if sentence is None:
                results[training], sentence = numbers("A", value, A_prev.shape)
            if sentence is not None:
                return sentence
        sentence = _wrong_dropout(results[True], results[False], A_prev, D, p)
        if sentence is not None:
            return sentence
    return ("Right: divided by 1 - p in training, so that the expected value is A_prev; at prediction "
            "time, A_prev itself.")


def _wrong_dropout(trained, predicted, A_prev, D, p):
    if same(trained, A_prev * D) and same(predicted, A_prev * (1 - p)):
        return ("That is dropout's first form, which scales at prediction time: the expected values fit, but "
                "then prediction needs p. Divide by 1 - p in training instead.")
    q = 1 - p
    if not same(trained, A_prev * D / q):
        for wrong, sentence in (
            (A_prev * D,
             f"the division by 1 - p is missing: with p = {p} the expected value of A is only {q} A_prev."),
            (A_prev * D * q,
             "you multiplied by 1 - p: the numbers that are left must grow, so divide by it."),
            (A_prev * D / p, "you divided by p, the probability of 0: the share that is left is 1 - p."),
            (A_prev * (1 - D) / q, "the mask is turned round: D is 1 where a number stays."),
            (A_prev * (1 - D) / p, "the mask is turned round: D is 1 where a number stays."),
            (A_prev / q, "D is missing: nothing was set to 0."),
            (A_prev, "nothing happens: A = A_prev D / (1 - p) there. Is training turned round?"),
            (D / q, "A_prev is missing: A = A_prev D / (1 - p)."),
        ):
            if same(trained, wrong):
                return f"In training: {sentence}"
        return (f"In training, with p = {p}, A should be {(A_prev * D / q).tolist()}, yours "
                f"is {trained.tolist()}.")
    if not same(predicted, A_prev):
        for wrong, sentence in (
            (A_prev * D / q,
             "numbers are still set to 0, so the answer to one image would be a matter of luck."),
            (A_prev * D, "numbers are still set to 0, so the answer to one image would be a matter of luck."),
            (A_prev * q, "you multiplied by 1 - p: the division in training has settled that already."),
            (A_prev / q,
             "you divided by 1 - p: nothing is set to 0 there, so nothing has to be made up for."),
        ):
            if same(predicted, wrong):
                return f"At prediction time: {sentence}"
        return f"At prediction time A is A_prev, {A_prev.tolist()}, yours is {predicted.tolist()}."
    return None


def _moments(parts):
    """(sizes, means, variances) of lists of numbers."""
    return [len(part) for part in parts], [float(np.mean(part))
                                           for part in parts], [float(np.var(part)) for part in parts]


def _between(n, means, variances=None):
    """The mean squared distance of the micro-batches' means from the whole mean, weighed by size."""
    return n @ (means - n @ means / n.sum()) ** 2 / n.sum()


def _whole(n, means, variances):
    return n @ means / n.sum(), n @ variances / n.sum() + _between(n, means)


def _judge_pair(function, where, cases, right, mistakes):
    """A sentence about the learner's function of some arguments to two numbers, or None if both are right in
    all `cases`.

    where: names a case's arguments. right: gives the pair. mistakes: for the name of each number, pairs of a
    wrong formula and the sentence for a function that agrees with it everywhere.
    """
    answers = []
    for case in cases:
        value, sentence = called(function, *case)
        if sentence is not None:
            return sentence
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            return f"Return two things: {', '.join(mistakes)}."
        for name, part in zip(mistakes, value):
            _, sentence = numbers(name, part, ())
            if sentence is not None:
                return sentence
        answers.append([float(part) for part in value])
    arguments = [[np.array(argument) for argument in case] for case in cases]
    rights = [right(*case) for case in arguments]
    for place, name in enumerate(mistakes):
        got = [answer[place] for answer in answers]
        for wrong, sentence in mistakes[name]:
            if same(got, [wrong(*case) for case in arguments]):
                return sentence
        for case, answer, truth in zip(cases, got, rights):
            if not same(answer, truth[place]):
                return f"{name} should be {truth[place]:.6g}, yours is {answer:.6g}: {where.format(*case)}."
    return None
