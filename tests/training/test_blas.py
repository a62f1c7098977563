"""Matrix products use one thread while minipipe computes, and before and after as many as before.

BLAS has one setting for the whole process, which is one thread here. So a look at it takes a new process,
in which runs take turns, and each begins with three threads.
"""

import json
import subprocess
import sys

BEGIN = """
import threading
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits
import minipipe as mp
from minipipe.partitioning import times_of_layers
from minipipe.verification import equals_same_groups

def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

def in_a_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()

class Looking(mp.ReLU):
    def forward(self, Z):
        seen.append(threads())
        return super().forward(Z)

    def backward_input(self, dA):
        seen.append(threads())
        return super().backward_input(dA)

in_a_thread(threadpool_limits, 3, "blas")
before, seen = threads(), []
X, Y, loss = np.ones((2, 4)), np.ones((1, 4)), mp.MeanSquaredError()
layers = [mp.Linear(2, 2), Looking(), mp.Linear(2, 1)]
net, pipe = mp.Sequential(layers, loss), mp.Pipeline(layers, loss, 2, 2)
assert set(before) <= {3}
"""
END = """
assert seen and all(set(found) <= {1} for found in seen), seen
assert threads() == before, threads()
"""
RUNS = {
    "Sequential": "net.forward_backward(X, Y)",
    "predict": "net.predict(X)",
    "Pipeline": "pipe.forward_backward(X, Y)",
    "a Pipeline on threads": """
mp.Pipeline(layers, loss, 2, 2, engine="threads").forward_backward(X, Y)""",
    "tick by tick": """
pipe.start(X, Y)
while pipe.tick():
    assert threads() == before""",
    "a stream": "mp.Pipeline(layers, loss, 2, 1, schedule='pipedream').train([(X, Y)] * 3, mp.SGD(0.1))",
    "fit, but not its metric": """
def metric(A, Y):
    return threads() == before
epochs = mp.fit(pipe, X, Y, mp.SGD(0.1), 2, 4, validation=(X, Y), metric=metric, report=None)
assert [epoch.score for epoch in epochs] == [True, True]""",
    "a run that fails": """
try:
    net.forward_backward(X, np.ones((3, 4)))
except ValueError:
    pass""",
    "measure": "mp.measure(layers, loss, 2, X, Y)",
    "times of layers": "times_of_layers(layers, loss, X, Y)",
    "a loop over the same micro-batches": "equals_same_groups(pipe, X, Y)",
    "checks, norms and updates": """
vdot = np.vdot
def looking(A, B):
    seen.append(threads())
    return vdot(A, B)

class Stepping(mp.SGD):
    def step(self, g, *memory):
        seen.append(threads())
        return super().step(g, *memory)

np.vdot = looking
for model in (net, pipe):
    model.forward_backward(X, Y)
    assert model.gradient_norm() > 0
    model.step(Stepping(0.1), clip=1e-3)
    model.predict(X)
Stepping(0.1).update(net.layers, net.gradients)
np.vdot = vdot""",
    "another thread": "in_a_thread(net.predict, X)",
    "a block of one's own": """
with mp.arrays.blas_threads(1):
    layers[1].forward(X)""",
}


OF_YOUR_OWN = {
    "a block decides for all that it holds": """
with mp.arrays.blas_threads(2):
    pipe.forward_backward(X, Y)
    with mp.arrays.blas_threads(1):
        assert set(threads()) <= {1}
    assert set(threads()) <= {2}
assert seen and all(set(found) <= {2} for found in seen), seen
assert threads() == before, threads()
pipe.forward_backward(X, Y)
assert set(seen[-1]) <= {1}, seen[-1]
""",
    "layers called by hand use the threads that there are": "layers[1].forward(X)\nassert seen == [before]",
}
ONCE = """
import threadpoolctl
controller, made = threadpoolctl.ThreadpoolController, []
threadpoolctl.ThreadpoolController = lambda: made.append(controller()) or made[-1]
for _ in range(3):
    mp.Sequential(layers[:1], None).predict(X)
threadpoolctl.ThreadpoolController = controller
assert len(made) == 1
"""
ALL = """
import json, sys, traceback
failed = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(code, {})
    except BaseException:
        failed[name] = traceback.format_exc()
print(json.dumps(failed))
"""


def test_minipipe_takes_one_thread_and_gives_the_others_back():
    """The libraries are looked for once, so that code comes first; a block of one's own decides."""
    codes = {"the libraries are looked for once": BEGIN + ONCE}
    codes |= {name: BEGIN + code + END for name, code in RUNS.items()}
    codes |= {name: BEGIN + code for name, code in OF_YOUR_OWN.items()}
    done = subprocess.run([sys.executable, "-c", ALL], input=json.dumps(codes), text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
