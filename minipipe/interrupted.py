"""Ctrl-C while the package is imported, which takes a moment: the command line then ends as it does later.

That is with one line and the status 130. A program that imports minipipe keeps its own way to end.
"""

import _signal as signal  # the module `signal` imports others, which takes as long as all that came before
import os
import sys

INTERRUPTED = 130  # that of a shell for a program that was interrupted


def is_command_line(program, arguments):
    """Whether Python was started as `python -m minipipe`, or as `minipipe`.

    program: `sys.argv[0]`, which is "-m" as long as Python looks for the module to run.
    arguments: `sys.orig_argv`, all that Python was started with.

    >>> is_command_line("-m", ["python3", "-m", "minipipe", "verify"])
    True
    >>> is_command_line("mine.py", ["python3", "mine.py", "-m", "minipipe"])
    False
    """
    if program == "-m":
        return arguments[arguments.index("-m") + 1] == "minipipe"
    return os.path.splitext(os.path.basename(program))[0] == "minipipe"


def stop(number, frame):
    """End at once: an exception would come out of whatever is being imported, with a traceback."""
    os.write(2, b"minipipe: stopped\n")
    os._exit(INTERRUPTED)


def raise_again():
    """From now on, Ctrl-C raises `KeyboardInterrupt`, which the command line answers."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _waits and is_command_line(sys.argv[0], sys.orig_argv):
    signal.signal(signal.SIGINT, stop)
