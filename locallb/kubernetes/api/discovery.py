"""Discovery of optional kinds: the ones that a cluster has, or lets this user read, so that no other is ever requested.

Gateway API by its group: one request if the group is absent, two if every kind is in v1. Ingresses by an access
review, which needs no right: every cluster has the kinds, and most users of local-lb serve none. The kinds in which a
CNI keeps pod ranges by two requests. Not here: the interval, and what the objects say.
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.gateway.kinds import KINDS
from locallb.ingress.kinds import INGRESS_KINDS
from locallb.kubernetes.access.errors import UnreachableError
from locallb.kubernetes.api.feed import Feed, Place
from locallb.kubernetes.pod_ranges import CALICO, CILIUM, VERSIONS
from locallb.model.gateway.ingresses import INGRESS_GROUP
from locallb.model.gateway.objects import GROUP
from locallb.model.snapshot import Access

ROOT = f"/apis/{GROUP}"
NAMESPACES: Place = ("v1", "/api/v1/namespaces")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PLURALS = {CALICO: "blockaffinities", CILIUM: "ciliumnodes"}
_RANKS = {version: rank for rank, version in enumerate(("v1", "v1beta1", "v1alpha3", "v1alpha2"))}
_INGRESSES: Mapping[str, Place] = {
    kind.name: (f"{INGRESS_GROUP}/{version}", kind.path(version))
    for kind in INGRESS_KINDS.values()
    for version in kind.versions
}


def gateway_discovery(access: Access) -> Feed:
    """Return the connection for `gateway_kinds`; to be closed. Raises KubeError."""
    return Feed(access, "kind of Gateway API", (GROUP, ROOT))


def gateway_kinds(asking: Feed) -> Mapping[str, Place]:
    """Return where the kinds that a cluster has are listed, each in the preferred version. Raises KubeError."""
    places: dict[str, Place] = {}
    for version in sorted(
        _listed(asking, ROOT, "APIGroup", "versions", "version") & _RANKS.keys(), key=_RANKS.__getitem__
    ):
        missing = [kind for kind in KINDS.values() if kind.name not in places and version in kind.versions]
        if missing:
            plurals = _plurals(asking, f"{ROOT}/{version}")
            places |= {
                kind.name: (f"{GROUP}/{version}", kind.path(version)) for kind in missing if kind.plural in plurals
            }
    return places


def ingress_review(access: Access) -> Feed:
    """Return the connection for `ingress_kinds`; to be closed. Raises KubeError."""
    return Feed(access, "right to read Ingresses", (INGRESS_GROUP, REVIEWS))


def ingress_kinds(asking: Feed) -> Mapping[str, Place]:
    """Return where the kinds are listed; nothing where this user may not list the classes. Raises KubeError."""
    wanted = {"group": INGRESS_GROUP, "resource": "ingressclasses", "verb": "list"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    answered = asking.posted(REVIEWS, review) or {}
    status = answered.get("status")
    return _INGRESSES if isinstance(status, Mapping) and status.get("allowed") is True else {}


def range_discovery(access: Access) -> Feed:
    """Return the connection for `range_kinds`; to be closed. Raises KubeError."""
    return Feed(access, "kind of a CNI", (VERSIONS[CALICO], f"/apis/{VERSIONS[CALICO]}"))


def range_kinds(asking: Feed) -> Mapping[str, Place]:
    """Return where the kinds that a cluster has are listed. Raises KubeError."""
    return {
        kind: (version, f"/apis/{version}/{PLURALS[kind]}")
        for kind, version in VERSIONS.items()
        if PLURALS[kind] in _plurals(asking, f"/apis/{version}")
    }


def _plurals(asking: Feed, path: str) -> frozenset[str]:
    """Return the plurals of the kinds of a group's version."""
    return _listed(asking, path, "APIResourceList", "resources", "name")


def _listed(asking: Feed, path: str, kind: str, field: str, key: str) -> frozenset[str]:
    """Return a document's list; empty if it is absent. Raises KubeError if it isn't of this kind."""
    document = asking.document(path)
    if document is None:
        return frozenset()
    entries = document.get(field)
    if document.get("kind") != kind or not isinstance(entries, list):
        raise UnreachableError(f"{path} answers with something that isn't an {kind}")
    names = (entry.get(key) for entry in entries if isinstance(entry, Mapping))
    return frozenset(name for name in names if isinstance(name, str))
