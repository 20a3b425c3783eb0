"""A followed cluster with a Gateway, its Secrets and authorities."""

from __future__ import annotations

import base64
from typing import Any

from locallb.gateway.kinds import KINDS
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.gateway_of_cluster import AuthorityBundle, TlsSecret
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from tests.support.certificates import Pair
from tests.support.fake_api import Api, versioned
from tests.support.gateway_objects import api_object, gateway, gateway_class, listener, namespace, route
from tests.support.gateway_objects import service as backend_service

CLASSES, GATEWAYS = "gatewayclasses", "gateways"


def serve_one(answers: Api, *listeners: dict[str, Any], without: str = "") -> None:
    """Have the cluster serve all kinds from now on, and a Gateway of ours with a route to a Service."""
    answers.services = [versioned(backend_service())]
    served_kinds: dict[str, list[dict[str, Any]]] = {kind.plural: [] for kind in KINDS.values()}
    served_kinds |= {
        "namespaces": [versioned(namespace("shop"))],
        CLASSES: [versioned(gateway_class())],
        GATEWAYS: [versioned(gateway(*listeners))],
        "httproutes": [versioned(route())],
    }
    answers.others = {plural: objects for plural, objects in served_kinds.items() if plural != without}


def secret(pair: Pair) -> dict[str, Any]:
    """Write a Secret that has a certificate."""
    pem = {"tls.crt": pair.chain, "tls.key": pair.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in pem.items()}
    return {"kind": "Secret", "apiVersion": "v1", "type": "kubernetes.io/tls", "metadata": {"name": "c"}, "data": data}


def https(name: str = "c", port: int = 443, **reference: str) -> dict[str, Any]:
    return listener(f"l{port}", port, "HTTPS", tls={"certificateRefs": [{"name": name, **reference}]})


def bundles(followed: FollowedCluster) -> list[AuthorityBundle]:
    """Return the ConfigMaps with authorities that are known."""
    objects = (one.object for one in followed.parsed().gateway_api)
    return [one for one in objects if isinstance(one, AuthorityBundle)]


def digests(followed: FollowedCluster) -> list[str]:
    """Return the digests of the Secrets that are known."""
    return digests_of(followed.parsed())


def digests_of(parsed: Parsed) -> list[str]:
    """Return the digests of the Secrets among these objects."""
    objects = (one.object for one in parsed.gateway_api)
    return [one.digest for one in objects if isinstance(one, TlsSecret) and one.digest]


def config_map(text: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "ca"}, "data": {"ca.crt": text}}


def trusting(name: str) -> dict[str, Any]:
    """Write a policy that names a ConfigMap with authorities."""
    named = {"group": "", "kind": "ConfigMap", "name": name}
    target = {"group": "", "kind": "Service", "name": "api"}
    spec = {"targetRefs": [target], "validation": {"hostname": "a.test", "caCertificateRefs": [named]}}
    return versioned(api_object("BackendTLSPolicy", "policy", spec=spec))
