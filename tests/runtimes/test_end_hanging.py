"""An Envoy that hangs is ended in whatever it runs, or whoever can't be asked is told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from locallb.envoy import ADMIN_SOCKET
from locallb.envoy.admin import EnvoyAdmin
from locallb.runtimes import runtime
from locallb.runtimes.docker.daemon import DockerAbsentError

AWAY = DockerAbsentError("Docker isn't there")


@pytest.fixture
def envoy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listen where an Envoy's admin interface is, and answer nobody."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(ADMIN_SOCKET)
        listening.listen(0)
        yield listening


def engines(monkeypatch: pytest.MonkeyPatch, *ends: Callable[[], object] | Exception) -> None:
    """Have processes, and these engines of containers."""
    made = [mock.Mock(uses_daemon=False)]
    for end in ends:
        doing = end if isinstance(end, Exception) else lambda _directory, end=end: end()
        made.append(mock.Mock(uses_daemon=True, end_hanging=mock.Mock(side_effect=doing)))
    monkeypatch.setattr(runtime, "runtimes", lambda: tuple(made))


@pytest.mark.parametrize("others", [[], [lambda: None], [AWAY]])
def test_an_absent_engine_is_reported_while_its_envoy_may_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envoy: socket.socket, others: list[Callable[[], object]]
) -> None:
    """Also where another one answers that has no such container, and where the socket takes nobody any more."""
    engines(monkeypatch, AWAY, *others)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for client in waiting:
        with pytest.raises(DockerAbsentError, match="isn't there"):
            runtime.end_hanging(tmp_path)
        client.setblocking(False)
        client.connect_ex(ADMIN_SOCKET)
    for client in waiting:
        client.close()
    assert envoy.fileno() > 0


def test_an_engine_that_is_away_is_no_matter_where_no_envoy_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envoy: socket.socket
) -> None:
    """It was another engine's, and ended; its socket is still a file, or never was."""
    engines(monkeypatch, AWAY, envoy.close)
    runtime.end_hanging(tmp_path)
    assert not EnvoyAdmin(tmp_path).is_held()
    (tmp_path / ADMIN_SOCKET).unlink()
    runtime.end_hanging(tmp_path)
