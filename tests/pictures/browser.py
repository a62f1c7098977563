"""A web page in a real browser, for tests, which are slow; they are skipped where there is none."""

import json
import os
import re
import shutil
import subprocess
import time
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


# A page that a test drives while it runs: Chromium's DevTools protocol, over pipes.

class Driven:
    """A page in a browser without a window. Messages are JSON, each with a zero byte behind it.

    console: what the page has logged as errors, and the exceptions that nothing caught.
    """

    def __init__(self, folder, *options):
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()

        def as_3_and_4():  # where Chromium reads and writes; through copies, which may be 3 and 4 themselves
            for fd, place in [(os.dup(theirs_in), 3), (os.dup(theirs_out), 4)]:
                os.dup2(fd, place)

        command = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}", *options, "about:blank",
        ]
        self._process = subprocess.Popen(
            command, preexec_fn=as_3_and_4, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session, self.console = b"", 0, None, []
        page = next(
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method, **parameters):
        """Return what a method of the protocol answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _next(self):
        while b"\0" not in self._buffer:
            self._buffer += os.read(self._in, 1 << 20)
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        told = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.console.append(str([each.get("value") for each in told["args"]]))
        elif message.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.console.append(f"{told['entry']['text']} {told['entry'].get('url')}")
        return message

    def run(self, script):
        """Return the value of an expression of JavaScript, as JSON has it; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, script, seconds=60):
        """Wait until an expression is true; return the seconds that it took."""
        begin = time.monotonic()
        while not self.run(script):
            assert time.monotonic() - begin < seconds, f"{script} is not true after {seconds} s"
            time.sleep(0.02)
        return time.monotonic() - begin
