"""The solutions of the electives solve, their stubs are not solved yet, and their checkers take junk."""

from importlib import import_module
from inspect import isfunction, signature
from math import nan
from pathlib import Path

import numpy as np
import pytest
from notebooks.checkers import JUNK, formulas_of, is_refusal, judged_wrongly, names_a_mistake
from notebooks.template import ELECTIVES, exercises_of
from sampling import one_in

EACH = pytest.mark.parametrize("path", ELECTIVES, ids=lambda path: path.stem)


@EACH
def test_solutions_solve_and_stubs_do_not(path):
    for exercise in exercises_of(path):
        assert exercise.sentence(exercise.solution).startswith("Right: ")
        unsolved = [exercise.sentence(code) for code in (exercise.stub, exercise.empty())]
        for sentence in (*unsolved, exercise.checker(None)):
            assert sentence.startswith("Not solved yet: ")
        if exercise.raising():
            sentence = exercise.sentence(exercise.raising())
            assert "stopped with KeyError: 'nothing', in line " in sentence
            assert " of your cell: `return left[right]`." in sentence


@pytest.mark.parametrize("path", one_in(3, ELECTIVES), ids=lambda path: path.stem)
def test_junk_is_refused_in_a_sentence(path):
    """Among it what the solution returns, with something else in the place of each number."""
    for exercise in exercises_of(path):
        right, answers = exercise.right, list(JUNK)
        if isfunction(right):
            answers += [spoiled(right, value) for value in (nan, object())]
        faults = judged_wrongly(exercise.checker, [(answer,) for answer in answers], is_refusal)
        assert not faults, "\n".join(faults)


def spoiled(function, value):
    """`function`, with `value` in the place of each number that it returns."""
    def filled(result):
        if isinstance(result, (tuple, list)):
            return type(result)(filled(part) for part in result)
        return np.full(np.shape(result), value)

    return lambda *arguments: filled(function(*arguments))


@EACH
def test_a_function_must_answer_more_than_the_first_question(path):
    """A function that is always -1 is told the first question, and the solution's answer to it."""
    for exercise in exercises_of(path):
        check, right, asked = exercise.checker, exercise.right, []

        def first_answer(*arguments):
            asked.append((arguments, right(*arguments)))
            return asked[0][1]

        if isfunction(right):
            assert check(3).startswith("Pass the function itself")
            assert "stopped with TypeError" in check(lambda: 7)
            assert not check(first_answer).startswith("Right: ")
            sentence, (arguments, answer) = check(lambda *arguments: -1), asked[0]
            if " the count is " in sentence:
                values = zip(signature(right).parameters, arguments, strict=True)
                question = ", ".join(f"{name} = {value}" for name, value in values)
                assert sentence == f"With {question} the count is {answer:g}, yours is -1."


@EACH
def test_each_wrong_formula_of_a_checker_is_told_its_own_sentence(path):
    """None of them is right in the cases that are asked, or taken for another one."""
    def told(sentence, own):
        return sentence.endswith(own) and names_a_mistake(sentence)

    for exercise in exercises_of(path):
        formulas = formulas_of(exercise.checker, exercise.right)
        faults = judged_wrongly(exercise.checker, formulas, told)
        assert not faults, "\n".join(faults)


def test_wrong_answers_to_every_exercise_are_tried():
    """Those in a table of `tests/exercises`, or the formulas of the checker itself."""
    files = (Path(__file__).parents[1] / "exercises").glob("test_exercises_*.py")
    tests = [import_module(file.stem).test_mistakes for file in files]
    in_tables = {check for test in tests for check in test.pytestmark[0].args[1]}
    for exercise in (exercise for path in ELECTIVES for exercise in exercises_of(path)):
        tried = exercise.checker in in_tables or formulas_of(exercise.checker, exercise.right)
        assert tried, exercise.checker.__name__
