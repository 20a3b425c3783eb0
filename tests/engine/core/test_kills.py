"""Real processes, really killed: what the laws show for every write, with SIGKILL at random moments."""

import subprocess
import sys
from pathlib import Path


def test_killed_runs_of_the_core_are_healed_by_the_engine_and_the_other_way_round(tmp_path: Path) -> None:
    """No leak, nothing missing, no stuck lock."""
    command = [sys.executable, "-m", "tests.engine.core.kill_core", str(tmp_path), "18", "7"]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
