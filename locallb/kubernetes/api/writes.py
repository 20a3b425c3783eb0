"""Permission of effects, and pace of requests to clusters: the fence, quotas, refused statuses, and held Warnings.

Also which clusters don't answer: the thread that follows a cluster notices first, and every other one would wait for
the same timeout. Not here: the writes (`live_object`), the election (`election`), rate limits as a rule
(`model.pacing`), and the events of an object (`kubernetes.events`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from threading import Condition, Lock
from typing import TYPE_CHECKING

from msgspec import Struct, field

from locallb.kubernetes.api.servers import ForbiddenError, KubeError
from locallb.kubernetes.lease import Term
from locallb.model.errors import ClientError
from locallb.model.identities import OF_INGRESSES, ObjectKind, Owner
from locallb.model.pacing import Credit, Quota
from locallb.model.reasons import Event
from locallb.model.snapshot import Access
from locallb.threads import Task, do_once

if TYPE_CHECKING:
    import httpx2


class NotLeaderError(ClientError):
    """This process isn't the leader, or no longer: one sentence."""


class Fence:
    """Checks before each effect whether this process may still act. Safe to use from several threads.

    It needs no request. Without an election it always may; with one, only in its own term (monotonic). A process can
    sleep between the check and the effect, so stronger checks follow where possible: the ledger compares terms under
    its lock, and the API gets the resourceVersion that was read before the check.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ask: Callable[[], Term | None] | None = None

    def put(self, ask: Callable[[], Term | None] | None) -> None:
        """Set the source of this process's term; None: no election."""
        self._ask = ask

    def term(self) -> int | None:
        """Return the number of this process's term; None without an election. Raises NotLeaderError."""
        if self._ask is None:
            return None
        granted = self._ask()
        if granted is None or self._clock() >= granted.until:
            raise NotLeaderError("lost leadership: this process changes nothing more, and the new leader goes on")
        return granted.number


FENCE = Fence()
"""Of this process."""


MAX, SPAN = 18, 1.6
"""Requests in so many seconds, for up to that many load balancers. As they may take half a second longer
one time than the other, no more than 20 arrive in one.
"""
OWED = 2
"""Patches more, in the same time."""
EACH, LIFE = 4, 5.0
"""Requests that a load balancer may need when it changes (its finalizer, its status, two events), and the seconds for
which they may be used. Requests above `MAX` may need them at any time.
"""


class Quotas:
    """Quotas of requests to the clusters that this process follows. Safe to use from several threads.

    A loop may start, lose all its watches, or find every Service changed by other controllers, and others use the API
    too. Patches go first, because users wait for addresses, and events and reads wait longest; a Service that its users
    change adds quota of its own; a late lease is lost, so leases never wait. Commands are not limited.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._quotas: dict[Access, Quota] = {}

    def put(self, access: Access, services: int) -> None:
        """Limit requests to `MAX` per `SPAN`, more where there are many load balancers: all may change at once."""
        maximum = MAX + EACH * max(0, services - MAX)
        with self._lock:
            if access not in self._quotas:
                self._quotas[access] = Quota(maximum, SPAN, OWED, Credit(EACH, LIFE))
            self._quotas[access].allow(maximum)

    def bring(self, access: Access, party: str, times: int = 1) -> None:
        """Allow `times` * `EACH` more requests for a changed object, once in a `LIFE`."""
        with self._lock:
            if quota := self._quotas.get(access):
                quota.bring(party, self._clock(), times)

    def drop(self, access: Access) -> None:
        with self._lock:
            self._quotas.pop(access, None)

    def are_put(self, access: Access) -> bool:
        """Return whether requests to a cluster may have to wait."""
        with self._lock:
            return access in self._quotas

    def wait(self, access: Access, method: str, path: str) -> None:
        """Wait until a request with this HTTP method may be sent to this path; at once where no quota is put."""
        is_lease = "/apis/coordination.k8s.io/" in path
        while (seconds := self._take(access, is_owed=method == "PATCH", anyhow=is_lease)) > 0:
            self._sleep(seconds)

    def hold(self, access: Access, request: httpx2.Request) -> None:
        """Hold a request that is about to be sent until its turn."""
        self.wait(access, request.method, request.url.path)

    def _take(self, access: Access, *, is_owed: bool, anyhow: bool) -> float:
        """Take a turn if one is free, or `anyhow`; otherwise return the seconds until one may be."""
        with self._lock:
            if (quota := self._quotas.get(access)) is None:
                return 0.0
            now = self._clock()
            seconds = 0.0 if anyhow else quota.wait(now, is_owed=is_owed)
            if seconds <= 0:
                quota.take(now, is_owed=is_owed)
            return seconds


QUOTAS = Quotas()
"""Of this process."""


PAUSE = 60.0
"""Seconds until a kind with a refused status patch is retried."""


class _Refusals(Struct):
    """Refusals that one file of rights in one cluster would remedy."""

    sentence: str
    tried: dict[ObjectKind, float] = field(default_factory=dict)


class Unwritable:
    """Kinds with refused status patches. Safe to use from several threads.

    A refusal is reported in one sentence for a cluster. The first one of a kind counts for all its objects for a while,
    so that a thousand routes cost one request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._existing: dict[tuple[Access, str], _Refusals] = {}

    def why(self, access: Access, kind: ObjectKind) -> str:
        """Return why the status of this kind isn't even tried; empty if it is."""
        with self._lock:
            existing = self._existing.get((access, _rights(kind)))
            tried = existing.tried.get(kind) if existing else None
            return existing.sentence if existing and tried is not None and self._clock() < tried + PAUSE else ""

    def refused(self, access: Access, kind: ObjectKind) -> str:
        """Note a refusal; return the sentence, which is the same for all until none is refused any more."""
        rights = _rights(kind)
        with self._lock:
            sentence = (
                f"context {access.context}: missing permission: patch {kind}/status; the status of served objects isn't"
                f" updated there; give this user the rights of {rights}"
            )
            existing = self._existing.setdefault((access, rights), _Refusals(sentence))
            existing.tried[kind] = self._clock()
            return existing.sentence

    def written(self, access: Access, kind: ObjectKind) -> None:
        with self._lock:
            place = access, _rights(kind)
            if existing := self._existing.get(place):
                existing.tried.pop(kind, None)
                if not existing.tried:
                    del self._existing[place]


