"""The stack key `http3`, with a real Envoy and a client of HTTP/3."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from locallb.certificates import store
from tests.e2e.https_gateways import PORT, https, served
from tests.support.gateway_clients import answering
from tests.support.http3 import asked_by_http3
from tests.support.http_traffic import Client
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy


@pytest.fixture
def authorities(play: Stage) -> Iterator[Path]:
    """Return the certificate of the authority that the stage's user has."""
    with patch.dict(os.environ, XDG_DATA_HOME=str(play.root / "d")):
        yield play.root / "d" / "local-lb" / "ca" / store.CERTIFICATE


def reported(address: str, authorities: Path) -> str | None:
    """Return where an answer by TCP says that HTTP/3 is."""
    with closing(Client(address, PORT, str(authorities))) as client:
        return client.ask(host="a.test").headers.get("alt-svc")


def test_http3_is_turned_on_and_off_without_another_process(play: Stage, authorities: Path) -> None:
    """HTTPS goes on all the time; preview and up agree."""
    with answering("one") as one:
        address = served(play, https(hostname="a.test"), backend_port=one)
        pids = play.pids()
        assert reported(address, authorities) is None
        play.configure(certificates="local", http3=True)
        play.up()
        assert reported(address, authorities) == f'h3=":{PORT}"; ma=86400'
        answer = asked_by_http3(address, PORT, "a.test", authorities)
        assert (answer.headers[":status"], answer.body) == ("200", b"one / -")
        assert play.run("preview", "--expect-no-changes").code == 0
        play.configure(certificates="local")
        play.up()
        assert reported(address, authorities) is None
        assert play.pids() == pids


def test_occupied_udp_port_disables_http3_until_it_is_free(play: Stage, authorities: Path) -> None:
    """HTTPS is served; once the port is free, HTTP/3 is, too."""
    with answering("one") as one:
        address = served(play, https(hostname="a.test"), backend_port=one)
        play.configure(certificates="local", http3=True)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as others:
            others.bind((address, PORT))
            done = play.run("up", "--yes")
            assert done.code == 1
            assert f"{address}:{PORT}/QUIC isn't served: the port is in use by " in done.err
            assert f"serving all the same: {address}:{PORT}/TCP" in done.err
            reported(address, authorities)
        play.up()
        assert asked_by_http3(address, PORT, "a.test", authorities).headers[":status"] == "200"
