"""What a test run would leave on this host if it were killed: processes, containers. Its reaper then ends them.

A run that ends by itself ends what it started in fixtures; this is for SIGKILL, and for `timeout`, whose SIGTERM ends
Python just as fast. Each worker of a run has a reaper of its own. Not here: what is ended, and how (`reaper`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reaper import GOODBYE, VARIABLE

_CAN = hasattr(os, "pidfd_open") and Path("/proc/self/environ").exists()


class Reaper:
    """The process, and what it is told."""

    def __init__(self) -> None:
        self._session = secrets.token_hex(8)
        self._run, self._before = os.getpid(), os.environ.pop(VARIABLE, None)
        itself = os.pidfd_open(self._run)
        self._process = subprocess.Popen(
            [sys.executable, "-IS", str(Path(__file__).with_name("reaper.py")), self._session, str(itself)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[itself],
            start_new_session=True,
        )
        os.close(itself)
        os.environ[VARIABLE] = self._session
        self._mkdtemp, tempfile.mkdtemp = tempfile.mkdtemp, self._noting(tempfile.mkdtemp)

    def report_to(self, line: str) -> None:
        """Tell it a line, if it is there still."""
        assert self._process.stdin
        with contextlib.suppress(OSError):
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def close(self) -> None:
        """Say goodbye, and leave everything as it was; a forked child of the run has nothing to say."""
        if os.getpid() != self._run:
            return
        tempfile.mkdtemp = self._mkdtemp
        os.environ.pop(VARIABLE, None)
        if self._before is not None:
            os.environ[VARIABLE] = self._before
        self.report_to(GOODBYE)
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _noting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*terms: Any, **named: Any) -> Any:  # noqa: ANN401 - those of `mkdtemp`
            made = make(*terms, **named)
            self.report_to(os.path.realpath(os.fsdecode(made)))
            return made

        return noted


_REAPER = pytest.StashKey[Reaper]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the reaper, before any test can start anything."""
    if _CAN and not config.option.collectonly:
        config.stash[_REAPER] = Reaper()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the directory of all `tmp_path`s."""
    if reaper := session.config.stash.get(_REAPER, None):
        reaper.report_to(str(session.config._tmp_path_factory.getbasetemp().resolve()))  # type: ignore[attr-defined]  # pytest has no public name for it


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if reaper := config.stash.get(_REAPER, None):
        reaper.close()
