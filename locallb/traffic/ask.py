"""Queries the proxies of a plan for their figures, all at once, on their admin sockets.

Two queries each, and only on demand. Not here: what the answers mean (`answers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

from locallb.envoy.admin import EnvoyAdmin
from locallb.model.errors import ClientError
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan
from locallb.storage.proxy_directories import Proxies
from locallb.traffic.answers import STATISTICS, by_upstream, rejected
from locallb.traffic.figures import UpstreamFigures
from locallb.traffic.table import TrafficRow, traffic_rows

_AT_ONCE = 16


def traffic(plan: Plan, timeout: float | None = None) -> tuple[TrafficRow, ...]:
    """Return what flows through every Service of the plan; who hasn't answered after `timeout` seconds is silent."""
    workers = ThreadPoolExecutor(_AT_ONCE)
    requested = {planned.proxy.name: workers.submit(_figures, planned.proxy) for planned in plan.proxies}
    answered, _ = wait(requested.values(), timeout)
    workers.shutdown(wait=False, cancel_futures=True)
    read = {name: future.result() for name, future in requested.items() if future in answered}
    answers = {name: answer for name, answer in read.items() if answer is not None}
    rejections = {name: count for name, (_, count) in answers.items() if count is not None}
    return traffic_rows(plan, {name: figures for name, (figures, _) in answers.items()}, rejections)


def _figures(proxy: Proxy) -> tuple[Mapping[str, UpstreamFigures], int | None] | None:
    """Return the figures of a proxy, and the number of rejected requests; None where it doesn't answer."""
    with suppress(ClientError):
        admin = EnvoyAdmin(Proxies.ours().path(proxy.id))
        statistics = admin.statistics(STATISTICS)
        return by_upstream(admin.clusters(), statistics), rejected(statistics)
    return None
