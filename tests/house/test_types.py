"""What an editor finds in calls of the package before they run: mypy stands for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = [  # (a call, a part of what mypy says of it; None: nothing)
    ("mp.Linear(4, 3, mp.layers.xavier, tie='W', bias=False).forward(X)", None),
    ("mp.Linear('a', 3)", 'incompatible type "str"; expected "int"'),
    ("mp.Linear(4)", 'Missing positional argument "n"'),
    ("mp.Linear(4, 3, biased=True)", 'Unexpected keyword argument "biased"'),
    ("mp.Conv2d(1, 2, (3, 5), padding='same')", None),
    ("mp.Conv2d(1, 2, '3')", 'expected "int | Sequence[int]"'),
    ("mp.Dropout(Fraction(1, 4))", None),
    ("mp.Dropout('half')", 'expected "float | Fraction"'),
    ("mp.models.mlp([64, 32, 10], mp.Tanh)", None),
    ("mp.models.mlp([64, 32, 10], mp.Tanh())", 'incompatible type "Tanh"'),
    ("mp.Adam(betas=(0.9, 0.99))", None),
    ("mp.Adam(betas=0.9)", 'expected "Sequence[float | Fraction]"'),
    ("mp.Sequential([mp.Linear(4, 3), mp.ReLU()], mp.MeanSquaredError()).forward_backward([[1.0]], X)", None),
    ("mp.Sequential(mp.Linear(4, 3), None)", 'expected "Sequence[Layer]"'),
    ("mp.Sequential([mp.Linear(4, 3)], 'mse')", 'expected "Loss | None"'),
    ("net.step(mp.SGD(0.1), clip=1)", None),
    ("net.step(0.1)", 'expected "Optimizer"'),
    ("mp.fit(net, X, X, mp.SGD(0.1), 2, 32, learning_rate=lambda t: 0.1 / (1 + t))", None),
    ("mp.fit(net, X, X, mp.SGD(0.1), 2, 32, shuffle=True)", 'Unexpected keyword argument "shuffle"'),
    ("mp.Pipeline([mp.Linear(4, 4)], mp.MeanSquaredError(), 4, 8, schedule='1f1b', recompute='sqrt')", None),
    ("mp.Pipeline([mp.Linear(4, 4)], mp.MeanSquaredError(), 4, 8, schedul='1f1b')", 'Unexpected keyword'),
    ("mp.one_hot([0, 1], n_classes=2).shape", None),
    ("mp.accuracy(X, X).upper()", '"float" has no attribute "upper"'),
    ("mp.save('net.npz', net).path", '"None" has no attribute "path"'),
]
BEGIN = [
    "from fractions import Fraction", "import numpy as np", "import minipipe as mp",
    "X, net = np.ones((4, 8)), mp.Sequential([mp.Linear(4, 4)], None)",
]


@pytest.mark.slow
def test_wrong_calls_are_errors_before_they_run(tmp_path):
    pytest.importorskip("mypy", reason="mypy, of the extra `test`, is not installed")
    (tmp_path / "calls.py").write_text("\n".join(BEGIN + [call for call, _ in CALLS]), encoding="utf-8")
    run = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "calls.py"]
    env = {**os.environ, "MYPYPATH": str(Path(__file__).parents[2]), "MYPY_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True)
    said = {}
    for line in found.stdout.splitlines():
        place, is_error, message = line.partition(": error: ")
        if is_error:
            said[int(place.rpartition(":")[2])] = message
    for line, (call, expected) in enumerate(CALLS, len(BEGIN) + 1):
        message = said.pop(line, None)
        assert message is None if expected is None else expected in (message or ""), (call, message)
    assert not said, found.stdout + found.stderr
