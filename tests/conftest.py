"""Settings for all tests, and the switch that puts a known bug in: `pytest --bug gradient_scale`."""

import os

for setting in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    # read when NumPy is loaded; for products as small as ours, threads wait for each other
    os.environ.setdefault(setting, "1")

import pytest
from bugs import BUGS
from hypothesis import settings

pytest.register_assert_rewrite("checkers")  # a failure shows the sentence
settings.register_profile("minipipe", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("minipipe")


def pytest_addoption(parser):
    parser.addoption("--bug", choices=sorted(BUGS),
                     help="put this bug of tests/bugs.py into minipipe, and watch tests turn red")


@pytest.fixture(autouse=True)
def chosen_bug(request, monkeypatch):
    name = request.config.getoption("--bug")
    if name:
        BUGS[name](monkeypatch)
