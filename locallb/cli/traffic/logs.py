"""The command `logs`: a line for each connection or request that ends, until interrupted or without a reader."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.process import exit_cleanly_when_interrupted
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.traffic.line_texts import line_json, line_text
from locallb.model.errors import ClientError
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan
from locallb.storage.proxy_directories import Proxies
from locallb.traffic.lines import Line, lines, services_by_listener
from locallb.traffic.reading import ENOUGH, PACE, Reading

_INSPECTED = 5.0
"""Seconds until it is looked again which proxies there are."""
_STALE = 60.0
"""Seconds with one plan while the state is unchanged: planning reads every source, and no lines meanwhile."""
_MAX = int(ENOUGH / PACE)
_OFF = (
    "this stack's proxies can't be asked for a log: set local-lb:accessLogs to true and run `locallb up`, "
    "which cuts no connection"
)


def logs(session: Session, args: Arguments, out: Out) -> int:
    """Show lines."""
    if not session.settings.access_logs:
        raise ClientError(_OFF)
    shown, plans = _Shown(args, out), _Plans(session)
    shown.choose(plans.now())
    if not shown.services:
        out.line("There is no Service here with a proxy, or none of that name.")
        return Exit.OK
    if not shown.reading.taps:
        raise ClientError(shown.failures)
    exit_cleanly_when_interrupted(shown.reading.shut)
    while not out.removed:
        shown.show(_INSPECTED)
        with suppress(*UNPLANNED):  # those of before
            shown.choose(plans.now())
    shown.reading.end()
    return Exit.OK


class _Plans:
    """The plan, made again after the state was written, or when it is old."""

    def __init__(self, session: Session) -> None:
        self._session, self._made, self._plan = session, -math.inf, Plan()
        self._stamp: object = None

    def now(self) -> Plan:
        """Return it. Raises what `UNPLANNED` names; then the next call tries again."""
        stamp, now = self._session.stamp(), time.monotonic()
        if stamp != self._stamp or now >= self._made + _STALE:
            self._plan = Session(self._session.project, self._session.stack).plan(glance=True)[1]
            self._stamp, self._made = stamp, now
        return self._plan


class _Shown:
    """Which lines are shown, and in which form."""

    def __init__(self, args: Arguments, out: Out) -> None:
        self.reading, self.services = Reading(), dict[str, ObjectKey]()
        self._terms, self._is_json, self._out = args.services, args.json, out
        self._reported = set[str]()

    @property
    def failures(self) -> str:
        """Why proxies can't be read, a line for each."""
        return "\n".join(sorted(self._reported))

    def choose(self, plan: Plan) -> None:
        """Read from the proxies of chosen Services, as they are now."""
        chosen = {
            name: key
            for name, key in services_by_listener(plan).items()
            if not self._terms or any(word in str(key) for word in self._terms)
        }
        self.services = chosen
        failures = set(self.reading.follow(_directories(plan, chosen.values())))
        for failure in sorted(failures - self._reported if self.reading.taps else ()):
            self._out.warning(failure)
        self._reported = failures

    def show(self, seconds: float) -> None:
        """Show lines as they arrive."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._out.removed:
            for tap, message in self.reading.messages(PACE):
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


def _directories(plan: Plan, chosen: Iterable[ObjectKey]) -> Mapping[Path, None]:
    """Return where the proxies of these Services are, each once."""
    keys, proxies = set(chosen), {planned.proxy.name: planned.proxy.id for planned in plan.proxies}
    names = dict.fromkeys(placement.proxy for placement in plan.placements if placement.key in keys)
    root = Proxies.ours()
    return dict.fromkeys(root.path(proxies[name]) for name in names if name in proxies)
