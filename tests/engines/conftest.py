"""Answers of checks that run on MPI ranks."""

import os

import pytest
from engines.jobs import answers, once


@pytest.fixture
def answer(request, check, n_ranks, tmp_path_factory):
    """Return what `check` returned on `n_ranks` ranks. The first test that asks runs the checks of all."""
    tests = [item.callspec.params for item in request.session.items if "answer" in item.fixturenames]
    checks = dict.fromkeys(test["check"] for test in tests if test["n_ranks"] == n_ranks)
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # shared by all workers
    value, errors = once(folder, f"{n_ranks} ranks", lambda: answers(checks, n_ranks))[check]
    assert not errors, errors[-3000:]
    return value
