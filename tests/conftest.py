"""Settings for all tests, and the switch that puts a known bug in: `pytest --bug gradient_scale`."""

import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from minipipe.arrays import blas_threads

pytest.register_assert_rewrite("notebooks.checkers", "pitfalls")  # a failure shows the sentence

from pitfalls.bugs import BUGS

collect_ignore = ["splits/beside_pytorch.py"]  # a script that needs torch, as no test does

# Networks in fractions take up to minutes to shrink: a failing property shows the first one that it finds.
# `pytest --hypothesis-profile shrink` looks for the smallest.
AS_FOUND = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile("shrink", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("minipipe", settings.get_profile("shrink"), phases=AS_FOUND)
settings.load_profile("minipipe")


def pytest_addoption(parser):
    parser.addoption("--bug", choices=sorted(BUGS),
                     help="put this bug of tests/pitfalls/ into minipipe, and watch tests turn red")
    parser.addoption("--marks", type=Path, metavar="FILE",
                     help="no tests: write the marks of the file that MY_PIPELINE names into FILE, as JSON")


def pytest_cmdline_main(config):
    """Give marks in the place of a run, if asked."""
    target = config.getoption("--marks")
    if target is None:
        return None
    from exercises import mine
    from marks import write_marks

    if not mine.path().is_file():
        raise pytest.UsageError(f"there is no file {mine.path()}: MY_PIPELINE=... names the one to mark")
    write_marks(mine.path(), target)
    return pytest.ExitCode.OK


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """For the tests' own products, too, whose bits are compared with minipipe's."""
    with blas_threads(1):
        yield


@pytest.fixture(autouse=True)
def no_open_figures():
    """Pyplot keeps figures until they are closed, and warns when there are more than twenty."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def chosen_bug(request):
    name = request.config.getoption("--bug")
    if name:
        BUGS[name](request.getfixturevalue("monkeypatch"))
