"""Tries an Envoy without serving anything, before one that serves is ended for it. Not here: starting it to serve."""

from __future__ import annotations

import subprocess
from pathlib import Path

from locallb.envoy import ARGUMENTS, logs
from locallb.envoy.binary import EnvoyBinary

PATIENCE = 10.0
"""Seconds that it may take; 0.1 are usual."""
_WORDS = 300


def why_unfit(binary: EnvoyBinary, directory: Path) -> str:
    """Return why a program can't run as the proxy in `directory`, by its own last words; empty where it can."""
    command = [str(binary.path), *ARGUMENTS, *logs.ARGUMENTS, "--mode", "validate"]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"it isn't done with reading its configuration after {PATIENCE:g} s"
    if done.returncode == 0:
        return ""
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return lines[-1][-_WORDS:] if lines else f"it ends with status {done.returncode}"
