"""One check for each bug that other frameworks shipped; each check was seen failing with the bug in.

`test_absent[name]` runs the check on minipipe as it is. `test_turns_red[name]` puts the bug of the same name
in, see `bugs.py`, and demands that the check fails.
"""

from inspect import isfunction, signature

import pytest
from pitfalls.bugs import BUGS, CHECKS, THEMES


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
