"""An API server that forwards ports of pods, in the frames of SPDY/3.1, and in faulty ways on request.

A pod's port is a port of 127.0.0.1; `faults` says by the pod's name what happens instead. It is no copy of ours: it
reads headers, which ours never does.
"""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.kubeconfigs import written
from tests.support.servers import QuietHandler, QuietServer, answer_json, in_thread

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
Stream = dict[str, str]


@dataclass
class ForwardingApi:
    """What a server does, and has seen."""

    faults: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    """Pods to which streams were opened, in order."""
    replaced: set[str] = field(default_factory=set)
    """Pods of which connections that exist lead to a former one."""
    access: Access = field(default_factory=lambda: Access("", ContextName("")))


@contextmanager
def forwarding_api(directory: Path, *, user: Mapping[str, object] | None = None) -> Iterator[ForwardingApi]:
    """Run one, with a kubeconfig in the directory."""
    api = ForwardingApi()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            forward(self, api)

    with in_thread(QuietServer(("127.0.0.1", 0), Handler)) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        given = dict(user) if user is not None else None
        api.access = written(directory / "kubeconfig", cluster={"server": url}, user=given)
        yield api


@contextmanager
def kubelet(directory: Path) -> Iterator[tuple[int, ForwardingApi]]:
    """Forward ports as a kubelet does for a real API server: by TLS; yield the port on 127.0.0.1."""
    api = ForwardingApi()
    terms = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubelet", "-days", "2"]
    place = ["-keyout", str(directory / "kubelet.key"), "-out", str(directory / "kubelet.pem")]
    subprocess.run(["openssl", "req", *terms, *place], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "kubelet.pem", directory / "kubelet.key")

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            forward(self, api)

    server = QuietServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with in_thread(server):
        yield server.server_address[1], api


def forward(handler: QuietHandler, api: ForwardingApi) -> None:
    """Answer a request for connections to a pod, and serve them."""
    pod = handler.path.removesuffix("/portforward").partition("?")[0].rpartition("/")[2]
    api.requests.append(handler.path)
    api.tokens.append(handler.headers.get("Authorization", ""))
    handler.close_connection = True
    fault = api.faults.get(pod, "")
    if fault.isdigit():
        message = b'{"kind": "Status", "code": %s, "message": "of %s"}' % (fault.encode(), pod.encode())
        answer_json(handler, int(fault), message)
    elif fault == "expired" and "old" in api.tokens[-1]:
        answer_json(handler, 401, b'{"kind": "Status", "code": 401, "message": "Unauthorized"}')
    elif fault == "silent":
        time.sleep(30)
    elif fault == "drips":
        head = b"HTTP/1.1 101 Switching Protocols\r\nX-Long: " + b"x" * 200
        _send(handler, (bytes((byte,)) for byte in head), 0.2)
    elif fault == "closes":
        handler.connection.shutdown(socket.SHUT_RDWR)
    elif fault == "endless":
        _send(handler, chain([b"HTTP/1.1 500 No\r\nContent-Type: text/plain\r\n\r\n"], repeat(b"no " * 1000)))
    elif handler.headers.get("Upgrade") == "SPDY/3.1":
        handler.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
        )
        handler.wfile.flush()
        forwarding = _Forwarding(handler.connection, api, pod, fault)
        try:
            with suppress(OSError):
                forwarding.serve()
        finally:
            for target in [*forwarding.targets.values()]:
                with suppress(OSError):
                    target.shutdown(socket.SHUT_RDWR)


def _send(handler: QuietHandler, pieces: Iterable[bytes], pause: float = 0.0) -> None:
    with suppress(OSError):
        for piece in pieces:
            handler.wfile.write(piece)
            time.sleep(pause)


