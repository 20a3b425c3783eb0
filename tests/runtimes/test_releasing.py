"""Sockets of UDP that an Envoy has given up: freed by a handover only if no client would notice."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from unittest import mock

import pytest

from locallb.envoy import rollout
from locallb.model.identities import IPAddress, place
from locallb.runtimes import resource_types
from locallb.runtimes.processes import Process

AT = ip_address("127.0.0.1")
US = Process(os.getpid(), "")


class Admin:
    """An admin interface that knows one listener."""

    port = 0

    def __init__(self, directory: Path) -> None:
        del directory

    def places(self) -> set[tuple[IPAddress, int, str]]:
        return {(AT, self.port, "TCP")}

    def draining(self) -> set[tuple[IPAddress, int, str]]:
        return set()


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection to this process, the client's in another one's place: it isn't counted."""
    with socket.create_server((str(AT), 0)) as server:
        monkeypatch.setattr(Admin, "port", server.getsockname()[1])
        monkeypatch.setattr(resource_types, "EnvoyAdmin", Admin)
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            yield client, accepted


@pytest.mark.parametrize("closer", [None, "client", "proxy"])
def test_a_connection_counts_until_both_sides_have_closed_it(
    connection: tuple[socket.socket, socket.socket], closer: str | None, tmp_path: Path
) -> None:
    """Of one that a side has closed alone the other side may still send."""
    client, accepted = connection
    if closer:
        {"client": client, "proxy": accepted}[closer].shutdown(socket.SHUT_WR)
    assert resource_types._has_streams(tmp_path, US)
    client.close()
    accepted.close()
    assert not resource_types._has_streams(tmp_path, US)


@pytest.mark.parametrize("chains", [{}, {"filter_chains": []}, None], ids=["udp", "http3", "none"])
def test_a_port_that_serves_again_is_not_given_up(chains: dict[str, object] | None, tmp_path: Path) -> None:
    """Neither by UDP nor by HTTP/3, whose connections nobody counts: only a socket without a listener is freed."""
    address = {"socket_address": {"protocol": "UDP", "address": str(AT), "port_value": 443}}
    served = [] if chains is None else [{"name": "l", "address": address, **chains}]
    files = {rollout.LISTENERS: json.dumps({"resources": served})}
    with (
        mock.patch("locallb.envoy.push.texts", return_value=files),
        mock.patch.object(resource_types, "_udp_places", return_value={place(AT, 443)}),
        mock.patch.object(resource_types, "_has_streams", return_value=False),
    ):
        assert resource_types.can_release(tmp_path, US, {place(AT, 443)}) == (chains is None)
