"""Ingresses as a source hands them over, what one cluster's are bound to, and their clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

from locallb.config.settings import IngressSettings, Settings
from locallb.gateway.kinds import gathered, parse_api_object
from locallb.gateway.parsing import SECRET_REFERENCE, parse_referred
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.ingress.translation import BoundIngresses, bind_ingresses
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER, GatewayObjects, ObjectOfCluster
from tests.support.certificates import Authority
from tests.support.gateway_objects import DEMO, service

JsonObject = dict[str, Any]
API = "networking.k8s.io/v1"


def ingress_class(name: str = "local", controller: str = INGRESS_CONTROLLER, **annotations: str) -> JsonObject:
    metadata = {"name": name, "annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}
    return {"apiVersion": API, "kind": "IngressClass", "metadata": metadata, "spec": {"controller": controller}}


def backend(name: str = "api", port: int | str = 8080) -> JsonObject:
    return {"service": {"name": name, "port": {"name" if isinstance(port, str) else "number": port}}}


def path(value: str = "/", kind: str = "Prefix", to: str | JsonObject = "api") -> JsonObject:
    return {"path": value, "pathType": kind, "backend": backend(to) if isinstance(to, str) else to}


def rule(*paths: JsonObject, host: str = "") -> JsonObject:
    return {**({"host": host} if host else {}), **({"http": {"paths": list(paths)}} if paths else {})}


def ingress(
    *rules: JsonObject,
    name: str = "web",
    namespace: str = "shop",
    metadata: JsonObject | None = None,
    class_name: str | None = "local",
    **spec: object,
) -> JsonObject:
    """Make an Ingress of class `local`."""
    klass = {"ingressClassName": class_name} if class_name is not None else {}
    whole = {"name": name, "namespace": namespace, **(metadata or {})}
    return {"apiVersion": API, "kind": "Ingress", "metadata": whole, "spec": {**klass, "rules": list(rules), **spec}}


def secret(name: str = "cert", namespace: str = "shop", digest: str = "ab" * 8) -> Mapping[object, object]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"digest": digest}, **SECRET_REFERENCE}


def objects(*documents: Mapping[Any, Any]) -> GatewayObjects:
    read = [parse_api_object(one, ROUTED_KINDS) or parse_referred(one) for one in documents]
    return gathered([ObjectOfCluster(DEMO, one) for one in read if one]).get(DEMO, GatewayObjects(DEMO))


def settings(**stated: Any) -> Settings:  # noqa: ANN401 - of the key `ingress`
    """Make settings with these fields of the key."""
    return Settings((), (), ingress=IngressSettings(**stated))


def bound(*documents: Mapping[Any, Any], **stated: Any) -> tuple[BoundIngresses, ...]:  # noqa: ANN401 - as above
    """Bind what one cluster has, beside the class `local` and the Service `api`."""
    return bind_ingresses(objects(ingress_class(), service(), *documents), settings(**stated))


def only(*documents: Mapping[Any, Any], **stated: Any) -> BoundIngresses:  # noqa: ANN401 - as above
    (one,) = bound(*documents, **stated)
    return one


def old(day: int) -> JsonObject:
    """Make metadata of an Ingress of this age."""
    return {"creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}


def shown(address: str, authority: Authority, name: str, host: str = "") -> tuple[str, str]:
    """Return the serial number of the certificate that clients see, and the status line's code and the body."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    context.check_hostname = False
    with (
        socket.create_connection((address, 8443), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=name) as client,
    ):
        client.sendall(f"GET / HTTP/1.1\r\nhost: {host or name}\r\nconnection: close\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            lines = answer.read().decode().split("\r\n")
            return str(
                (client.getpeercert() or {})["serialNumber"]
            ), f"{lines[0].split()[1]} {lines[-1].partition(' ')[0]}"
