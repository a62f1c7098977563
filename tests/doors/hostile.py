"""Hostile values for every argument of every public callable, tried in a process of its own.

    python tests/doors/hostile.py [--share 20] [--at file] [name ...]

tries every 20th value on the callables of these names, or on all. It prints a line of JSON for each finding,
[callable, argument, value, what it got, what was said], and at last {what they got: how many}:

- worked
- refused: by a `raise` of ours, with a sentence that names the argument or shows the value
- vague: by one that does neither
- accepted: it worked with a value that the argument's row in `minipipe.arguments` refuses
- raw: an error of Python or NumPy, from deep inside
- too large: NumPy has refused to make an array of so many bytes
- hang, memory: beyond `SECONDS` or `BYTES`

Before each call it writes what it tries to the file `--at`, so that its caller knows what has ended it.
"""

import argparse
import contextlib
import dis
import inspect
import io
import json
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from doors.good import LOSS, example, layers, parameters_of, public

import minipipe as mp
from minipipe.arguments import ARGUMENTS
from minipipe.checks import shown
from minipipe.collectives import Group

HOUSE = str(Path(mp.__file__).parent)
OURS = ValueError, TypeError, RuntimeError, FloatingPointError, NotImplementedError
SECONDS, BYTES = 20, 6 * 2**30
# plain data that are checked where they are used, and arguments whose names have a row that is another one's
OTHER_ROWS = {
    "in_segments", "replicated_stages",
    "Accelerator", "Compute", "ConstantWarmUp", "Cosine", "Costs", "FederatedAveraging", "GradualWarmUp",
    "Group", "Hardware", "Schedule", "Send", "Task",
    "alive_microbatches", "all_reduce_ticks", "bytes_by_kind", "checked_ports", "costs_in_segments",
    "costs_of", "lane_name", "learning_rates", "links_between", "player", "ports",
}


def circle():
    """Return a list that contains itself."""
    found = []
    found.append(found)
    return found


HOSTILE = {
    "None": lambda: None, "no text": lambda: "", "a word": lambda: "gpipe\0", "digits": lambda: "2",
    "bytes": lambda: b"2", "NaN": lambda: float("nan"), "infinity": lambda: float("inf"),
    "-infinity": lambda: float("-inf"), "-1": lambda: -1, "0": lambda: 0, "1": lambda: 1,
    "10**9": lambda: 10**9, "10**30": lambda: 10**30, "10**5000": lambda: 10**5000,
    "-10**30": lambda: -10**30,
    "0.5": lambda: 0.5, "2.5": lambda: 2.5, "1e308": lambda: 1e308, "5e-324": lambda: 5e-324,
    "True": lambda: True, "False": lambda: False, "1/3": lambda: Fraction(1, 3),
    "a Decimal": lambda: Decimal(2),
    "1j": lambda: 1j, "NumPy's NaN": lambda: np.float64("nan"), "int8": lambda: np.int8(3),
    "an object": object, "a class": lambda: mp.Link, "[]": list, "[1]": lambda: [1], "[None]": lambda: [None],
    "['a']": lambda: ["a"], "[-1, 0]": lambda: [-1, 0], "[NaN, NaN]": lambda: [float("nan")] * 2,
    "[[1], [1, 2]]": lambda: [[1], [1, 2]], "a circle": circle, "{}": dict, "{1: 2}": lambda: {1: 2},
    "a set": lambda: {1, 2}, "(1, 2, 3)": lambda: (1, 2, 3), "a range": lambda: range(3),
    "a generator": lambda: (n for n in (1, 2)), "an array": lambda: np.ones(2),
    "three axes": lambda: np.ones((2, 2, 2)), "no axis": lambda: np.array(1.0),
    "nothing in it": lambda: np.ones((2, 0)), "NaN in it": lambda: np.array([[1.0, float("nan")]]),
    "objects in it": lambda: np.array([[1, None]], dtype=object), "words in it": lambda: np.array(["a", "b"]),
    "1j in it": lambda: np.array([[1j, 1]]), "a matrix": lambda: np.matrix([[1, 2]]),
    "a mask": lambda: np.ma.masked_array([[1.0, 2.0]], [[True, False]]),
    "dates in it": lambda: np.array(["2020-01-01"], "M8[D]"), "a layer": lambda: mp.Linear(2, 3),
    "a schedule": lambda: mp.schedules.gpipe(1, 2), "a link": lambda: mp.Link(),
    "a network": lambda: mp.Sequential([mp.Linear(2, 2)], None), "a module": lambda: mp,
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
        mp.Cluster([result, entry(**arguments | {"group": Group(1, [0, 1])})]).run()
    elif inspect.isgenerator(result):
        list(result)
    elif isinstance(result, contextlib.AbstractContextManager):
        with result:
            pass
    elif type(result) in NETWORKS:
        NETWORKS[type(result)](result)


def is_ours(error):
    """Return whether a `raise` of the package has raised it; or Python, which names a file."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    is_raised = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    is_sentence = isinstance(error, OURS) and code.co_filename.startswith(HOUSE) and is_raised
    return is_sentence or isinstance(error, OSError)


def place_of(error):
    """Return the last line of the package that an error has passed."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(HOUSE):
            found = f"{name[len(HOUSE) + 1:]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def names_it(error, name, value):
    """Return whether a sentence has the name of the argument, or the value, a part of it, or its class."""
    words, parts = str(error), [value]
    for _ in range(3):
        within = [part for part in parts if isinstance(part, (list, tuple, set, dict, range))]
        parts += [item for part in within for item in list(part)[:9]]
    if isinstance(value, np.ndarray):
        parts += [*map(str, (value.shape, value.dtype)), *value.ravel().tolist()[:4]]
    signs = [name, name.removesuffix("s"), *(type(part).__name__ for part in parts)]
    signs += [part if isinstance(part, str) else shown(part)[:12] for part in parts]
    return any(sign and sign in words for sign in signs)


def is_refused_by_its_row(name, parameter, value):
    """Return whether the table has a row for this argument that refuses the value."""
    if inspect.isgenerator(value):  # the call has used it up
        return False
    row = ARGUMENTS.get(f"{name}.{parameter.name}", ARGUMENTS.get(parameter.name))
    if row is None or name in OTHER_ROWS or (value is None and parameter.default is None):
        return False
    try:
        row.checked(parameter.name, value)
    except ValueError:
        return True
    return False


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
        if not is_ours(error):
            return "raw", said
        return "refused" if target is None or names_it(error, target, value) else "vague", said
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if target is not None and is_refused_by_its_row(name, parameters[target], value):
        return "accepted", ""
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
        counts[got] += 1
        if got not in ("worked", "refused", "too large"):
            print(json.dumps([name, target, what, got, said]), flush=True)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
