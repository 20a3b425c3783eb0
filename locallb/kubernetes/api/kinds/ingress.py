"""Whether this user may read Ingresses of a cluster, by an access review, so that no request is refused.

Every cluster has the kinds, and most users of local-lb serve none: a cluster that gives no right to them is asked one
question that anybody may ask, and never has to refuse a request. Not here: how often.
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.ingress.kinds import INGRESS_KINDS
from locallb.kubernetes.api.feed import Feed, Place
from locallb.model.gateway.ingresses import INGRESS_GROUP
from locallb.model.snapshot import Access

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PLACES: Mapping[str, Place] = {
    kind.name: (f"{INGRESS_GROUP}/{version}", kind.path(version))
    for kind in INGRESS_KINDS.values()
    for version in kind.versions
}


def access_review(access: Access) -> Feed:
    """Return what asks; to be closed. Raises KubeError."""
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
    return _PLACES if isinstance(status, Mapping) and status.get("allowed") is True else {}
