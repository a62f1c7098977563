"""How the command line answers a mistake, a call for help and an interrupt."""

import os
import re
import shlex
import subprocess
import sys
from runpy import run_module

import pytest
from command_line.test_cli import run

import minipipe as mp
from minipipe.cli import timeline
from minipipe.cli.main import COMMANDS, command_line, options_from
from minipipe.cli.options import SCHEDULE, schedule_from
from minipipe.comparison import table_of
from minipipe.interrupted import INTERRUPTED
from minipipe.schedules import build, interleaved_one_f_one_b


REFUSED = [
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
    ("timeline --devices 0", "devices=0 must be at least 1"),
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
    ("compare gpipe 1f1", "unknown schedule '1f1': did you mean '1f1b'?"),
    ("timeline 1f1b --schedule gpipe", "two schedules, 1f1b and gpipe: leave one of them out"),
    ("timeline --schedule gpipe --csv x.csv", "a name and --csv each say what the schedule is: leave one"),
    ("timeline x.csv --order F0 B0", "--order and --csv each say what the schedule is: leave one of them"),
    ("timeline -K 4 --stages 4", "--devices 4 and --stages 4 say the same: leave one of them out"),
    ("compare interleaved -K 8 -M 64 --stages 32",
     "--devices 8 and --stages 32: leave out --stages, and add --stages-per-device 4"),
    ("timeline -K 0 --stages 4", "--devices 0 and --stages 4 say the same"),
    ("timeline interleaved --stages-per-device 0", "--stages-per-device 0 must be at least 1"),
    ("timeline zb-v --stages-per-device 3", "as many stages as the schedule says, 2 in zb-v: leave"),
    ("compare 1f1b zb-v --stages-per-device 2", "schedule says, 1 in 1f1b, 2 in zb-v: leave it"),
    ("timeline --order 'F0 B0' --stages-per-device 2", "--stages-per-device 2 has no place beside --order"),
    ("timeline zb-v --stages 3", "--stages 3: each device has 2, so use a multiple"),
    ("compare 1f1b zb-v --stages 4", "--stages 4 need unequal devices, 1 a device in 1f1b, 2 a device in"),
    ("timeline --costs F=1 B=2", "'B=2' is not a schedule: costs are one word, --costs F=1,B=2"),
    ("mpi -K 3", "mpiexec says how many devices there are: leave out --devices, and type mpiexec -n 3 pyth"),
    ("plan --profile nowhere.csv", "cannot read nowhere.csv: No such file or directory"),
    ("timeline --order 'F0 B0' --stages 1", "--stages 1 has no place beside --order"),
    ("compare interleaved --micro-batches 9", "interleaved: n_microbatches=9 makes"),
    ("compare interleaved --costs F=1/1/1/2",
     "interleaved: F has 4 costs for 8 stages: give one number, or one per stage"),
    ("fit --memory 8XB", "--memory '8XB' is not a size: write 8GiB"),
    ("fit --memory -1", "--memory '-1' is not a size"),
    ("fit --memory 0", "--memory '0' is not a size"),
    ("fit --memory 16", "--memory 16 has no unit: write 16GiB, or 16B if you mean bytes"),
    ("fit --memory 24576", "--memory 24576 has no unit: write 24576MiB, or 24576B if you mean bytes"),
    ("timeline 4", "'4' is not a schedule: write -K 4 for as many devices"),
    ("validate ZB_V", "ZB_V is a schedule with a name, not a file: explain ZB_V shows its run"),
    ("compare gpipe all --stages 4", "--stages 4 need unequal devices, 1 a device in naive, 2 a device in"),
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
    ("export --output x", "does not say what to write: use --format with one of csv, chrome, html, text"),
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
    ("federated --rounds 0", "--rounds=0 must be at least 1"),
]


def test_a_mistake_is_answered_with_status_2_before_any_work(capsys):
    for words, sentence in REFUSED:
        status, out, complaint = run(capsys, words)
        assert status == 2 and "epoch " not in out and "equal (==)" not in out, words
        assert sentence in complaint and complaint.startswith("minipipe: error: "), f"{words}: {complaint}"
        assert "Traceback" not in complaint, words


