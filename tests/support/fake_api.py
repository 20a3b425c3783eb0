"""A small API server for tests of followers: healthy until told to answer something else; counts what it is asked.

Everything runs in this process. What a Kubernetes API means by its answers is the cluster tier's.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from locallb.ingress.parsing import INGRESS_KINDS, ROUTED_KINDS
from locallb.kubernetes.api.discovery import PLURALS
from locallb.kubernetes.pod_ranges import VERSIONS
from locallb.model.gateway_objects import GROUP
from locallb.model.identities import ClusterName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from tests.support.gateway_objects import JsonObject
from tests.support.kubeconfigs import written
from tests.support.portforward import ForwardingApi, forward
from tests.support.servers import QuietHandler, QuietServer, in_thread
from tests.support.waiting import becomes

NAME = ClusterName("demo")
KINDS = {"services": "Service", "nodes": "Node", "endpointslices": "EndpointSlice", "namespaces": "Namespace"}
KINDS |= {kind.plural: kind.name for kind in ROUTED_KINDS.values()}
KINDS |= {plural: kind for kind, plural in PLURALS.items()}
RANGES = {f"/apis/{VERSIONS[kind]}": plural for kind, plural in PLURALS.items()}
"""Kinds of a CNI, by where it is asked for them."""
CLASSES = frozenset({"gatewayclasses", "ingressclasses"})
INGRESSES = frozenset(kind.plural for kind in INGRESS_KINDS.values())
ROOT = f"/apis/{GROUP}"


def follower(access: Access, *, reads_ranges: bool = False, classes: bool = False) -> FollowedCluster:
    """Follow a cluster, and wait until everything is listed."""
    followed = FollowedCluster(NAME, access, lambda: None, reads_ranges=reads_ranges, loopback=True, classes=classes)
    becomes(followed.ready, followed.stale)
    return followed


def node(name: str, version: str = "1") -> dict[str, Any]:
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    return {"metadata": {"name": name, "resourceVersion": version}, "status": {"addresses": [address]}}


def balancer(name: str) -> dict[str, Any]:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30000}]
    metadata = {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": ports}}


def healthy(kind: str, objects: list[dict[str, Any]]) -> bytes:
    """Write a list as an API server does."""
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": objects}).encode()


def merged(value: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    made = dict(value)
    for name, part in patch.items():
        if part is None:
            made.pop(name, None)
        elif isinstance(part, dict):
            before = made.get(name)
            made[name] = merged(before if isinstance(before, dict) else {}, part)
        else:
            made[name] = part
    return made


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Api:
    """How it answers now; each field may be changed at any time."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    services: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """What a healthy watch of Services says, as it is added here: its type and the object."""
    listed: tuple[int, bytes] | None = None
    """Instead of a healthy list: status and body."""
    watched: tuple[int, bytes] | None = None
    """Instead of a healthy watch, which says nothing: what is answered at once, and the end."""
    silent: bool = False
    """Take requests and answer nothing."""
    failing: set[str] = field(default_factory=set)
    """Plurals of which no status can be written."""
    is_writing: threading.Event = field(default_factory=_set)
    """Unset: writes of statuses are taken and not answered until it is set."""
    drip: float = 0.0
    """Seconds between two bytes of a list."""
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Namespaces and what there is of Gateway API and Ingresses, by plural: the kinds that are served."""
    other_events: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """What healthy watches of these say, as it is added here."""
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path, from `namespaces` on."""
    may_watch_names: bool = False
    """Whether watches of single Secrets and ConfigMaps are allowed."""
    names_watched: list[tuple[str, str]] = field(default_factory=list)
    """For each such watch the object's path, as in `secrets`, and which form of it was asked for."""
    odd: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By path, from `namespaces` on: what is answered instead."""
    discoveries: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By path: what is answered instead to who asks for the kinds of a CNI."""
    reviews: tuple[int, bytes] | None = None
    """What is answered to who asks whether Ingresses may be read; None: whether the test has any."""
    reviewed: int = 0
    """How often that was asked."""
    refused: set[str] = field(default_factory=set)
    """Plurals that may not be read."""
    requested: list[tuple[float, str]] = field(default_factory=list)
    """When, and `list`, `watch`, `object`, `secret` or `discovery`."""
    patched: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Plural, name and patch of each status that was written."""
    unkept: set[str] = field(default_factory=set)
    """Fields of a status' addresses that this API is too old for."""
    written: list[str] = field(default_factory=list)
    """Requests that write classes and Nodes: the verb and the kind."""
    versions: int = 100
    """Of what was written last."""
    forbidden: set[str] = field(default_factory=set)
    """What nobody may do with classes and Nodes, such as `create gatewayclasses`."""
    reported: list[dict[str, Any]] = field(default_factory=list)
    """Events."""
    paths: list[str] = field(default_factory=list)
    """What was asked for, without parameters."""
    forwarding: ForwardingApi = field(default_factory=ForwardingApi)
    """Connections to pods, by their names."""
    over: threading.Event = field(default_factory=threading.Event)
    renewed: threading.Event = field(default_factory=threading.Event)
    """Set: healthy watches end."""

    def count(self, what: str) -> int:
        return sum(kind == what for _, kind in tuple(self.requested))

    def discovered(self, path: str) -> tuple[int, bytes]:
        """Say which kinds of Gateway API there are, all in v1, or which of a CNI."""
        if path in RANGES:
            present = json.dumps({"kind": "APIResourceList", "resources": [{"name": RANGES[path]}]}).encode()
            return self.discoveries.get(path, (200, present) if RANGES[path] in self.others else (404, b"{}"))
        kinds = [plural for plural in self.others if plural not in {"namespaces", *INGRESSES, *RANGES.values()}]
        if not kinds or path not in {ROOT, f"{ROOT}/v1"}:
            return 404, b"{}"
        group = {"kind": "APIGroup", "versions": [{"version": "v1"}]}
        resources = {"kind": "APIResourceList", "resources": [{"name": plural} for plural in kinds]}
        return 200, json.dumps(group if path == ROOT else resources).encode()

    def retained(self, plural: str) -> list[dict[str, Any]]:
        """Return all that there is of a kind."""
        return {"nodes": self.nodes, "services": self.services, **self.others}.get(plural, [])

    def named(self, plural: str, name: str) -> dict[str, Any] | None:
        return next((one for one in self.retained(plural) if one["metadata"]["name"] == name), None)

    def write(self, plural: str, name: str, item: dict[str, Any] | None) -> None:
        """Have another version of an object from now on, or none, and say so to watches."""
        before = self.named(plural, name)
        kept = [one for one in self.retained(plural) if one is not before]
        self.versions += 1
        if item is not None:
            metadata = {"uid": f"{plural}-{self.versions}", **item["metadata"], "resourceVersion": str(self.versions)}
            item = {**item, "metadata": metadata}
        self.others[plural] = [*kept, item] if item else kept
        event = "DELETED" if item is None else "MODIFIED" if before else "ADDED"
        self.other_events.setdefault(plural, []).append((event, item or before or {}))

    def delete(self, plural: str, name: str) -> None:
        """Delete an object as an API does: one with finalizers stays until it has none."""
        found = self.named(plural, name) or {"metadata": {}}
        if found["metadata"].get("finalizers"):
            metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self.write(plural, name, {**found, "metadata": metadata})
        else:
            self.write(plural, name, None)

    def end_watches(self) -> None:
        """End those that are open, as a server does after a while."""
        self.renewed.set()
        self.renewed = threading.Event()


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def do_POST(self) -> None:
        """Take an event, or say whether Ingresses may be read: where the test has any."""
        if self.path.endswith("/portforward"):
            forward(self, self.api.forwarding)
            return
        requested = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0].endswith("/events"):
            self.api.reported.append(requested)
            self._whole(201, json.dumps(requested).encode())
            return
        if self.path.partition("?")[0].rpartition("/")[2] in CLASSES:
            self._create(requested)
            return
        self.api.reviewed += 1
        if self.api.reviews:
            self._whole(*self.api.reviews)
            return
        attributes = requested["spec"]["resourceAttributes"]
        plural, verb = attributes["resource"], attributes["verb"]
        forbidden = [each for each in self.api.forbidden if each.endswith(f" {plural}")]
        denied = f"{verb} {plural}" in forbidden or (verb == "*" and forbidden)
        allowed = plural in {"pods", *self.api.others} and plural not in self.api.refused and not denied
        self._whole(201, json.dumps({**requested, "status": {"allowed": allowed}}).encode())

    def _create(self, item: dict[str, Any]) -> None:
        """Create a class, if it isn't there."""
        path = self.path.partition("?")[0]
        plural, name = path.rpartition("/")[2], item["metadata"]["name"]
        if self._is_refused("create", plural):
            return
        if self.api.named(plural, name):
            self._refuse(409)
            return
        self.api.write(plural, name, item)
        self._whole(201, json.dumps(self.api.named(plural, name)).encode())

    def _is_refused(self, verb: str, plural: str) -> bool:
        """Note a request, and refuse it where the test wants that."""
        self.api.written.append(f"{verb} {plural}")
        if f"{verb} {plural}" in self.api.forbidden:
            self._refuse(403)
        elif plural not in self.api.others:
            self._refuse(404)
        else:
            return False
        return True

    def _refuse(self, code: int) -> None:
        self._whole(code, json.dumps({"kind": "Status", "code": code, "message": "no"}).encode())

    def do_DELETE(self) -> None:
        """Delete a class: it goes at once, or once it has no finalizers."""
        options = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        plural, name = self.path.partition("?")[0].split("/")[-2:]
        if self._is_refused("delete", plural):
            return
        found = self.api.named(plural, name)
        if found is None or not options["preconditions"].items() <= found["metadata"].items():
            self._refuse(404 if found is None else 409)
            return
        self.api.delete(plural, name)
        self._whole(200, b'{"kind": "Status", "status": "Success"}')

    def _patch_object(self, plural: str, name: str, patch: dict[str, Any]) -> None:
        """Merge a patch into the version that it names."""
        if self._is_refused("patch", plural):
            return
        found = self.api.named(plural, name)
        version = patch["metadata"].get("resourceVersion")
        if found is None or found["metadata"]["resourceVersion"] != version:
            self._refuse(404 if found is None else 409)
            return
        made = merged(found, patch)
        self.api.write(plural, name, made)
        if made["metadata"].get("deletionTimestamp") and not made["metadata"].get("finalizers"):
            self.api.write(plural, name, None)
        self._whole(200, json.dumps(self.api.named(plural, name) or made).encode())

    def do_PATCH(self) -> None:
        """Take over a status, without asking whether it fits, or a part of a class or a Node."""
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        of, named = (path.removesuffix("/status") if "/nodes/" in path else path).split("/")[-2:]
        if of in {"nodes", *CLASSES}:
            self._patch_object(of, named, patch)
            return
        self.api.is_writing.wait()
        plural, name, _ = self.path.partition("?")[0].split("/")[-3:]
        if plural in self.api.failing:
            self._refuse(500)
            return
        self.api.patched.append((plural, name, patch))
        found = self.api.named(plural, name) or {}
        found["status"] = {**found.get("status", {}), **patch.get("status", {})}
        for entry in (found["status"].get("loadBalancer") or {}).get("ingress") or ():
            for name in self.api.unkept:
                entry.pop(name, None)
        if found.get("metadata"):
            found["metadata"].update(patch.get("metadata", {}))
        self._whole(200, json.dumps(found).encode())

    def do_GET(self) -> None:
        api, watched = self.api, "watch=true" in self.path
        renewed = api.renewed
        path = self.path.partition("?")[0]
        of, plural = path.split("/")[-2:]
        elsewhere = "discovery" if path.startswith((ROOT, *RANGES)) else "secret"
        other = "" if plural in KINDS else "object" if of in KINDS else elsewhere
        api.requested.append((time.monotonic(), other or ("watch" if watched else "list")))
        api.paths.append(path)
        if api.silent:
            self._wait(renewed)
        elif plural in api.refused or (other == "secret" and "secrets" in api.refused):
            self._whole(403, b'{"kind": "Status", "code": 403}')
        elif of in KINDS:
            found = api.named(of, plural)
            self._whole(200 if found else 404, json.dumps(found or {"kind": "Status", "code": 404}).encode())
        elif other == "discovery":
            self._whole(*api.discovered(path))
        elif other and watched:
            self._watch_name(path.removeprefix("/api/v1/namespaces/"), renewed)
        elif other:
            named = path.removeprefix("/api/v1/namespaces/")
            secret = api.secrets.get(named)
            whole = 200 if secret else 404, json.dumps(secret or {"kind": "Status", "code": 404}).encode()
            self._whole(*api.odd.get(named, whole))
        elif not watched:
            self._whole(*(api.listed or (200, healthy(KINDS[plural], api.retained(plural)))))
        elif api.watched:
            self._whole(*api.watched)
        else:
            self._head(200, "Transfer-Encoding", "chunked")
            for node in api.nodes if "/nodes" in self.path else []:
                self._log("ADDED", node)
            self._wait(renewed)

    def _watch_name(self, kind: str, renewed: threading.Event) -> None:
        """Say what becomes of one object, in no more than its metadata, as long as that is allowed."""
        (selector,) = parse_qs(self.path.partition("?")[2])["fieldSelector"]
        name = selector.removeprefix("metadata.name=")
        self.api.names_watched.append((f"{kind}/{name}", self.headers["Accept"]))
        refusal = 403, b'{"kind": "Status", "code": 403}'
        if kind in self.api.odd or not self.api.may_watch_names:
            self._whole(*self.api.odd.get(kind, refusal))
            return
        self._head(200, "Transfer-Encoding", "chunked")
        before: Mapping[str, Any] | None = None
        version = 0
        while not (self.api.over.is_set() or renewed.is_set()):
            if select.select([self.connection], [], [], 0.01)[0] or not self.api.may_watch_names:
                break
            now, version = self.api.secrets.get(f"{kind}/{name}"), version + 1
            if now is not before:
                event = "DELETED" if now is None else "MODIFIED" if before else "ADDED"
                metadata = {"name": name, "resourceVersion": str(version)}
                self._log(event, {"kind": "PartialObjectMetadata", "metadata": metadata})
            before = now
        self.close_connection = True

    def _head(self, status: int, name: str, value: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _whole(self, status: int, body: bytes) -> None:
        self._head(status, "Content-Length", str(len(body)))
        for number in range(len(body) if self.api.drip else 0):
            self.wfile.write(body[number : number + 1])
            if self.api.over.wait(self.api.drip):
                return
        self.wfile.write(b"" if self.api.drip else body)

    def _wait(self, renewed: threading.Event) -> None:
        """Say what happens to objects, until the client goes or the test wants another watch."""
        stated = 0
        while not (self.api.over.is_set() or renewed.is_set()):
            if select.select([self.connection], [], [], 0.01)[0]:
                break
            plural = self.path.partition("?")[0].rpartition("/")[2]
            events = self.api.events if plural == "services" else self.api.other_events.get(plural, [])
            for kind, item in events[stated:]:
                self._log(kind, item)
                stated += 1
        if renewed.is_set():
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _log(self, kind: str, item: Mapping[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


@contextmanager
def served(directory: Path, address: str = "127.0.0.1") -> Iterator[tuple[Api, Access]]:
    """Serve an API, with a kubeconfig in `directory`."""
    api = Api()
    with in_thread(QuietServer((address, 0), type("Handler", (_Handler,), {"api": api}))) as server:
        access = kubeconfig(directory / "kubeconfig", server.server_port, address=address)
        yield api, access
        api.is_writing.set()
        api.over.set()


def kubeconfig(path: Path, port: int, credential: str = "t", address: str = "127.0.0.1") -> Access:
    """Write a kubeconfig for an API on this host."""
    return written(path, cluster={"server": f"http://{address}:{port}"}, user={"token": credential})


def source(access: Access) -> JsonObject:
    return {"kubernetes": {"name": "c", "kubeconfig": access.kubeconfig, "loopbackBackends": True}}


def versioned(item: Mapping[str, Any], version: str = "1") -> JsonObject:
    """Give an object a version and an identity, as an API does."""
    metadata = {"uid": item["metadata"]["name"], **item["metadata"], "resourceVersion": version}
    return {**item, "metadata": metadata}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    with served(tmp_path) as made:
        yield made
