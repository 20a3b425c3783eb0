"""Gateways of a cluster and their plan, and an API that keeps their statuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.gateway.kinds import KINDS
from locallb.kubernetes.api.servers import ConflictError
from locallb.kubernetes.object_parsing import ParseMemory, parse_objects
from locallb.model.identities import Home, ObjectKind
from locallb.model.snapshot import HostFacts, LocalAuthority, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.watch.converge import Converger
from tests.support.deployed_plans import ACCESS
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    api_object,
    gateway,
    gateway_class,
    listener,
    parent,
    route,
    service,
)
from tests.support.objects import node

HOME = Home("local-lb", "dev", "/project")
OTHER = "example.com/controller"
THEIRS: JsonObject = {"type": "example.com/Fine", "status": "True", "reason": "Fine", "message": ""}
THEIR_PARENT: JsonObject = {"parentRef": {"name": "web"}, "controllerName": OTHER, "conditions": []}
CONFIG = {"sources": [{"kubernetes": {"name": "demo"}}], "pools": [{"name": "p", "addresses": ["127.77.0.0/28"]}]}
SETTINGS = parse_settings(CONFIG)
THEIR_ANCESTOR: JsonObject = {"ancestorRef": {"name": "web"}, "controllerName": OTHER, "conditions": []}


def _policy() -> JsonObject:
    target = {"group": "", "kind": "Service", "name": "api"}
    spec = {"targetRefs": [target], "validation": {"hostname": "a.test", "wellKnownCACertificates": "System"}}
    return api_object("BackendTLSPolicy", "tls", spec=spec)


def cluster() -> list[JsonObject]:
    """Have a Gateway, a ListenerSet, a route of both, one that nothing takes, and a policy of their Service."""
    allowed = {"namespaces": {"from": "Same"}}
    set_ = {"parentRef": {"name": "web"}, "listeners": [listener("more", 8081)]}
    everything = [
        gateway_class(),
        gateway(listener("http", 8080), listener("odd", 8082, "SMTP"), allowedListeners=allowed),
        api_object("ListenerSet", "more", spec=set_),
        route(name="api", parentRefs=[parent(), parent("more", kind="ListenerSet")]),
        route(name="lost", hostnames=["a.test"], parentRefs=[parent(sectionName="nowhere")]),
        _policy(),
        service(),
        node(),
    ]
    for one in everything[:6]:
        one["metadata"].update(uid=f"uid-{one['metadata']['name']}", generation=3, resourceVersion="1")
    everything[0]["metadata"].pop("namespace")
    everything[1]["status"] = {"conditions": [THEIRS]}
    everything[3]["status"] = {"parents": [THEIR_PARENT]}
    everything[5]["status"] = {"ancestors": [THEIR_ANCESTOR]}
    return everything


def plan_of(
    *documents: JsonObject,
    live: bool = True,
    host: HostFacts | None = None,
    settings: Settings = SETTINGS,
    authority: LocalAuthority | None = None,
) -> Plan:
    read = parse_objects(DEMO, list(documents))
    access = {DEMO: ACCESS} if live else {}
    given = Snapshot(HOME, read.services, read.malformed, read.nodes, gateway_api=read.gateway_api, access=access)
    return make_plan(replace(given, host=host or HostFacts(), authority=authority), settings)


def rewritten(before: dict[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the next version of an object, with another status."""
    version = str(int(before["metadata"]["resourceVersion"]) + 1)
    return {**before, "metadata": {**before["metadata"], "resourceVersion": version}, "status": status}


@dataclass
class GatewayApi:
    """An API server with these objects, which counts what it is asked."""

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)
    before_patch: Callable[[], None] = lambda: None
    events: list[tuple[str, str, str, str]] = field(default_factory=list)

    @classmethod
    def having(cls, *documents: JsonObject) -> GatewayApi:
        kinds = {kind.name: kind.plural for kind in KINDS.values()}
        return cls(
            {
                (kinds[one["kind"]], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
                for one in documents
                if one["kind"] in kinds
            }
        )

    def service(self, namespace: str, name: str, kind: ObjectKind) -> dict[str, Any] | None:
        self.requested.append(f"get {kind}/{name}")
        return self.objects.get((kind, namespace, name))

    def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], kind: ObjectKind
    ) -> dict[str, Any] | None:
        """Merge a patch of the present version, of the status alone."""
        self.requested.append(f"patch {kind}/{name}")
        self.before_patch()
        before = self.objects.get((kind, namespace, name))
        if before is None:
            return None
        assert patch.keys() == {"metadata", "status"}
        assert patch["metadata"].keys() == {"resourceVersion"}
        if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise ConflictError("somebody was quicker")
        after = rewritten(before, {**before.get("status", {}), **patch["status"]})
        self.objects[kind, namespace, name] = after
        return after

    def create_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        regarding = body["regarding"]
        self.events.append((namespace, f"{regarding['kind']}/{regarding['name']}", body["reason"], body["note"]))

    def statuses(self) -> str:
        """Write all statuses for a reader, without times."""
        stated = {"/".join(key): one.get("status") for key, one in sorted(self.objects.items())}
        return json.dumps(stated, indent=1, default=str) + "\n"


def snapshot(documents: list[JsonObject], existing: ParseMemory | None = None, *, live: bool = True) -> Snapshot:
    """Read what a cluster has; `existing` is what its objects were understood as before."""
    read = parse_objects(DEMO, documents, existing)
    access = {DEMO: ACCESS} if live else {}
    observed = Snapshot(HOME, read.services, read.malformed, read.nodes, gateway_api=read.gateway_api, access=access)
    return replace(observed, host=HostFacts())


@contextmanager
def learned(engine: Engine) -> Iterator[Converger]:
    made = Converger(HOME, engine)
    made.learn()
    try:
        yield made
    finally:
        made.stop()
