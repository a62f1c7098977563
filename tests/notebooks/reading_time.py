"""How long it takes to read a notebook, by one rule for all. As a table:

    PYTHONPATH=tests:notebooks python3 tests/notebooks/reading_time.py
"""

import re
from typing import NamedTuple

from notebooks.template import NOTEBOOKS, cells_of, is_exercise, is_prediction, source

FOLDED = re.compile(r"<details>.*</details>", re.DOTALL)


class Reading(NamedTuple):
    """cells, words, lines (of code), predictions, exercises: how many. Hints and solutions do not count."""

    cells: int
    words: int
    lines: int
    predictions: int
    exercises: int

    @property
    def minutes(self):
        """150 words or 40 lines of code a minute, a minute for each prediction, three for each exercise."""
        return self.words / 150 + self.lines / 40 + self.predictions + 3 * self.exercises


def reading_of(cells):
    """The `Reading` of a notebook with these cells."""
    texts = [FOLDED.sub("", source(cell)) for cell in cells if cell["cell_type"] == "markdown"]
    codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    return Reading(
        len(cells), sum(len(text.split()) for text in texts),
        sum(bool(line.strip()) for code in codes for line in code.splitlines()),
        sum(map(is_prediction, cells)), sum(map(is_exercise, cells)),
    )


def said(cells):
    """The minutes that the first cell of a notebook names."""
    return int(re.search(r"\bAbout (\d+)\s+minutes\b", source(cells[0]))[1])


if __name__ == "__main__":
    print(f"{'':44}" + "".join(f"{name:>13}" for name in (*Reading._fields, "minutes", "said")))
    for path in NOTEBOOKS:
        cells = cells_of(path)
        reading = reading_of(cells)
        numbers = "".join(f"{n:13}" for n in reading)
        print(f"{path.stem:44}{numbers}{reading.minutes:13.1f}{said(cells):13}")
