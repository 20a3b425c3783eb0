"""BackendTLSPolicies: the one that counts for each Service port, its validation, and its status.

Not here: parsing (`parsing.policies`), reading ConfigMaps, of which only certificates are kept, and times and entries
of other controllers in a status (`status_patch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from locallb.model.fields import JsonObject
from locallb.model.gateway_objects import CONTROLLER, GROUP, BackendTlsPolicy, Named, PolicyTarget, Reference
from locallb.model.gateway_of_cluster import AuthorityBundle, GatewayObjects
from locallb.model.http_serving import BackendTls
from locallb.model.reasons import ACCEPTED, INVALID, RESOLVED, Condition, Failure, conditions, verdict


class BackendTlsPolicies:
    """The policies of one cluster, by their targets.

    Of several for one target the oldest counts, whatever its other faults; one for a port precedes one for the whole
    Service.
    """

    def __init__(self, objects: GatewayObjects) -> None:
        self._policies = objects.policies
        self._services, self._bundles = objects.services, objects.bundles
        self._first: dict[tuple[Named, str], BackendTlsPolicy] = {}
        for policy in sorted(objects.policies, key=lambda policy: policy.meta.age):
            for target in policy.services:
                self._first.setdefault((policy.service(target), target.section), policy)
        self._made: dict[Named, Validation] = {}

    def of(self, service: Named, port: str) -> BackendTlsPolicy | None:
        """Return the policy of a Service's port, by the port's name."""
        return (self._first.get((service, port)) if port else None) or self._first.get((service, ""))

    def about(self, services: Collection[Named]) -> Iterator[BackendTlsPolicy]:
        """Return the policies that target any of these Services, in the order of their names."""
        return (
            policy for policy in self._policies if any(policy.service(target) in services for target in policy.services)
        )

    def made(self, policy: BackendTlsPolicy) -> Validation:
        """Return a policy's validation, computed once."""
        if policy.meta.key not in self._made:
            self._made[policy.meta.key] = validation(policy, self._bundles)
        return self._made[policy.meta.key]

    def failure(self, policy: BackendTlsPolicy) -> Failure | None:
        """Return why a policy isn't accepted, if it isn't."""
        return self._conflict(policy) or self._missing(policy) or self._odd(policy)

    def _odd(self, policy: BackendTlsPolicy) -> Failure | None:
        tls = self.made(policy).tls
        return tls if isinstance(tls, Failure) else None

    def _conflict(self, policy: BackendTlsPolicy) -> Failure | None:
        for target in policy.services:
            other = self._first[policy.service(target), target.section]
            if other.meta.key != policy.meta.key:
                why = f"BackendTLSPolicy {other.meta.key} is older and counts for {_shown(target)}; remove one of them"
                return Failure("Conflicted", why)
        return None

    def _missing(self, policy: BackendTlsPolicy) -> Failure | None:
        for target in policy.services:
            service = self._services.get(policy.service(target))
            if service and target.section and all(port.name != target.section for port in service.ports):
                return Failure("TargetNotFound", f"{_shown(target)} isn't there; correct its sectionName")
        return None


def _shown(target: PolicyTarget) -> str:
    return f"port {target.section} of Service {target.name}" if target.section else f"Service {target.name}"


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
    """Validate a policy: return its TLS settings, or the specification's reason why it is invalid.

    An invalid reference doesn't affect the others; without any valid one no backend is trusted.
    """
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


def policy_status(policy: BackendTlsPolicy, policies: BackendTlsPolicies, gateways: Iterable[Named]) -> JsonObject:
    """Return the status of a policy, the same for each Gateway with routes to its Service."""
    stated = conditions(*_conditions(policy, policies))
    return {
        "ancestors": [
            {
                "ancestorRef": {"group": GROUP, "kind": "Gateway", "namespace": key.namespace, "name": key.name},
                "controllerName": CONTROLLER,
                **stated,
            }
            for key in gateways
        ]
    }


def _conditions(policy: BackendTlsPolicy, policies: BackendTlsPolicies) -> Iterator[Condition]:
    made = policies.made(policy)
    yield verdict(ACCEPTED, policies.failure(policy))
    if made.is_read:
        yield verdict(RESOLVED, made.resolved)


def policy_sentences(cluster: str, policies: BackendTlsPolicies, services: Collection[Named]) -> Iterator[str]:
    """Return what is wrong with policies that target any of these Services."""
    for policy in policies.about(services):
        if why := policies.failure(policy) or policies.made(policy).resolved:
            yield f"{cluster}: BackendTLSPolicy {policy.meta.key}: {why.reason}: {why.message}"
