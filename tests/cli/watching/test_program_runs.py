"""Runs of a program under `watch`: when it is run, how a run ends, and that nothing of it stays."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from locallb.cli.project import PROGRAM
from locallb.cli.watching import program_runs
from locallb.cli.watching.program_runs import ProgramRuns, command, files_of
from locallb.watch.events import LoopEvent, ProgramRan
from tests.support.waiting import becomes

MORE = f"{PROGRAM}\nmore = 1\n"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runs, "INSPECT", 0.02)


@dataclass
class Case:
    """A project's directory, and what runs its program."""

    root: Path
    begun: list[ProgramRuns] = field(default_factory=list)
    told: list[ProgramRan] = field(default_factory=list)

    def begin(self, script: str, *, leads: Callable[[], bool] = lambda: True) -> list[ProgramRan]:
        """Follow the program, run by a script; return how runs ended."""
        self.begun.append(ProgramRuns([sys.executable, "-c", script], self.root, self._listen, leads))
        self.begun[-1].start()
        return self.told

    def _listen(self, event: LoopEvent) -> None:
        assert isinstance(event, ProgramRan)
        self.told.append(event)

    def end(self) -> None:
        """End as `watch` does."""
        for runs in self.begun:
            runs.stop()
            runs.join()


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    """Follow the program in the test's directory."""
    made = Case(tmp_path)
    yield made
    made.end()


def document(*errors: str, **changes: int) -> str:
    """Return a script that prints what `up --json` does, and ends as it does."""
    diagnostics = [{"severity": "error", "message": error, "urn": ""} for error in errors]
    printed = json.dumps({"ok": not errors, "changes": changes, "diagnostics": diagnostics})
    return f"import sys; print({printed!r}); sys.exit({bool(errors):d})"


def test_a_program_is_run_at_the_start_and_when_one_of_its_files_changes(tmp_path: Path, case: Case) -> None:
    """Also one that it imports; not where nothing changed."""
    (tmp_path / "__main__.py").write_text(MORE)
    (tmp_path / "components").mkdir()
    told = case.begin(document(create=2, same=1))
    becomes(lambda: len(told) == 1)
    assert (told[0].program, told[0].changes, told[0].fault) == ("__main__.py", {"create": 2, "same": 1}, "")
    (tmp_path / "components/own.py").write_text("x = 1\n")
    becomes(lambda: len(told) == 2)
    (tmp_path / "components/own.py").write_text("x = 22\n")
    becomes(lambda: len(told) == 3)
    time.sleep(0.3)
    assert len(told) == 3


def test_the_standard_program_and_none_are_not_run(tmp_path: Path, case: Case) -> None:
    """What they want is data, which the loop has already; it is run once it says more, and by the leader alone."""
    (tmp_path / "__main__.py").write_text(PROGRAM)
    leader: list[str] = []
    told = case.begin(document(), leads=lambda: bool(leader))
    leader.append("here")
    time.sleep(0.3)
    assert told == []
    leader.clear()
    (tmp_path / "__main__.py").write_text(MORE)
    time.sleep(0.3)
    assert told == []
    leader.append("here")
    becomes(lambda: len(told) == 1)


def test_only_modules_that_the_program_may_import_are_its_files(tmp_path: Path) -> None:
    """Neither tests nor environments nor what is hidden; a link to a directory that contains it ends nowhere."""
    for name in ("__main__.py", "components/own.py", "tests/test_x.py", ".venv/x.py", "env/pyvenv.cfg", "env/y.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "components/loop").symlink_to(tmp_path)
    (tmp_path / "manifest.yaml").touch()
    assert {str(path.relative_to(tmp_path)) for path in files_of(tmp_path)} == {"__main__.py", "components/own.py"}
    assert files_of(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (document("the program failed: ValueError: no (__main__.py:6)"), "ValueError: no"),
        (document("a", "a", "b", "c", "d"), "a, b, c and 1 more"),
        ("raise SystemExit(3)", "it ended with 3"),
        ("print('[]'); raise SystemExit(3)", "it ended with 3"),
        ('print(\'{"changes": 1, "diagnostics": {}}\'); raise SystemExit(1)', "it ended with 1"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with -9"),
        ("print('x' * 2**25)", "it prints more than"),
        ("import time; time.sleep(1000)", "it was ended after 0.5 s"),
        (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)",
            "it was ended after 0.5 s",
        ),
    ],
)
def test_a_run_that_fails_is_told_in_a_sentence_and_repeated_at_the_next_change(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch, script: str, fault: str
) -> None:
    """Whatever it prints, and however it ends or doesn't."""
    monkeypatch.setattr(program_runs, "TIMEOUT", 0.5 if "sleep" in script else 60.0)
    monkeypatch.setattr(program_runs, "STOP_TIMEOUT", 0.2)
    (tmp_path / "__main__.py").write_text(MORE)
    told = case.begin(script)
    becomes(lambda: len(told) == 1)
    assert fault in told[0].fault
    (tmp_path / "__main__.py").write_text(f"{MORE}\n")
    becomes(lambda: len(told) == 2)


def test_a_run_ends_with_watch_and_leaves_no_process(tmp_path: Path, case: Case) -> None:
    """It may finish what it has begun; what it started ends as well."""
    (tmp_path / "__main__.py").write_text(MORE)
    script = (
        "import os, signal, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('finished', 'w').close(), sys.exit(0)))\n"
        "open('pids.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.new', 'pids')\n"
        "time.sleep(1000)\n"
    )
    told = case.begin(script)
    becomes((tmp_path / "pids").exists)
    case.end()
    assert (tmp_path / "finished").exists()
    assert told[0].fault == "it was ended on request"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    becomes(lambda: not any(map(_lives, pids)))


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_project_is_named_only_where_watch_was_told_it() -> None:
    """Naming one makes its program trusted, whoever owns it."""
    assert "-C" not in command(None, "dev")
    assert [*command(Path("/srv/p"), "dev")][3:5] == ["-C", "/srv/p"]
    assert Path(command(None, "dev")[0]).is_absolute()
