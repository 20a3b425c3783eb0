"""Discovery of a cluster's optional kinds, and requests for CustomResourceDefinitions.

Only kinds that a cluster has, or lets this user read, are ever requested. Gateway API is discovered by its group: one
request if the group is absent, two if every kind is in v1. Ingresses are discovered by an access review, which needs no
right: every cluster has the kinds, and most users of local-lb serve none. Other reviews tell if this user may make
classes. The kinds in which a CNI keeps pod ranges take two requests.

Not here: the interval (`sources.source`), the content of objects (`kubernetes.pod_ranges`), and the choice of
definitions to write (`gateway.crds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import httpx2

from locallb.gateway.kinds import KINDS
from locallb.ingress.parsing import INGRESS_KINDS, ROUTED_KINDS
from locallb.kubernetes.answers import Object
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.connected import APPLY, Connected, ServedKind
from locallb.kubernetes.api.feed import ApiPath, Feed
from locallb.kubernetes.api.servers import ConflictError, ForbiddenError, KubeError, RefusedError, UnreachableError
from locallb.kubernetes.pod_ranges import CALICO, CILIUM, VERSIONS
from locallb.model.fields import JsonObject
from locallb.model.gateway_objects import GROUP
from locallb.model.gateway_of_cluster import INGRESS_GROUP
from locallb.model.identities import ObjectKind
from locallb.model.own_classes import KINDS as CLASS_KINDS
from locallb.model.own_classes import NAME, class_named_by
from locallb.model.snapshot import Access

ROOT = f"/apis/{GROUP}"
NAMESPACES: ApiPath = ("v1", "/api/v1/namespaces")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PLURALS = {CALICO: "blockaffinities", CILIUM: "ciliumnodes"}
_RANKS = {version: rank for rank, version in enumerate(("v1", "v1beta1", "v1alpha3", "v1alpha2"))}
_INGRESSES: Mapping[str, ApiPath] = {
    kind.name: (f"{INGRESS_GROUP}/{version}", kind.path(version))
    for kind in INGRESS_KINDS.values()
    for version in kind.versions
}


def gateway_discovery(access: Access) -> Feed:
    """Return the connection for `gateway_kinds`; to be closed. Raises KubeError."""
    return Feed(access, "kind of Gateway API", (GROUP, ROOT))


def gateway_kinds(asking: Feed) -> Mapping[str, ApiPath]:
    """Return where the kinds that a cluster has are listed, each in the preferred version. Raises KubeError."""
    places: dict[str, ApiPath] = {}
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


def ingress_kinds(asking: Feed) -> Mapping[str, ApiPath]:
    """Return where the kinds are listed; nothing where this user may not list the classes. Raises KubeError."""
    return _INGRESSES if _may(asking, INGRESS_GROUP, "ingressclasses", "list") else {}


def _may(asking: Feed, group: str, plural: str, verb: str, name: str = "") -> bool:
    """Return whether this user may do something with a kind, or with the object of a name. Raises KubeError."""
    wanted = {"group": group, "resource": plural, "verb": verb, **({"name": name} if name else {})}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    answered = asking.posted(REVIEWS, review) or {}
    status = answered.get("status")
    return isinstance(status, Mapping) and status.get("allowed") is True


_OF_CLASSES = {"get": NAME, "create": "", "patch": NAME, "delete": NAME}
"""What is done with a class of ours, each with the name that a right may be limited to: a new object has none yet."""


def lacking_rights(asking: Feed, kind: ObjectKind) -> tuple[str, ...]:
    """Return what this user may not do with our class of a kind; an administrator is asked once. Raises KubeError."""
    group = ROUTED_KINDS[CLASS_KINDS[kind]].group
    if _may(asking, group, kind.value, "*"):
        return ()
    return tuple(verb for verb, name in _OF_CLASSES.items() if not _may(asking, group, kind.value, verb, name))


def class_is_named(access: Access, kind: ObjectKind) -> bool:
    """Return whether any Gateway, or Ingress, of a cluster names our class. Raises KubeError."""
    if kind is ObjectKind.INGRESS_CLASS:
        named = "Ingress", _INGRESSES["Ingress"]
    else:
        with closing(gateway_discovery(access)) as asking:
            place = gateway_kinds(asking).get("Gateway")
        if place is None:
            return False
        named = "Gateway", place
    with closing(Feed(access, *named)) as feed:
        return any(class_named_by(kind, document) == NAME for document in feed.list()[0])


def range_discovery(access: Access) -> Feed:
    """Return the connection for `range_kinds`; to be closed. Raises KubeError."""
    return Feed(access, "kind of a CNI", (VERSIONS[CALICO], f"/apis/{VERSIONS[CALICO]}"))


def range_kinds(asking: Feed) -> Mapping[str, ApiPath]:
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


MANAGER = "local-lb-install-crds"
_DEFINITIONS = {
    kind.name: kind
    for kind in (
        ServedKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
        ServedKind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ServedKind(
            "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
        ),
    )
}
_LONGEST = 600
"""Limit of characters quoted from an API's answer."""


class Definitions(Cluster):
    """One cluster's definitions: read, and written by server-side apply (`gateway install-crds`).

    Fields that another manager owns are left to it: a conflict is reported, never forced.
    """

    def definition(self, kind: str, name: str) -> Object | None:
        """Return one; None if there is none. Raises KubeError."""
        return self._existing(f"{kind} {name}", _DEFINITIONS[kind], name)

    def apply(self, document: JsonObject, *, rehearsed: bool) -> None:
        """Apply one; `rehearsed`, the server decides and checks as if, and keeps nothing. Raises KubeError."""
        kind, name = _DEFINITIONS[document["kind"]], document["metadata"]["name"]
        parameters = {"fieldManager": MANAGER, **({"dryRun": "All"} if rehearsed else {})}
        path, body = kind.path(name=name), kind.typed(document)
        self._call(f"{kind.name} {name}", lambda api: api.send("PATCH", path, body, APPLY, parameters=parameters))

    def _refused(self, connected: Connected, what: str, code: int, message: str) -> KubeError:
        """Return what a refusal means here, where no rights of ours help."""
        stated = " ".join(message.split())[:_LONGEST]
        if code == httpx2.codes.CONFLICT:
            sentence = f"{what} is managed by somebody else ({stated}); bring it up to date by what installed it"
            return ConflictError(sentence)
        if code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            remedy = "name the --context of somebody who may write CustomResourceDefinitions and admission policies"
            sentence = f"{connected.server} refuses {what} ({code}: {stated}); {remedy}"
            return ForbiddenError(sentence)
        if code == httpx2.codes.NOT_FOUND:
            sentence = f"{connected.server} doesn't know {what} ({code}: {stated}); Kubernetes does from 1.30 on"
            return RefusedError(sentence)
        return super()._refused(connected, what, code, stated)
