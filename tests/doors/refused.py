"""Tables of calls that must be refused: one test a table, and a failure shows each row that is wrong."""

import re


def assert_refused(rows, error=ValueError):
    """Raise `AssertionError` with all rows whose call is not refused in these words.

    rows: pairs (call, words of its error). In the words, "..." stands for anything, and a "^" in front for
        the beginning of the message.
    error: the class of the error, or several.
    """
    faults = [fault_of(call, words, error) for call, words in rows]
    wrong = [fault for fault in faults if fault is not None]
    assert faults and not wrong, "\n".join([f"{len(wrong)} of {len(faults)} are refused wrongly:", *wrong])


def fault_of(call, words, error):
    """Return what is wrong with how `call` is refused, in a sentence, or None."""
    try:
        call()
    except error as refusal:
        pattern = ".*".join(map(re.escape, words.removeprefix("^").split("...")))
        look = re.match if words[0] == "^" else re.search
        return None if look(pattern, str(refusal), re.DOTALL) else f"{words!r} is not in {refusal!r}"
    except Exception as other:
        return f"{words!r} was expected, but {other!r} came"
    return f"{words!r} was expected, but nothing is refused"
