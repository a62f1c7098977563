"""How the command line answers a mistake, a call for help and an interrupt."""

import shlex
import sys
from runpy import run_module

import pytest
from command_line.test_cli import run

from minipipe.cli.main import COMMANDS, command_line
from minipipe.interrupted import INTERRUPTED


@pytest.mark.parametrize("words, sentence", [
    ("--schedule 1f1", "unknown schedule '1f1': did you mean '1f1b'?"),
    ("--devices 9", "9 stages do not fit 7 layers: use at most 7, so that each has a layer"),
    ("--micro-batches 0", "microbatches=0 must be at least 1"),
    ("--micro-batches 40", "--micro-batches 40 exceeds --batch-size 32: use at most that many"),
    ("--learning-rate 0", "learning_rate=0.0 must be above 0"),
    ("--epochs 0", "n_epochs=0"),
    ("--output nowhere/t.png", "there is no folder nowhere"),
    ("--output t.xyz", "its name must end in one of"),
    ("--output .", "it is a folder"),
    ("timeline --latency inf", "latency=inf must be finite"),
    ("timeline --costs F=1,Q=2", "'Q=2' is not one cost of F, B, R, I, W"),
    ("timeline --costs F=x", "'x' is not a number"),
    ("timeline --costs F=nan", "stage 0: F=nan must be above 0 ticks"),
    ("timeline --order 'F0 B1'", "device 0 never does 0B0 (missing)"),
    ("timeline --output nowhere/t.png", "there is no folder nowhere"),
    ("timeline --devices 0", "n_devices=0 must be at least 1"),
    ("timeline --latency nan", "latency=nan must be at least 0"),
    ("timeline --bandwidth 3",
     "--bandwidth 3 slows nothing down while messages have 0 bytes: add message_bytes to --costs"),
    ("timeline --costs message_bytes=8 --bandwidth 0", "bandwidth=0 must be above 0"),
    ("timeline --order 'F0 B0' --devices 1", "--devices 1 has no place beside --order"),
    ("timeline --order 'F0 B0' --copy-of 1", "copy_of=(1,) leaves copy 0 without micro-batches"),
    ("timeline --order 'F0 B0' --copy-of 0 1",
     "copy_of=(0, 1) must have a copy, 0, 1, ..., for each of the 1 micro-batches"),
    ("explain --most-alive 0", "most_alive=0 on device 0 lets no micro-batch through: use at least 1"),
    ("timeline --copy-of 0", "--copy-of is for a schedule of your own"),
    ("timeline --csv nowhere.csv", "cannot read nowhere.csv: there is no such file"),
    ("validate .", "cannot read .: it is a folder"),
    ("validate /dev/null", "the table has no actions: write one row per device"),
    ("compare gpipe 1f1", "1f1: unknown schedule '1f1': did you mean '1f1b'?"),
    ("compare interleaved --micro-batches 9", "interleaved: n_microbatches=9 makes"),
    ("compare interleaved --costs F=1/1/1/2",
     "interleaved: F has 4 costs for 8 stages: give one number, or one per stage"),
    ("fit --memory 8XB", "--memory '8XB' is not a size: write 8GiB"),
    ("fit --memory -1", "--memory '-1' is not a size"),
    ("fit --memory 0", "--memory '0' is not a size"),
    ("fit --memory 1GiB --model 'alexnet()'",
     "minipipe.models has amoebanet_d, lenet5, mlp, resnet, transformer, but no alexnet"),
    ("fit --memory 1GiB --model mlp", "--model 'mlp' is not a call"),
    ("fit --memory 1GiB --model 'amoebanet_d(18)'", "missing 1 required positional argument: 'D'"),
    ("fit --memory 1GiB --model 'amoebanet_d(18, 9)'", "D=9 filters must be a multiple of 8"),
    ("fit --memory 1GiB --input 1 28 28",
     "layers[0], Conv2d(3, 52, 3, stride=2, padding=1, bias=False), does not fit"),
    ("fit --memory 1GiB --model 'mlp([3, 2])'", "--input is missing: give the shape of one sample for mlp"),
    ("fit --memory 1GiB --model 'mlp(3, 2)'", "sizes=3 must be a list of whole numbers"),
    ("fit --memory 1GiB --devices 99", "n_devices=99 does not fit 28 layers: use 1 to 28"),
    ("fit --memory 1GiB --schedules gpip", "must be a list of names out of naive, gpipe"),
    ("fit --memory 1GiB --schedules all gpip", "must be a list of names out of naive, gpipe"),
    ("fit --memory 1GiB --micro-batches 3", "n_microbatches=3 does not divide batch_size=128: use 1"),
    ("fit --memory 1GiB --devices 2 --latency -1", "latency=-1.0 must be at least 0 ticks"),
    ("search --most-nodes 0", "most_nodes=0 must be at least 1"),
    ("export", "does not say what to write: use --format with one of csv, chrome, html, text"),
    ("timeline --replicas 3", "--replicas 3 cannot share 8 micro-batches evenly: use a"),
    ("explain --shards 0", "n_shards=0 must be at least 1"),
    ("timeline --shards 2 --exchanges -1", "exchanges=-1 must be at least 0"),
    ("export --output x.foo", "--output x.foo does not say what to write"),
    ("export --format png", "add --output schedule.png"),
    ("export --format png --output x.svg", "its name must end in one of .png"),
    ("export --format csv --recompute", "for which PyTorch's table has no cell"),
    ("export --format chrome --tick '1 h'", "tick='1 h' is not a length of time"),
    ("server --slow 1", "--slow 1 must name a worker, and how many times as long it takes: 1=4"),
    ("server --slow 9=2", "slow worker=9 must be at most 3"),
    ("server --slow 1=0", "worker 1 takes 0 times as long: use a number above 0"),
    ("server --mode ssp", "bound=None in mode 'ssp'"),
    ("server --servers 20000", "n=20000 servers exceed the 17226 parameters of the network: use"),
    ("federated --fraction 0.001", "selects nobody: use at least 0.05"),
    ("federated --clients 2000", "is without data"),
])
def test_a_mistake_is_answered_in_a_sentence_with_status_2_before_any_work(capsys, words, sentence):
    status, out, complaint = run(capsys, words)
    assert status == 2 and sentence in complaint
    assert complaint.startswith("minipipe: error: ") and "Traceback" not in complaint
    assert "epoch " not in out


