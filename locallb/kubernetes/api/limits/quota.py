"""Rate limits of requests to clusters that this process follows: events and reads wait longest.

A loop may start, lose all its watches, or find every Service changed by other controllers, and others use the API too.
Patches go first, because users wait for addresses; a Service that its users change adds quota of its own; a late lease
is lost, so leases never wait. Commands are not limited. Not here: the rule (`model.pacing`), and retry delays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from locallb.model.pacing import Credit, Quota
from locallb.model.snapshot import Access

if TYPE_CHECKING:
    import httpx2

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
    """Quotas of requests by cluster. Safe to use from several threads."""

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
        """Limit requests no longer."""
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
