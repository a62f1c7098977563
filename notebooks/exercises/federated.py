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


def check_sent(sent):
    """Judge `sent(i, x, masks, R)`: what client i sends; masks[j] is what it shares with client j.

    >>> check_sent(lambda i, x, masks, R: (x + sum(masks.values())) % R)
    'All masks with +: then both of a pair add the same number, and nothing cancels.'
    """
    cases = [(0, 3, {1: 47, 2: 88}, 100), (1, 5, {0: 47, 2: 20}, 100), (2, 9, {0: 88, 1: 20}, 100),
             (1, 2, {0: 5, 2: 11, 3: 12}, 16)]

    def signed(case, above, below, modulus=True):
        i, x, masks, R = case
        total = x + sum((above if j > i else below) * s for j, s in masks.items())
        return total % R if modulus else total

    rules = [
        (lambda case: signed(case, 1, 1),
         "All masks with +: then both of a pair add the same number, and nothing cancels."),
        (lambda case: signed(case, -1, 1),
         "The signs are turned round: they would cancel all the same, but the text adds for j > i."),
        (lambda case: signed(case, 1, -1, False),
         "Take it mod R: otherwise its size tells something of x, and the sum is not the sum mod R."),
        (lambda case: case[1], "That is x itself: everybody can read it."),
    ]
    answers = []
    for case in cases:
        value, sentence = called(sent, *case)
        if sentence is None:
            value, sentence = numbers("what is sent", value, ())
        if sentence is not None:
            return sentence
        answers.append(value)
    right = [signed(case, 1, -1) for case in cases]
    if all(map(same, answers, right)):
        return "Right: 38, 78 and 1 for the three of the text, of which nobody can tell 3, 5 and 9."
    for rule, sentence in rules:
        if all(map(same, answers, map(rule, cases))):
            return sentence
    place = next(place for place, pair in enumerate(zip(answers, right)) if not same(*pair))
    i, x, masks, R = cases[place]
    return (f"Client {i} with x = {x}, masks {masks} and R = {R} sends {right[place]}, and yours sends "
            f"{answers[place]:g}.")
