"""The learner's own file, `my_pipeline.py`, which grows from notebook to notebook.

`begin(7)` lends what is not built yet. `Stage = check(Stage)` judges a part and, once it is right, writes it
into the file. `show(actions)` opens one's own run in the player. The file is `notebooks/my_pipeline.py`, or
the one that the environment variable MY_PIPELINE names.
"""

import linecache
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from minipipe.checks import write_text
from minipipe.cluster import COMPUTE, Trace
from minipipe.cluster.record import Record
from minipipe.order import Action

from .folds import FOLDER, definitions
from .judging import Part, all_parts, judged, module_of, part_named

HEAD = '"""My pipeline, written by hand in the notebooks of minipipe."""\n\nimport numpy as np'
MINE, LENT = "mine, from notebook {:02d}", "lent by the course: yours comes from notebook {:02d}"
BLOCK = re.compile(r"^# (\w[\w ]*): (mine|lent)\b.*\n", re.MULTILINE)


def path() -> Path:
    """Return where the learner's file is."""
    return Path(os.environ.get("MY_PIPELINE") or FOLDER / "my_pipeline.py")


def blocks() -> dict[str, tuple[str, str]]:
    """Return {title of a part: ("mine" or "lent", its code)} of the learner's file, in its order."""
    _, *pieces = BLOCK.split(_read(path()))
    return {title: (owner, code.strip())
            for title, owner, code in zip(pieces[::3], pieces[1::3], pieces[2::3])}


def write(found: dict[str, tuple[str, str]]) -> None:
    """Write the learner's file, in the order of the course.

    What the learner wrote and would be lost goes into a file beside it, and a sentence says so.
    """
    parts = {part.title: part for part in all_parts()}
    before, *codes = [code.strip() for code in BLOCK.split(_read(path()))[::3]]
    texts = [before if before.startswith(HEAD) else HEAD]    # with imports that the learner has added
    for title in sorted(found, key=lambda title: [*parts].index(title) if title in parts else len(parts)):
        owner, code = found[title]
        line = (MINE if owner == "mine" else LENT).format(parts[title].notebook) if title in parts else owner
        texts.append(f"# {title}: {line}\n{code.strip()}")
    text = "\n\n\n".join(texts) + "\n"
    beside, lent = path().with_suffix(".before.txt"), [part.solution.strip() for part in parts.values()]
    lost = [code for code in (before, *codes) if code not in text and code not in lent]
    kept = _read(beside)
    if lost:
        write_text(beside, kept + "".join(f"{code}\n\n\n" for code in lost if code not in kept))
    write_text(path(), text)
    if before in lost:
        print(f"{beside.name} keeps what stood in {path().name} without a mark. With a line `# clock: mine` "
              "above it, a clock of your own counts as yours.")
    elif lost:
        print(f"{beside.name} keeps what this replaces.")


def _read(file):
    """Return the text of a file, "" if there is none."""
    return file.read_text(encoding="utf-8") if file.exists() else ""


def begin(number: int) -> None:
    """Lend what notebooks before this one ask for and the file lacks; load the file; say whose is what.

    Afterwards `from my_pipeline import Linear` gives the learner's own, or the lent one.
    """
    newest = {part.name: part for part in all_parts() if part.kept and part.notebook < number}
    lend(*newest.values())
    whose = blocks()
    for owner, words in (("mine", "Yours"), ("lent", "Lent by the course")):
        titles = [title for title in whose if whose[title][0] == owner]
        if titles:
            print(f"{words}: {', '.join(titles)}.")


def lend(*parts: Part) -> ModuleType:
    """Write the course's code of those parts that the file lacks into the file, and load it."""
    found = blocks()
    lent = {part.title: ("lent", part.solution) for part in parts if not _is_there(part, found)}
    if lent or not path().exists():
        write(found | lent)
    return load()


def _is_there(part, found):
    """Return whether the file has a part, or the one that was written again after it."""
    later = [other for other in all_parts() if other.name == part.name and other.notebook >= part.notebook]
    later = later[later.index(part):]
    return any(other.title in found for other in later)


