"""Answers of checks that run on MPI ranks."""

import os

import pytest
from engines.jobs import answers, once


@pytest.fixture
def answer_of_ranks(request, check, n_ranks, tmp_path_factory):
    """Return a function of what `check` returned on `n_ranks` ranks, which fails as the check has failed.

    The first test that asks for it runs the checks of all.
    """
    tests = [item.callspec.params for item in request.session.items if "answer_of_ranks" in item.fixturenames]
    checks = dict.fromkeys(test["check"] for test in tests if test["n_ranks"] == n_ranks)
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # shared by all workers
    value, errors = once(folder, f"{n_ranks} ranks", lambda: answers(checks, n_ranks))[check]

    def found():
        assert not errors, errors[-3000:]
        return value
    return found
