"""The kinds Ingress and IngressClass, as `gateway.kinds` has those of Gateway API. Not here: requests."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.gateway.kinds import KINDS, ApiKind
from locallb.ingress.parsing import parse_ingress, parse_ingress_class
from locallb.model.gateway.ingresses import INGRESS_GROUP

INGRESS_KINDS: Mapping[str, ApiKind] = {
    kind.name: kind
    for kind in (
        ApiKind("IngressClass", "ingressclasses", ("v1",), parse_ingress_class, namespaced=False, group=INGRESS_GROUP),
        ApiKind("Ingress", "ingresses", ("v1",), parse_ingress, group=INGRESS_GROUP),
    )
}
ROUTED_KINDS: Mapping[str, ApiKind] = {**KINDS, **INGRESS_KINDS}
"""All that routes are made of, Gateway API's among them."""
