"""How many requests this process sends to a cluster that it follows: reads wait for their turn.

Reads are what a loop does of its own accord: it may begin, or lose all its watches at once, and the API is others' as
well. Writes are owed to a change, which somebody waits for; they are counted and never wait, nor do leases, which are
lost when they are late. Commands are not held up either. Not here: the rule (`model.pacing`), and how often what fails
is tried again.
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


def is_urgent(method: str, path: str) -> bool:
    """Return whether a request mustn't wait: it writes, or is about a lease."""
    return method != "GET" or "/apis/coordination.k8s.io/" in path


class Quotas:
    """Whose turn it is, by cluster. Safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._quotas: dict[Access, Quota] = {}

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

    def wait(self, access: Access, method: str, path: str) -> None:
        """Wait until a request with this HTTP method may be sent to this path; at once where no quota is put."""
        with self._lock:
            if (quota := self._quotas.get(access)) is None:
                return
            now = self._clock()
            if is_urgent(method, path):
                self._quotas[access] = quota.hurried(now)
                return
            self._quotas[access], at = quota.taken(now)
        if at > now:
            self._sleep(at - now)


QUOTAS = Quotas()
"""Of this process."""
