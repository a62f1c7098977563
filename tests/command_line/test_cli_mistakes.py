"""How the command line answers a mistake, an old command, a call for help and an interrupt."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from runpy import run_module

import pytest
from command_line.test_cli import mine, run  # noqa: F401 (`mine` is a fixture)

import minipipe as mp
from minipipe.cli.main import OPTIONS_ELSEWHERE, SAID_ELSEWHERE, Parser, read
from minipipe.cli.options import COMMANDS, SCHEDULE, TRAIN
from minipipe.schedules import build

REFUSED = [
    ("--schedule 1f1", "unknown schedule '1f1': did you mean '1f1b'?"),
    ("-K 16", "16 stages do not fit 15 layers: use at most 15, so that each has a layer"),
    ("-M 0", "microbatches=0 must be at least 1"),
    ("-M 40", "--microbatches 40 exceeds --batch-size 32: use at most that many"),
    ("-D 3", "8 micro-batches over 3 replicas of 4 stages: use a multiple of 3"),
    ("-D 0", "--replicas=0 must be at least 1"), ("-K 0", "--devices=0 must be at least 1"),
    ("--size 0", "--size=0 must be at least 1"),
    ("--learning-rate 0", "learning_rate=0 must be above 0"),
    ("--epochs 0", "--epochs=0 must be at least 1"),
    ("--schedule pipedream -M 8", "'pipedream' makes an update after each micro-batch, so use 1"),
    ("--output t.xyz", "its name must end in one of"), ("--output .", "it is a folder"),
    ("--engine threads --schedule pipedream", "'pipedream' goes on without an end of one: use a schedule"),
    ("show --latency inf", "latency=inf must be finite"),
    ("show --costs F=1,Q=2", "'Q=2' is not one cost of F, B, R, I, W"),
    ("show --costs F=x", "'x' is not a number"),
    ("show --output nowhere/t.png", "there is no folder nowhere"),
    ("show --output x.foo", "cannot write x.foo: its name must end in one of ."),
    ("show -K 0", "devices=0 must be at least 1"),
    ("show --bandwidth 3",
     "--bandwidth 3 slows nothing down while messages have 0 bytes: add message_bytes to --costs"),
    ("show --costs message_bytes=8 --bandwidth 0", "bandwidth=0 must be above 0"),
    ("show nowhere.csv", "cannot read nowhere.csv: there is no such file; schedule.to_csv(path)"),
    ("show .csv", ".csv is not the file of a schedule: pass a table"),
    ("show nowhere.py:gpipe", "cannot read nowhere.py: there is no such file"),
    ("show {mine}:gpipe", "{mine} has no 'gpipe': write {mine}:NAME"),
    ("show {mine}:unfinished -K 2", "write it in notebook 08"),
    ("show {mine}:divides -K 2", "in divides: ZeroDivisionError: "),
    ("show {mine}:misspells -K 2", "in misspells: NameError: name 'rnage' is not defined"),
    ("show my_pipeline:tuples", "did you mean 'my_pipeline.py:tuples'?"),
    ("show {mine}", "{mine} is a file of Python: write {mine}:NAME, and for NAME one of tuples"),
    ("show {mine}:forgets -K 2 -M 2", "device 0 never does 0B0 (missing)"),
    ("check -K 4", "--devices 4 belongs to a schedule: name one, such as check 1f1b --devices 4"),
    ("check /dev/null", "unknown schedule '/dev/null'"),
    ("compare gpipe 1f1", "1f1: unknown schedule '1f1': did you mean '1f1b'?"),
    ("show interleaved --stages-per-device 0", "v=0 must be at least 1"),
    ("show zb-v --stages-per-device 3", "--stages-per-device 3 is for interleaved, looped, interleaved-zb: "),
    ("compare 1f1b zb-v --stages-per-device 2", "--stages-per-device 2 is for interleaved, looped, "),
    ("compare interleaved -M 9", "interleaved: microbatches=9 makes"),
    ("compare interleaved --costs F=1/1/1/2",
     "interleaved: F has 4 costs for 8 stages: give one number, or one per stage"),
    ("search --most-nodes 0", "most_nodes=0 must be at least 1"),
    ("search --stages-per-device 2", "--stages-per-device is not for a search with a proof"),
    ("search --output x.txt", "its name must end in one of .csv"),
    ("show gpipe --recompute --output x.csv", "for which PyTorch's table has no cell"),
]


def test_a_mistake_is_answered_with_status_2_before_any_work(capsys, tmp_path, monkeypatch, mine):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    for words, sentence in REFUSED:
        words, sentence = (text.format(mine=mine.name) for text in (words, sentence))
        status, out, complaint = run(capsys, words)
        assert status == 2 and "epoch " not in out and "equal (==)" not in out, words
        assert sentence in complaint and complaint.startswith("minipipe: error: "), f"{words}: {complaint}"
        assert "Traceback" not in complaint, words
        assert {path for path in tmp_path.iterdir() if path.name != "__pycache__"} == before, words


FILES = {  # name: (its content, what is said of it)
    "empty.csv": (b"", "the table has no actions"), "empty.txt": (b"", "the schedule has no actions"),
    "utf16.csv": ("0F0,0B0".encode("utf-16"), "is not a text file in UTF-8"),
    "binary.txt": (bytes(range(256)), "is not a text file in UTF-8"),
    "page.csv": (b"<html>" + b"x" * 10**5, "column 1: '<html>xxx"),
    "page.txt": (b"<html>" + b"x" * 10**5, "device 0: '<html>xxx"),
    "quote.csv": (b'"' + b"," * 10**6, "field larger than field limit"),
    "far.csv": (b"0F999999999,0B999999999", "0F999999999 is out of reach"),
    "large.csv": (None, "has more than 16,000,000 characters: name the file of a smaller schedule"),
    "bytes.py:f": (b"\0", "source code string cannot contain null bytes"),
    "ends.py:f": (b"raise SystemExit(0)", "line 1, in <module>: SystemExit: 0"),
}


def test_a_file_that_says_no_schedule_is_named_in_a_short_sentence(capsys, tmp_path):
    for name, (content, sentence) in FILES.items():
        path = tmp_path / name.partition(":")[0]
        with path.open("wb") as file:
            file.write(content or b"") if content is not None else file.truncate(6 * 2**30)
        for command in ("show", "check", "compare"):
            status, _, complaint = run(capsys, f"{command} {tmp_path / name}")
            assert status == 2 and complaint.startswith("minipipe: error: "), f"{name}: {complaint}"
            assert str(path) in complaint and sentence in complaint, f"{name}: {complaint}"
            assert len(complaint) < 500 and "Traceback" not in complaint, name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_a_pipe_without_a_writer_is_not_waited_for(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert "there is no such file" in run(capsys, f"show {tmp_path / 'pipe.csv'}")[2]


NOT_READ = [
    ("--devices 2 show", "there is no place for 'show': the options of show come after its name"),
    ("compair", "minipipe: error: there is no command 'compair': did you mean compare? there are show, comp"),
    ("timelin", "there is no command 'timelin', nor `timeline`: use python3 -m minipipe show 1f1b"),
    ("zzz", "error: there is no command 'zzz': there are show, compare, check, search, plan, site\n"),
    ("hlep", "did you mean help?"),
    ("1F1B", "type show 1F1B to see its run, or --schedule 1F1B to train by it"),
    ("show --pp 4", "minipipe show: error: unknown option --pp: type -K "), ("--TP 4", "--TP: type -T "),
    ("--dp 4", "unknown option --dp: type -D "), ("compare --chunks 4", "unknown option --chunks: type -M "),
    ("--stages 4", "unknown option --stages: type -K, for a schedule knows how many stages a device"),
    ("show --micro-batches 4", "unknown option --micro-batches: did you mean --microbatches?"),
    ("show --n_devices 4", "unknown option --n_devices: type -K "),
    ("show --lr 4", "unknown option --lr: it is an option of training "), ("--lr 4", "type --learning-rate "),
    ("show --order 'F0 B0'", "unknown option --order: type a file, with a line for each device: show min"),
    ("show --csv x", "unknown option --csv: type the file alone: show mine.csv"),
    ("show --format csv", "unknown option --format: type --output FILE, whose ending says the format"),
    ("show --schedule gpipe", "unknown option --schedule: leave out --schedule, and keep what follows it"),
    ("--speed", "minipipe: error: unknown option --speed: did you mean --seed?"),
    ("--zzz", "minipipe: error: unknown option --zzz (python3 -m minipipe --help lists all)\n"),
    ("show --latncy 2", "unknown option --latncy: did you mean --latency? (python3 -m minipipe show --help"),
    ("show --most-alive 2", "unknown option --most-alive: it is an option of check, search "),
    ("search -n 2", "unknown option -n"),
    ("show 1f1b 4 8", "there is no place for '4' '8': write -K 4 -M 8 for 4 devices"),
    ("show 1f1b K=4", "there is no place for 'K=4': write -K 4 -M 8 for 4 devices"),
    ("show 4", "'4' is not a schedule: write -K 4 for as many devices"),
    ("compare 1f1b --costs F=1 B=2", "'B=2' is not a schedule: costs are one word, --costs F=1,B=2"),
    ("show gpipe 1f1b", "there is no place for '1f1b': show and check take one schedule"),
    ("show 1f1b mine.png", "there is no place for 'mine.png': write --output mine.png"),
    ("--engine mpy", "invalid choice: 'mpy' (choose from"),
    ("show --latency slow", "argument --latency: 'slow' is not a number"),
    ("show -K four", "argument -K/--devices: 'four' is not a whole number"),
    ("search --most-alive 1/0", "argument --most-alive: '1/0' is not a number"),
    ("site", "the following arguments are required: DIR"),
    ("--re always", "ambiguous option: --re could match --replicas, --recompute"),
    ("show -K 4 -M", "argument -M/--microbatches: expected one argument"),
]


def test_unknown_arguments_are_refused_in_one_line(capsys):
    for words, sentence in NOT_READ:
        status, out, complaint = run(capsys, words)
        assert status == 2 and sentence in complaint, f"{words}: {complaint}"
        assert out == "" and complaint.count("\n") == 1 and "error: " in complaint, words


OLD = (
    "timeline", "explain", "export", "validate", "verify", "threads", "mpi", "server", "federated",
    "batch-size", "papers", "fit",
)


@pytest.mark.parametrize("name", SAID_ELSEWHERE)
def test_a_command_of_before_says_what_to_type_now(capsys, name):
    """What the sentence says to type is read, or is there."""
    assert {*OLD} <= {*SAID_ELSEWHERE}
    status, out, complaint = run(capsys, f"{name} --epochs 3")
    assert (status, out) == (2, "") and complaint.startswith(f"minipipe: error: `{name}` ")
    assert complaint.count("\n") == 1
    house = Path(mp.__file__).parents[1]
    for words in re.findall(r"python3 -m minipipe (.*)", complaint):
        read(shlex.split(words))
    for function in re.findall(r"mp\.(\w+)", complaint):
        assert hasattr(mp, function)
    for number in re.findall(r"notebooks? (\d+)", complaint):
        assert [*house.glob(f"notebooks/{number}_*.ipynb")]
    for picture in re.findall(r"draw.py (\w+)", complaint):
        assert (house / "figures" / f"{picture}.png").exists()


def test_options_of_other_programs_are_answered_by_ours():
    ours = {option for command in (TRAIN, *COMMANDS.values()) for option in Parser(command).options}
    named = {sentence.split()[0].strip(",") for sentence in OPTIONS_ELSEWHERE.values() if sentence[0] == "-"}
    assert named <= ours


def test_help_has_examples_that_are_read(capsys):
    for command in ("", *COMMANDS):
        status, out, _ = run(capsys, f"{command} --help")
        assert (status, out) == (0, run(capsys, f"help {command}")[1]), command
        lines = [line.partition("python3 -m minipipe") for line in out.splitlines()]
        examples = [words for before, found, words in lines if found and before[:2] == "  "]
        assert "example" in out and examples, command
        for words in examples:
            read(shlex.split(re.split("    +", words)[0]))
    assert run(capsys, "version") == run(capsys, "--version") == (0, f"minipipe {mp.__version__}\n", "")


def test_help_and_version_import_no_subpackage():
    """In 0.15 s of CPU time, of which Python needs some; a slow computer may take three times as long."""
    for words in ("--help", "--version", "show --help", "timeline"):
        program = f"""
