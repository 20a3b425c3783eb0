"""A real Chromium, without a window: what a page looks like and what is in it once its script has run."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

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
)
SECONDS = 60


def chromium() -> str:
    """Find the browser. Without one a test is skipped, but fails in CI, which has to have one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        why = "there is no Chromium to look at pages with (Debian: apt install chromium)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


@dataclass(frozen=True)
class Browser:
    """Looks at one page; each look is a browser of its own, with nothing remembered."""

    path: str
    home: Path

    def dom(self, page: Path, search: str = "") -> str:
        """Give the document after its script has run; `search` is typed into the page."""
        return self._run("--dump-dom", f"file://{page}{'#' if search else ''}{search}")

    def picture(self, page: Path, width: int, height: int, *, dark: bool = False) -> Picture:
        """Take a screenshot."""
        target = self.home / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
        scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
        self._run(*scheme, f"--window-size={width},{height}", f"--screenshot={target}", f"file://{page}")
        return Picture.read(target)

    def _run(self, *words: str) -> str:
        profile = self.home / f"profile-{len(list(self.home.iterdir()))}"
        environment = {
            **os.environ,
            "HOME": str(profile),
            "XDG_CONFIG_HOME": str(profile),
            "XDG_CACHE_HOME": str(profile),
        }
        done = subprocess.run(
            [self.path, *FLAGS, f"--user-data-dir={profile}", *words],
            check=True,
            capture_output=True,
            env=environment,
            timeout=SECONDS,
        )
        return done.stdout.decode()


@dataclass(frozen=True)
class Picture:
    """A PNG of 8 bits a channel, as Chromium writes it."""

    width: int
    height: int
    rows: tuple[bytes, ...]
    channels: int

    @classmethod
    def read(cls, path: Path) -> Picture:
        """Read and unpack a file."""
        data = path.read_bytes()
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
        """Give the red, green and blue of a pixel."""
        return tuple(self.rows[y][x * self.channels : x * self.channels + 3])

    def colours(self, step: int = 7) -> set[tuple[int, ...]]:
        """Give the colours of every so many pixels."""
        return {self.at(x, y) for y in range(0, self.height, step) for x in range(0, self.width, step)}


def _unfiltered(packed: bytes, size: int, height: int, channels: int) -> tuple[bytes, ...]:
    rows: list[bytes] = []
    above = bytes(size)
    for number in range(height):
        start = number * (size + 1)
        row = bytearray(packed[start + 1 : start + 1 + size])
        kind = packed[start]
        for i in range(size) if kind else ():
            left = row[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            row[i] = (row[i] + (0, left, above[i], (left + above[i]) // 2, _paeth(left, above[i], corner))[kind]) & 255
        above = bytes(row)
        rows.append(above)
    return tuple(rows)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
