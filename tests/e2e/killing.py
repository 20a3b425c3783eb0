"""Commands that are killed in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.stages import Stage

STARTUP, LONGEST = 0.15, 0.6
"""Seconds before the first and until the last moment of a kill; importing takes most of the first part."""


def kill_in_the_middle(stage: Stage, command: str, seconds: float) -> None:
    """Start a command and kill it, with whatever it has started in its own session."""
    locallb = str(Path(sys.executable).parent / "locallb")
    process = subprocess.Popen(
        [locallb, "-C", str(stage.root), command, "--yes"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