def load() -> ModuleType:
    """Run the learner's file, as the module `my_pipeline`.

    It stays one module: what a notebook imported from it before uses the new parts, too.
    """
    names = {"__name__": "my_pipeline", "__file__": str(path())}
    text = path().read_text(encoding="utf-8")
    try:
        exec(compile(text, str(path()), "exec"), names)
    except Exception as error:
        remedy = "Mend the file; or give it another name, and run the cells of your exercises again"
        what = f"{type(error).__name__}: {error}"
        raise ImportError(f"{path().name} cannot be imported: {what}. {remedy}") from None
    linecache.checkcache(str(path()))
    module = sys.modules.setdefault("my_pipeline", ModuleType("my_pipeline"))
    exec(compile(text, str(path()), "exec"), vars(module))
    return module


def check(answer: object, variant: str = "") -> object:
    """Judge a function or class that was just written, in one sentence; keep it in the file if it is right.

    answer: the function or class itself. Its name says what it is.
    variant: of a part that is written again, what is new in it, such as "with recompute".

    Returns what to go on with: the learner's own if it is right, else the course's.
    """
    part = part_named(f"{getattr(answer, '__name__', answer)} {variant}".strip())
    code = code_of(answer)
    sentence = judged(part, code)
    print(sentence)
    if not sentence.startswith("Right: "):
        whose = "your last right one" if blocks().get(part.title, ("lent",))[0] == "mine" else "the course's"
        print(f"(Until it is right, this notebook goes on with {whose}.)")
        return getattr(lend(part) if part.kept else module_of(part, part.solution), part.name)
    if not part.kept:
        return answer
    found = blocks()
    for other in all_parts():
        is_earlier = all_parts().index(other) < all_parts().index(part)
        is_lent = other.title in found and found[other.title][0] == "lent"
        if other.name == part.name and (is_earlier or is_lent):  # a lent later one would hide the learner's
            found.pop(other.title, None)
    write(found | {part.title: ("mine", definitions(code))})
    owned = {title.split()[0] for title, (owner, _) in blocks().items() if owner == "mine"}
    names = {other.name for other in all_parts() if other.kept}
    print(f"It is in {path().name} now: {len(owned & names)} of {len(names)} parts are yours.")
    return getattr(load(), part.name)


def code_of(answer: object) -> str:
    """Return the code of the cell that defines a function or class, without lines such as `%timeit`."""
    functions = [answer, *vars(answer).values()] if isinstance(answer, type) else [answer]
    for function in functions:
        file = getattr(getattr(function, "__code__", None), "co_filename", None)
        lines = linecache.getlines(file) if file else []
        if lines:
            return "".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in lines)
    name = getattr(answer, "__name__", answer)
    raise ValueError(f"the cell that defines {name!r} cannot be read: pass the function or class "
                     "itself, from a cell of this notebook")


def show(actions: list[tuple]) -> Trace:
    """Return a run of one's own clock as a trace, which draws and plays itself and says why devices wait.

    actions: (device, kind, micro-batch, start, end) of each action, with one stage on each device.
    """
    K = 1 + max(device for device, *_ in actions)
    record = Record([(device, COMPUTE) for device in range(K)], [1] * K)
    ends = {(device, kind, i): end for device, kind, i, _, end in actions}
    free = [0] * K
    for device, kind, i, start, end in sorted(actions, key=lambda action: (action[3], action[0])):
        source = device - 1 if kind == "F" else device + 1
        if kind != "W" and source in range(K):
            sent = ends[source, kind, i]
            received = max(sent, free[device])
            label = Action("F" if kind == "F" else "B", source, i)
            row = record.sends(label, source, device, sent, 0, source, sent)
            record.receives(row, received, device)
            if received > free[device]:
                record.waits += (device, free[device], received, row)
        record.spans += (device, Action(kind, device, i), start, end)
        free[device] = end
    record.finished = free
    return Trace(record)
