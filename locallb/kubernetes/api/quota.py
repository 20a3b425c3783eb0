"""How many requests this process sends to a cluster that it follows: all wait for their turn, but what is owed at once.

A loop may begin, lose all its watches, or find every Service changed by others, and the API is others' as well. The
first write to an object is owed to a change, which somebody waits for; a lease that is late is lost. Both are counted
and never wait. Commands are not held up. Not here: the rule (`model.pacing`), and how often what fails is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from locallb.model.pacing import Quota
from locallb.model.snapshot import Access

MOST, SPAN = 18, 1.6
"""Requests in so many seconds, where there are no more load balancers than that. As they may take half a second longer
one time than the other, no more than 20 arrive in one."""
EACH = 4
"""Requests more for each load balancer above that: its finalizer, its status, two events."""


class Quotas:
    """Whose turn it is, by cluster. Safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._quotas: dict[Access, Quota] = {}
        self._written: dict[tuple[Access, str], float] = {}
        """When an object was written to, for a `SPAN`, oldest first."""

    def put(self, access: Access, services: int) -> None:
        """Allow `MOST` requests in a `SPAN`, more where there are many load balancers: all may change at once."""
        most = MOST + EACH * max(0, services - MOST)
        with self._lock:
            quota = self._quotas.get(access, Quota(most, SPAN))
            self._quotas[access] = quota.allowing(most)

    def drop(self, access: Access) -> None:
        """Hold nobody up any more."""
        with self._lock:
            self._quotas.pop(access, None)

    def are_put(self, access: Access) -> bool:
        """Return whether requests to a cluster may have to wait."""
        with self._lock:
            return access in self._quotas

    def wait(self, access: Access, method: str, path: str) -> None:
        """Wait until a request with this HTTP method may be sent to this path; at once where no quota is put."""
        with self._lock:
            if (quota := self._quotas.get(access)) is None:
                return
            now = self._clock()
            if self._is_owed(access, method, path, now):
                self._quotas[access] = quota.hurried(now)
                return
            self._quotas[access], at = quota.taken(now)
        if at > now:
            self._sleep(at - now)

    def _is_owed(self, access: Access, method: str, path: str, now: float) -> bool:
        """Return whether a request is about a lease, or is the first write to an object in a while."""
        if "/apis/coordination.k8s.io/" in path:
            return True
        if method not in {"PATCH", "PUT"}:
            return False
        while self._written and now - next(iter(self._written.values())) >= SPAN:
            del self._written[next(iter(self._written))]
        return self._written.setdefault((access, path), now) == now


QUOTAS = Quotas()
"""Of this process."""