NOT_READ = [
    ("--devices 2 timeline", "the options of a command come after its name"),
    ("timelin", "minipipe: error: there is no command 'timelin': did you mean timeline? there are timel"),
    ("zzz", "minipipe: error: there is no command 'zzz': there are timeline, compare, "),
    ("train --epochs 3", "there is no command 'train': training is what happens without a command, so le"),
    ("simulate 1f1b", "there is no command 'simulate': did you mean timeline? there are"),
    ("timeline --pp 4", "unknown option --pp: Megatron's PP is -K or --devices here\n"),
    ("--TP 4", "unknown option --TP: Megatron's TP is --shards here\n"),
    ("compare --dp 4", "unknown option --dp: Megatron's DP is --replicas here\n"),
    ("1F1B", "type timeline 1F1B to draw that schedule, or --schedule 1F1B to train by it"),
    ("plan --optimizer momentun", "there is no 'momentun': did you mean 'momentum'? there are sgd, mome"),
    ("plan --between '10 Gbit Ethernet'", "did you mean 'Ethernet, 10 Gbit/s'? there are NVLink 1, P100, "),
    ("--speed", "usage: minipipe [-h]"), ("--speed", "minipipe: error: unknown option --speed: did you mean"),
    ("--zzz", "minipipe: error: unknown option --zzz\n"),
    ("--mnist x", "unknown option --mnist of minipipe: batch-size would take it\n"),
    ("timeline --latncy 2", "usage: minipipe timeline [-h]"),
    ("timeline --latncy 2", "timeline: error: unknown option --latncy: did you mean --latency?\n"),
    ("timeline --most-alive 2", "unknown option --most-alive of minipipe timeline: explain, search, val"),
    ("explain --kept 1", "unknown option --kept of minipipe explain: search would take it\n"),
    ("papers -K 2", "unknown option -K of minipipe papers: timeline, compare, "),
    ("papers -n 2", "unknown option -n\n"),
    ("timeline 1f1b 4 8", "there is no place for '4' '8': write -K 4 -M 8 for 4 devices"),
    ("timeline gpipe 1f1b", "there is no place for '1f1b': one schedule is enough, and compare takes sev"),
    ("verify 1f1b", "no place for '1f1b': a schedule is for timeline, explain, export, threads, mpi and"),
    ("verify Linear", "no place for 'Linear': a layer, a network or a schedule of your own is checked in"),
    ("verify --layers", "unknown option --layers: a layer, a network or a schedule of your own is check"),
    ("server async", "there is no place for 'async': write --mode async\n"),
    ("server --Async", "unknown option --Async: did you mean --mode async?\n"),
    ("papers --table 2", "unknown option --table: write TABLE without --table in front\n"),
    ("compare gpipe --schedule 1f1b", "unknown option --schedule: write NAME without --schedule in front\n"),
    ("fit --memory 16 GB", "there is no place for 'GB': a size is one word, such as --memory 16GB\n"),
    ("export 1f1b mine.png", "there is no place for 'mine.png': write --output mine.png\n"),
    ("export zb-v csv", "there is no place for 'csv': the format is --format csv, or the ending of --"),
    ("mpi -n 4", "unknown option -n: mpiexec says how many devices there are, mpiexec -n 4 python3 -m"),
    ("fit --memory 1GB -K 1-8", "argument --devices: '1-8' is not a whole number; several are written"),
    ("timeline --latency slow", "argument --latency: 'slow' is not a number\n"),
    ("fit", "the following arguments are required: --memory"),
    ("timeline -K four", "argument --devices: 'four' is not a whole number\n"),
    ("explain --most-alive 1/0", "argument --most-alive: '1/0' is not a number"),
    ("search --most-alive 3,2", "'3,2' is not a number; several are written with spaces between"),
    ("--lr 0.1 --spede", "minipipe: error: unknown option --spede"),
    ("export --re always --co F=1", "--re may be --recompute or --replicas: write one of them\n"),
    ("hlep", "did you mean help?"), ("timeline -K 4 -M", "argument --micro-batches: expected one argument"),
]


