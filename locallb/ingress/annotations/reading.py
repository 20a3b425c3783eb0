"""The annotations of an Ingress, as the controllers that a stack names understand them; unknown ones are reported.

Annotations of Traefik are read here, those of ingress-nginx in `nginx`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from locallb.config.ingress_settings import Dialect
from locallb.ingress.annotations import nginx
from locallb.ingress.annotations.policy import NONE, Policy
from locallb.ingress.annotations.values import Values
from locallb.model.fields import FieldError
from locallb.model.formatting import clipped, few
from locallb.model.gateway.ingresses import Ingress

_EXAMPLES = 5
TRAEFIK = "traefik.ingress.kubernetes.io/"
_PLAIN, _SECURED = "web", "websecure"
"""Traefik's usual entry points."""
_GUARDS = re.compile(r"router\.(middlewares|tls\.options)")
"""Unserved annotations that may keep clients out."""
_OFF = frozenset({"", "false", "off"})


def policy_of(ingress: Ingress, dialects: Collection[Dialect]) -> Policy:
    """Return what the annotations of an Ingress say."""
    policy = NONE
    if Dialect.NGINX in dialects:
        values = Values.of(nginx.PREFIX, ingress.meta.annotations)
        policy = _with_unknown(nginx.read(values), values, nginx.GUARDS)
    if Dialect.TRAEFIK in dialects:
        values = Values.of(TRAEFIK, ingress.meta.annotations)
        policy = _with_unknown(_of_traefik(values, policy), values, _GUARDS)
    return policy


def _of_traefik(values: Values, policy: Policy) -> Policy:
    """Return the policy with what Traefik's annotations say: which of both ports has the rules."""
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


def _with_unknown(policy: Policy, values: Values, guards: re.Pattern[str]) -> Policy:
    """Report unknown annotations. If one may keep clients out, all requests are refused, as none would be checked."""
    guarding = [name for name in values.unknown if guards.fullmatch(name) and values.data[name] not in _OFF]
    harmless = [name for name in values.unknown if name not in guarding]
    problems = list(policy.problems)
    if guarding:
        names = _named(guarding)
        problems.append(
            f"of {values.prefix} these annotations keep clients out and aren't understood: {names}; {_CLOSED}"
        )
    if harmless:
        why = f"of {values.prefix} these annotations aren't understood, and nothing comes of them"
        problems.append(f"{why}: {_named(harmless)}")
    return replace(policy, is_denied=policy.is_denied or bool(guarding), problems=tuple(problems))


_CLOSED = "requests are answered 503 until they are removed"


def _named(names: Sequence[str]) -> str:
    return few([clipped(name) for name in names], _EXAMPLES)
