"""Stacks as the live page gets them, without a loop: one with traffic, one in trouble, and a large one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from msgspec.structs import replace

from locallb.cli.commands.watch import curl_line
from locallb.cli.watching import page as module
from locallb.cli.watching.page import PageReporter
from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.snapshot import HostFacts
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation
from locallb.traffic.figures import Counts, Details, TrafficRow, UpstreamFigures
from locallb.watch.events import Cause, Converged, LoopEvent, Mark, Planned, Pulse, Stopped, Updated
from tests.support.gateway_objects import backend as route_backend
from tests.support.gateway_objects import gateway, gateway_class, listener, route, rule
from tests.support.objects import JsonObject, node, service
from tests.support.planned_gateways import snapshot

ROOM = HostFacts(watches=100_000)
SETTINGS = parse_settings(
    {
        "sources": [{"kubernetes": {"name": "demo"}}],
        "pools": [{"name": "default", "addresses": ["127.77.0.0/24"]}],
        "accessLogs": True,
    }
)
SMALL = parse_settings(
    {
        "sources": [{"kubernetes": {"name": "demo"}}],
        "pools": [{"name": "small", "addresses": ["127.77.0.0/29", "127.77.0.8/30"]}],
    }
)
LARGE = parse_settings(
    {
        "sources": [{"kubernetes": {"name": "demo"}}],
        "pools": [{"name": "large", "addresses": ["127.77.0.0/16"]}],
        "proxies": {"mode": "shared", "count": 50},
    }
)


def planned(documents: list[JsonObject], settings: Settings = SETTINGS) -> Planned:
    """Make the event of a plan of a running cluster's objects."""
    read = replace(snapshot(documents), host=ROOM)
    marks = (Mark(Cause.SOURCE, "demo"),)
    return Planned(make_plan(read, settings), marks, 0.002, (), 0.006, read, settings)


def serving(plan: Plan, without: Collection[str] = ()) -> dict[str, Observation | None]:
    """Return what proxies answer that serve what is planned; those of the named Services don't answer."""
    listening: dict[str, set[str]] = {}
    for placement in plan.placements:
        names = {listener.name for port in placement.ports for listener in port.listeners}
        listening.setdefault(placement.proxy, set()).update(names)
    return {
        proxy: None if proxy.rpartition("/")[2] in without else Observation(frozenset(names))
        for proxy, names in listening.items()
    }


def shop(*ports: int) -> list[JsonObject]:
    """Have three Services, one of them with these ports, and a Gateway."""
    return [
        gateway_class(),
        gateway(listener("http", 8080, hostname="*.shop.test"), name="front"),
        route(
            rule("/cart", backends=[route_backend("api")]),
            rule("/", backends=[route_backend("web")]),
            name="shop",
            hostnames=["www.shop.test"],
            parentRefs=[{"name": "front"}],
        ),
        service("api"),
        service("web", ports=[{"name": f"p-{each}", "port": each, "nodePort": 30000 + each % 1000} for each in ports]),
        service("postgres", ports=[{"name": "postgres", "port": 5432, "nodePort": 30432}]),
        service(
            "mail", namespace="office", ports=[{"name": "sctp", "port": 25, "protocol": "SCTP", "nodePort": 30025}]
        ),
        service("wiki", namespace="office"),
        node(),
    ]


def crowded(count: int = 52) -> list[JsonObject]:
    return [*(service(f"shop-{number:02d}") for number in range(count)), node()]


@dataclass
class MadeUpTraffic:
    """Counts that grow with time, of Services by the last part of their names."""

    flows: Mapping[str, tuple[float, float, float]]
    """Connections, requests and failures in a second."""
    began: float = field(default_factory=time.monotonic)

    def __call__(self, plan: Plan) -> tuple[TrafficRow, ...]:
        seconds = time.monotonic() - self.began + 100
        return tuple(
            TrafficRow(placement.key, (port.port.label,), bool(requests), True, UpstreamFigures({"a": counts}, details))
            for placement in plan.placements
            if placement.key.name in self.flows
            for port in placement.ports[:1]
            for connections, requests, failures in [self.flows[placement.key.name]]
            for counts in [
                Counts(int(connections * seconds), 0, 12, int(requests * seconds), int(failures * seconds)),
            ]
            for details in [Details(int(9e4 * seconds), int(4e5 * seconds)) if not requests else None]
        )


TRAFFIC = {"web": (8.0, 120.0, 0.4), "front": (5.0, 48.0, 0.0), "postgres": (3.0, 0.0, 0.0)}


@contextmanager
def shown(
    *chapters: Sequence[LoopEvent], observed: Mapping[str, Observation | None], flows: Mapping[str, Any] | None = None
) -> Iterator[PageReporter]:
    """Show the page of a loop in which this happened, one chapter after the other."""
    with mock.patch.object(module, "traffic", MadeUpTraffic(flows or {})), mock.patch.object(module, "IDLE", 0.01):
        page = PageReporter("127.0.0.1:0", "dev", lambda: observed, lambda: Pulse(time.monotonic()), curl_line)
        page.start()
        try:
            for chapter in chapters:
                for event in chapter:
                    page.listen(event)
                time.sleep(0.1)
            yield page
        finally:
            page.listen(Stopped())
            page.close()


@contextmanager
def large(count: int) -> Iterator[tuple[PageReporter, Callable[[int], None]]]:
    """Serve so many Services; what is returned beside the page has so many others than before refuse clients."""
    event = planned(crowded(count), LARGE)
    observed = serving(event.plan)
    turn = 0

    def change(some: int) -> None:
        nonlocal turn
        placements = event.plan.placements
        whole = serving(event.plan)
        for number in range(turn, turn + some):
            placement = placements[number % len(placements)]
            answer = whole[placement.proxy]
            gone = {listener.name for port in placement.ports for listener in port.listeners}
            whole[placement.proxy] = answer and Observation(answer.listening - gone)
        turn += some
        observed.update(whole)
        page.poke()

    with shown([event, Converged()], observed=observed) as page:
        yield page, change


@contextmanager
def calm() -> Iterator[PageReporter]:
    """Serve a shop; one Service just got a port more."""
    before, after = planned(shop(8080)), planned(shop(8080, 8443))
    keys = tuple(placement.key for placement in after.plan.placements)
    first: list[LoopEvent] = [before, Updated(keys, 0.031, 0.04, {"create": 7}), Converged()]
    web = tuple(key for key in keys if key.name == "web")
    second: list[LoopEvent] = [after, Updated(web, 0.012, 0.018, {"update": 3}), Converged()]
    with shown(first, second, observed=serving(after.plan), flows=TRAFFIC) as page:
        yield page


@contextmanager
def trouble() -> Iterator[PageReporter]:
    """Serve eleven of fifty-two Services: forty find no address, and the proxy of one doesn't answer."""
    event = planned(crowded(), SMALL)
    keys = tuple(placement.key for placement in event.plan.placements)
    events: list[LoopEvent] = [event, Updated(keys, 0.31, 0.4, {"create": 70}), Converged()]
    with shown(events, observed=serving(event.plan, {"shop-05"})) as page:
        yield page
