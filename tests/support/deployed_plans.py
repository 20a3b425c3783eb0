"""What the Services of a live cluster are told of a plan: by the components, the engine and the provider's own kinds.

Only the host is imagined, and the API is one that keeps Services in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from locallb.components.stack import declare
from locallb.engine.engine import Engine
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.servers import ConflictError
from locallb.model.identities import ContextName, ObjectKey
from locallb.model.snapshot import Access
from locallb.planning.planned import Plan
from locallb.provider import KINDS
from locallb.provider.plugin import Dispatcher
from locallb.provider.resource_types import ResourceTypes
from locallb.resources import codec
from locallb.resources.codec import Values
from tests.support.engine import make_project

ACCESS = Access("/kubeconfig", ContextName("context"))
FOREIGN = "192.0.2.1"
"""An address in every status that is somebody else's."""
_REPORTED = ("ServiceClaim", "ServiceStatus", "ServiceEvents", "GatewayStatus")


@dataclass
class Api:
    """An API server: its Services by namespace and name, and what was written, each in order."""

    services: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    written: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, key: ObjectKey, uid: str) -> None:
        """Have a Service with a status of somebody else's."""
        metadata = {"namespace": key.namespace, "name": key.name, "uid": uid, "resourceVersion": "1"}
        status = {"loadBalancer": {"ingress": [{"ip": FOREIGN}]}}
        self.services[key.namespace, key.name] = {"metadata": metadata, "status": status}

    def service(self, namespace: str, name: str, *_kind: object) -> dict[str, Any] | None:
        return self.services.get((namespace, name))

    def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *_kind: object
    ) -> dict[str, Any] | None:
        """Merge a patch of the present version."""
        before = self.services[namespace, name]
        if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise ConflictError("somebody was quicker")
        self.written.setdefault(f"{namespace}/{name}", []).append(_undated(patch))
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        metadata = {**before["metadata"], **patch["metadata"], "resourceVersion": version}
        after = {"metadata": metadata, "status": {**before["status"], **patch.get("status", {})}}
        self.services[namespace, name] = after
        return after

    def create_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        name = body["regarding"]["name"]
        retained = {key: value for key, value in body.items() if key not in {"metadata", "eventTime"}}
        self.written.setdefault(f"{namespace}/{name}", []).append(retained)


def _undated(patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out what differs from run to run."""
    status = patch.get("status") or {}
    conditions = [
        {k: v for k, v in condition.items() if k != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    ]
    metadata = {key: value for key, value in patch["metadata"].items() if key != "resourceVersion"}
    ingress = (status.get("loadBalancer") or {}).get("ingress")
    return {"metadata": metadata, "status": {"ingress": ingress, "conditions": conditions}} if status else patch


class _Kinds(ResourceTypes):
    """The provider's kinds that tell Services something; of the others only what they would give."""

    def create(self, token: str, news: Values, *, preview: bool) -> tuple[str, dict[str, Any]]:
        if token.rpartition(":")[2] in _REPORTED:
            return super().create(token, news, preview=preview)
        kind = self._kind(token)
        return "imagined", codec.encode(codec.recall(kind.state, news))

    def delete(self, token: str, properties: Values) -> None:
        if token.rpartition(":")[2] in _REPORTED:
            super().delete(token, properties)


class _Containers(ResourceTypes):
    """Docker, imagined."""

    def check(self, token: str, news: Values) -> list[tuple[str, str]]:
        del token, news
        return []

    def create(self, token: str, news: Values, *, preview: bool) -> tuple[str, dict[str, Any]]:
        del token, preview
        return "imagined", dict(news)

    def delete(self, token: str, properties: Values) -> None:
        del token, properties


def in_cluster(plan: Plan) -> Plan:
    """Make the plan one of a live cluster."""
    rejections = tuple(replace(rejection, access=ACCESS if rejection.owner else None) for rejection in plan.rejections)
    return replace(
        plan,
        placements=tuple(replace(placement, access=ACCESS) for placement in plan.placements),
        rejections=rejections,
    )


@contextmanager
def deployed(plan: Plan, given: object = None) -> Iterator[tuple[Api, Engine]]:
    """Deploy a plan of a live cluster, whose API may be `given`; give one, and the engine that can destroy it all."""
    api = Api()
    owned = {placement.key: placement.owner for placement in plan.placements} | {
        rejection.key: rejection.owner for rejection in plan.rejections
    }
    for key, owner in owned.items():
        if owner:
            api.add(key, owner.uid)
    providers = {
        "locallb": Dispatcher(_Kinds({f"locallb:index:{kind.__name__}": kind(None) for kind in KINDS}), "{}"),
        "docker": Dispatcher(_Containers({}), "{}"),
    }
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(live_object, "_at", return_value=given or api):
        engine = Engine(make_project(Path(folder)), "dev", providers, parallel=1)
        result = engine.up(lambda: declare(plan))
        assert result.ok, result.diagnostics
        yield api, engine
    RECENT.forget(ACCESS)
