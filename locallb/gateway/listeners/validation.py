"""Client certificate validation (spec.tls.frontend) for each port of a Gateway, or the reason that the port is closed.

It applies to every HTTPS listener, also of ListenerSets: a connection may be used for all hosts of a port.
Not here: server certificates of listeners (`listeners`), and reading ConfigMaps.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.gateway.conditions import Failure
from locallb.gateway.grants import Grants, not_permitted
from locallb.model.gateway.objects import FrontendValidation, Gateway, Reference, ValidationMode
from locallb.model.gateway.of_cluster import AuthorityBundle, GatewayObjects
from locallb.model.http.checks import MAX_AUTHORITIES
from locallb.model.http.serving import ClientValidation

_CONFIG_MAP = ("", "ConfigMap")
_REF, _KIND = "InvalidCACertificateRef", "InvalidCACertificateKind"


class Clients(Struct, frozen=True):
    """Validation of client certificates at a port."""

    validation: ClientValidation | None = None
    """None where none of the authorities can be used, and where nothing is asked for."""
    accepted: Failure | None = None
    """The reason that no client can be accepted."""
    resolved: Failure | None = None
    """The reason that an authority can't be used."""


def clients_by_port(gateway: Gateway, objects: GatewayObjects) -> Mapping[int, Clients]:
    """Return the client certificate validation by port; 0 is every other port."""
    if not gateway.validations:
        return {}
    grants = Grants(objects.grants)
    return {
        port: _clients(requested, gateway, objects, grants) if requested else Clients()
        for port, requested in gateway.validations.items()
    }


def _clients(requested: FrontendValidation, gateway: Gateway, objects: GatewayObjects, grants: Grants) -> Clients:
    """Combine the usable authorities; report the first unusable one."""
    if requested.problem:
        return Clients(accepted=Failure("UnsupportedValue", requested.problem))
    text, failures = "", list[Failure]()
    for named in requested.authorities:
        bundle = _bundle(named, gateway, objects, grants)
        if isinstance(bundle, Failure):
            failures.append(bundle)
        elif len(text) + len(bundle.authorities) > MAX_AUTHORITIES:
            why = f"with those before it, it has more than {MAX_AUTHORITIES >> 10} KiB; leave what is needed"
            failures.append(Failure(_REF, f"ConfigMap {named.key} can't be used: {why}"))
        else:
            text += bundle.authorities
    resolved = next(iter(failures), None)
    try:
        validation = ClientValidation(text, requested.mode is ValidationMode.INSECURE)
    except ValueError:
        message = resolved.message if resolved else f"{requested.authorities[0].key} has none"
        return Clients(None, Failure("NoValidCACertificate", f"no authority can be used: {message}"), resolved)
    return Clients(validation, None, resolved)


def _bundle(named: Reference, gateway: Gateway, objects: GatewayObjects, grants: Grants) -> AuthorityBundle | Failure:
    """Return a ConfigMap that a Gateway names, or why it can't be used."""
    if named[:2] != _CONFIG_MAP:
        why = f"{named.group or 'core'}/{named.kind} {named.key} can't be an authority; name a ConfigMap"
        return Failure(_KIND, why)
    if not grants.allow(gateway.reference, named):
        return not_permitted(gateway.reference, named)
    bundle = objects.bundles.get(named.key, AuthorityBundle(named.key))
    if bundle.problem or not bundle.authorities:
        why = bundle.problem or "it isn't there; make it, with certificates in its ca.crt"
        return Failure(_REF, f"ConfigMap {named.key} can't be used: {why}")
    return bundle
