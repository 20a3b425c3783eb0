"""Secrets named as certificates by a listener or a Gateway: usable, or the reason why not.

Not here: authorities (`validation`), and reading Secrets.
"""

from __future__ import annotations

from locallb.gateway.conditions import Failure
from locallb.gateway.grants import Grants, not_permitted
from locallb.model.gateway.objects import Gateway, Named, Reference
from locallb.model.gateway.of_cluster import GatewayObjects, TlsSecret
from locallb.model.http.serving import Certificate

_SECRET = ("", "Secret")


def named_pair(
    owner: Reference, named: Reference, objects: GatewayObjects, grants: Grants, reason: str
) -> Certificate | Failure:
    """Return the certificate in a Secret, or why it can't be used: for `reason`, if `owner` may reference it."""
    if named[:2] != _SECRET:
        why = f"{named.group or 'core'}/{named.kind} {named.key} can't be a certificate; name a Secret"
        return Failure(reason, why)
    if not grants.allow(owner, named):
        return not_permitted(owner, named)
    return pair_in(objects, named.key, reason)


def pair_in(objects: GatewayObjects, key: Named, reason: str, names: str = "") -> Certificate | Failure:
    """Return the certificate in a Secret, or why it can't be used, for `names`."""
    secret = objects.secrets.get(key, TlsSecret(key))
    if secret.digest and not secret.problem:
        return Certificate(objects.cluster, *key, secret.digest, secret.file, secret.tcp_only)
    why = secret.problem or "it isn't there; make it, of type kubernetes.io/tls"
    return Failure(reason, f"Secret {key}{f', for {names},' if names else ''} can't be used: {why}")


def client_pair(gateway: Gateway, objects: GatewayObjects) -> Certificate | Failure | None:
    """Return what a Gateway shows to backends, by its spec.tls.backend; None where that is nothing."""
    named, reason = gateway.client_certificate, "InvalidClientCertificateRef"
    return named_pair(gateway.reference, named, objects, Grants(objects.grants), reason) if named else None
