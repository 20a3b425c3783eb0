"""Real processes, really killed: what the laws show for every write, once more with SIGKILL at random moments."""

import subprocess
import sys
import threading
from pathlib import Path

from locallb.engine.core.declared import only
from tests.engine.interrupting import SECONDS
from tests.support.balancers import ONE, declare, roots
from tests.support.engine import Bench, World, make_project


def test_fifty_killed_updates_and_destroys_are_each_healed_by_one_more_run(tmp_path: Path) -> None:
    """No leak, nothing missing, no stuck lock."""
    command = [sys.executable, "-m", "tests.engine.kill_often", str(tmp_path), "50", "7"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_many_updates_leave_no_threads_and_no_open_files(tmp_path: Path) -> None:
    """Whoever embeds the engine makes many in one process."""
    bench = Bench(make_project(tmp_path), World())
    engine = bench.engine()
    scope = only(roots("alpha"))

    others = {*threading.enumerate()}

    def count() -> tuple[int, int]:
        for thread in {*threading.enumerate()} - others:
            thread.join(SECONDS)
        return len({*threading.enumerate()} - others), len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(3):
        assert engine.up(lambda: declare(ONE), scope=scope).ok
    before = count()
    for _ in range(100):
        assert engine.up(lambda: declare(ONE), scope=scope).ok
    assert count() == before
