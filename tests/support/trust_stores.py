"""What tests of trust have in common: `certutil`, and a user with an authority and a home of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def certutil() -> str:
    """Find the tool of browsers' stores. Without one a test is skipped, but fails in CI, which has to have one."""
    program = shutil.which("certutil")
    if program is None:
        why = "there is no certutil (Debian: apt install libnss3-tools)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return program


def nss(place: Path, *terms: str) -> str:
    """Do something to a browser's store as a person would."""
    command = [certutil(), "-d", f"sql:{place}", *terms]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
