"""Gateway API's objects as a source hands them over, and what one cluster's are bound to."""

from __future__ import annotations

from typing import Any

from locallb.gateway.kinds import gathered, parse_api_object
from locallb.gateway.parsing import parse_referred
from locallb.gateway.translation import BoundGateway, bind
from locallb.model.gateway_objects import CONTROLLER, GROUP
from locallb.model.gateway_of_cluster import GatewayObjects, ObjectOfCluster
from locallb.model.http_routes import HttpRoute
from locallb.model.http_serving import HttpRoutes
from locallb.model.identities import ClusterName

DEMO = ClusterName("demo")
JsonObject = dict[str, Any]


def api_object(
    kind: str,
    name: object,
    *,
    namespace: object = "shop",
    version: str = "v1",
    metadata: JsonObject | None = None,
    **fields: object,
) -> JsonObject:
    """Make an object of Gateway API; `spec` and `metadata` are fields."""
    full = {"name": name, "namespace": namespace, **(metadata or {})}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": full, **fields}


def gateway_class(name: str = "local", controller: str = CONTROLLER) -> JsonObject:
    return api_object("GatewayClass", name, spec={"controllerName": controller})


def listener(name: str = "http", port: int = 80, protocol: str = "HTTP", **fields: object) -> JsonObject:
    return {"name": name, "port": port, "protocol": protocol, **fields}


def gateway(
    *listeners: JsonObject, name: str = "web", metadata: JsonObject | None = None, **spec: object
) -> JsonObject:
    """Make a Gateway of class `local`, with one listener for HTTP unless there are others."""
    whole = {"gatewayClassName": "local", "listeners": list(listeners or (listener(),)), **spec}
    return api_object("Gateway", name, spec=whole, metadata=metadata or {})


def parent(name: str = "web", **fields: object) -> JsonObject:
    return {"name": name, **fields}


def backend(name: str = "api", port: int = 8080, **fields: object) -> JsonObject:
    return {"name": name, "port": port, **fields}


def rule(*paths: str, backends: list[JsonObject] | None = None, **fields: object) -> JsonObject:
    """Make a rule that matches prefixes and leads to the Service `api`."""
    matches = [{"path": {"type": "PathPrefix", "value": path}} for path in paths]
    return {"matches": matches, "backendRefs": [backend()] if backends is None else backends, **fields}


def route(
    *rules: JsonObject,
    name: str = "route",
    kind: str = "HTTPRoute",
    created: str = "",
    namespace: str = "shop",
    **spec: object,
) -> JsonObject:
    """Make a route of the Gateway `web`."""
    whole = {"parentRefs": [parent(namespace="shop")], "rules": list(rules or (rule(),)), **spec}
    metadata = {"creationTimestamp": created, "generation": 1}
    return api_object(kind, name, namespace=namespace, spec=whole, metadata=metadata)


def service(name: str = "api", *ports: JsonObject, namespace: str = "shop", **spec: object) -> JsonObject:
    """Make a Service of type ClusterIP on port 8080."""
    whole = {"ports": list(ports or ({"port": 8080},)), **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": whole}


def namespace(name: str, **labels: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def grant(to: str, kind: str = "HTTPRoute", source: str = "shop", what: str = "Service", name: str = "") -> JsonObject:
    """Make a ReferenceGrant of the namespace `to`."""
    target = {"group": "", "kind": what, **({"name": name} if name else {})}
    spec = {"from": [{"group": GROUP, "kind": kind, "namespace": source}], "to": [target]}
    return api_object("ReferenceGrant", "grant", namespace=to, spec=spec)


def objects(*documents: object) -> GatewayObjects:
    read = [parse_api_object(one) or parse_referred(one) for one in documents if isinstance(one, dict)]
    return gathered([ObjectOfCluster(DEMO, one) for one in read if one]).get(DEMO, GatewayObjects(DEMO))


def bound(*documents: object) -> tuple[BoundGateway, ...]:
    """Bind what one cluster has, beside the class `local` and the Service `api`."""
    return bind(objects(gateway_class(), service(), *documents))


def only(*documents: object) -> BoundGateway:
    (one,) = bound(*documents)
    return one


def hosts(one: BoundGateway, port: int = 80) -> dict[str, tuple[HttpRoute, ...]]:
    """Return the routes of each host at a port of plain HTTP."""
    (chain,) = one.chains[port]
    assert isinstance(chain.serves, HttpRoutes)
    return {host.domains[0]: host.routes for host in chain.serves.hosts}
