"""Observes what proxies serve, in its own thread: changed proxies immediately, the others one after another.

While nothing happens, one proxy is queried every two seconds, by its admin socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from threading import Condition

from msgspec.structs import replace

from locallb.model.pacing import Pace
from locallb.model.serving import Proxy
from locallb.planning.planned import Placement
from locallb.planning.service_rows import Observation, silent
from locallb.planning.statuses import SilentPort
from locallb.threads import SupervisedThread, Task
from locallb.watch.events import Cause, LoopEvent, Planned, Updated

PACE = 2.0
"""Seconds between two proxies in turn."""
ROUND = 30.0
"""Seconds that a round takes at least."""
RETRY_PACE, RETRY_EACH = Pace(first=0.2, longest=3.0), 0.1
"""When one that doesn't serve as it should is asked again, and the seconds that each other such one adds."""

Ask = Callable[[Proxy], Observation | None]


class HealthWatch:
    """Calls `changed` from its own thread when an answer is another one. `listen` may be called from any thread."""

    def __init__(self, ask: Ask, changed: Callable[[], None]) -> None:
        self._ask = ask
        self._changed = changed
        self._lock = Condition()
        self._news: Planned | None = None
        self._changed_keys: set[object] = set()
        self._named: set[str] = set()
        """Unprocessed input: the latest plan, updated load balancers, ended proxies."""
        self._served: dict[object, str] = {}
        """The proxy of each Service."""
        self._proxies: dict[str, Proxy] = {}
        self._placements: dict[str, list[Placement]] = {}
        """What each proxy serves."""
        self._due: dict[str, float] = {}
        """When to ask next, by the proxy's name and the monotonic clock."""
        self._retries: dict[str, int] = {}
        """How often each that doesn't serve as it should has been asked since it was changed."""
        self._observed: dict[str, Observation | None] = {}
        self._silent: dict[str, frozenset[SilentPort]] = {}
        """Ports of which each proxy reported last that no backend takes connections."""
        self._turn: list[str] = []
        self._turn_at = 0.0
        self._thread = SupervisedThread(Task.HEALTH, "health", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; an answer that is awaited is awaited no more."""
        self._thread.stop()
        with self._lock:
            self._lock.notify()

    def observed(self) -> Mapping[str, Observation | None]:
        """Return the last answer of each proxy that was asked; None where it didn't answer."""
        with self._lock:
            self._absorb()
            return dict(self._observed)

    def silent(self) -> frozenset[SilentPort]:
        """Return the ports with backends that take no connections; an unanswered query keeps the former result."""
        with self._lock:
            self._absorb()
            return frozenset().union(*self._silent.values())

    def listen(self, event: LoopEvent) -> None:
        """Note which proxies there are, and which were changed; looking at it is for the other thread."""
        match event:
            case Planned():
                with self._lock:
                    self._news = event
                    self._named.update(mark.subject for mark in event.marks if mark.cause is Cause.PROXY)
                    self._lock.notify()
            case Updated():
                with self._lock:
                    self._changed_keys.update(event.services)
                    self._lock.notify()
            case _:
                pass

    def _absorb(self) -> None:
        """Take over the new events."""
        if self._news:
            self._follow(self._news)
            self._news = None
        if self._named:
            self._ask_soon([name for name, proxy in self._proxies.items() if {name, proxy.id} & self._named])
        if self._changed_keys:
            self._ask_repeatedly({self._served.get(key, str(key)) for key in self._changed_keys})
        self._named, self._changed_keys = set(), set()

    def _follow(self, planned: Planned) -> None:
        """Take the plan's proxies; forget all others."""
        self._proxies = {proxy.proxy.name: proxy.proxy for proxy in planned.plan.proxies}
        self._placements, self._served = {}, {}
        for placement in planned.plan.placements:
            self._served[placement.key] = placement.proxy
            self._placements.setdefault(placement.proxy, []).append(placement)
        for retained in (self._observed, self._due, self._silent, self._retries):
            for name in retained.keys() - self._proxies.keys():
                del retained[name]

    def _ask_repeatedly(self, names: Collection[str]) -> None:
        """Ask soon; until then answers from before the update say nothing of what isn't there in them.

        A shared proxy's goes on saying that its other Services are served.
        """
        for name in names:
            self._retries.pop(name, None)
            answer = self._observed.get(name)
            if answer is None:
                self._observed.pop(name, None)
            elif not self._serves(name, answer):
                self._observed[name] = replace(answer, is_outdated=True)
        self._ask_soon(names)

    def _ask_soon(self, names: Collection[str]) -> None:
        now = time.monotonic()
        self._due.update((name, now) for name in names if name in self._proxies)

    def _run(self) -> None:
        news = False
        while not self._thread.stopped.is_set():
            with self._lock:
                self._absorb()
                proxy = self._next(time.monotonic())
                if proxy is None and not news:
                    if not self._thread.stopped.is_set():
                        self._lock.wait(self._pause(time.monotonic()))
                    continue
            if proxy:
                news = self._inspect(proxy) or news
            else:  # no other proxy is to be queried now: publish all news at once
                news = False
                self._changed()

    def _next(self, now: float) -> Proxy | None:
        """Return the proxy to query now: one that is due, otherwise the next in turn."""
        name = next((name for name, at in self._due.items() if at <= now), "")
        if not name and now >= self._turn_at and self._proxies:
            self._turn = self._turn or sorted(self._proxies, reverse=True)
            self._turn_at = now + max(PACE, ROUND / len(self._proxies))
            name = self._turn.pop()
        self._due.pop(name, None)
        return self._proxies.get(name)

    def _pause(self, now: float) -> float | None:
        """Return the seconds until the next query; None where there is no proxy."""
        moments = [*self._due.values(), *([self._turn_at] if self._proxies else [])]
        return max(0.0, min(moments) - now) if moments else None

    def _inspect(self, proxy: Proxy) -> bool:
        """Check one proxy; return whether the answer is another one than before."""
        answer = self._ask(proxy)
        with self._lock:
            if self._proxies.get(proxy.name) != proxy:  # changed or gone meanwhile
                return False
            if not self._serves(proxy.name, answer):
                self._due[proxy.name] = time.monotonic() + self._retry_delay(proxy.name)
            new = proxy.name not in self._observed or self._observed[proxy.name] != answer
            self._observed[proxy.name] = answer
            return self._note_silent(proxy.name, answer) or new

    def _retry_delay(self, name: str) -> float:
        self._retries[name] = self._retries.get(name, 0) + 1
        return RETRY_PACE.delay(self._retries[name]) + len(self._due) * RETRY_EACH

    def _note_silent(self, name: str, answer: Observation | None) -> bool:
        """Note which ports of a proxy that answered are silent; return whether these are others than before."""
        if answer is None:
            return False
        before = self._silent.get(name, frozenset())
        self._silent[name] = frozenset(
            SilentPort(placement.key, port.port, upstream)
            for placement in self._placements.get(name, ())
            for port in placement.ports
            for upstream, _ in silent(port, answer.healthy)
        )
        return self._silent[name] != before

    def _serves(self, name: str, answer: Observation | None) -> bool:
        """Return whether all listeners are there as planned, and backends behind each."""
        if answer is None or answer.failed or not all(answer.healthy.values()):
            return False
        ports = (port for placement in self._placements.get(name, ()) for port in placement.ports)
        return answer.listening.issuperset(listener.name for port in ports for listener in port.listeners)
