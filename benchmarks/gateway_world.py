"""Gateways with a route, Services and two pods, written into an API or into manifests, and clients who ask it by HTTP.

Not here: what is measured of it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import httpx2
from lightkube import Client

from benchmarks.nodes import FIRST
from benchmarks.requests import TIMEOUT, Load, until
from locallb.gateway.kinds import KINDS
from locallb.model.gateway_objects import CONTROLLER, GROUP
from tests.support.certificates import Pair
from tests.support.client_kinds import SECRET, SERVICE, SLICE
from tests.support.cluster_gateways import BINDING, CRD, RIGHTS, ROLE, definition, is_created, resource
from tests.support.rbac_manifests import roles_of
from tests.support.stages import Stage

HTTP, HTTPS = 8080, 8443
HOST, NAMESPACE, CLASS = "a.test", "n", "local"
PODS = "198.18.78.1", "198.18.78.2"
"""Addresses of pods, of the range that RFC 2544 gives to benchmarks."""
_LINK = "llb-pods"
_FIELD_MANAGER = "bench"
_REQUEST = f"GET {{}} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n"
Document = dict[str, Any]


def document(kind: str, name: str, group: str = f"{GROUP}/v1", **fields: object) -> Document:
    """Write an object of the namespace."""
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def gateway_class() -> Document:
    """Write a GatewayClass of ours, which is in no namespace."""
    whole = document("GatewayClass", CLASS, spec={"controllerName": CONTROLLER})
    return {**whole, "metadata": {"name": CLASS}}


def gateway(address: str, name: str = "web") -> Document:
    """Write a Gateway that asks for its address, so that clients know it beforehand."""
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "cert"}]}
    listeners = [
        {"name": "http", "port": HTTP, "protocol": "HTTP"},
        {"name": "https", "port": HTTPS, "protocol": "HTTPS", "tls": tls},
    ]
    addresses = [{"type": "IPAddress", "value": address}]
    return document("Gateway", name, spec={"gatewayClassName": CLASS, "addresses": addresses, "listeners": listeners})


def route(to: str) -> Document:
    """Write the route of both Gateways: /pods leads to the Service `pods`, all else to this one."""
    rules = [_rule("/pods", "pods"), _rule("/", to)]
    spec = {"parentRefs": [{"name": "web"}, {"name": "there"}], "hostnames": [HOST], "rules": rules}
    return document("HTTPRoute", "web", spec=spec)


def _rule(prefix: str, to: str) -> Document:
    matches = [{"path": {"type": "PathPrefix", "value": prefix}}]
    return {"matches": matches, "backendRefs": [{"name": to, "port": 80}]}


def service(name: str) -> Document:
    port = {"name": "http", "port": 80, "targetPort": FIRST, "protocol": "TCP"}
    return document("Service", name, "v1", spec={"type": "ClusterIP", "ports": [port]})


def slice_of(name: str, *addresses: str) -> Document:
    """Write the pods of a Service."""
    endpoints = [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]
    ports = [{"name": "http", "port": FIRST, "protocol": "TCP"}]
    whole = document("EndpointSlice", name, "discovery.k8s.io/v1", addressType="IPv4", endpoints=endpoints, ports=ports)
    whole["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    return whole


def secret(pair: Pair) -> Document:
    """Write the Secret that the Gateway names."""
    files = {"tls.crt": pair.chain, "tls.key": pair.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    return document("Secret", "cert", "v1", type="kubernetes.io/tls", data=data)


WATCHING = roles_of("rbac-certificates.yaml")["local-lb-certificates"]


class Source(Protocol):
    """Where objects are written."""

    def put(self, written: Document) -> None:
        """Create an object, or replace it."""

    def remove(self, written: Document) -> None:
        """Delete it."""


class Api:
    """A cluster, which has the kinds of Gateway API and lets local-lb read them."""

    def __init__(self, client: Client) -> None:
        self._client: Any = client  # whose overloads know no type that is chosen at run time
        self._resources: dict[str, Any] = {"Service": SERVICE, "EndpointSlice": SLICE, "Secret": SECRET}
        client.create(ROLE.from_dict({"metadata": {"name": "gateways"}, "rules": [*RIGHTS, *WATCHING]}))
        subject = {"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gateways"}
        client.create(BINDING.from_dict({"metadata": {"name": "gateways"}, "roleRef": role, "subjects": [subject]}))
        for kind in KINDS.values():
            client.create(CRD.from_dict(definition(kind)))
            self._resources[kind.name] = resource(kind.name)
        until(lambda: all(self._serves(kind) for kind in KINDS), "Gateway API")
        until(lambda: is_created(client, gateway_class()), "the GatewayClass")

    def _serves(self, kind: str) -> bool:
        with suppress(httpx2.HTTPStatusError):  # ApiError is one; a path that isn't served is answered in plain text
            list(self._client.list(self._resources[kind]))
            return True
        return False

    def put(self, written: Document) -> None:
        """Create an object, or replace it."""
        made = self._resources[written["kind"]].from_dict(written)
        self._client.apply(made, namespace=NAMESPACE, field_manager=_FIELD_MANAGER, force=True)

    def remove(self, written: Document) -> None:
        self._client.delete(self._resources[written["kind"]], written["metadata"]["name"], namespace=NAMESPACE)


class Manifests:
    """The directory of manifests of a stack."""

    def __init__(self, play: Stage) -> None:
        self._play = play
        self.put(gateway_class())

    def put(self, written: Document) -> None:
        """Create an object, or replace it."""
        self._play.write(_file(written), written)

    def remove(self, written: Document) -> None:
        (self._play.manifests / _file(written)).unlink()


def _file(written: Mapping[str, Any]) -> str:
    return f"{written['kind']}-{written['metadata']['name']}.yaml"


@contextmanager
def pods_network() -> Iterator[None]:
    """Have the addresses of pods on this host. Only root can."""
    _forget()
    try:
        _ip("link", "add", _LINK, "type", "bridge")
        for address in PODS:
            _ip("address", "add", f"{address}/24", "dev", _LINK)
        _ip("link", "set", _LINK, "up")
        yield
    finally:
        _forget()


def _forget() -> None:
    subprocess.run([_tool(), "link", "del", _LINK], check=False, capture_output=True)


def _ip(*terms: str) -> None:
    subprocess.run([_tool(), *terms], check=True)


def _tool() -> str:
    return shutil.which("ip") or "/usr/sbin/ip"


def get(address: str, path: str = "/") -> str:
    """Make one request on a new connection. Gives the body; nothing if it failed."""
    try:
        with socket.create_connection((address, HTTP), timeout=TIMEOUT) as client:
            client.sendall(_REQUEST.format(path).encode())
            with client.makefile("rb") as answer:
                return _body(answer.read())
    except OSError:
        return ""


def _body(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    return body.decode() if head.startswith(b"HTTP/1.1 200 ") else ""


class HttpLoad(Load):
    """Requests by HTTP at a constant rate, each a new connection, whose answers are their bodies."""

    def __init__(self, address: str, path: str, rate: int) -> None:
        super().__init__(address, HTTP, rate)
        self._path = path

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Ask on a connection. Gives the body; nothing if that is a failure."""
        writer.write(_REQUEST.format(self._path).encode())
        return _body(await reader.read(-1))


def shown(address: str, trusted: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection is shown; nothing if it failed."""
    try:
        with (
            socket.create_connection((address, HTTPS), timeout=TIMEOUT) as plain,
            trusted.wrap_socket(plain, server_hostname=HOST) as client,
        ):
            return client.getpeercert(binary_form=True) or b""
    except OSError:
        return b""


class Held:
    """One connection by TLS that is kept, and asked on."""

    def __init__(self, address: str, trusted: ssl.SSLContext) -> None:
        plain = socket.create_connection((address, HTTPS), timeout=TIMEOUT)
        self._connection = http.client.HTTPConnection(address, HTTPS)
        self._connection.sock = trusted.wrap_socket(plain, server_hostname=HOST)
        self._connection.auto_open = 0  # it never connects again by itself

    def goes_on(self) -> bool:
        try:
            self._connection.request("GET", "/", headers={"host": HOST})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        return answer.status == http.client.OK

    def close(self) -> None:
        self._connection.close()
