"""A real Chromium, without a window, over the pipe of its DevTools: what a page looks like, holds and does."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 300.0
"""Until it hangs, its start included."""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40, "/": 191}
COMPLAINTS = {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}
REQUEST = "Network.requestWillBeSent"
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"


def chromium() -> str:
    """Find the browser. Without one a test is skipped, but fails in CI, which has to have one."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        why = "there is no Chromium to look at pages with (Debian: apt install chromium)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return program


@contextmanager
def running(*flags: str) -> Iterator[Browser]:
    """Start a browser that remembers nothing, with more `flags` if need be, and end it."""
    path = chromium()
    with tempfile.TemporaryDirectory(prefix="llb-browser-", ignore_cleanup_errors=True) as profile:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # The browser takes descriptors 3 and 4, which may be taken here: they move out of the way first.
        low = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20) for descriptor in (theirs_in, theirs_out)]
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), profile)
        terms = (path, *FLAGS, *flags, f"--user-data-dir={profile}")
        child = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{low[0]} 4>&{low[1]}', *terms],
            pass_fds=low,
            env={**os.environ, **homes},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (theirs_in, theirs_out, *low):
            os.close(descriptor)
        browser = Browser(ours_in, ours_out)
        try:
            yield browser
            browser.call("Browser.close")
            child.wait(SECONDS)
        finally:
            child.kill()
            child.wait()
            os.close(ours_in)
            os.close(ours_out)


class Browser:
    """Opens pages, each in a context of its own, with nothing remembered."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._number = 0
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        self._retained: list[dict[str, Any]] = []

    def open(self, page: Path, width: int, height: int = 800, *, dark: bool = False, search: str = "") -> Tab:
        """Open a file in a window of so many pixels, and wait until it has loaded; `search` stands behind the `#`."""
        url = f"file://{page}{'#' + quote(search) if search else ''}"
        return self.visit(url, width, height, {"prefers-color-scheme": "dark" if dark else "light"})

    def visit(self, url: str, width: int, height: int = 800, media: Mapping[str, str] | None = None) -> Tab:
        """Open a page, where `media` is so, and wait until it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], target)
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": name, "value": value} for name, value in (media or {}).items()]
        tab.call("Emulation.setEmulatedMedia", features=features)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        # The browser breaks off what it loads when any interface of the host changes, as other tests' do.
        while tab.call("Page.navigate", url=url).get("errorText") == f"net::{NETWORK_CHANGED}":
            self.await_event("Page.loadEventFired", tab.session)
        self.await_event("Page.loadEventFired", tab.session)
        return tab

    def retained(self, methods: Collection[str], session: str) -> list[dict[str, Any]]:
        """Return what a tab has complained of or asked for so far: complaints and requests are kept."""
        self.call("Browser.getVersion")  # what it told before has come then
        reported = [event for event in self._retained if event["method"] in methods and event["sessionId"] == session]
        return [event["params"] for event in reported]

    def call(self, method: str, session: str = "", /, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - the protocol's
        """Call a method of the protocol and give its result."""
        self._number += 1
        terms = {"id": self._number, "method": method, "params": given, **({"sessionId": session} if session else {})}
        os.write(self._writes, json.dumps(terms).encode() + b"\0")
        while (message := self._read()).get("id") != self._number:
            self._events.append(message)
        assert "error" not in message, (method, message["error"])
        result: dict[str, Any] = message["result"]
        return result

    def await_event(self, method: str, session: str) -> None:
        """Wait until the browser has told of something in a tab."""
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self._events):
            self._events.append(self._read())
        self._events.clear()

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, deadline - time.monotonic()))
            some = os.read(self._reads, 1 << 20) if ready else b""
            assert some, "the browser doesn't answer"
            self._rest += some
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("method") in {*COMPLAINTS, REQUEST}:
            self._retained.append(message)
        return message


@dataclass(frozen=True)
class Tab:
    """One page, open."""

    browser: Browser
    session: str
    target: str

    def call(self, method: str, /, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - the protocol's
        """Call a method of the protocol for this page."""
        return self.browser.call(method, self.session, **given)

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever it is
        """Return the value of an expression of JavaScript."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """Return what the console says, and what nobody caught."""
        return self.browser.retained(COMPLAINTS, self.session)

    @property
    def requests(self) -> list[str]:
        """Return the URLs that it asked for."""
        return [event["request"]["url"] for event in self.browser.retained({REQUEST}, self.session)]

    def dom(self) -> str:
        """Return the document as it is now."""
        return str(self.evaluate("document.documentElement.outerHTML"))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other: `Tab`, `Enter`, letters."""
        for key in keys:
            code = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
            text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def png(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def picture(self) -> Picture:
        """Return what is seen, pixel by pixel."""
        return Picture.of(self.png())


@dataclass(frozen=True)
class Picture:
    """A PNG of 8 bits a channel, as Chromium writes it."""

    width: int
    height: int
    rows: tuple[bytes, ...]
    channels: int

    @classmethod
    def of(cls, data: bytes) -> Picture:
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        chunks, position = [], 8
        while position < len(data):
            (size,) = struct.unpack(">I", data[position : position + 4])
            chunks.append((data[position + 4 : position + 8], data[position + 8 : position + 8 + size]))
            position += 12 + size
        width, height, depth, colour = struct.unpack(">IIBB", chunks[0][1][:10])
        assert depth == 8
        channels = {2: 3, 6: 4}[colour]
        packed = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
        return cls(width, height, _unfiltered(packed, width * channels, height, channels), channels)

    def at(self, x: int, y: int) -> tuple[int, ...]:
        """Return the red, green and blue of a pixel."""
        return tuple(self.rows[y][x * self.channels : x * self.channels + 3])

    def colours(self, step: int = 7) -> set[tuple[int, ...]]:
        """Return the colours of every so many pixels."""
        return {self.at(x, y) for y in range(0, self.height, step) for x in range(0, self.width, step)}


def _unfiltered(packed: bytes, size: int, height: int, channels: int) -> tuple[bytes, ...]:
    rows: list[bytes] = []
    above = bytes(size)
    for number in range(height):
        start = number * (size + 1)
        row = bytearray(packed[start + 1 : start + 1 + size])
        kind = packed[start]
        for i in range(size) if kind else ():
            remaining = row[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            row[i] = (
                row[i]
                + (0, remaining, above[i], (remaining + above[i]) // 2, _paeth(remaining, above[i], corner))[kind]
            ) & 255
        above = bytes(row)
        rows.append(above)
    return tuple(rows)


def _paeth(remaining: int, up: int, corner: int) -> int:
    guess = remaining + up - corner
    return min((remaining, up, corner), key=lambda value: abs(guess - value))