@pytest.mark.parametrize("words, sentence", [
    ("--devices 2 timeline", "the options of a command come after its name"),
    ("timelin", "invalid choice: 'timelin'"), ("plan --optimizer momentun", "invalid choice: 'momentun'"),
    ("--speed", "unrecognized arguments: --speed"),
    ("timeline --schedule gpipe --csv x.csv", "not allowed with"),
])
def test_words_that_are_no_command_have_status_2(capsys, words, sentence):
    status, _, complaint = run(capsys, words)
    assert status == 2 and sentence in complaint


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_examples_that_the_parser_takes(capsys, command):
    status, out, _ = run(capsys, f"{command} --help")
    lines = [line.partition("python3 -m minipipe") for line in out.splitlines()]
    lines = [words for before, found, words in lines if found and before.startswith("  ")]
    assert status == 0 and "example" in out and lines
    parser = command_line()
    for words in lines:
        parser.parse_args(shlex.split(words.split("      ")[0]))


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("minipipe.cli.explain.run", stopped)
    assert run(capsys, "explain") == (INTERRUPTED, "", "minipipe: stopped\n")


def test_python_m_minipipe_is_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["minipipe", "timeline", "--schedule", "x"])
    with pytest.raises(SystemExit) as exit:
        run_module("minipipe", run_name="__main__")
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("minipipe: error: unknown schedule 'x'")
