"""A driver that speaks to the provider as an engine does, and proxies to speak about."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
import socketserver
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pulumi.provider.experimental import provider as protocol

from locallb.envoy import render
from locallb.envoy.binary import installed
from locallb.model.identities import (
    ClusterName,
    Home,
    ObjectKey,
    Owner,
    Protocol,
    ProxyId,
    ProxyName,
    Uid,
    UpstreamName,
)
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, Listener, Proxy, Upstream
from locallb.model.texts import owner_fields, proxy_id
from locallb.provider import make_provider
from locallb.resources.wire import plain, wrapped
from locallb.runtimes.processes import Process
from tests.support.servers import in_thread

Plain = Mapping[str, Any]


def owner(root: Path, name: str = "web", uid: str = "u1") -> Owner:
    """Make the owner `default/<name>` of a project in `root`."""
    return Owner(Home("shop", "dev", str(root)), ObjectKey(ClusterName("local"), "default", name), Uid(uid))


def block() -> str:
    """Return the first three bytes of addresses that no other test uses at the same time."""
    return f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}"


@dataclass(frozen=True)
class Wanted:
    """A proxy as the components declare it: TCP listeners on one address, one backend each."""

    owner: Owner
    address: str
    ports: Mapping[int, int]
    """Backend port on 127.0.0.1 by listener port."""

    @property
    def proxy(self) -> ProxyId:
        return proxy_id(self.owner.home, ProxyName(str(self.owner.service)))

    @property
    def config(self) -> dict[str, Any]:
        address, backends = ip_address(self.address), {port: ip_address("127.0.0.1") for port in self.ports}
        upstreams = [
            Upstream(UpstreamName(f"tcp-{port}-ipv4"), Protocol.TCP, (Backend.at(backends[port], target),))
            for port, target in self.ports.items()
        ]
        listeners = [Listener(address, port, Protocol.TCP, UpstreamName(f"tcp-{port}-ipv4")) for port in self.ports]
        name = ProxyName(str(self.owner.service))
        rendered = render(Proxy(name, self.proxy, Discovery.EDS, tuple(listeners), tuple(upstreams)))
        versions = {"lds": rendered.versions.lds, "cds": rendered.versions.cds}
        return {
            "proxy": self.proxy,
            "name": name,
            "owner": dict(owner_fields(self.owner)),
            "files": dict(rendered.files),
            "versions": versions,
            "shared": False,
        }

    @property
    def process(self) -> dict[str, Any]:
        bootstrap = hashlib.sha256(self.config["files"]["bootstrap.json"].encode()).hexdigest()
        given = {"proxy": self.proxy, "owner": dict(owner_fields(self.owner)), "bootstrap": bootstrap}
        return {**given, "version": installed().version}

    def reachable(self, process: Plain, *, probes: bool = True) -> dict[str, Any]:
        """Return the inputs of Reachable for this run of the process."""
        return {
            "proxy": self.proxy,
            "part": "",
            "process": f"{process['pid']}@{process['started']}",
            "listeners": [f"{self.address}:{port}/TCP" for port in self.ports],
            "versions": self.config["versions"],
            "probes": [f"{self.address}:{port}" for port in self.ports] if probes else [],
            "published": False,
        }


class Driver:
    """The provider, called as the embedded engine calls it, with plain values in and out."""

    def __init__(self, root: Path | None = None) -> None:
        self.provider = make_provider(root)

    def check(self, kind: str, news: Plain) -> list[tuple[str, str]]:
        request = protocol.CheckRequest(urn(kind), {}, wrapped(news), b"")
        response = asyncio.run(self.provider.check(request))
        return [(failure.property, failure.reason) for failure in response.failures or ()]

    def diff(self, kind: str, olds: Plain, news: Plain) -> protocol.DiffResponse:
        request = protocol.DiffRequest(urn(kind), "id", wrapped(olds), wrapped(news), [])
        return asyncio.run(self.provider.diff(request))

    def create(self, kind: str, news: Plain, *, preview: bool = False) -> dict[str, Any]:
        request = protocol.CreateRequest(urn(kind), wrapped(news), 0.0, preview)
        response = asyncio.run(self.provider.create(request))
        assert bool(response.resource_id) is not preview
        return plain(response.properties)

    def update(self, kind: str, olds: Plain, news: Plain, *, preview: bool = False) -> dict[str, Any]:
        request = protocol.UpdateRequest(urn(kind), "id", wrapped(olds), wrapped(news), 0.0, [], preview)
        return plain(asyncio.run(self.provider.update(request)).properties)

    def read(self, kind: str, state: Plain) -> dict[str, Any] | None:
        """Return what is there; None if it is gone."""
        response = asyncio.run(self.provider.read(protocol.ReadRequest(urn(kind), "id", wrapped(state), {})))
        return plain(response.properties) if response.resource_id else None

    def delete(self, kind: str, state: Plain, identity: str = "id") -> None:
        asyncio.run(self.provider.delete(protocol.DeleteRequest(urn(kind), identity, wrapped(state), 0.0)))

    def up(self, wanted: Wanted) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        config = self.create("ProxyConfig", wanted.config)
        process = self.create("EnvoyProcess", wanted.process)
        return config, process, self.create("Reachable", wanted.reachable(process))


def urn(kind: str) -> str:
    """Make a URN of this kind below a component."""
    return f"urn:pulumi:dev::shop::locallb:index:LoadBalancer$locallb:index:{kind}::local/default/web"


class _Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets."""

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(4096):
                self.request.sendall(data)


class _EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # clients that come together are not its fault


@contextmanager
def echo() -> Iterator[int]:
    """Serve TCP on 127.0.0.1: every connection gets back what it sends. Gives the port."""
    with in_thread(_EchoServer(("127.0.0.1", 0), _Echo)) as server:
        yield server.server_address[1]


def exchanges(client: socket.socket, text: bytes) -> bool:
    """Return whether what is sent comes back."""
    client.sendall(text)
    return client.recv(len(text)) == text


def accepts(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def process_of(outputs: dict[str, object]) -> Process:
    """Read a process from the outputs of EnvoyProcess."""
    return Process(int(str(outputs["pid"])), str(outputs["started"]))