import sys, time
from minipipe.cli.main import main
try:
    main({words.split()})
except SystemExit:
    pass
rooms = {{name.split(".")[1] for name in sys.modules if name.startswith("minipipe.")}}
assert rooms == {{"checks", "cli", "watching"}} and "numpy" not in sys.modules, rooms
assert time.process_time() < 0.45
"""
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


READ = [
    ("compare gpipe -K 4 1f1b", {"schedules": ["gpipe", "1f1b"], "devices": 4}),
    ("--learning-rate 0.5 -K2 -M 4 -D 2 -T 3", {"learning_rate": 0.5, "devices": 2, "microbatches": 4,
                                                "replicas": 2, "shards": 3}),
    ("SHOW --lat 17/3", {"latency": mp.exact.Fraction(17, 3), "schedule": SCHEDULE}),
    ("search -K3 --most-alive 3 5.5 --halves", {"devices": 3, "most_alive": [3, 5.5], "halves": True}),
]


def test_each_command_reads_its_options_so():
    for words, expected in READ:
        found = vars(read(shlex.split(words))[1])
        assert {name: found[name] for name in expected} == expected, words


def test_the_command_line_and_networks_have_one_default():
    pipe = mp.Pipeline([mp.Linear(1, 1), mp.Linear(1, 1)], mp.MeanSquaredError(), 2, 3)
    assert pipe.schedule == build(SCHEDULE, 2, 3)
    assert read([])[1].schedule == read(["show"])[1].schedule == SCHEDULE


@pytest.mark.skipif(os.name != "posix", reason="a pipe of a shell")
def test_a_reader_that_has_had_enough_ends_it_quietly():
    command = f"{shlex.quote(sys.executable)} -m minipipe compare all -M 64 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("4 devices") and done.stderr == ""


def test_a_wrong_matplotlib_backend_raises_a_readable_error(tmp_path):
    """matplotlib reads the variable when it is imported, so in a process of its own."""
    env = os.environ | {"MPLBACKEND": "nonsense", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "minipipe", "show", "-K", "2", "-M", "2", "--output", "x.png"],
        capture_output=True, text=True, cwd=tmp_path, env=env,
    )
    sentence, end = done.stderr.split("\n")
    assert (done.returncode, end) == (2, "") and "nonsense" in sentence.removeprefix("minipipe: error: ")
    assert not [*tmp_path.iterdir()]


def test_python_m_minipipe_is_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["minipipe", "show", "x"])
    with pytest.raises(SystemExit) as exit:
        run_module("minipipe", run_name="__main__")
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("minipipe: error: unknown schedule 'x'")
