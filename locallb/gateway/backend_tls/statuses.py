"""The status of a BackendTLSPolicy, for each Gateway with routes to its Service.

Not here: times, and entries of other controllers (`status.patch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from locallb.gateway.backend_tls.policies import Policies
from locallb.gateway.conditions import ACCEPTED, RESOLVED, conditions, verdict
from locallb.model.fields import JsonObject
from locallb.model.gateway.objects import CONTROLLER, GROUP, Named
from locallb.model.gateway.policies import BackendTlsPolicy
from locallb.model.status_entries import Condition


def policy_status(policy: BackendTlsPolicy, policies: Policies, gateways: Iterable[Named]) -> JsonObject:
    """Return the status of a policy: of each Gateway the same."""
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


def _conditions(policy: BackendTlsPolicy, policies: Policies) -> Iterator[Condition]:
    made = policies.made(policy)
    yield verdict(ACCEPTED, policies.failure(policy))
    if made.is_read:
        yield verdict(RESOLVED, made.resolved)


def policy_sentences(cluster: str, policies: Policies, services: Collection[Named]) -> Iterator[str]:
    """Return what is wrong with policies that target any of these Services."""
    for policy in policies.about(services):
        if why := policies.failure(policy) or policies.made(policy).resolved:
            yield f"{cluster}: BackendTLSPolicy {policy.meta.key}: {why.reason}: {why.message}"
