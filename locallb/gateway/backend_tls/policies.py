"""The BackendTLSPolicy of each Service port, and the policies that lose a conflict.

Of several for one target the oldest counts, whatever its other faults; one for a port precedes one for the whole
Service. Not here: the validity of a policy by itself (`validation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from locallb.gateway.backend_tls.validation import Validation, validation
from locallb.gateway.conditions import Failure
from locallb.model.gateway.objects import Named
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.gateway.policies import BackendTlsPolicy, PolicyTarget


class Policies:
    """The policies of one cluster, by what they are about."""

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
