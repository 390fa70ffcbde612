"""A real browser for tests: headless Chromium, driven through a pipe with nothing but Python.

Its protocol (https://chromedevtools.github.io/devtools-protocol/) is JSON; a message ends with a
zero byte.  Chromium is looked for in ``$HSA_GEO_CHROMIUM`` and on the path.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
INSTALL = "no Chromium here: install one (`apt-get install chromium`), or set HSA_GEO_CHROMIUM"


def find_chromium():
    """The path of a browser, or None."""
    given = os.environ.get("HSA_GEO_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class ProtocolError(Exception):
    """Chromium cannot do what it was asked for."""


class Browser:
    """One headless browser with one tab, without any network."""

    def __init__(self, profile: Path):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [
            *("--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update"),
            *("--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *("--window-size=1300,900", "about:blank"),
        ]

        # Through a shell, which passes on what stands in its files 3 and 4.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, find_chromium(), *flags],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self.events = b"", 0, []
        self.session = None
        target = next(
            t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        self.session = self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self, timeout):
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium has not answered within {timeout} s")
            part = os.read(self._read, 2**20)
            if not part:
                raise ConnectionError("Chromium has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, timeout=60, **params):
        """Call a method of the protocol; events that arrive meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(timeout)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ProtocolError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, timeout=60):
        """Open a file and wait until its script has run; returns the seconds that took."""
        self.events.clear()
        start = time.monotonic()
        self.call("Page.navigate", url=path.as_uri())
        while not self.run("document.documentElement?.dataset.ready === 'true'"):
            if time.monotonic() - start > timeout:
                raise TimeoutError(f"{path} was not ready within {timeout} s: {self.problems()}")
            time.sleep(0.02)
        return time.monotonic() - start

    def run(self, script):
        """The value of an expression in the page."""
        out = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in out, out["exceptionDetails"]
        return out["result"].get("value")

    def source(self):
        """The document as HTML, without scripts of it or of ours; empty while another one comes."""
        try:
            root = self.call("DOM.getDocument", depth=0)["root"]
            return str(self.call("DOM.getOuterHTML", nodeId=root["nodeId"])["outerHTML"])
        except ProtocolError:
            return ""

    def press(self, key, text=None):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def media(self, **features):
        """Set media features, as ``prefers_color_scheme="dark"``."""
        items = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=items)

    def problems(self):
        """Errors and warnings of the console, uncaught exceptions, refused content."""
        self.run("1")  # what has happened has been told by now
        out = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                out.append(params["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                out.append(params)
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                out.append(params["entry"])
        return out

    def requests(self):
        """URLs of all requests but those within the page."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]

    def screenshot(self, path: Path):
        """Save what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        """End the browser."""
        self.session = None
        try:
            self.call("Browser.close", timeout=10)
        except (OSError, TimeoutError, ProtocolError):
            self.process.kill()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
        os.close(self._write)
