"""A small API server for tests of seeds and shoots: what stands in it by path, and who asked with which credential."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import yaml

from tests.support.servers import QuietHandler, QuietServer, answer_json, in_thread

CLUSTERS = "/apis/extensions.gardener.cloud/v1alpha1/clusters"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
RECORDS = "/apis/extensions.gardener.cloud/v1alpha1/dnsrecords"
LOCAL = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}


@dataclass
class SeedApi:
    """What it has; each field may be changed at any time."""

    url: str = ""
    objects: dict[str, Any] = field(default_factory=dict)
    """Lists and objects by their paths; a list is a list."""
    refused: int = 0
    """Instead of any answer."""
    message: str = "no"
    """Why."""
    over: threading.Event = field(default_factory=threading.Event)
    requested: list[tuple[str, str]] = field(default_factory=list)
    """Paths, and the credential that came with each."""
    called: set[str] = field(default_factory=set)
    """The names that clients asked for, where it is served by TLS."""

    def put_shoot(self, name: str, *, labels: Mapping[str, str] | None = None, **fields: object) -> None:
        """Make the namespace and the Cluster of a shoot."""
        self.drop_shoot(name)
        metadata = {"name": name, "labels": dict(LOCAL if labels is None else labels), "resourceVersion": "1"}
        self.objects.setdefault(NAMESPACES, []).append({"metadata": metadata})
        self.objects.setdefault(CLUSTERS, []).append(cluster(name, **fields))

    def drop_shoot(self, name: str) -> None:
        """Take away its namespace and its Cluster."""
        for path in (NAMESPACES, CLUSTERS):
            self.objects[path] = [item for item in self.objects.get(path, []) if item["metadata"]["name"] != name]

    def put_record(self, shoot: str, name: str, *values: object) -> None:
        metadata = {"name": f"{name}-{len(self.objects.get(RECORDS, []))}", "namespace": shoot, "resourceVersion": "1"}
        spec = {"type": "local", "name": name, "recordType": "A", "values": list(values)}
        self.objects.setdefault(RECORDS, []).append({"metadata": metadata, "spec": spec})

    def put_machine(self, shoot: str, name: str, pod_ips: Sequence[str], host_ips: Sequence[str]) -> None:
        """Make the pod that is a Node of a shoot."""
        labels = {"app": "machine", "machine": name, "machine-provider": "local"}
        metadata = {"name": f"machine-{name}", "namespace": f"infra-{shoot}", "labels": labels, "resourceVersion": "1"}
        status = {"podIPs": [{"ip": ip} for ip in pod_ips], "hostIPs": [{"ip": ip} for ip in host_ips]}
        self.objects[PODS].append({"metadata": metadata, "status": {"phase": "Running", **status}})

    def put_secret(self, namespace: str, name: str, key: str = "", text: str = "") -> None:
        """Write a Secret with one value, or none."""
        data = {key: base64.b64encode(text.encode()).decode()} if key else {}
        metadata = {"name": name, "namespace": namespace, "resourceVersion": "1"}
        self.objects[f"{NAMESPACES}/{namespace}/secrets/{name}"] = {"metadata": metadata, "data": data}


def cluster(name: str, **fields: object) -> dict[str, Any]:
    """Write a Cluster. `fields` are the shoot's: `hibernated`, `wanted` (asleep), `deleted`, `provider`, `domain`."""
    shoot = {
        "metadata": {"name": "a", **({"deletionTimestamp": "now"} if fields.get("deleted") else {})},
        "spec": {
            "provider": {"type": fields.get("provider", "local")},
            "dns": {"domain": fields.get("domain", "a.local.external.local.gardener.cloud")},
            "hibernation": {"enabled": fields.get("wanted", False)},
        },
        "status": {"technicalID": name, "hibernated": fields.get("hibernated", False)},
    }
    annotations = {"generic-token-kubeconfig.secret.gardener.cloud/name": "generic-token-kubeconfig-1"}
    return {"metadata": {"name": name, "annotations": annotations, "resourceVersion": "1"}, "spec": {"shoot": shoot}}


def kubeconfig(server: str, user: Mapping[str, Any]) -> str:
    """Write a kubeconfig as Gardener makes them."""
    return yaml.safe_dump(
        {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": dict(user)}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
    )


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: SeedApi

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.api.requested.append((path, self.headers.get("Authorization", "")))
        listed = self.api.objects.get(path)
        if self.api.refused or listed is None:
            code = self.api.refused or 404
            self._answer(code, {"kind": "Status", "code": code, "message": self.api.message})
        elif "watch=true" in query:
            self._watch()
        elif isinstance(listed, list):
            labels = dict(pair.split("=") for pair in parse_qs(query).get("labelSelector", [""])[0].split(",") if pair)
            wanted = [item for item in listed if labels.items() <= item["metadata"].get("labels", {}).items()]
            self._answer(200, {"metadata": {"resourceVersion": "1"}, "items": wanted})
        else:
            self._answer(200, listed)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not (self.api.refused or self.api.over.wait(0.01)):
            pass
        self.close_connection = True

    def _answer(self, status: int, document: object) -> None:
        answer_json(self, status, json.dumps(document).encode())


def _tls(certificate: tuple[Path, Path], called: set[str]) -> ssl.SSLContext:
    """Return the server's side, which takes note of the names that clients ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.sni_callback = lambda _socket, name, _context: called.add(name or "")
    return context


@contextmanager
def served_seed(
    path: Path | None = None, uid: str = "seed-1", certificate: tuple[Path, Path] | None = None
) -> Iterator[SeedApi]:
    """Serve an API that has nothing but kube-system, with this chain and key by TLS; `path` gets a kubeconfig."""
    api = SeedApi()
    api.objects = {
        f"{NAMESPACES}/kube-system": {"metadata": {"name": "kube-system", "uid": uid, "resourceVersion": "1"}},
        **{path: [] for path in (NAMESPACES, CLUSTERS, PODS, "/api/v1/services", "/api/v1/nodes")},
        "/apis/discovery.k8s.io/v1/endpointslices": [],
    }
    server = QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    if certificate:
        server.socket = _tls(certificate, api.called).wrap_socket(server.socket, server_side=True)
    with in_thread(server):
        api.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        if path:
            path.write_text(kubeconfig(api.url, {"token": "seed-token"}))
        yield api
        api.over.set()
