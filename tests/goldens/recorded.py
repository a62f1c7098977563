"""What the package computes and says, as it was when it was last found right.

    python3 tests/goldens/recorded.py record [KIND ...]        records all cases anew, or those of some kinds
    python3 tests/goldens/recorded.py files                    writes the checkpoints that are missing
    python3 tests/goldens/recorded.py show KIND CASE [PART]    prints a case in full
    python3 tests/goldens/recorded.py compare COMMIT           trains with floats there and here
    python3 tests/goldens/recorded.py compare COMMIT KIND CASE [PART]     prints what differs in a case

A kind is a module of this folder or a function of one: `cases()` are its texts, and `parts(case)` is
{part: lines}. `recorded.json` has a short hash of each part: {kind: {names of parts: {hashes: cases}}}. It
travels between processors, since its ticks and bytes are exact. Numbers of trainings are not recorded: in
fractions they are those of a plain loop (`tests/pairs`), and bits of floats are compared with those of an
earlier commit, which is checked out beside, in the same run. Record anew when a change is meant, and say in
the commit what has changed and why it is right.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from difflib import unified_diff
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
FILE = HERE / "recorded.json"
sys.path[:0] = map(str, (HERE.parent, HERE.parents[1]))

from goldens import traces, training  # noqa: E402

KINDS = {
    "traces": traces,
    "runs": SimpleNamespace(cases=training.cases, parts=training.runs),
    "texts": SimpleNamespace(cases=traces.text_cases, parts=traces.text_parts),
    "files": SimpleNamespace(cases=training.files, parts=training.of_file),
}
NUMBERS = SimpleNamespace(parts=training.numbers)  # for `compare` alone, as the floats are
FLOATS = {"numbers": training.floats, "runs": training.floats, "texts": traces.floats}


def hashes(kind, case):
    """Return {part: short hash}."""
    found = (KINDS | {"numbers": NUMBERS})[kind].parts(case)
    return {part: hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8] for part, lines in found.items()}


def read():
    """Return {kind: {case: {part: hash}}} of all that was recorded."""
    return {
        kind: {
            case: dict(zip(names.split(" | "), found.split(), strict=True))
            for names, of_hashes in groups.items() for found, cases in of_hashes.items() for case in cases
        }
        for kind, groups in json.loads(FILE.read_text(encoding="utf-8")).items()
    }


def record(kinds=()):
    """Write the hashes of all cases, or of those of some kinds and leave the others as they were."""
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    for kind in kinds or KINDS:
        groups = {}
        for case in KINDS[kind].cases():
            found = hashes(kind, case)
            groups.setdefault(" | ".join(found), {}).setdefault(" ".join(found.values()), []).append(case)
        recorded[kind] = groups
        FILE.write_text(json.dumps(recorded, indent=0) + "\n", encoding="utf-8")


def differences(kind, case, recorded, found):
    """Return the sentences about the parts of a case that differ, each with how to see it."""
    command = f"python3 tests/goldens/recorded.py show {kind} {case!r}"
    names = [*recorded, *(part for part in found if part not in recorded)]
    return [
        f"{kind} of {case!r}: {part} {_how(recorded.get(part), found.get(part))}: {command} {part!r}"
        for part in names if recorded.get(part) != found.get(part)
    ]


def _how(before, now):
    if before is None or now is None:
        return "is new" if before is None else "is gone"
    return "differs"


def show(kind, case, part=None):
    """Print a case in full, or a part of it."""
    for name, lines in (KINDS | {"numbers": NUMBERS})[kind].parts(case).items():
        if part in (None, name):
            print(f"{name}:", *lines, sep="\n    ")


def compare(commit, kind=None, case=None, part=None):
    """Print what differs from a commit, which is checked out beside; return whether anything does."""
    with tempfile.TemporaryDirectory() as folder:
        roots = there, _ = Path(folder) / "there", HERE.parents[1]
        git = ["git", "-C", HERE, "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", there, commit], check=True)
        try:
            if kind is not None:
                arguments = ["show", kind, case, *([part] if part else [])]
                before, now = (_said(root, *arguments).splitlines() for root in roots)
                print(*unified_diff(before, now, commit, "here", lineterm=""), sep="\n")
                return before != now
            rows = read()["runs"]
            asked = [(kind, case) for kind, floats in FLOATS.items() for case in floats(rows)]
            before, now = (json.loads(_said(root, "hashes", given=json.dumps(asked))) for root in roots)
        finally:
            subprocess.run([*git, "remove", "--force", there], check=True)
    lines = [line for (kind, case), a, b in zip(asked, before, now) for line in differences(kind, case, a, b)]
    print(*lines, f"{len(asked)} cases, {len(lines)} parts differ from {commit}", sep="\n")
    return bool(lines)


def _said(root, *arguments, given=""):
    """Return what this program prints in another folder's version of the package."""
    command = [sys.executable, root / "tests" / "goldens" / "recorded.py", *arguments]
    return subprocess.run(command, input=given, text=True, stdout=subprocess.PIPE, check=True).stdout


def _all_hashes():
    """Print the hashes of cases that are given in JSON; of a case that fails, the error."""
    found = []
    for kind, case in json.load(sys.stdin):
        try:
            found.append(hashes(kind, case))
        except Exception as error:
            found.append({f"{type(error).__name__}: {error}": "raised"})
    print(json.dumps(found))


def main(arguments):
    command, *rest = arguments or ["help"]
    if command == "compare":
        return compare(*rest)
    commands = {"record": lambda *kinds: record(kinds), "files": training.write_files, "show": show,
                "hashes": _all_hashes}
    return commands.get(command, lambda *_: print(__doc__))(*rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
