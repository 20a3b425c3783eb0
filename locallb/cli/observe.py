"""Queries running proxies concurrently for what they serve."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from locallb.envoy.admin import EnvoyAdmin
from locallb.model.errors import ClientError
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan
from locallb.planning.status import Observation, Row, rows
from locallb.runtimes.published_ports import unpublished
from locallb.storage.proxy_directories import Proxies

AT_ONCE = 16
FIRST_CHECK = 0.1
"""Seconds within which a new backend that takes connections passes its first check."""
_UNPUBLISHED = "nothing on this host publishes it any more; `watch` restarts its container, and so does `locallb up`"


def look(plan: Plan) -> tuple[Row, ...]:
    """Query every proxy of the plan, and return the state of every Service."""
    return rows(plan, observe(proxy.proxy for proxy in plan.proxies))


def observe(proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    """Return what each of `proxies` answers, by its name; those that don't answer are missing."""
    wanted = list(proxies)
    if not wanted:
        return {}
    with ThreadPoolExecutor(AT_ONCE) as workers:
        answers = workers.map(ask, wanted)
    return {proxy.name: answer for proxy, answer in zip(wanted, answers, strict=True) if answer}


def _healthy(admin: EnvoyAdmin) -> Mapping[str, bool]:
    """Return whose backends answer; none does only if it still doesn't a moment later: new ones are checked first."""
    healthy = admin.healthy()
    if all(healthy.values()):
        return healthy
    time.sleep(FIRST_CHECK)
    return {name: answers or healthy.get(name, False) for name, answers in admin.healthy().items()}


def ask(proxy: Proxy) -> Observation | None:
    """Return what `proxy` answers; None if it doesn't."""
    admin = EnvoyAdmin(Proxies.ours().path(proxy.id))
    try:
        listening, failed = admin.listeners(), dict(admin.failed_listeners())
        if proxy.published:
            failed |= dict.fromkeys(unpublished(listening), _UNPUBLISHED)
        return Observation(listening - failed.keys(), failed, _healthy(admin))
    except ClientError:
        return None
