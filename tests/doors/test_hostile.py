"""Whatever is handed in: it works, or a sentence says what is wrong. Never a raw error or a hang."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from doors.good import example, parameters_of, public

HOSTILE = Path(__file__).parent / "hostile.py"
NAMES = [name for name, entry in public().items() if parameters_of(entry)]
PARTS = 8  # of the whole sweep


def tried(names, share, folder):
    """Return ([findings], {what the calls got: how many}); a call that ends Python is a finding, too."""
    findings, counts, at = [], Counter(), folder / "at"
    while names:
        command = [sys.executable, HOSTILE, "--share", str(share), "--at", at, *names]
        environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        for line in map(json.loads, ended.stdout.splitlines()):
            if isinstance(line, dict):
                counts.update(line)
            else:
                findings.append(line)
        if ended.returncode == 0:
            break
        last = json.loads(at.read_text())
        findings.append([*last, "ended Python", ended.stderr[-300:]])
        names = names[names.index(last[0]) + 1:]
    return findings, counts


def test_every_argument_that_must_be_given_has_a_good_example():
    for name in NAMES:
        for parameter in parameters_of(public()[name]).values():
            has_default = parameter.default is not parameter.empty
            assert has_default or example(name, parameter) is not None, f"{name}: {parameter.name}"


def test_a_sample_of_hostile_values_is_refused_in_sentences(tmp_path):
    findings, counts = tried(NAMES, 131, tmp_path)
    assert not [one for one in findings if one[3] != "vague"] and sum(counts.values()) > 300, findings


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_values_are_refused_in_sentences(part, tmp_path):
    findings, counts = tried(NAMES[part::PARTS], 1, tmp_path)
    assert not [one for one in findings if one[3] != "vague"], findings
    assert counts["vague"] < 0.03 * sum(counts.values()), counts
    assert sum(counts.values()) > 3000, counts
