"""Containers are removed although their engine is busy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from locallb.model.identities import ContainerId, RunIdentity
from locallb.resources.resource_type import ProviderError
from locallb.runtimes.docker import facts
from locallb.runtimes.docker.daemon import ContainersError, Document
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import Docker
from locallb.runtimes.planners import PROXY_LABEL
from tests.support.servers import QuietHandler, QuietServer, answer_json, in_thread

BUSY = "timed out waiting for file /run/libpod/exits/c: internal libpod error"

REMOVED = "container c does not exist in database: no such container"


@contextmanager
def engine(monkeypatch: pytest.MonkeyPatch, home: Path, *answers: str) -> Iterator[list[str]]:
    """Answer each removal with an error, or remove the container where an answer is empty; note the removals."""
    removals: list[str] = []

    class Handler(QuietHandler):
        def do_DELETE(self) -> None:
            error = answers[len(removals)]
            removals.append(self.path)
            answer_json(self, 500 if error else 204, json.dumps({"message": error}).encode() if error else b"")

        def do_GET(self) -> None:
            answer_json(self, 200, json.dumps({"ApiVersion": "1.41", "Version": "x"}).encode())

    with in_thread(QuietServer(("127.0.0.1", 0), Handler)) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("DOCKER_CONFIG", str(home))
        yield removals


@pytest.mark.parametrize(
    ("answers", "is_removed"), [(("",), True), ((BUSY, ""), True), ((BUSY, BUSY), False), ((REMOVED,), True)]
)
def test_a_removal_is_tried_once_more_where_the_monitor_of_the_container_is_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: tuple[str, ...], *, is_removed: bool
) -> None:
    """Twice and no more; one that somebody else removes at that moment is gone, which is fine."""
    with engine(monkeypatch, tmp_path, *answers) as removals:
        containers = Containers()
        if is_removed:
            containers.remove(ContainerId("c"), volumes=True)
        else:
            with pytest.raises(ContainersError, match="internal libpod error"):
                containers.remove(ContainerId("c"), volumes=True)
        containers.close()
    assert len(removals) == len(answers)


def test_another_error_is_reported_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the engine has it."""
    with engine(monkeypatch, tmp_path, "no space") as removals:
        containers = Containers()
        with pytest.raises(ContainersError, match="no space"):
            containers.remove(ContainerId("c"), volumes=False)
        containers.close()
    assert len(removals) == 1


def test_a_container_that_is_removed_while_it_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next update makes another one."""
    removed = SimpleNamespace(inspect=lambda _identity: None)
    monkeypatch.setattr(Docker, "containers", lambda *_: removed)
    requested: list[float] = []

    def comes_to_answer(_: Path, seconds: float) -> bool:
        requested.append(seconds)
        return False

    monkeypatch.setattr("locallb.envoy.admin.comes_to_answer", comes_to_answer)
    with pytest.raises(ProviderError, match="the container 0123456789ab was removed by somebody: run up again"):
        Docker().await_start(RunIdentity("0123456789abcdef", "docker"), tmp_path)
    assert len(requested) == 1


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        ({"State": {"Running": True}, "RestartCount": 0}, facts.BUSY_START_SECONDS),
        ({"State": {"Running": True}, "RestartCount": 1}, facts.START_SECONDS),
        ({"State": {"Running": True, "Paused": True}}, facts.START_SECONDS),
        ({"State": {"Running": False}}, facts.START_SECONDS),
        (None, None),
    ],
)
def test_an_envoy_has_longer_to_answer_while_its_first_process_runs(
    observed: Document | None, seconds: float | None
) -> None:
    """Many that start at once on few processors take turns; one that ended or is paused won't answer soon."""
    assert facts.start_seconds(observed) == seconds


@pytest.mark.parametrize(
    ("age", "restarts", "is_lost"), [(20.0, 0, False), (90.0, 0, True), (20.0, 1, True), (5.0, 1, False)]
)
def test_a_container_counts_as_without_its_directory_only_once_its_envoy_had_its_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, age: float, restarts: int, *, is_lost: bool
) -> None:
    """Where this user may not look into it, its socket tells; a start on a busy host isn't begun again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    began = datetime.now(UTC) - timedelta(seconds=age)
    state = {"Running": True, "Pid": _NO_PROCESS, "StartedAt": began.isoformat()}
    labels = {PROXY_LABEL: "0123456789ab"}
    observed: Document = {"Id": "c" * 64, "State": state, "RestartCount": restarts, "Config": {"Labels": labels}}
    assert facts.needs_restart({**observed, "NetworkSettings": {}}) is is_lost


_NO_PROCESS = 1 << 23
"""More than the kernel gives."""
