"""Annotations of Traefik that mean here exactly what they mean there, with its usual entry points."""

from __future__ import annotations

from dataclasses import replace

from locallb.ingress.annotations.policy import Policy
from locallb.ingress.annotations.values import Values
from locallb.model.fields import FieldError

PREFIX = "traefik.ingress.kubernetes.io/"
_PLAIN, _SECURED = "web", "websecure"


def read(values: Values, policy: Policy) -> Policy:
    """Return the policy with what they say: which of both ports has the rules."""
    try:
        entries = set(values.items("router.entrypoints"))
        if entries - {_PLAIN, _SECURED}:
            raise values.fault("router.entrypoints", f"use {_PLAIN} and {_SECURED}")
        by_tls = values.flag("router.tls")
        if by_tls and entries == {_PLAIN}:
            raise values.fault("router.tls", f"TLS has the entry point {_SECURED} here; add it")
    except FieldError as error:
        return replace(policy, is_denied=True, problems=(*policy.problems, str(error)))
    plain, secured = not entries or _PLAIN in entries, not entries or _SECURED in entries
    return replace(policy, plain=policy.plain and plain and not by_tls, secured=policy.secured and secured)
