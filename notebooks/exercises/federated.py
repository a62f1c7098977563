"""Checkers for notebook 45, federated averaging."""

from . import called, numbers, same


def check_average(average):
    """Judge `average(clients)`: the weights that federated averaging makes of a list of (n, w).

    >>> check_average(lambda clients: sum(w for n, w in clients) / len(clients))
    'That is the plain mean. A client with three times the samples counts three times as much.'
    """
    cases = [[(10, 1.0), (30, 2.0)], [(1, 0.0), (2, 3.0), (5, -1.0)], [(7, 2.5)]]
    right = [sum(n * w for n, w in case) / sum(n for n, _ in case) for case in cases]
    rules = [
        (lambda case: sum(w for _, w in case) / len(case),
         "That is the plain mean. A client with three times the samples counts three times as much."),
        (lambda case: sum(n * w for n, w in case),
         "That is the sum of n w: divide it by the samples of all these clients."),
        (lambda case: sum(n * w for n, w in case) / len(case),
         "Divide by the samples of all these clients, not by how many clients there are."),
        (lambda case: sum(w for _, w in case), "That is the plain sum of the weights."),
    ]
    answers = []
    for case in cases:
        value, sentence = called(average, case)
        if sentence is None:
            value, sentence = numbers("the average", value, ())
        if sentence is not None:
            return sentence
        answers.append(value)
    if all(map(same, answers, right)):
        return "Right: sum of n w over sum of n. After full steps, it is gradient descent on all samples."
    for rule, sentence in rules:
        if all(map(same, answers, map(rule, cases))):
            return sentence
    place = next(place for place, pair in enumerate(zip(answers, right)) if not same(*pair))
    return f"Of {cases[place]} the average is {right[place]:g}, yours is {answers[place]:g}."
