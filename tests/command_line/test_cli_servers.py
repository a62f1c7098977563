"""The commands server and federated, as a user meets them."""

import pytest

from minipipe.cli.main import main


def run(capsys, *arguments):
    """(exit status, what was printed, what was complained about)"""
    try:
        status = main(list(arguments))
    except SystemExit as exit:
        status = exit.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize("arguments, words", [
    (["--mode", "async", "--slow", "1=4", "--gradients", "26"],
     ["4 workers, mode async, 26 updates of 32 samples", "worker 0  0@0--", "staleness",
      "makespan                 8 ticks"]),
    (["--workers", "2", "--backups", "1", "--slow", "1=5/2", "--gradients", "12"],
     ["mode sync, 6 updates of 64 samples", "thrown away, too late    3 gradients"]),
    (["--mode", "hogwild", "--update-ticks", "1", "--gradients", "8"], ["over others' writes"]),
    (["--mode", "ssp", "--bound", "1", "--workers", "2", "--threads", "--gradients", "6"],
     ["repeated on the cluster, in the order of arrival: the same bits", "time (s)"]),
    (["--servers", "2", "--bandwidth", "65536", "--latency", "0.5", "--gradients", "4"], ["server 1"]),
])
def test_the_command_server(capsys, tmp_path, arguments, words):
    picture = tmp_path / "server.png"
    status, out, _ = run(capsys, "server", *arguments, "--output", str(picture))
    assert status == 0 and all(word in out for word in words), out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, words", [
    (["--clients", "100", "--fraction", "0.1", "--epochs", "1", "--skewed", "--rounds", "1"],
     "digits of 1 to 3 classes each; 10 in a round"),
    (["--secure", "--drop-out", "0.2", "--epochs", "1", "--rounds", "2", "--target", "20"],
     "20 % reached in round"),
])
def test_the_command_federated(capsys, tmp_path, arguments, words):
    picture = tmp_path / "federated.png"
    status, out, _ = run(capsys, "federated", *arguments, "--output", str(picture))
    assert status == 0 and words in out and "bytes back" in out, out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, words", [
    ("server --slow 1", "--slow 1 must name a worker, and how many times as long it takes: 1=4"),
    ("server --slow 9=2", "slow worker=9 must be at most 3"),
    ("server --slow 1=0", "worker 1 takes 0 times as long: use a number above 0"),
    ("server --mode ssp", "bound=None in mode 'ssp'"),
    ("server --servers 20000", "n_servers=20000 exceeds the 17226 parameters"),
    ("federated --fraction 0.001", "selects nobody: use at least 0.05"),
    ("federated --clients 2000", "is without data"),
])
def test_a_mistake_is_answered_in_a_sentence(capsys, arguments, words):
    status, _, errors = run(capsys, *arguments.split())
    assert status == 2 and words in errors and errors.count("\n") == 1
