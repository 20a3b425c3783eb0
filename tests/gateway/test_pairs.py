"""What backends are shown of a Gateway, and what is said of a certificate that can't be."""

from __future__ import annotations

import pytest

from locallb.gateway.parsing import SECRET_REFERENCE
from locallb.gateway.statuses import gateway_status
from locallb.gateway.texts import sentences
from locallb.model.http_serving import Certificate
from locallb.model.identities import Digest
from tests.gateway.conditions import CERT, OK, SERVING, conditions, stand_in
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    api_object,
    backend,
    gateway,
    gateway_class,
    objects,
    only,
    route,
    rule,
    service,
)

SHOWN: dict[str, tuple[JsonObject, tuple[str, str]]] = {
    "a Secret": ({"name": "cert"}, ("True", "ResolvedRefs")),
    "none that is there": ({"name": "gone"}, ("False", "InvalidClientCertificateRef")),
    "another kind": ({"name": "cert", "kind": "ConfigMap"}, ("False", "InvalidClientCertificateRef")),
    "another group": ({"name": "cert", "group": "a.test"}, ("False", "InvalidClientCertificateRef")),
    "one that can't be used": ({"name": "odd"}, ("False", "InvalidClientCertificateRef")),
    "another namespace": ({"name": "cert", "namespace": "theirs"}, ("False", "RefNotPermitted")),
}


@pytest.mark.parametrize("case", SHOWN)
def test_backends_are_shown_the_certificate_of_the_gateway(case: str) -> None:
    """Where they are spoken to by TLS; what can't be shown isn't, and the Gateway says so and serves."""
    reference, expected = SHOWN[case]
    spec = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
        "validation": {"hostname": "a.test", "wellKnownCACertificates": "System"},
    }
    one = only(
        gateway(tls={"backend": {"clientCertificateRef": reference}}),
        CERT,
        stand_in("odd", SECRET_REFERENCE, problem="its tls.key isn't PEM"),
        service("secure"),
        api_object("BackendTLSPolicy", "secure", spec=spec),
        route(rule("/", backends=[backend(), backend("secure")])),
    )
    stated = conditions(gateway_status(one, SERVING).status)
    assert stated == {**{kind: OK[kind] for kind in ("Accepted", "Programmed")}, "ResolvedRefs": expected}
    shown = {target.service.name: target.tls and target.tls.client for target in one.targets.values()}
    pair = Certificate(DEMO, "shop", "cert", Digest("ab" * 32))
    assert shown == {"api": None, "secure": pair if case == "a Secret" else None}
    reported = [sentence for sentence in sentences(objects(gateway_class()), [one]) if str(one.key) in sentence]
    assert [f": {expected[1]}: " in sentence for sentence in reported] == [True] * (expected[0] == "False")
