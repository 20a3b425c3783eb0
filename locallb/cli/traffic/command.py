"""The command `top`, and `status --traffic`: traffic through Services, once or until interrupted.

The first look shows the totals since proxies know their backends; each later one, the traffic in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.process import exit_cleanly_when_interrupted
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.traffic.shown import print_traffic, traffic_json
from locallb.planning.planned import Plan
from locallb.traffic.ask import traffic
from locallb.traffic.table import TrafficRow, since

PACE = 1.0
"""Seconds between two looks."""
_REPLANNED = 5
"""Looks with one plan: Services come and go more seldom than requests, and planning reads every source."""
_SORTED = {
    "connections": lambda row: -row.figures.total.connections,
    "requests": lambda row: -row.figures.total.requests,
    "failures": lambda row: -(row.figures.total.failed_connections + row.figures.total.failed_requests),
    "bytes": lambda row: -(row.figures.details.received + row.figures.details.sent) if row.figures.details else 0,
}


def top(session: Session, args: Arguments, out: Out) -> int:
    """Show what flows."""
    _, plan = session.plan(glance=True)
    rows = _chosen(traffic(plan), args)
    _show(rows, args, out, 0)
    if args.once:
        return Exit.OK
    exit_cleanly_when_interrupted()
    checks = 0
    while not out.removed:
        before, requested = rows, time.monotonic()
        time.sleep(PACE)
        checks += 1
        plan = _planned(session, plan) if checks % _REPLANNED == 0 else plan
        rows = _chosen(traffic(plan), args)
        _show(since(rows, before), args, out, time.monotonic() - requested)
    return Exit.OK


def _planned(session: Session, plan: Plan) -> Plan:
    """Return a new plan, or the one before where the configuration or a source can't be read just then."""
    try:
        return Session(session.project, session.stack).plan(glance=True)[1]
    except UNPLANNED:
        return plan


def _chosen(rows: Iterable[TrafficRow], args: Arguments) -> tuple[TrafficRow, ...]:
    return tuple(row for row in rows if not args.services or any(word in str(row.key) for word in args.services))


def _show(rows: Iterable[TrafficRow], args: Arguments, out: Out, seconds: float) -> None:
    """Show rows; `seconds` is how long what they have took to come, 0 for all since the beginning."""
    order = _SORTED.get(args.sort)
    ordered = sorted(rows, key=order) if order else list(rows)
    if args.json:
        document: Mapping[str, object] = {"seconds": round(seconds, 3), "services": traffic_json(ordered)}
        out.raw(json.dumps(document, indent=None if seconds else 2))
        return
    if out.redraws and not args.once:
        out.console.clear()
    print_traffic(out, ordered, seconds)
