"""The very run that was asked and hangs is ended, and no other one of its proxy."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from locallb.model.identities import RunIdentity
from locallb.runtimes import processes
from locallb.runtimes.docker.daemon import DockerAbsentError
from locallb.runtimes.docker.runtime import ENDING, Docker
from locallb.runtimes.podman import Podman
from locallb.runtimes.process_runtime import Processes
from locallb.storage.proxy_directories import PROXY_MARK


@contextmanager
def stopped(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process that was started for the proxy there, and hangs."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environment = {PROXY_MARK: str(directory)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        try:
            assert child.stdout
            child.stdout.readline()
            child.send_signal(signal.SIGSTOP)
            yield child
        finally:
            child.kill()


def identity(child: subprocess.Popen[bytes]) -> RunIdentity:
    """Return what a question says of it."""
    process = processes.identify(child.pid)
    assert process
    return RunIdentity.of_process(process.pid, process.started)


def test_the_process_that_was_asked_ends_at_once_and_no_other_of_the_directory(tmp_path: Path) -> None:
    """One that hangs doesn't end when it is asked to."""
    with stopped(tmp_path) as requested, stopped(tmp_path) as other:
        Processes().end_requested(tmp_path, identity(requested), 0.0)
        assert requested.wait(20) == -signal.SIGKILL
        assert other.poll() is None


def test_what_was_not_started_for_the_proxy_or_is_unknown_is_left_alone(tmp_path: Path) -> None:
    """Whoever listens at its socket, and one that has the number of a process that ended."""
    with stopped(tmp_path / "other") as child:
        Processes().end_requested(tmp_path, identity(child), 0.0)
        Processes().end_requested(tmp_path, None, 0.0)
        Processes().end_requested(tmp_path / "other", RunIdentity.of_process(child.pid, "boot.1"), 0.0)
        assert child.poll() is None


RUNNING, STARTED = {"Running": True}, "2026-01-01T00:00:00.123456789Z"
LATER = time.mktime((2026, 2, 1, 0, 0, 0, 0, 0, 0))
EARLIER = time.mktime((2025, 12, 1, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("runtime", [Docker, Podman])
@pytest.mark.parametrize(
    ("state", "requested", "is_stopped"),
    [
        ({**RUNNING, "StartedAt": STARTED}, LATER, True),
        ({**RUNNING, "StartedAt": STARTED}, EARLIER, False),
        ({**RUNNING, "StartedAt": "some day"}, LATER, False),
        ({"Running": False, "StartedAt": STARTED}, LATER, False),
        (None, LATER, False),
    ],
)
def test_a_container_is_stopped_unless_it_was_started_after_the_question(
    runtime: type[Docker], state: dict[str, object] | None, requested: float, *, is_stopped: bool
) -> None:
    """The engine has seconds for each answer; one that starts again by itself is another run."""
    observed = None if state is None else {"Id": "c" * 64, "State": state}
    engine = mock.Mock(labelled=lambda _: [{"Id": "c" * 64}], inspect=lambda _: observed)
    with mock.patch.object(runtime, "containers", return_value=engine) as containers:
        runtime().end_requested(Path("/proxies/0123456789ab"), None, requested)
    containers.assert_called_once_with(ENDING)
    assert engine.stop.mock_calls == ([mock.call("c" * 64, 0)] if is_stopped else [])


def test_an_engine_that_does_not_answer_is_reported() -> None:
    """The loop goes on with others."""
    engine = mock.Mock(labelled=mock.Mock(side_effect=DockerAbsentError("Docker hangs")))
    with mock.patch.object(Docker, "containers", return_value=engine), pytest.raises(DockerAbsentError, match="hangs"):
        Docker().end_requested(Path("/proxies/0123456789ab"), None, LATER)
