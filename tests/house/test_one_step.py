"""What a reader passes who follows one step of a network: few frames, few files."""

import sys
from pathlib import Path

import numpy as np

import minipipe as mp

HOUSE = Path(mp.__file__).parent
MOST_FRAMES, MOST_FILES = 14, 6  # from forward_backward down to Linear.forward, both of them included
MOST_FILES_OF_A_STEP = 36


def pipeline():
    layers = [mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4), mp.Linear(4, 4)]
    return mp.Pipeline(layers, mp.MeanSquaredError(), 4, 4, "1f1b")


X = np.ones((4, 8))


def test_few_frames_lie_between_forward_backward_and_a_layer(monkeypatch):
    """In the second mini-batch; the first counts bytes on the way."""
    pipe, ways, forward = pipeline(), [], mp.Linear.forward
    pipe.forward_backward(X, X)

    def look(self, A_prev):
        frame, way = sys._getframe(1), [("Linear.forward", str(HOUSE / "layers" / "linear.py"))]
        while way[-1][0] != "forward_backward":
            way.append((frame.f_code.co_name, frame.f_code.co_filename))
            frame = frame.f_back
        ways.append(way)
        return forward(self, A_prev)

    monkeypatch.setattr(mp.Linear, "forward", look)
    pipe.forward_backward(X, X)
    assert len(ways) == 12  # three layers, four micro-batches
    for way in ways:
        names = " > ".join(name for name, _ in reversed(way))
        assert len(way) <= MOST_FRAMES, names
        assert len({file for _, file in way}) <= MOST_FILES, names


def test_one_step_runs_few_files():
    """In the third step; what is done once in a process, or for the first mini-batches, does not count."""
    pipe, optimizer, files = pipeline(), mp.SGD(0.1), set()
    for _ in range(2):
        pipe.forward_backward(X, X)
        pipe.step(optimizer)

    def look(frame, event, argument):
        files.add(frame.f_code.co_filename)

    sys.setprofile(look)
    try:
        pipe.forward_backward(X, X)
        pipe.step(optimizer)
    finally:
        sys.setprofile(None)
    inside = sorted(str(Path(file).relative_to(HOUSE)) for file in files if Path(file).is_relative_to(HOUSE))
    assert "cluster/clock.py" in [name.replace("\\", "/") for name in inside]
    assert len(inside) <= MOST_FILES_OF_A_STEP, "\n".join(inside)
