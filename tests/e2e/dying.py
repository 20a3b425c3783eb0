"""A `locallb` that ends itself just before one of its effects on the world: a script for tests of kills.

    python dying.py NUMBER TRIGGER LOG WORD...

Effects are files opened for writing, renamed, linked or removed beside TRIGGER and below, programs started and signals
sent, in whatever thread, and count once the file TRIGGER is there. Number NUMBER is never had: SIGKILL comes first.
LOG gets a line for each, the last one included.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from locallb.cli import main

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_OF_FILES = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"})
_OF_PROCESSES = frozenset({"subprocess.Popen", "os.kill", "os.killpg"})


class Doom:
    """Counts effects, and ends the process at one of them."""

    def __init__(self, number: int, trigger: Path, log: Path) -> None:
        self._remaining, self._trigger, self._below = number, trigger, f"{trigger.parent}/"
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.RLock()  # ending it is an effect as well

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        """Look at whatever Python is about to do."""
        reported = self._effect(event, args)
        if not reported or not self._trigger.exists():
            return
        with self._lock:
            self._remaining -= 1
            os.write(self._log, f"{reported}\n".encode())
            if self._remaining == -1:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()

    def _effect(self, event: str, args: tuple[object, ...]) -> str:
        """Return what has an effect; empty for what has none."""
        if event in _OF_PROCESSES:
            return f"{event} {args[0]}"
        if event not in _OF_FILES or (event == "open" and not (isinstance(args[2], int) and args[2] & _WRITING)):
            return ""
        paths = [os.fsdecode(one) for one in args[:2] if isinstance(one, str | bytes | os.PathLike)]
        return f"{event} {' '.join(paths)}" if any(path.startswith(self._below) for path in paths) else ""


if __name__ == "__main__":
    number, trigger, log = sys.argv[1:4]
    sys.addaudithook(Doom(int(number), Path(trigger), Path(log)))
    sys.exit(main(sys.argv[4:]))
