"""The command `logs`, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.stages import Stage


class Logs:
    """The command, and what it printed."""

    def __init__(self, play: Stage, *terms: str) -> None:
        self.file = play.root / "said"
        command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), "logs", "-f", *terms]
        with self.file.open("wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    def lines(self) -> list[dict[str, Any]]:
        """Return what it said so far, of `--json`."""
        return [json.loads(line) for line in self.file.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def end(self, number: int) -> int:
        """End it by a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def logs(play: Stage, *terms: str) -> Iterator[Logs]:
    """Run the command, and end it in any case."""
    running = Logs(play, *terms)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