def test_words_that_are_no_command_have_status_2(capsys):
    for words, sentence in NOT_READ:
        status, _, complaint = run(capsys, words)
        assert status == 2 and sentence in complaint, f"{words}: {complaint}"


def test_help_has_examples_that_are_read_and_one_spelling(capsys):
    parser = command_line()
    for command in ("", *COMMANDS):
        status, out, _ = run(capsys, f"{command} --help")
        assert (status, out) == (0, run(capsys, f"help {command}")[1]), command
        lines = [line.partition("python3 -m minipipe") for line in out.replace("\\\n", "").splitlines()]
        examples = [words for before, found, words in lines if found and before.startswith("  ")]
        assert "example" in out and examples, command
        for words in examples:
            parser.parse_args(shlex.split(re.split("    +(?!--)", words)[0]))
        found = {*out.replace(",", " ").split()}
        assert not {"--microbatches", "--n_devices", "--n_microbatches"} & found, command
        for option, short in ("--devices K", "-K for short"), ("--micro-batches M", "-M for short"):
            assert (option in out) == (short in " ".join(out.split())), f"{command}: {option}"


TIMELINE = "timeline --schedule zb-v --devices 2 --micro-batches 4"


def test_what_is_meant_is_read_in_any_spelling():
    """-K and -M, and names without regard to case, "_" and "-", of commands, options and schedules."""
    for words in [
        TIMELINE, "timeline zb-v -K 2 -M 4", "TIMELINE ZB_V -K2 -M=4", "timeline -k 2 zbv -m4",
        "timeline zb-v --stages 4 -M4", "timeline zb-v --n_devices 2 --n_microbatches 4",
        "timeline zb-v K=2 M=4", "timeline zb-v --K 2 --M 4", "timeline --Devices=2 --microbatches=4 zb-v",
        "timeline --dev 2 -micro_batches 4 --Schedule ZB-V",
    ]:
        options = options_from(shlex.split(words))
        assert options.run is timeline.run and schedule_from(options) == build("zb-v", 2, 4), words


@pytest.fixture
def undrawn(monkeypatch):
    """No picture, and of a training only its first mini-batch."""
    monkeypatch.setattr("minipipe.cli.compare.compare", lambda traces: None)
    monkeypatch.setattr("minipipe.cli.compare.save_figure", lambda figure, path: None)
    monkeypatch.setattr("minipipe.cli.timeline.save_timeline", lambda trace, path, title: print(title))
    monkeypatch.setattr("minipipe.cli.train.save_timeline", lambda trace, path, title: print(title))
    monkeypatch.setattr("minipipe.cli.train._prove", lambda *args: True)
    monkeypatch.setattr("minipipe.cli.train.fit", lambda *args, **options: None)


def test_each_device_has_as_many_stages_as_were_asked_for(capsys, undrawn):
    deep = interleaved_one_f_one_b(4, 8, v=3)
    for words in ("-K 4 -M 8 --stages-per-device 3", "--stages 12 --stages-per-device 3"):
        schedule = schedule_from(options_from(["timeline", "interleaved", *words.split()]))
        assert schedule == deep and schedule.n_stages == 12, words
    status, out, _ = run(capsys, "compare 1f1b interleaved -K 4 -M 8 --stages-per-device 3")
    assert status == 0 and table_of(mp.compare("1f1b", deep, devices=4, microbatches=8)) in out