class _Forwarding:
    """One upgraded connection."""

    def __init__(self, connection: socket.socket, api: ForwardingApi, pod: str, fault: str) -> None:
        self.connection, self.api, self.pod, self.fault = connection, api, pod, fault
        self.lock = threading.Lock()
        self.headers = zlib.decompressobj()
        self.errors: dict[str, int] = {}
        self.targets: dict[int, socket.socket] = {}
        self.ended: set[int] = set()
        self.lost: dict[int, int] = {}
        """Streams for errors of those that a pod takes and loses."""
        self.is_new = pod in api.replaced

    def serve(self) -> None:
        if self.fault == "rubbish":
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" * 10)
        elif self.fault == "half":
            self.connection.sendall(b"\x80\x03\x00\x02\x00")
            return
        elif self.fault == "mute":
            time.sleep(30)
        while True:
            head = self._exactly(8)
            first, second = struct.unpack(">II", head)
            content = self._exactly(second & 0xFFFFFF)
            if first >> 31:
                self._control(first & 0xFFFF, content)
            else:
                self._data(first, content, ends=bool(second >> 24 & 1))

    def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            if not (piece := self.connection.recv(size - len(content))):
                raise ConnectionResetError
            content += piece
        return content

    def _control(self, kind: int, content: bytes) -> None:
        stream = int.from_bytes(content[:4])
        if kind == SYN_STREAM:
            headers = self._read(content[10:])
            reply = struct.pack(">II", stream, 0)
            if headers["streamtype"] == "error":
                if self.fault == "late":
                    threading.Timer(0.3, self._frame, (SYN_REPLY, reply)).start()
                else:
                    self._frame(SYN_REPLY, reply)
                self.errors[headers["requestid"]] = stream
            else:
                self._frame(SYN_REPLY, reply)
                self._begin(stream, headers)
        elif kind == RST_STREAM:
            self.ended.add(stream)
            if target := self.targets.pop(stream, None):
                with suppress(OSError):
                    target.shutdown(socket.SHUT_RDWR)

    def _read(self, block: bytes) -> Stream:
        plain, at, texts = self.headers.decompress(block), 4, list[str]()
        while at < len(plain):
            size = int.from_bytes(plain[at : at + 4])
            texts.append(plain[at + 4 : at + 4 + size].decode())
            at += 4 + size
        assert int.from_bytes(plain[:4]) * 2 == len(texts)
        assert all(name == name.lower() for name in texts[::2])
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def _begin(self, stream: int, headers: Stream) -> None:
        self.api.streams.append(self.pod)
        error = self.errors[headers["requestid"]]
        if self.fault == "goes":
            self._frame(GOAWAY, bytes(8))
            return
        if self.fault in {"lost", "drops"}:
            self.lost[stream] = error
            return
        if self.pod in self.api.replaced and not self.is_new:
            self._fail(stream, error, "sandbox not found")
            return
        if self.fault == "leaves":
            answer = b"all of it"
            frames = struct.pack(">II", stream, 1 << 24 | len(answer)) + answer
            self.connection.sendall(frames + struct.pack(">IIII", 0x80030000 | GOAWAY, 8, stream, 0))
            self._send(error, b"", ends=True)
            return
        try:
            target = socket.create_connection(("127.0.0.1", int(headers["port"])))
        except OSError as refusal:
            self._fail(stream, error, str(refusal))
            return
        self.targets[stream] = target
        threading.Thread(target=self._back, args=(stream, error, target), daemon=True).start()

    def _fail(self, stream: int, error: int, why: str) -> None:
        self._send(error, f"error forwarding port to pod: {why}".encode())
        self._frame(RST_STREAM, struct.pack(">II", stream, 5))
        self._frame(RST_STREAM, struct.pack(">II", error, 5))

    def _back(self, stream: int, error: int, target: socket.socket) -> None:
        with suppress(OSError):
            self._frame(PING, b"\x00\x00\x00\x02")
            while (data := target.recv(1 << 15)) and stream not in self.ended:
                self._send(stream, data)
        with suppress(OSError), target:
            self._send(stream, b"", ends=True)
            self._send(error, b"", ends=True)

    def _data(self, stream: int, content: bytes, *, ends: bool) -> None:
        if error := self.lost.pop(stream, 0):
            if self.fault == "drops":
                raise ConnectionResetError
            self._fail(stream, error, "read: connection reset by peer")
        if target := self.targets.get(stream):
            with suppress(OSError):
                target.sendall(content)
                if ends:
                    target.shutdown(socket.SHUT_WR)

    def _send(self, stream: int, content: bytes, *, ends: bool = False) -> None:
        with self.lock:
            self.connection.sendall(struct.pack(">II", stream, ends << 24 | len(content)) + content)

    def _frame(self, kind: int, content: bytes) -> None:
        with self.lock:
            self.connection.sendall(struct.pack(">II", 0x80030000 | kind, len(content)) + content)
