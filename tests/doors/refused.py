"""Tables of calls that must be refused: one test a table, and a failure shows each row that is wrong."""

import re


def assert_refused(rows, error=ValueError):
    """Raise `AssertionError` with all rows whose call is not refused in these words.

    rows: pairs (call, words of its error), where "..." in the words stands for anything.
    error: the class of the error, or several.
    """
    wrong = [fault for call, words in rows if (fault := fault_of(call, words, error))]
    assert not wrong, "\n".join([f"{len(wrong)} calls are not refused as they must be:", *wrong])


def fault_of(call, words, error=ValueError):
    """Return what is wrong with how `call` is refused, in a sentence, or None."""
    try:
        call()
    except error as refusal:
        pattern = ".*".join(map(re.escape, words.split("...")))
        return None if re.search(pattern, str(refusal), re.DOTALL) else f"{words!r} is not in {refusal!r}"
    except Exception as other:
        return f"{words!r} was expected, but {other!r} came"
    return f"{words!r} was expected, but nothing is refused"
