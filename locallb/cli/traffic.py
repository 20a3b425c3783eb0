"""The commands `top` and `logs`: traffic through Services, as text and as JSON.

Not here: queries of proxies (`traffic.reading`), and the figures and parsed log lines (`traffic.figures`).
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.process import exit_cleanly_when_interrupted
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.targets import is_chosen, settled
from locallb.envoy.listeners import GATE
from locallb.model.errors import ClientError
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan
from locallb.sources.snapshot import ReadingAndPlan
from locallb.storage.proxy_directories import Proxies
from locallb.traffic.figures import Counts, Details, Line, TrafficRow, lines, services_by_listener, since
from locallb.traffic.reading import ENOUGH, TrafficReading, traffic
from locallb.traffic.reading import PACE as READING_PACE

_FAILED = 500


_Part = tuple[str, str]
"""A text and its style."""


def line_text(key: ObjectKey, line: Line) -> tuple[str | _Part, ...]:
    """Write it for people, in parts, each a text or a text and its style."""
    port = line.listener.rpartition("/")[0].rpartition(":")[2]
    flowed = f"{line.received} B in, {line.sent} B out, {line.milliseconds} ms"
    why = " ".join(line.flags)
    request = f"{line.method} {line.host}{line.path} {line.status}  " if line.protocol else ""
    style = "red" if line.status >= _FAILED else ""
    place = f"{line.client} → {line.backend or 'nobody'}"
    begin, end = f"  {key}:{port}  {place}  ", f"  {why}" if why else ""
    return (line.time, "dim"), begin, (request, style), flowed, (end, "red")


def line_json(key: ObjectKey, line: Line) -> dict[str, object]:
    request: dict[str, object] | None = None
    if line.protocol:
        names = {"protocol": line.protocol, "method": line.method, "host": line.host, "path": line.path}
        request = {**names, "status": line.status}
    return {
        "time": line.time,
        **key._asdict(),
        "listener": line.listener,
        "client": line.client,
        "backend": line.backend or None,
        "bytesIn": line.received,
        "bytesOut": line.sent,
        "milliseconds": line.milliseconds,
        "flags": list(line.flags),
        "request": request,
    }


_HEAD = ("SERVICE", "PORTS", "OPEN", "CONNECTIONS", "REFUSED", "REQUESTS", "FAILED", "IN", "OUT", "P50", "P99")
_PERCENTILES = (50, 90, 99)
_THOUSAND, _UNITS = 1000, ("B", "kB", "MB", "GB", "TB")
_UNKNOWN = "-"
_NO_DETAILS = "`-` for bytes and latencies: set local-lb:trafficDetails to true, and proxies count them from then on."


def print_traffic(out: Out, rows: Sequence[TrafficRow], seconds: float) -> None:
    """Print a table: counts since the beginning, or what came in so many `seconds`."""
    if not rows:
        out.line("There is no Service here with a proxy.")
        return
    out.line((f"in {seconds:.1f} s" if seconds else "totals since each proxy was started", "dim"))
    out.table(_HEAD, [_cells(row) for row in rows])
    for row in rows:
        if not row.answers:
            out.line(("! ", "yellow"), f"{row.key} has no proxy that answers; `locallb up` starts it")
    if not seconds and all(row.figures.details is None for row in rows if row.answers):
        out.line(_NO_DETAILS)


def traffic_json(rows: Sequence[TrafficRow]) -> list[dict[str, object]]:
    return [
        {
            **row.key._asdict(),
            "ports": list(row.ports),
            "http": row.is_http,
            "answers": row.answers,
            **_counts_json(row.figures.total),
            **_details_json(row.figures.details),
            "backends": [
                {"address": place, **_counts_json(counts)} for place, counts in sorted(row.figures.backends.items())
            ],
        }
        for row in rows
    ]


def _counts_json(counts: Counts) -> dict[str, object]:
    return {
        "connections": counts.connections,
        "refused": counts.failed_connections,
        "open": counts.active,
        "requests": counts.requests,
        "failed": counts.failed_requests,
    }


def _details_json(details: Details | None) -> dict[str, object]:
    if details is None:
        return {"bytesIn": None, "bytesOut": None, "latencies": None}
    percentiles = {f"p{percent}": _rounded(details.latencies.percentile(percent)) for percent in _PERCENTILES}
    return {
        "bytesIn": details.received,
        "bytesOut": details.sent,
        "latencies": percentiles if details.latencies.total else None,
    }


def _cells(row: TrafficRow) -> Sequence[str]:
    total, details = row.figures.total, row.figures.details
    requests = (str(total.requests), str(total.failed_requests)) if row.is_http else (_UNKNOWN, _UNKNOWN)
    flowed = (_size(details.received), _size(details.sent)) if details else (_UNKNOWN, _UNKNOWN)
    waited = [_wait(details.latencies.percentile(percent) if details else None) for percent in (50, 99)]
    connections = (str(total.active), str(total.connections), str(total.failed_connections))
    if not row.answers:
        connections, requests = (_UNKNOWN,) * 3, (_UNKNOWN,) * 2
    return str(row.key), " ".join(row.ports), *connections, *requests, *flowed, *waited


def _size(count: int) -> str:
    number, unit = float(count), 0
    while number >= _THOUSAND and unit < len(_UNITS) - 1:
        number, unit = number / _THOUSAND, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def _wait(milliseconds: float | None) -> str:
    return _UNKNOWN if milliseconds is None else f"{milliseconds:.3g} ms"


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)


_INSPECTED = 5.0
"""Seconds until it is looked again which proxies there are."""
_STALE = 60.0
"""Seconds with one plan while the state is unchanged: planning reads every source, and no lines meanwhile."""
_MAX = int(ENOUGH / READING_PACE)
_OFF = (
    "this stack's proxies can't be asked for a log: set local-lb:accessLogs to true and run `locallb up`, "
    "which cuts no connection"
)


def logs(session: Session, args: Arguments, out: Out) -> int:
    """Show a line for each connection or request that ends, until interrupted or without a reader."""
    if not session.settings.access_logs:
        raise ClientError(_OFF)
    shown, plans = _Shown(args, out), Plans(session)
    shown.choose(plans.now()[1])
    if not shown.services:
        out.line("There is no Service here with a proxy.")
        return Exit.OK
    if not shown.reading.taps:
        raise ClientError(shown.failures)
    exit_cleanly_when_interrupted(shown.reading.shut)
    while not out.removed:
        shown.show(_INSPECTED)
        with suppress(*UNPLANNED):  # those of before
            shown.choose(plans.now()[1])
    shown.reading.end()
    return Exit.OK


class Plans:
    """What was read and planned, again after the state was written, or when it is `stale` seconds old."""

    def __init__(self, session: Session, stale: float = _STALE) -> None:
        self._session, self._stale, self._made = session, stale, -math.inf
        self._planned: ReadingAndPlan | None = None
        self._stamp: object = None

    def now(self) -> ReadingAndPlan:
        """Return it. Raises what `UNPLANNED` names; then the next call tries again."""
        stamp, now = self._session.stamp(), time.monotonic()
        if self._planned is None or stamp != self._stamp or now >= self._made + self._stale:
            self._planned = Session(self._session.project, self._session.stack).plan(glance=True)
            self._stamp, self._made = stamp, now
        return self._planned


class _Shown:
    """Which lines are shown, and in which form."""

    def __init__(self, args: Arguments, out: Out) -> None:
        self.reading, self.services = TrafficReading(), dict[str, ObjectKey]()
        self._terms, self._is_json, self._out = args.services, args.json, out
        self._settled: tuple[str, ...] | None = None
        self._reported = set[str]()

    @property
    def failures(self) -> str:
        """Why proxies can't be read, a line for each."""
        return "\n".join(sorted(self._reported))

    def choose(self, plan: Plan) -> None:
        """Read from the proxies of chosen Services, as they are now. Raises TargetError the first time."""
        by_listener = services_by_listener(plan)
        if self._settled is None:
            self._settled = settled(self._terms, sorted({*map(str, by_listener.values())}))
        chosen = {name: key for name, key in by_listener.items() if is_chosen(str(key), self._settled)}
        self.services = chosen
        failures = set(self.reading.follow(proxy_directories(plan, chosen.values())))
        for failure in sorted(failures - self._reported if self.reading.taps else ()):
            self._out.warning(failure)
        self._reported = failures

    def show(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._out.removed:
            for tap, message in self.reading.messages(READING_PACE):
                with suppress(ValueError):  # no message of Envoy's
                    ended = list(lines(message))
                    tap.came += len(ended)
                    self._print(ended)
            renewed = [tap.renew() for tap in self.reading.taps.values()]
            if any(renewed):
                self._out.warning(f"a proxy had more than {_MAX} lines a second: some are left out")

    def _print(self, ended: Iterable[Line]) -> None:
        for line in ended:
            if key := self.services.get(line.listener):
                if self._is_json:
                    self._out.raw(json.dumps(line_json(key, line)))
                else:
                    self._out.line(*line_text(key, line))


_LATEST = 8
"""Lines of one load balancer that are kept."""
_UNKNOWN_REQUESTS = "not known; with `local-lb:accessLogs: true` they are shown here"
_GLANCE = 0.005
"""Seconds in which messages that came are taken."""


class LatestLines:
    """The latest lines of one load balancer at a time, for as long as it is looked at. For one thread."""

    def __init__(self) -> None:
        self._reading: TrafficReading | None = None
        self._key: ObjectKey | None = None
        self._lines: deque[tuple[_Part, ...]] = deque(maxlen=_LATEST)

    def of(self, key: ObjectKey, plan: Plan) -> list[tuple[_Part, ...]]:
        """Return what has ended since it was asked for first, the latest first; or why nothing can be read."""
        if key != self._key:
            self.end()
            self._key, self._lines = key, deque(maxlen=_LATEST)
        listeners = {name for name, each in services_by_listener(plan).items() if each == key}
        directories = proxy_directories(plan, [key] if listeners else [])
        if not directories:
            return []
        if not all((directory / GATE).exists() for directory in directories):
            return [((_UNKNOWN_REQUESTS, "dim"),)]
        self._reading = self._reading or TrafficReading()
        failures: list[tuple[_Part, ...]] = [((text, "yellow"),) for text in self._reading.follow(directories)]
        for tap, message in self._reading.messages(_GLANCE):
            with suppress(ValueError):  # no message of Envoy's
                ended = list(lines(message))
                tap.came += len(ended)
                self._lines.extendleft(_parts(line_text(key, line)) for line in ended if line.listener in listeners)
        for tap in self._reading.taps.values():
            tap.renew()
        return failures or [*self._lines] or [(("none since this was opened", "dim"),)]

    def end(self) -> None:
        """Let others read them."""
        if self._reading:
            self._reading.end()
        self._reading = None


def _parts(texts: Iterable[str | _Part]) -> tuple[_Part, ...]:
    return tuple((text, "") if isinstance(text, str) else text for text in texts)


def proxy_directories(plan: Plan, chosen: Iterable[ObjectKey]) -> Mapping[Path, None]:
    """Return where the proxies of these Services are, each once."""
    keys, proxies = set(chosen), {planned.proxy.name: planned.proxy.id for planned in plan.proxies}
    names = dict.fromkeys(placement.proxy for placement in plan.placements if placement.key in keys)
    root = Proxies.ours()
    return dict.fromkeys(root.path(proxies[name]) for name in names if name in proxies)


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
    """Show traffic through Services, once or until interrupted; `status --traffic` does the same.

    The first table has the totals since each proxy was started; each later one has the traffic in between.
    """
    _, plan = session.plan(glance=True)
    every = tuple(traffic(plan))
    names = settled(args.services, sorted({str(row.key) for row in every}))
    rows = _chosen(every, names)
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
        rows = _chosen(traffic(plan), names)
        _show(since(rows, before), args, out, time.monotonic() - requested)
    return Exit.OK


def _planned(session: Session, plan: Plan) -> Plan:
    """Return a new plan, or the one before where the configuration or a source can't be read just then."""
    try:
        return Session(session.project, session.stack).plan(glance=True)[1]
    except UNPLANNED:
        return plan


def _chosen(rows: Iterable[TrafficRow], names: Collection[str]) -> tuple[TrafficRow, ...]:
    return tuple(row for row in rows if is_chosen(str(row.key), names))


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
