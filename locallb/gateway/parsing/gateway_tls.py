"""Parses the TLS settings of a whole Gateway: client certificates, and the one shown to backends.

Raises FieldError, except for faults of single ports. Not here: TLS of single listeners (`gateways`), and whether the
named objects can be used (`listeners.validation`).
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.gateway.parsing.fields import items
from locallb.gateway.parsing.references import LARGEST_PORT, reference
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway.objects import FrontendValidation, Reference, ValidationMode

_MAX_PORTS, _MAX_AUTHORITIES = 64, 16


def validations(frontend: Fields, namespace: str) -> Mapping[int, FrontendValidation | None]:
    """Return the client certificate validation by port; 0 is every other port."""
    requested = {0: _validation(frontend.inner("default"), namespace)}
    for item in items(frontend, "perPort", _MAX_PORTS):
        port = item.integer("port", 1, LARGEST_PORT)
        if port in requested:
            raise FieldError(f"{frontend.at('perPort')} has port {port} twice; write each once")
        requested[port] = _validation(item.inner("tls"), namespace)
    return requested if any(requested.values()) else {}


def _validation(tls: Fields, namespace: str) -> FrontendValidation | None:
    if tls.get("validation") is None:
        return None
    try:
        fields = tls.inner("validation")
        named = items(fields, "caCertificateRefs", _MAX_AUTHORITIES)
        authorities = tuple(reference(item, "", "ConfigMap", namespace) for item in named)
        mode = fields.choice("mode", ValidationMode.VALID_ONLY)
    except FieldError as error:
        return FrontendValidation((), problem=str(error))
    empty = f"{fields.at('caCertificateRefs')} is empty; name a ConfigMap with a ca.crt"
    return FrontendValidation(authorities, mode, "" if authorities else empty)


def client_certificate(backend: Fields, namespace: str) -> Reference | None:
    """Return what backends are shown."""
    if backend.get("clientCertificateRef") is None:
        return None
    return reference(backend.inner("clientCertificateRef"), "", "Secret", namespace)