def _rights(kind: ObjectKind) -> str:
    return f"deploy/rbac-{'ingresses' if kind in OF_INGRESSES else 'gateways'}.yaml"


def lacks_right(error: KubeError) -> bool:
    """Return whether a right is missing; an admission webhook that refuses one object gives another message."""
    return isinstance(error, ForbiddenError) and "cannot patch resource" in str(error)


UNWRITABLE = Unwritable()
"""Of this process."""


LASTING = 1.5
"""Seconds until a problem's Warning is sent: a recovery within one second is known by then."""


class _Held(Struct, frozen=True):
    due: float
    send: Callable[[], None]


class HeldWarnings:
    """Warnings by the object that they are about, held back until the problem has lasted. Safe in several threads.

    A new Service with EndpointSlices that arrive a moment later, a rollout, a proxy that is replaced: all of it
    recovers within a second, and needs no report.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = lambda work: do_once(Task.EVENT, "held warnings", work),
    ) -> None:
        self._clock = clock
        self._start = start
        self._changed = Condition()
        self._held: dict[Owner, dict[Event, _Held]] = {}
        self._is_running = False

    def hold(self, owner: Owner, event: Event, send: Callable[[], None], not_before: float | None = None) -> None:
        """Send a Warning when its problem has lasted, or at `not_before`, unless it is withdrawn by then."""
        with self._changed:
            due = self._clock() + LASTING if not_before is None else not_before
            self._held.setdefault(owner, {})[event] = _Held(due, send)
            self._changed.notify()
            if self._is_running:
                return
            self._is_running = True
        self._start(self._run)

    def withdraw(self, owner: Owner, current: Collection[Event]) -> Mapping[Event, float]:
        """Drop the Warnings of an object that aren't among its current ones; return when each would have been sent."""
        with self._changed:
            held = self._held.get(owner, {})
            withdrawn = {event: held.pop(event).due for event in held.keys() - set(current)}
            if not held:
                self._held.pop(owner, None)
            return withdrawn

    def send_due(self) -> None:
        with self._changed:
            due = self._take_due()
        for send in due:
            send()

    def _take_due(self) -> list[Callable[[], None]]:
        now, due = self._clock(), list[Callable[[], None]]()
        for owner, held in tuple(self._held.items()):
            due += [held.pop(event).send for event, each in tuple(held.items()) if each.due <= now]
            if not held:
                del self._held[owner]
        return due

    def _run(self) -> None:
        """Send each Warning when it is due, until none is held."""
        try:
            while self._wait():
                self.send_due()
        except BaseException:
            self._is_running = False
            raise

    def _wait(self) -> bool:
        """Wait until a Warning may be due; return False, and end, if none is held."""
        with self._changed:
            moments = [each.due for held in self._held.values() for each in held.values()]
            if moments:
                self._changed.wait(max(0.0, min(moments) - self._clock()))
            self._is_running = bool(moments)
            return self._is_running


HELD_WARNINGS = HeldWarnings()
"""Of this process."""


class UnreachableClusters:
    """Unreachable clusters, with the reason. Safe to use from several threads."""

    def __init__(self) -> None:
        self._why: Mapping[Access, str] = {}

    def put(self, why: Mapping[Access, str]) -> None:
        """Set the unreachable clusters, each with its reason."""
        self._why = dict(why)

    def why(self, access: Access) -> str:
        """Return why a cluster isn't asked; empty if it is."""
        return self._why.get(access, "")


UNREACHABLE = UnreachableClusters()
"""Of this process."""
