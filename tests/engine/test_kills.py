"""Real processes, really killed: what the laws show for every write, once more with SIGKILL at random moments."""

import subprocess
import sys
import threading
from pathlib import Path

from locallb.engine.deploy.scope import only
from tests.engine.balancers import ONE, declare, roots
from tests.engine.support import Bench, World, make_project


def test_fifty_killed_updates_and_destroys_are_each_healed_by_one_more_run(tmp_path: Path) -> None:
    """No leak, nothing missing, no stuck lock."""
    command = [sys.executable, "-m", "tests.engine.kill_often", str(tmp_path), "50", "7"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_many_updates_leave_no_threads_and_no_open_files(tmp_path: Path) -> None:
    """A watch loop makes thousands in one process; the engine's own crew stays, and never gets larger than it may."""
    bench = Bench(make_project(tmp_path), World())
    engine = bench.engine()
    scope = only(roots("alpha"))
    crew = engine._crew._max_workers

    def registering() -> int:
        return sum(thread.name.startswith("register") for thread in threading.enumerate())

    def count() -> tuple[int, int]:
        return threading.active_count() - registering(), len(list(Path("/proc/self/fd").iterdir()))

    those_of_others = registering()
    for _ in range(3):
        assert engine.up(lambda: declare(ONE), scope=scope).ok
    before = count()
    for _ in range(2 * crew):
        assert engine.up(lambda: declare(ONE), scope=scope).ok
    assert count() == before
    assert registering() <= those_of_others + crew
