"""A profile in, the fastest schedule out: from a file, from `measure`, and back to a table."""

import random
import re
import shlex

import numpy as np
import pytest

import minipipe as mp
from minipipe.cli.main import command_line, main
from minipipe.planning.profiles import Profiled, arrange, names_to_try, profile_of, read_profile

HEADER = "name,forward,backward,weight backward,bytes\n"


@pytest.mark.slow
def test_no_schedule_with_a_name_is_faster():
    chance = random.Random(0)
    for _ in range(3):
        profile = [Profiled(f"layer {i}", *(chance.randint(1, 5) for _ in range(4))) for i in range(8)]
        link = mp.Link(chance.choice([0, 1]), chance.choice([2, float("inf")]))
        best = arrange(profile, 4, 8, link)
        assert best.makespan == mp.simulate(best.schedule, best.costs, link).makespan
        for name in names_to_try():
            try:
                assert arrange(profile, 4, 8, link, [name]).makespan >= best.makespan
            except ValueError as error:
                assert name in str(error)
        assert max(arrange(profile, 4, 8, link, most_alive=4).alive) <= 4
        assert sum(best.names, []) == [layer.name for layer in profile]


def test_a_file_is_read_by_the_names_of_its_columns(tmp_path):
    path = tmp_path / "mine.csv"
    lines = "bytes,name,Forward,weight backward,backward,notes", "10,first,1,3,2.5,x", "", "0,last,1,1,1,"
    path.write_text("\n".join(lines))
    assert read_profile(path) == [Profiled("first", 1, 2.5, 3, 10), Profiled("last", 1, 1, 1, 0)]


def test_the_table_that_the_command_writes_is_the_schedule(tmp_path, capsys):
    path, table = tmp_path / "mine.csv", tmp_path / "best.csv"
    path.write_text(HEADER + "".join(f"block {i},1,1,1,0\n" for i in range(8)))
    arguments = ["plan", "--profile", str(path), "--devices", "4", "--micro-batches", "8"]
    assert main([*arguments, "--output", str(table)]) == 0
    best = arrange(read_profile(path), 4, 8)
    assert mp.Schedule.from_csv(table).devices == best.schedule.devices
    said = capsys.readouterr().out
    assert f"{best.schedule.name}, {best.makespan:g}; work shared evenly takes 48" in said


def test_measured_layers_are_a_profile():
    layers = [mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 8), mp.Tanh()]
    X = np.ones((8, 4))
    measured = mp.measure(layers, mp.MeanSquaredError(), 4, X, X)
    profile = profile_of(measured, layers)
    assert [layer.n_bytes for layer in profile] == [256, 256, 256, 0]
    best = arrange(profile, 2, 4, unit="seconds")
    cut, machine = mp.Cut(best.partition), mp.Machine(costs=best.costs)
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), cut, 4, best.schedule, on=machine)
    X = np.ones((8, 16))
    pipe.forward_backward(X, X)
    assert pipe.trace.makespan == mp.simulate(best.schedule, best.costs).makespan


@pytest.mark.parametrize("text, words", [
    ("", "no column name, forward"),
    ("name,forward\n", "no column backward, weight backward, bytes"),
    (HEADER + "a,1,1,1\n", "line 2: 4 cells for 5 columns"),
    (HEADER + "a,1,1,x,0\n", "line 2: 1, 1, x, 0 are not all numbers"),
    (HEADER + "a,1,-1,1,0\n", "a: I=-1.0 must be at least 0"),
    (HEADER, "profile is an empty list"),
])
def test_a_file_with_mistakes_is_answered(tmp_path, text, words):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_profile(path) and None


def test_the_command_for_a_network(capsys):
    network = "--model", "mlp([16, 16, 16, 10])", "--input", "16", "--batch", "16"
    arguments = ["plan", *network, "--devices", "2"]
    assert main([*arguments, "--memory", "1MiB"]) == 0
    said = capsys.readouterr().out
    assert "the fastest: " in said and "not tried: " in said and "settings" in said
    assert main([*arguments, "--memory", "100B"]) == 2
    assert "nothing fits 100 bytes a device: the closest" in capsys.readouterr().err
    assert main(["plan"]) == 2 and "give either --model" in capsys.readouterr().err
    assert main(["plan", "--profile", "none.csv"]) == 2 and "cannot read none.csv" in capsys.readouterr().err


OPTIONS = [
    ("", "zb-v, "), ("--schedules 1F1B", "1f1b, "), ("--schedules gpipe zb-h1", "zb-h1, "),
    ("--schedules greedy", "zb-h1, "), ("--devices 2", "on 2 devices"), ("-M 16", " 16 micro-batches"),
    ("--most-alive 3", "device: 3 3 3 3"), ("--latency 1", ""), ("--bandwidth 4", ""),
    ("--schedules 1f1b --most-alive 1", "most_alive=1: 1f1b: it keeps 4 micro-batches alive"),
    ("--schedules chimera", "schedules=['chimera'] must be a list of names out of naive"),
    ("--memory 4GiB", "--memory has no place beside --profile: a profile does not say how many bytes"),
    *((f"{words}", f"{words.partition(' ')[0]} has no place beside --profile: leave it out") for words in (
        "--input 4", "--batch-size 128", "--nodes 1", "--device A100", "--between 'InfiniBand HDR'",
        "--shards 1", "--precision float32", "--optimizer sgd",
    )),
]


def test_each_option_changes_the_plan_for_a_profile_or_is_refused(tmp_path, capsys):
    """A silent option is a wrong answer; so is one that was given its default."""
    path, plain = tmp_path / "mine.csv", None
    path.write_text(HEADER + "".join(f"block {i},1,1,1,8\n" for i in range(8)))
    for words, found in OPTIONS:
        status = main(["plan", "--profile", str(path), *shlex.split(words)])
        out, err = capsys.readouterr()
        assert found in out + err, words
        assert out != plain, f"{words} is silent"
        assert (status == 2) == (out == ""), words
        plain = out if not words else plain


def test_no_option_of_the_command_is_left_out_of_that_test():
    """All options of `plan`, but those that say what the costs are of and where the schedule is written."""
    tried = " ".join(words.replace("-M ", "--micro-batches ") for words, _ in OPTIONS)
    options = {*command_line().commands["plan"].options}
    options -= {"-h", "--help", "--model", "--profile", "--output"}
    assert options == {*re.findall(r"--[\w-]+", tried)}


@pytest.mark.parametrize("option", ["--micro-batches 8", "--latency 0", "--bandwidth 4", "--most-alive 2"])
def test_what_is_for_a_profile_is_refused_for_a_network(capsys, option):
    assert main(["plan", "--model", "mlp([16, 10])", "--input", "16", *option.split()]) == 2
    assert f"{option.split()[0]} has no place beside --model: " in capsys.readouterr().err
