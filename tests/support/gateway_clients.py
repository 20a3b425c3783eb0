"""HTTP backends, Gateways that lead to them, and clients of both."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar, Self

from tests.support.certificates import Authority, Pair
from tests.support.gateway_objects import JsonObject, gateway, listener
from tests.support.servers import QuietHandler, in_thread
from tests.support.stages import Stage

RATE = 100


class Answer(QuietHandler):
    """Says who answers, and what was asked."""

    protocol_version = "HTTP/1.1"
    name: ClassVar[str]

    def do_GET(self) -> None:
        """Answer with the backend's name, the path and a header."""
        text = f"{self.name} {self.path} {self.headers.get('x-from', '-')}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def answering(name: str, port: int = 0, address: str = "127.0.0.1") -> Iterator[int]:
    """Serve HTTP on a port, by name."""
    with in_thread(ThreadingHTTPServer((address, port), type("Named", (Answer,), {"name": name}))) as server:
        yield server.server_port


def service(name: str, node_port: int) -> JsonObject:
    """Make a Service whose NodePort is a backend of the test."""
    spec = {"type": "NodePort", "ports": [{"port": 8080, "nodePort": node_port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def get(address: str, path: str = "/", host: str = "a.test", port: int = 8080) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", path, headers={"host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def address_of(play: Stage) -> str:
    """Return the address of the only Gateway."""
    (row,) = play.run("status", "--json").json
    assert row["state"] == "serving", row
    return str(row["addresses"][0])


def web(**fields: Any) -> JsonObject:  # noqa: ANN401 - fields of a Gateway
    return gateway(listener(port=8080), **fields)


class Client:
    """Asks at a constant rate on one connection, and notes who answered and what went wrong."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, 8080, timeout=5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.1)
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stop.wait(1 / RATE):
            self._connection.request("GET", "/", headers={"host": "a.test"})
            answer = self._connection.getresponse()
            self.answers.append(f"{answer.status} {answer.read().decode().partition(' ')[0]}")


def tls_secret(pair: Pair) -> JsonObject:
    data = {"tls.crt": pair.chain, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "cert", "namespace": "shop"},
        "data": {key: base64.b64encode(path.read_bytes()).decode() for key, path in data.items()},
    }


def shown_certificate(address: str, authority: Authority) -> tuple[str, str]:
    """Return the serial number of the certificate that clients see, and what they are answered."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    with (
        socket.create_connection((address, 8443), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="a.test") as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n")
        with client.makefile("rb") as answer:
            return str((client.getpeercert() or {})["serialNumber"]), answer.read().decode().rpartition("\r\n")[2]


def config_map(text: str) -> JsonObject:
    metadata = {"name": "ca", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": text}}
