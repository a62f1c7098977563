"""The playground: its page, minipipe's modules as an archive, and Pyodide."""

import base64
import hashlib
import json
import mimetypes
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ..checks import write_text, write_whole
from ..plots.html import filled, resource
from ..schedules import SCHEDULES
from .live import lab

PORT = 8421  # a served site has this port, so that the notebooks' links find its playground
PYODIDE = "https://cdn.jsdelivr.net/npm/pyodide@314.0.7/"
FILES = {  # file that a page loads from there: (its bytes, its hash)
    "pyodide.mjs": (17931, "Lp79fMwxa4n2BLtugpUAoQMlbxIdg8iCUiP1r3h7nJLkQjwlXT1JzZTeHVL+f4Dg"),
    "pyodide.asm.mjs": (1250344, "/2281iaC0Iimw0B3Kagy1DBfZcJG3W4KYW+EmOqhsdY3fR9BJ88FE2Zt6y0KQKpa"),
    "pyodide.asm.wasm": (9598218, "y++qrQ72KPA1fTjLIuGMP+jppgGxjbLCgfdb0zMrnNnQVhxRUXTOTF6rTxNzllSu"),
    "python_stdlib.zip": (2545637, "xW3A5jmenkrPXbsgrIaB1FCJh9OuLT7FRMagsJMgtlhVc19k/mSy3+7nMaF/d767"),
    "pyodide-lock.json": (119077, "o8SQQvpVlZnOl04+3dFTJipKxul9GbViVusA379wlOrfHSgxbzt0yPiqCTxOiYES"),
}
LIVE = Path(str(resources.files(__package__))) / "live"
PACKAGE = LIVE.parents[1]
FIRST = "1f1b", "zb-h1"  # what the page shows where its address asks for nothing
SIZES = {"K": 4, "M": 8}  # sizes of the stored runs
SESSION = """
import json, sys
sys.modules.update(numpy=None, matplotlib=None)  # Pyodide's five files have neither
sys.path.insert(0, sys.argv[1])
import lab
lab.answer("known", "{}")
lab.answer("run", json.dumps({"sides": [{"schedule": "zb-v"}, {"schedule": "1f1b", "D": 2, "T": 2}]}))
for ending in ("csv", "html", "json"):
    lab.answer("export", json.dumps({"side": 0, "as": ending}))
for name, module in sys.modules.items():
    if name.partition(".")[0] == "minipipe":
        print(module.__file__)
"""


def checked_pyodide(folder: str | Path) -> Path:
    """Return `folder`, the unpacked npm package `pyodide`, if it has all files.

    Raises:
        ValueError: it lacks a file.
    """
    folder = Path(folder).expanduser()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{folder} is not the folder of Pyodide: it has no {', '.join(missing)}; unpack what `npm pack "
            "pyodide` brings, and name its folder `package`"
        )
    return folder


def write_playground(folder: Path, pyodide: Path | None = None) -> int:
    """Write the playground; return the bytes that a browser loads for its engine.

    Args:
        folder: the folder to create.
        pyodide: the folder of the unpacked npm package, which is copied; if None,
            browsers load it from `PYODIDE`.
    """
    folder.mkdir()
    for path in [*LIVE.iterdir(), *(PACKAGE / "plots").iterdir()]:
        if path.suffix in (".js", ".css"):
            write_text(folder / path.name, path.read_text(encoding="utf-8"))
    page = (LIVE / "index.html").read_text(encoding="utf-8")
    stored = json.dumps(stored_runs(), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    write_text(folder / "index.html", filled(page, {"stored": stored, "view": resource("view.html")}))
    files = FILES
    if pyodide is not None:
        (folder / "pyodide").mkdir()
        for name in FILES:
            shutil.copyfile(pyodide / name, folder / "pyodide" / name)
        files = {name: size_and_hash((pyodide / name).read_bytes()) for name in FILES}
    engine = {
        "pyodide": PYODIDE if pyodide is None else "pyodide/",
        "files": {
            name: {"bytes": size, "integrity": f"sha384-{hashed}"} for name, (size, hashed) in files.items()
        },
    }
    write_text(folder / "engine.json", json.dumps(engine, indent=1))
    archive = archive_of_modules()
    write_whole(folder / "minipipe.zip", lambda beside: beside.write_bytes(archive))
    return len(archive) + sum(size for size, _ in files.values())


def size_and_hash(data: bytes) -> tuple[int, str]:
    """Return the size of `data`, and its SHA-384 for HTML's attribute `integrity`."""
    return len(data), base64.b64encode(hashlib.sha384(data).digest()).decode()


def stored_runs() -> dict:
    """Return what the page shows before its engine is ready: a run of each schedule."""
    runs, sentences = {}, {}
    for names in [*((name,) for name in SCHEDULES.load()), FIRST]:
        found = lab.run([{"schedule": name, **SIZES} for name in names] + [None] * (2 - len(names)))
        runs[names[0]], sentences[" ".join(names)] = found["runs"][0], found["sentence"]
    return lab.known() | {"runs": runs, "sentences": sentences}


def archive_of_modules() -> bytes:
    """Return a zip of lab.py, the modules that it imports, and the files of `html`.

    Another Python, without NumPy, tells which modules these are.
    """
    told = subprocess.run(
        [sys.executable, "-c", SESSION, str(LIVE)], capture_output=True, text=True, check=True,
        cwd=PACKAGE.parent,
    )
    paths = map(Path, told.stdout.splitlines())
    names = {path: path.relative_to(PACKAGE.parent).as_posix() for path in paths}
    for path in (PACKAGE / "plots").iterdir():  # the player, for its export
        if path.suffix in (".html", ".js", ".css"):
            names[path] = f"minipipe/plots/{path.name}"
    names[LIVE / "lab.py"] = "lab.py"
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for path in sorted(names):
            # a `ZipInfo` has no time of its own, so that equal files make equal archives
            archive.writestr(ZipInfo(names[path]), path.read_bytes(), ZIP_DEFLATED)
    return file.getvalue()


def serve(folder: str | Path) -> None:
    """Serve `folder` on the loopback address until it is interrupted.

    The port is `PORT`, or any free one if another program has that.
    """
    for ending, kind in ((".mjs", "text/javascript"), (".wasm", "application/wasm")):
        mimetypes.add_type(kind, ending)  # Python 3.10 does not know them, and browsers insist
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", PORT), handler)
    except OSError:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with server:
        print(f"serving http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
