"""Asks running proxies, all at once, what they serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from locallb.clients import ClientError, places
from locallb.clients.envoy_admin import EnvoyAdmin
from locallb.clients.proxies import Proxies
from locallb.planning.serving import Proxy
from locallb.planning.status import Observation
from locallb.provider.published import unpublished

AT_ONCE = 16


def observe(proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    """Give what each of `proxies` answers, by its name; those that don't answer are missing."""
    wanted = list(proxies)
    if not wanted:
        return {}
    with ThreadPoolExecutor(AT_ONCE) as workers:
        answers = workers.map(ask, wanted)
    return {proxy.name: answer for proxy, answer in zip(wanted, answers, strict=True) if answer}


def ask(proxy: Proxy) -> Observation | None:
    """Give what `proxy` answers; None if it doesn't."""
    admin = EnvoyAdmin(Proxies(places.proxies_root()).path(proxy.id))
    try:
        listening = admin.listeners()
        if proxy.published:
            listening -= frozenset(unpublished(listening))
        return Observation(listening, admin.failed_listeners())
    except ClientError:
        return None
