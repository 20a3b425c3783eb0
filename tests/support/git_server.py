"""A Git server on this host that speaks HTTPS, as a hosting service does: by Git's own program for that."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.certificates import Pair


def publish(source: Path, repository: Path, *tags: str) -> None:
    """Make a bare repository of what is in a directory, as one commit with tags."""
    by = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "init.defaultBranch=main")
    for terms in (
        ("init", "-q"),
        ("add", "-A", "-f"),
        ("commit", "-q", "-m", "first"),
        *(("tag", tag) for tag in tags),
    ):
        subprocess.run(["git", *by, *terms], cwd=source, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(repository)], check=True)


@contextmanager
def serving(directory: Path, address: str, pair: Pair) -> Iterator[None]:
    """Serve the repositories in a directory at an address, at HTTPS's own port: the CLI makes a path of the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            variables = {
                "GIT_PROJECT_ROOT": str(directory),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(length),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(
                ["git", "http-backend"],
                input=self.rfile.read(length),
                env={**os.environ, **variables},
                capture_output=True,
                check=True,
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    server = ThreadingHTTPServer((address, 443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
