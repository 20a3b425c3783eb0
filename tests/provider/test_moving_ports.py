"""A proof waits for ports that another proxy of the stack gives up, without reading all of /proc again and again."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from locallb.model.identities import Protocol
from locallb.provider import reachable


@pytest.mark.parametrize("protocol", [Protocol.UDP, Protocol.TCP])
def test_whose_a_port_is_is_read_once_for_each_socket_that_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: Protocol
) -> None:
    """Until it is free."""
    requested: list[str] = []
    pauses: list[float] = []
    kind = socket.SOCK_DGRAM if protocol is Protocol.UDP else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if protocol is Protocol.TCP:
            other.listen()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                other.close()

        def in_stack(_directory: Path, listener: str) -> bool:
            requested.append(listener)
            return other.fileno() >= 0

        monkeypatch.setattr(reachable, "_in_stack", in_stack)
        monkeypatch.setattr(time, "sleep", pause)
        listener = f"127.0.0.1:{other.getsockname()[1]}/{protocol}"
        assert reachable._await_move(tmp_path, [listener], time.monotonic() + 60)
    assert requested == [listener]
    assert len(pauses) == 5
