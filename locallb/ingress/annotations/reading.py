"""What annotations of an Ingress say, of the controllers that a stack names; what nobody understands is told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from locallb.config.ingress_settings import Dialect
from locallb.ingress.annotations import nginx, traefik
from locallb.ingress.annotations.policy import NONE, Policy
from locallb.ingress.annotations.values import Values
from locallb.model.formatting import clipped, few
from locallb.model.gateway.ingresses import Ingress

_EXAMPLES = 5


def policy_of(ingress: Ingress, dialects: Collection[Dialect]) -> Policy:
    """Return what the annotations of an Ingress say."""
    policy = NONE
    if Dialect.NGINX in dialects:
        values = Values.of(nginx.PREFIX, ingress.meta.annotations)
        policy = _with_unknown(nginx.read(values), values)
    if Dialect.TRAEFIK in dialects:
        values = Values.of(traefik.PREFIX, ingress.meta.annotations)
        policy = _with_unknown(traefik.read(values, policy), values)
    return policy


def _with_unknown(policy: Policy, values: Values) -> Policy:
    if not values.unknown:
        return policy
    names = few([clipped(name) for name in values.unknown], _EXAMPLES)
    why = f"of {values.prefix} these annotations aren't understood, and nothing comes of them: {names}"
    return replace(policy, problems=(*policy.problems, why))
