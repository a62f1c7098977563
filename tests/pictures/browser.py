"""A web page in a real browser, for tests, which are slow; they are skipped where there is none."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
there_is_one = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium or google-chrome on the PATH")


def in_a_browser(test):
    """The decorator of a test that needs one."""
    return pytest.mark.slow(there_is_one(test))


HARNESS = """<script>
const errors = [], results = {errors};
addEventListener("error", event => errors.push(event.message));
addEventListener("securitypolicyviolation", event => errors.push(event.violatedDirective));
const key = (key, more) => {
  const options = {key, bubbles: true, cancelable: true, ...more};
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", options));
};
const report = () => {
  const content = {id: "report", textContent: JSON.stringify(results)};
  document.body.append(Object.assign(document.createElement("pre"), content));
};
</script>"""


def browse(tmp_path, page, script, *options):
    """What `script`, run at the end of `page` in a browser without a window, has put into `results`;
    no error occurred.
    """
    file = tmp_path / "page.html"
    file.write_text(
        page.replace("<body>", "<body>" + HARNESS, 1) + f"<script>{script}</script>", encoding="utf-8"
    )
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--window-size=1200,800", f"--user-data-dir={tmp_path / 'profile'}", *options, "--dump-dom",
        file.as_uri(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = [
        line for line in ran.stderr.splitlines() if "CONSOLE" in line and "willReadFrequently" not in line
    ]
    assert said == []  # but for the advice on reading pixels, which only the tests do
    report = re.search(r'<pre id="report">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert report, ran.stdout[-2000:] + ran.stderr[-2000:]
    results = json.loads(unescape(report.group(1)))
    assert results.pop("errors") == []
    return results
