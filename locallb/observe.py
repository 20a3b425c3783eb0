"""Queries running proxies concurrently for what they serve, and whether what is behind them answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from locallb.envoy.admin import EnvoyAdmin
from locallb.host.sockets import takes_connection
from locallb.model.errors import ClientError
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation, Row, rows
from locallb.runtimes.published_ports import unpublished
from locallb.storage.proxy_directories import Proxies
from locallb.threads import in_parallel
from locallb.traffic.figures import by_upstream

AT_ONCE = 16
FIRST_CHECK = 0.1
"""Seconds within which a new backend that takes connections passes its first check."""
MAX_COUNTED = 500
"""Maximum upstreams of a proxy for reading failed connections: its statistics cover all of them or none."""
TRIALS, TRIAL = 1.0, 0.2
"""Seconds for all backends of a proxy that are tried, and for one; who wasn't tried in time counts as answering."""
_UNPUBLISHED = "nothing on this host publishes it any more; `watch` restarts its container, and so does `locallb up`"


def inspect(plan: Plan) -> tuple[Row, ...]:
    """Query every proxy of the plan, and return the state of every Service."""
    return rows(plan, ask_each(proxy.proxy for proxy in plan.proxies))


def ask_each(proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    """Return what each proxy serves and whether that answers, by its name; proxies that don't answer are missing."""
    return _each(ask, proxies)


def observe(proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    """Return the listeners of each proxy, by its name; proxies that don't answer are missing."""
    return _each(ask_for_listeners, proxies)


def _each(question: Callable[[Proxy], Observation | None], proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    wanted = list(proxies)
    answers = in_parallel(question, wanted, AT_ONCE)
    return {proxy.name: answer for proxy, answer in zip(wanted, answers, strict=True) if answer}


def ask_for_listeners(proxy: Proxy) -> Observation | None:
    """Return where `proxy` listens; None if it doesn't answer."""
    admin = EnvoyAdmin(Proxies.ours().path(proxy.id))
    try:
        listening, failed = admin.listeners(), dict(admin.failed_listeners())
        if proxy.published:
            failed |= dict.fromkeys(unpublished(listening), _UNPUBLISHED)
        return Observation(listening - failed.keys(), failed)
    except ClientError:
        return None


def ask(proxy: Proxy) -> Observation | None:
    """Return the listeners of `proxy` and its upstreams with answering backends; None if it doesn't answer itself."""
    observed, admin = ask_for_listeners(proxy), EnvoyAdmin(Proxies.ours().path(proxy.id))
    if observed is None:
        return None
    try:
        healthy = _healthy(admin)
        # A container's network leads elsewhere than this host's.
        refusing = frozenset[str]() if proxy.published else _refusing(admin, healthy)
    except ClientError:
        return None
    return replace(observed, healthy={name: passes and name not in refusing for name, passes in healthy.items()})


def _healthy(admin: EnvoyAdmin) -> Mapping[str, bool]:
    """Return whether each upstream passes its health checks; if all fail, read again a moment later, for new ones."""
    healthy = admin.healthy()
    if all(healthy.values()):
        return healthy
    time.sleep(FIRST_CHECK)
    return {name: passes or healthy.get(name, False) for name, passes in admin.healthy().items()}


def _refusing(admin: EnvoyAdmin, healthy: Mapping[str, bool]) -> frozenset[str]:
    """Return the upstreams that pass their checks and refuse all the same.

    kube-proxy of a Node answers for the Node, whatever is behind a NodePort. So where a client's connection failed,
    backends are tried by a connection of our own.
    """
    if not healthy or len(healthy) > MAX_COUNTED:
        return frozenset()
    counted = by_upstream(admin.clusters(), ())
    until = time.monotonic() + TRIALS
    doubtful = (name for name, passes in healthy.items() if passes and name in counted)
    failing = [name for name in doubtful if counted[name].total.failed_connections]
    return frozenset(name for name in failing if not _is_claimed(counted[name].backends, until))


def _is_claimed(places: Iterable[str], until: float) -> bool:
    """Return whether one of these backends takes a connection, or not all could be tried in time."""
    return any(time.monotonic() > until or takes_connection(place, TRIAL) for place in places)
