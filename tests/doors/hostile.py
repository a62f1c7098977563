"""Hostile values for every argument of every public callable, tried in a process of its own.

    python tests/doors/hostile.py [--share 20] [--at file] [name ...]

tries every 20th value on the callables of these names, or on all. It prints a line of JSON for each finding,
[callable, argument, value, what it got, what was said], and at last {what they got: how many}:

- worked
- refused: by a sentence of ours, or by an error in which Python or NumPy says what is wrong
- accepted: a count, such as `microbatches`, took what is no number: wrong in silence
- raw: an error that says nothing of what was handed in, such as an `IndexError` from deep inside
- too large: NumPy has refused to make an array of so many bytes
- hang, memory: beyond `SECONDS` or `BYTES`

Before each call it writes what it tries to the file `--at`, so that its caller knows what has ended it.
"""

import argparse
import contextlib
import inspect
import io
import json
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from fractions import Fraction
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from doors.good import LOSS, example, layers, parameters_of, public

import minipipe as mp
from minipipe.collectives import Group

HOUSE = str(Path(mp.__file__).parent)
OURS = ValueError, TypeError, RuntimeError, ArithmeticError, NotImplementedError
SECONDS, BYTES = 20, 6 * 2**30
SAID = *OURS, AttributeError, OverflowError, OSError  # whose sentences name what is wrong


def circle():
    """Return a list that contains itself."""
    found = []
    found.append(found)
    return found


NO_NUMBER = {  # what no count can be
    "no text": lambda: "", "a word": lambda: "gpipe\0", "digits": lambda: "2", "bytes": lambda: b"2",
    "NaN": lambda: float("nan"), "2.5": lambda: 2.5, "1j": lambda: 1j, "an object": object,
    "a class": lambda: mp.Link, "[]": list, "[None]": lambda: [None], "['a']": lambda: ["a"], "{}": dict,
}
HOSTILE = NO_NUMBER | {
    "None": lambda: None, "infinity": lambda: float("inf"), "-1": lambda: -1, "0": lambda: 0,
    "10**30": lambda: 10**30, "5e-324": lambda: 5e-324, "True": lambda: True,
    "1/3": lambda: Fraction(1, 3), "int8": lambda: np.int8(3), "[-1, 0]": lambda: [-1, 0],
    "[[1], [1, 2]]": lambda: [[1], [1, 2]], "a circle": circle, "a set": lambda: {1, 2},
    "a generator": lambda: (n for n in (1, 2)), "three axes": lambda: np.ones((2, 2, 2)),
    "no axis": lambda: np.array(1.0), "nothing in it": lambda: np.ones((2, 0)),
    "NaN in it": lambda: np.array([[1.0, float("nan")]]),
    "words in it": lambda: np.array(["a", "b"]), "a layer": lambda: mp.Linear(2, 3),
    "a schedule": lambda: mp.schedules.gpipe(1, 2), "a module": lambda: mp,
}
COUNTS = {
    "devices", "microbatches", "stages", "replicas", "shards", "epochs", "rounds", "workers", "clients", "n",
    "n_prev", "batch_size", "d", "n_heads", "m", "n_tokens", "K", "M", "N",
}


NETWORKS = {  # a class of options -> a function that makes a network with one of them
    mp.Cut: lambda cut: mp.Parallel(layers(), LOSS, stages=cut),
    mp.Sums: lambda sums: mp.Parallel(layers(), LOSS, replicas=2, sums=sums),
}


class Hang(BaseException):
    """Raised by the alarm in a call that takes too long."""


def called(entry, arguments, parameters):
    """Call `entry`, and do what its result is for: run a program, enter a context, make a network."""
    named, positional = dict(arguments), []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            before = [other for other in [*parameters][:[*parameters].index(name)] if other in named]
            positional = [*(named.pop(other) for other in before), *named.pop(name, ())]
            break
    result = entry(*positional, **named)
    if inspect.isgenerator(result) and "group" in arguments:
        mp.cluster.Cluster([result, entry(**arguments | {"group": Group(1, [0, 1])})]).run()
    elif inspect.isgenerator(result):
        list(result)
    elif isinstance(result, contextlib.AbstractContextManager):
        with result:
            pass
    elif type(result) in NETWORKS:
        NETWORKS[type(result)](result)


def place_of(error):
    """Return the last line of the package that an error has passed."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(HOUSE):
            found = f"{name[len(HOUSE) + 1:]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def outcome(entry, name, parameters, target, value):
    """Return (what a call got, what was said); the arguments other than `target` are good ones."""
    good = {key: example(name, parameter) for key, parameter in parameters.items()}
    arguments = {key: make() for key, make in good.items() if make is not None}
    if target is not None:
        is_several = parameters[target].kind is inspect.Parameter.VAR_POSITIONAL
        arguments[target] = (value,) if is_several else value
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        called(entry, arguments, parameters)
    except Hang:
        return "hang", ""
    except MemoryError as error:  # NumPy says how large an array would be, before it takes memory
        return "too large" if "Unable to allocate" in str(error) else "memory", f"{place_of(error)} {error}"
    except Exception as error:
        said = f"{place_of(error)} {type(error).__name__}: {str(error)[:200]}"
        return "refused" if isinstance(error, SAID) else "raw", said
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "worked", ""


def stop(*_):
    raise Hang


def calls(names, share):
    """Yield (name, argument, what the value is called, a function that makes it): every `share`-th."""
    number = 0
    for name in names:
        for target in parameters_of(public()[name]):
            for what, make in HOSTILE.items():
                number += 1
                if number % share == 0:
                    yield name, target, what, make


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--at", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    os.chdir(mkdtemp())  # where a hostile path may be written to
    counts, entries = Counter(), public()
    for name, target, what, make in calls(options.names or entries, options.share):
        if options.at is not None:
            options.at.write_text(json.dumps([name, target, what]))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            got, said = outcome(entries[name], name, parameters_of(entries[name]), target, make())
        if got == "worked" and target in COUNTS and what in NO_NUMBER:
            got = "accepted"
        counts[got] += 1
        if got not in ("worked", "refused", "too large"):
            print(json.dumps([name, target, what, got, said]), flush=True)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
