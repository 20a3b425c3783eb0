"""Stacks as the terminal view gets them: one that serves, one in trouble, and names that a cluster chose to do harm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locallb.cli.service_output import Parts
from locallb.cli.view.listing import Rate, Scene, card
from locallb.cli.view.overview import pool_line, source_line
from locallb.cli.watching.board import View
from locallb.cli.watching.log import LogLevel, LogRecord
from locallb.config.parsing import parse_settings
from locallb.model.identities import Family, ObjectKey
from locallb.model.snapshot import HostFacts
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation, Row, State, rows
from locallb.report.changes import PoolRoom
from tests.support.gateway_objects import backend as route_backend
from tests.support.gateway_objects import gateway, gateway_class, listener, route, rule
from tests.support.objects import node, service
from tests.support.planned_gateways import plan_of
from tests.support.watch_story import EVIL, NOON, SETTINGS, key

HOST = HostFacts(watches=10_000)
HOSTILE = f"[bold red]{EVIL}[/] [@click=app.quit]x[/] $primary \\[ :smile: \x9b2J\x1b]52;c;eA==\x07 ﷽ 表"
"""Markup of rich and Textual, sequences for a terminal, and characters of unusual width."""


def scene_of(table: Iterable[Row], plan: Plan | None = None, **fields: object) -> Scene:
    return Scene("dev", tuple(card(View(row)) for row in table), plan or Plan(), state="checked 12:00:00", **fields)  # type: ignore[arg-type]  # fields of it


def planned_scene(plan: Plan, without: Iterable[str] = (), **fields: object) -> Scene:
    """Make the scene of a plan; the proxies of these Services don't answer."""
    observed: dict[str, Observation] = {}
    for proxy in (planned.proxy for planned in plan.proxies):
        if proxy.name.rpartition("/")[2] not in {*without}:
            names = *(each.name for each in proxy.listeners), *(each.name for each in proxy.http)
            observed[proxy.name] = Observation(frozenset(names))
    return scene_of(rows(plan, observed), plan, **fields)


def calm() -> Scene:
    """Serve three Services and a Gateway, some with traffic."""
    plan = plan_of(
        gateway_class(),
        gateway(listener("http", 8080, hostname="*.shop.test")),
        route(rule("/cart", backends=[route_backend("api")]), name="cart", hostnames=["www.shop.test"]),
        *(service(name) for name in ("api", "web")),
        service("postgres", ports=[{"name": "postgres", "port": 5432, "nodePort": 30432}]),
        node(),
        host=HOST,
    )
    flowing = {key("web"): Rate(12.3, 1.0, 0.4), key("postgres"): Rate(0, 3.0)}
    sentence = "serving: demo/shop/web at 127.77.0.3 (8080/TCP)"
    records = (LogRecord(NOON - 60, LogLevel.INFO, "service", sentence, {"service": "demo/shop/web"}),)
    return planned_scene(plan, rates=flowing, records=records, overview=overview(PoolRoom("p", Family.IPV4, 14, 4, 10)))


def trouble() -> Scene:
    """Serve eleven of fifty-two Services: forty find no address, and the proxy of one doesn't answer."""
    settings = parse_settings(
        {
            "sources": [{"kubernetes": {"name": "demo"}}],
            "pools": [{"name": "small", "addresses": ["127.77.0.0/29", "127.77.0.8/30"]}],
        }
    )
    names = [f"shop-{number:02d}" for number in range(52)]
    plan = plan_of(*(service(name) for name in names), node(), host=HOST, settings=settings)
    head = overview(PoolRoom("small", Family.IPV4, 12, 12, 0), {"demo": NOON - 12}, answering=11)
    return planned_scene(plan, {"shop-05"}, warnings=("cluster demo: no answer since 11:59:48",), overview=head)


def overview(room: PoolRoom, stale: Mapping[str, float] | None = None, answering: int = 4) -> tuple[Parts, ...]:
    """Write the lines about one source and one pool, all addresses of which are those of proxies."""
    return source_line(SETTINGS, stale or {}), pool_line([room], room.used, answering)


def hostile() -> Scene:
    """Have texts that mean something to a terminal, to rich or to Textual, in every field that a cluster chooses."""
    names = [ObjectKey(key("x").cluster, HOSTILE, f"{HOSTILE}{number}") for number in range(5)]
    rejected = [Row(name, State.REJECTED, reason="Bad", message=f"{name}: {HOSTILE}; {HOSTILE}") for name in names]
    served = Row(key("web"), State.SERVING, names=(HOSTILE,), refused=(HOSTILE,))
    return scene_of([*rejected, served], warnings=(HOSTILE,), empty=(HOSTILE,))
