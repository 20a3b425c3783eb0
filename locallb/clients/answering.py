"""A small HTTP server on the loopback: pages that programs of this host read now and again, metrics for instance.

Not here: what the pages say.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread

from locallb.clients import ClientError
from locallb.planning.model import IPAddress

PATIENCE = 5.0
"""Seconds that a client has for its request, and for taking the answer."""
AT_ONCE = 8
"""Connections that are served at a time; others wait."""


class AnsweringError(ClientError):
    """The server can't listen there: one sentence."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    text: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK


Pages = Mapping[str, Callable[[str], Page]]
"""By path: what gives the page for a client with that Accept header."""


class Answering:
    """Listens from the beginning, answers once started, until `stop`. Raises AnsweringError."""

    def __init__(self, address: IPAddress, port: int, pages: Pages) -> None:
        host = str(address)
        try:
            self._server = _Server((host, port), _handler(pages), address.version)
        except OSError as error:
            raise AnsweringError(
                f"{host} port {port} can't be listened on ({error.strerror or error}): choose another port,"
                " or end what uses it"
            ) from error
        number = self._server.server_address[1]
        self.place = f"[{host}]:{number}" if address.version == 6 else f"{host}:{number}"  # noqa: PLR2004 - IP version
        """Where it listens, with the port that it got where 0 was asked for."""

    def start(self) -> None:
        """Begin to answer."""
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Answer no more; only after `start`."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler], version: int) -> None:
        self.address_family = socket.AF_INET6 if version == 6 else socket.AF_INET  # noqa: PLR2004 - IP version
        self._slots = BoundedSemaphore(AT_ONCE)
        super().__init__(place, handler)

    def server_bind(self) -> None:
        """Bind, without asking anybody for the host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Wait for a slot: a connection ends after a moment in any case."""
        self._slots.acquire()
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer, then give the slot back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE
        server_version = "local-lb"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            make = pages.get(self.path.partition("?")[0])
            listed = f"there is {', '.join(pages)}\n".encode()
            page = make(self.headers.get("Accept", "")) if make else Page(listed, status=HTTPStatus.NOT_FOUND)
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(page.text)))
            self.end_headers()
            if with_body:
                self.wfile.write(page.text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Log nothing."""

    return Handler
