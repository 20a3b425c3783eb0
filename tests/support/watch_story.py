"""A recorded story of a watch loop, for whatever observes one: events at fixed times, and what proxies answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from locallb.cli.watching.board import EventBatch, RelayedEvent
from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.objects import Node
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation
from locallb.watch.events import (
    Cause,
    Converged,
    Failed,
    Leading,
    LoopEvent,
    Mark,
    Planned,
    Stopped,
    Updated,
)
from tests.support.objects import node, parsed, service

NOON = 1_793_275_200.0
"""2026-10-29T12:00:00Z."""
HOME = Home("local-lb", "dev", "/p")
_CONFIGURATION = {
    "sources": [{"manifests": "manifests", "name": "demo"}],
    "pools": [{"name": "small", "addresses": ["127.77.0.0/30"]}],
}
SETTINGS: Settings = parse_settings(_CONFIGURATION)
SHARED: Settings = parse_settings({**_CONFIGURATION, "proxies": "shared"})
EVIL = "\x1b[31mred\x1b[2J \u202eright to left\x00 \rover"
"""What a cluster might write to drive a terminal or break a line."""


def key(name: str) -> ObjectKey:
    return ObjectKey(ClusterName("demo"), "shop", name)


def snapshot_of(*names: str, nodes: bool = True) -> Snapshot:
    """Make a snapshot of Services with these names, in the order of their age."""
    objects = [service(name, meta={"creationTimestamp": f"2026-01-01T00:00:{n:02d}Z"}) for n, name in enumerate(names)]
    read = parsed(*objects, *([node()] if nodes else []))
    found: tuple[Node, ...] = read.nodes
    return Snapshot(HOME, services=read.services, nodes=found, host=HostFacts(watches=10_000))


def planned(
    snapshot: Snapshot,
    *open_: str,
    marks: Collection[Mark] = (Mark(Cause.SOURCE, "demo"),),
    complaints: tuple[str, ...] = (),
    notices: tuple[str, ...] = (),
    settings: Settings = SETTINGS,
) -> Planned:
    """Make the event of a plan; `open_` are names of what differs."""
    stale = {ClusterName("demo"): complaints[0]} if complaints else {}
    keys = tuple(key(name) for name in open_)
    plan = make_plan(snapshot, settings)
    return Planned(plan, tuple(marks), 0.002, keys, 0.006, snapshot, settings, stale, complaints, notices)


def updated(*names: str, failed: Mapping[str, str] | None = None, untouched: Collection[str] = ()) -> Updated:
    """Make the event of an update; of `untouched` nothing had to be changed."""
    wrong = {key(name): why for name, why in (failed or {}).items()}
    same = frozenset(map(key, untouched))
    return Updated(tuple(map(key, names)), 0.031, 0.04, {"create": 7 * len(names)}, wrong, same)


def serving(plan: Plan, without: Collection[str] = ()) -> dict[str, Observation | None]:
    """Return what proxies answer that serve what is planned; those named don't answer."""
    return {
        planned.proxy.name: None
        if planned.proxy.name.rpartition("/")[2] in without
        else Observation(frozenset(listener.name for listener in planned.proxy.listeners))
        for planned in plan.proxies
    }


def story() -> list[tuple[EventBatch, Mapping[str, Observation | None]]]:
    """Tell it: three Services start, one fails, a source breaks and comes back, and the loop is stopped."""
    small, large = snapshot_of("web", "api"), snapshot_of("web", "api", "db", "ftp", "git")
    first, second = planned(small, "web", "api", marks=[Mark(Cause.START)]), planned(large, "db", "ftp")
    stale = "source demo: manifests/a.yaml line 3: not YAML; its Services count as last read until it answers"
    broken = planned(large, complaints=(stale,), notices=(f"an object was passed over: {EVIL}",))
    chapters: list[list[LoopEvent]] = [
        [first],
        [updated("api", "web"), Converged()],
        [second],
        [updated("db", "ftp", failed={"ftp": f"127.77.0.2 port 8080 is held by {EVIL}\nand more"}), Converged(1)],
        [broken, Converged(1)],
        [Failed(f"no reading of demo: {EVIL}", "source")],
        [planned(large, "ftp", marks=[Mark(Cause.RETRY)]), updated("ftp"), Converged()],
        [planned(large, marks=[Mark(Cause.FULL)]), Converged()],
        [Leading(leads=False)],
        [Stopped()],
    ]
    reported: list[tuple[EventBatch, Mapping[str, Observation | None]]] = []
    latest = first
    for number, chapter in enumerate(chapters):
        latest = next((planned for planned in reversed(chapter) if isinstance(planned, Planned)), latest)
        entries = tuple(RelayedEvent(NOON + number + n / 10, event) for n, event in enumerate(chapter))
        unasked = number in {0, 2}
        observed = {} if unasked else serving(latest.plan, {"ftp"} if number < 6 else ())
        reported.append((EventBatch(entries, latest), observed))
    return reported
