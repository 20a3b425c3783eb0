"""A terminal with a command on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.stages import Stage
from tests.support.waiting import TIMEOUT


class Terminal:
    """A terminal with a command of ours on it."""

    def __init__(self, play: Stage, *terms: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 100)
        self.modes = termios.tcgetattr(self.master)
        command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), *terms]
        sizeless = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        environment = {**sizeless, "TERM": "xterm"}  # a size that variables give wins over the terminal's
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads of ours hold locks
        )
        os.close(slave)
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size, as a window does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def shows(self, terms: str) -> None:
        """Wait until the words are drawn; what was drawn before is forgotten."""
        deadline = time.monotonic() + TIMEOUT
        while terms not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self.master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.master, 65536).decode(errors="replace")
        self.text = self.text.partition(terms)[2]


@contextlib.contextmanager
def on_terminal(play: Stage, *terms: str) -> Iterator[Terminal]:
    """Run a command on a terminal; end both."""
    made = Terminal(play, *terms)
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            os.close(made.master)
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
