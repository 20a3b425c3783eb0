"""On Windows every way in says one sentence, which leads to WSL2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WINDOWS = """
import sys
sys.platform = "win32"
for missing in ("fcntl", "grp", "pwd", "resource", "termios", "pulumi"):
    sys.modules[missing] = None
"""


@pytest.mark.parametrize(
    "way", ["from locallb.cli import main; main()", "from locallb.program import serve", "import locallb.provider"]
)
def test_windows_is_refused_with_the_way_through_wsl2(way: str) -> None:
    """The command, the program of a project, the provider: before anything is loaded that isn't there."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS + way], cwd=ROOT, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("error: local-lb doesn't run on Windows itself, but in WSL2: `wsl --install`")
    assert "local-lb:portMapping: loopback" in sentence
