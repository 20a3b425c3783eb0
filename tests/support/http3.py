"""A client of HTTP/3."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent

from tests.support.envoy_traffic import TIMEOUT


@dataclass
class Told:
    """What came back so far."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class _Client(QuicConnectionProtocol):
    """Asks once."""

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]  # whatever the library gives
        self._http = H3Connection(self._quic)
        self._reported = Told()
        self._whole: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated) and not self._whole.done():
            self._whole.set_exception(ConnectionError(event.reason_phrase))
        for each in self._http.handle_event(event):
            self._take(each)

    def _take(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            self._reported.headers |= {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, DataReceived):
            self._reported.body += event.data
        if getattr(event, "stream_ended", False) and not self._whole.done():
            self._whole.set_result(self._reported)

    async def ask(self, host: str, path: str) -> Told:
        """Send a request and wait for all of the answer."""
        stream = self._quic.get_next_available_stream_id()
        head = {":method": "GET", ":scheme": "https", ":authority": host, ":path": path}
        self._http.send_headers(
            stream, [(name.encode(), value.encode()) for name, value in head.items()], end_stream=True
        )
        self.transmit()
        return await self._whole


def asked_by_http3(address: str, port: int, host: str, authorities: Path, path: str = "/") -> Told:
    """Ask for a host, believing who is signed by `authorities`."""

    async def ask() -> Told:
        configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name=host, verify_mode=ssl.CERT_REQUIRED)
        configuration.load_verify_locations(cafile=str(authorities))
        async with (
            asyncio.timeout(TIMEOUT),
            connect(address, port, configuration=configuration, create_protocol=_Client) as client,
        ):
            assert isinstance(client, _Client)
            return await client.ask(host, path)

    return asyncio.run(ask())
