"""Validation of a BackendTLSPolicy: its TLS settings, or the specification's reason why it is invalid.

An invalid reference doesn't affect the others; without any valid one no backend is trusted. Not here: the targets of a
policy (`policies`), and reading ConfigMaps, of which only certificates are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.gateway.conditions import INVALID, Failure
from locallb.model.gateway.objects import Named, Reference
from locallb.model.gateway.of_cluster import AuthorityBundle
from locallb.model.gateway.policies import BackendTlsPolicy
from locallb.model.http.backends import BackendTls

SYSTEM = "System"
_CONFIG_MAP = ("", "ConfigMap")


class Validation(Struct, frozen=True):
    """The result of validating a policy."""

    tls: BackendTls | Failure
    """How backends are verified; trouble: none is trusted, and none is reached in clear text instead."""
    resolved: Failure | None = None
    """The reason that its first invalid reference can't be resolved."""
    is_read: bool = True
    """Whether the objects it refers to are known."""


def validation(policy: BackendTlsPolicy, bundles: Mapping[Named, AuthorityBundle]) -> Validation:
    """Validate a policy."""
    if why := _odd(policy):
        return Validation(Failure(INVALID, why), is_read=False)
    bundled = [_authorities(reference, bundles) for reference in policy.authorities]
    resolved = next((bundle for bundle in bundled if isinstance(bundle, Failure)), None)
    trusted = "".join(bundle for bundle in bundled if isinstance(bundle, str))
    if resolved and not trusted:
        return Validation(Failure("NoValidCACertificate", resolved.message), resolved)
    try:
        return Validation(BackendTls(policy.hostname, trusted, policy.dns_names, policy.uris), resolved)
    except ValueError as error:
        return Validation(Failure(INVALID, str(error)), resolved)


def policy_failure(policy: BackendTlsPolicy, why: Failure) -> Failure:
    """Return what is wrong with a policy, with its name."""
    return Failure(why.reason, f"BackendTLSPolicy {policy.meta.key}: {why.message}")


def _odd(policy: BackendTlsPolicy) -> str:
    """Return the unsupported parts of a policy, independent of its references."""
    if policy.problem:
        return policy.problem
    if policy.unsupported:
        return f"{', '.join(policy.unsupported)} isn't known here; leave it out"
    if policy.authorities and policy.is_well_known:
        return "it has caCertificateRefs and wellKnownCACertificates; leave one of them out"
    if not policy.authorities and policy.is_well_known != SYSTEM:
        given = (
            f"wellKnownCACertificates {policy.is_well_known} isn't known here"
            if policy.is_well_known
            else "it trusts nobody"
        )
        return f"{given}; give caCertificateRefs, or {SYSTEM}"
    return ""


def _authorities(reference: Reference, bundles: Mapping[Named, AuthorityBundle]) -> str | Failure:
    """Return the certificates that are referred to, or why there are none."""
    group, kind, key = reference
    if (group, kind) != _CONFIG_MAP:
        why = f"caCertificateRefs names {group or 'core'}/{kind} {key}, which can't have authorities; name a ConfigMap"
        return Failure("InvalidKind", why)
    bundle = bundles.get(key)
    if bundle is None:
        why = f"caCertificateRefs names ConfigMap {key}, which isn't there; make it, with ca.crt"
        return Failure("InvalidCACertificateRef", why)
    if bundle.problem or not bundle.authorities:
        return Failure("InvalidCACertificateRef", f"ConfigMap {key} can't be used: {bundle.problem or 'it is empty'}")
    return bundle.authorities
