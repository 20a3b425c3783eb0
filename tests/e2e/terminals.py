"""A terminal with a command on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.stages import Stage
from tests.support.waiting import TIMEOUT

OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
LOCALLB = str(Path(sys.executable).parent / "locallb")


class Terminal:
    """A terminal with a command on it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 100)
        self.modes = termios.tcgetattr(self.master)
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
    with ended(Terminal([LOCALLB, "-C", str(play.root), *terms])) as made:
        yield made


@contextlib.contextmanager
def shell_on_terminal(play: Stage) -> Iterator[Terminal]:
    """Run a shell with job control, for which `locallb` is a command for this project; end both."""
    shell = Terminal(["bash", "--norc", "--noprofile", "-i"])
    with ended(shell):
        command = shlex.join([LOCALLB, "-C", str(play.root)])
        shell.type(f"locallb() {{ {command} \"$@\"; }}; echo be''gins\r")
        shell.shows("begins")
        yield shell


@contextlib.contextmanager
def ended(made: Terminal) -> Iterator[Terminal]:
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            os.close(made.master)
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
