"""Services of type LoadBalancer: read from spec and annotations, answered by `status.loadBalancer` and conditions."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.kubernetes.frontend import Frontend, FrontendRead
from locallb.kubernetes.parsing.service import (
    LOAD_BALANCER,
    external_ips,
    malformed,
    parse_service,
)
from locallb.kubernetes.status import observed_status, publication, published, publishing, unread_annotations
from locallb.model.fields import at
from locallb.model.identities import ClusterName, ObjectKind
from locallb.model.objects import MalformedService
from locallb.model.texts import shown

_TYPES = frozenset({"ClusterIP", "NodePort", LOAD_BALANCER, "ExternalName"})


def _read(cluster: ClusterName, document: Mapping[object, object]) -> FrontendRead:
    """Read a Service; one of another type only tells its external IPs."""
    spec = document.get("spec")
    theirs = frozenset(external_ips(spec))
    kind = at(spec, "type")
    if spec is not None and not isinstance(spec, Mapping):
        why = f"spec is {shown(spec)}; give an object such as {{type: {LOAD_BALANCER}}}"
        return FrontendRead(external_ips=theirs, left_out=why)
    if kind != LOAD_BALANCER:
        odd = kind and not (isinstance(kind, str) and kind in _TYPES)
        why = f"spec.type is {shown(kind)}; write LoadBalancer to give it an address" if odd else ""
        return FrontendRead(external_ips=theirs, left_out=why)
    service, stated = parse_service(cluster, document), observed_status(document)
    notices = tuple(f"{service.key}: {field}" for field in unread_annotations(document))
    if isinstance(service, MalformedService):
        return FrontendRead(None, service, stated, notices, theirs)
    return FrontendRead(service, None, stated, notices, theirs)


FRONTEND = Frontend(
    kind=ObjectKind.SERVICE,
    api_version="v1",
    name="Service",
    plural="services",
    read=_read,
    refused=malformed,
    publication=publication,
    observed_status=observed_status,
    published=published,
    publishing=publishing,
)
