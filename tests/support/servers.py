"""Servers of tests that run in a thread until nobody needs them any more."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=socketserver.BaseServer)
ANSWER_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
"""Of an answer that is JSON, up to its length."""


class QuietHandler(BaseHTTPRequestHandler):
    """Writes no log of requests."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class QuietServer(ThreadingHTTPServer):
    """Serves HTTP, and says nothing of clients that went away."""

    daemon_threads = True
    request_queue_size = 128
    """Clients that may wait to be accepted: with the usual five one waits a second more where all come at once."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def answer_json(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    """Answer a request with a body that is JSON, or is said to be."""
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def in_thread(server: Server) -> Iterator[Server]:
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def dripping(begun: bytes) -> Iterator[int]:
    """Answer one client with this and then a byte now and then; yield the port, on 127.0.0.1."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_drip, args=(server, over, begun))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def _drip(server: socket.socket, over: threading.Event, begun: bytes) -> None:
    client, _ = server.accept()
    with client, suppress(OSError):  # it hangs up
        client.recv(1 << 16)
        client.sendall(begun)
        while not over.wait(0.02):
            client.sendall(b" ")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as claimed:
        return int(claimed.getsockname()[1])
