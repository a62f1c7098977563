"""How long it takes to read a notebook, by one rule for all. As a table:

    PYTHONPATH=tests:notebooks python3 tests/notebooks/reading_time.py
"""

import re
from typing import NamedTuple

from notebooks.template import NOTEBOOKS, cells_of, is_exercise, is_prediction, source

HELP = re.compile(r"<details><summary>Hint</summary>.*</details>\n</details>", re.DOTALL)
TAGS = re.compile(r"</?(details|summary)>")
GUESS = re.compile(r"^ *guess\(", re.MULTILINE)


class Reading(NamedTuple):
    """How much there is of each: cells, words, lines of given code, predictions, exercises.

    The explanation of a prediction counts, which is read once it was made; hints, solutions and what the
    learner writes do not.
    """

    cells: int
    words: int
    lines: int
    predictions: int
    exercises: int

    @property
    def minutes(self):
        """150 words or 15 lines of code a minute, 1.5 minutes for each prediction, 5 for each exercise."""
        return self.words / 150 + self.lines / 15 + 1.5 * self.predictions + 5 * self.exercises


def reading_of(cells):
    """The `Reading` of a notebook with these cells."""
    texts = [TAGS.sub("", HELP.sub("", source(cell))) for cell in cells if cell["cell_type"] == "markdown"]
    codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    given = [source(cell) for cell in cells if cell["cell_type"] == "code" and not is_exercise(cell)]
    return Reading(
        len(cells), sum(len(text.split()) for text in texts),
        sum(bool(line.strip()) for code in given for line in code.splitlines()),
        sum(map(is_prediction, cells)) + sum(len(GUESS.findall(code)) for code in codes),
        sum(map(is_exercise, cells)),
    )


def said(cells):
    """The minutes that the first cell of a notebook names; 0 if it names none."""
    found = re.search(r"\bAbout (\d+)\s+minutes\b", source(cells[0]))
    return int(found[1]) if found else 0


if __name__ == "__main__":
    print(f"{'':44}" + "".join(f"{name:>13}" for name in (*Reading._fields, "minutes", "said")))
    for path in NOTEBOOKS:
        cells = cells_of(path)
        reading = reading_of(cells)
        numbers = "".join(f"{n:13}" for n in reading)
        print(f"{path.stem:44}{numbers}{reading.minutes:13.1f}{said(cells):13}")
