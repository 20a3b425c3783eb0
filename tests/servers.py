"""Servers of tests that run in a thread until nobody needs them any more."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=socketserver.BaseServer)


class QuietServer(ThreadingHTTPServer):
    """Serves HTTP, and says nothing of clients that went away."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def in_thread(server: Server) -> Iterator[Server]:
    """Let a server answer."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