@pytest.mark.parametrize("words, theirs, ours", [
    ("compare gpipe {} -K 2 -M 2", "dapple", "1f1b"),
    ("explain {} -K 2", "PipeDream_Flush", "1f1b"),
    ("timeline {} -K 2", "Interleaved-1F1B", "interleaved"),
    ("export {} -K 2", "afab", "gpipe"),
    ("export --schedule {} -K 2", "ZBVZeroBubble", "zb-v"),
    ("--schedule {} -K 2", "dapple", "1f1b"),
    ("plan --model 'mlp([8, 8])' --input 8 --batch-size 4 --devices 1 --schedules {}", "DAPPLE", "1f1b"),
])
def test_other_names_of_the_field_are_taken_with_a_note(capsys, undrawn, words, theirs, ours):
    wanted, found = (run(capsys, words.format(name)) for name in (ours, theirs))
    note = f"minipipe: note: the schedule {theirs!r} is called {ours!r} here (that name is from "
    assert wanted[0] == found[0] == 0 and without_seconds(found[1]) == without_seconds(wanted[1])
    assert found[2].startswith(note) and found[2].count("note") == 1


def without_seconds(text):
    """Return a text without numbers of seconds, which differ from run to run."""
    return re.sub(r"[\d.]+ (s|seconds)\b", "", text)


READ = [
    ("compare gpipe -K 4 1f1b", {"schedules": ["gpipe", "1f1b"], "devices": 4}),
    ("--lr 0.5 --gpus 2 --n_epochs 3", {"learning_rate": 0.5, "devices": 2, "epochs": 3}),
    ("fit --memory 1 -K 1 2 --batch 8 --device a100", {"devices": [1, 2], "batch_size": 8, "device": "A100"}),
    ("threads zb-h1 -K 2", {"name": "zb-h1", "devices": 2}),
    ("mpi GPipe -M 2", {"name": "GPipe", "micro_batches": 2}), ("--microbatches 4 -K 2", {"devices": 2}),
    ("search -K3 --kept-for-w 0.5", {"devices": 3, "kept_for_W": 0.5}),
    ("batch_size --seeds 1", {"seeds": 1}),
    ("plan --optimizer Adam --between 'ethernet, 1 gbit/s'", {"between": "Ethernet, 1 Gbit/s"}),
]


def test_each_command_reads_its_options_so():
    for words, expected in READ:
        found = vars(options_from(shlex.split(words)))
        assert {name: found[name] for name in expected} == expected, words


def test_the_command_line_and_networks_have_one_default():
    layers = [mp.Linear(1, 1), mp.Linear(1, 1)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 3)
    split = mp.Split(stages=2, microbatches=3)
    both = mp.Parallel(layers, mp.MeanSquaredError(), split)
    assert pipe.schedule == both.schedule == build(SCHEDULE, 2, 3)
    for words in "", "timeline -K 2 -M 3":
        assert vars(options_from(shlex.split(words)))["schedule"] in (None, SCHEDULE)


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("minipipe.cli.explain.run", stopped)
    assert run(capsys, "explain") == (INTERRUPTED, "", "minipipe: stopped\n")


def test_a_wrong_backend_of_matplotlib_is_a_sentence(tmp_path):
    """matplotlib reads the variable when it is imported, so in a process of its own."""
    program = """
import minipipe as mp
from minipipe.cli.main import main
try:
    mp.simulate(mp.schedules.gpipe(2, 2)).plot()
except ValueError as error:
    print(f"ValueError: {error}")
print(main(["timeline", "-K", "2", "-M", "2"]))
"""
    env = os.environ | {"MPLBACKEND": "nonsense", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=env
    )
    sentence = (
        "MPLBACKEND='nonsense' is not a backend of matplotlib: unset that variable, or use MPLBACKEND=agg"
    )
    assert done.stdout.startswith(f"ValueError: {sentence}\n") and done.stdout.endswith("2\n"), done.stderr
    assert done.stderr == f"minipipe: error: {sentence}\n"
    assert not [*tmp_path.iterdir()]


def test_python_m_minipipe_is_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["minipipe", "timeline", "--schedule", "x"])
    with pytest.raises(SystemExit) as exit:
        run_module("minipipe", run_name="__main__")
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("minipipe: error: unknown schedule 'x'")
