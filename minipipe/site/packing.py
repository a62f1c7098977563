"""Runs in little space: what a page knows of them, in columns that many runs share. `site.js` unpacks it."""

import json
import zlib
from base64 import b64encode

# of the lists of rows in `page_data`: the columns that sort them, that of the start, and that of the end
ROWS = {"spans": ((0, 1, 2), 1, 2), "idle": ((0, 1), 1, 2), "messages": ((1, 2, 3), 3, 4), "path": ((), 2, 3)}


def packed(pages):
    """`pages`, {key: what `page_of` gives}, as a text of ASCII characters.

    It is base64 of zlib's format, and holds JSON: [table, {key: page}]. What stands in a page under a name is
    the place of its value in the table, and of a list of rows the places of its columns. So what pages have
    in common, such as the labels of one order at all latencies, is there once. Of the columns of times, one
    has the differences from row to row and the other the lengths, of which few differ. Times are whole
    numbers or binary fractions, which JavaScript adds up exactly.
    """
    table = {}

    def place(value):
        return table.setdefault(json.dumps(value, allow_nan=False, separators=(",", ":")), len(table))

    def pack(name, value):
        if name == "memory":
            return [[place(column) for column in _in_columns(curve, 0)] for curve in value]
        if name in ROWS:
            return [place(column) for column in _in_columns(value, *ROWS[name][1:])]
        return place(value)

    rows = {key: {name: pack(name, value) for name, value in page.items()} for key, page in pages.items()}
    text = f"[[{','.join(table)}],{json.dumps(rows, separators=(',', ':'))}]"
    return b64encode(zlib.compress(text.encode(), 9)).decode()


def sorted_rows(data):
    """What `page_data` gives, with its lists in an order that all runs of a schedule share, if possible."""
    return data | {
        name: sorted(data[name], key=lambda row: [row[i] for i in columns])
        for name, (columns, *_) in ROWS.items()
        if columns
    }


def _in_columns(rows, start, end=None):
    """The columns of `rows`, with differences for the starts and lengths for the ends."""
    columns = [list(column) for column in zip(*rows)]
    if columns:
        starts = columns[start]
        if end is not None:
            columns[end] = [later - earlier for earlier, later in zip(starts, columns[end])]
        columns[start] = [later - earlier for earlier, later in zip([0, *starts], starts)]
    return columns
