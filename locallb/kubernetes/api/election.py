"""Takes part in a leader election: reads and writes one Lease, in a thread of its own, until stopped.

Campaigns again after every loss. The next step is decided in `kubernetes.lease`. Not here: what a leader does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from locallb.config.settings import Timing
from locallb.kubernetes.api.servers import ConflictError, KubeError
from locallb.kubernetes.lease import Candidate, Term, lease_record, lease_spec, observed, wanted_term, won
from locallb.threads import SupervisedThread, Task


class Leases(Protocol):
    """Where Leases are kept."""

    def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a Lease; None if there is none. Raises KubeError."""

    def write_lease(self, namespace: str, body: Mapping[str, object], *, fresh: bool) -> dict[str, Any]:
        """Create or replace a Lease. Raises KubeError (CONFLICT if there is one, or another version of it)."""


class Election:
    """One process's part in it. `changed` is called from its thread with whether it leads, on each change."""

    def __init__(  # noqa: PLR0913 - what an election consists of
        self,
        leases: Leases,
        place: tuple[str, str],
        candidate: Candidate,
        *,
        least: Callable[[], int] = lambda: 0,
        changed: Callable[[bool], None] = lambda _leads: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._namespace, self._name = place
        self._candidate = candidate
        self._least = least
        self._changed = changed
        self._clock = clock
        self._acquired = ""
        self._reported = False
        self._thread = SupervisedThread(Task.ELECTION, "election", self._run)
        self.problem = ""
        """The reason that the last step failed; empty if it didn't."""

    @property
    def timing(self) -> Timing:
        return self._candidate.timing

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was read last."""
        observed = self._candidate.observed
        return observed.holder if observed else ""

    def term(self) -> Term | None:
        """Return the term of this process, which may be over."""
        return self._candidate.term

    def leads(self) -> bool:
        """Return whether this process is the leader now."""
        return self._candidate.leads(self._clock())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Release the Lease, if it is ours, and take no part any more."""
        self._thread.stop()
        self._thread.join()
        if self.leads():
            try:
                self._write(self._candidate.term.number if self._candidate.term else 0, holder="")
            except KubeError:
                return
            finally:
                self._candidate = observed(self._candidate, None, self._clock())

    def step(self) -> None:
        """Read the Lease, and take or renew it if that may be."""
        try:
            existing = self._leases.lease(self._namespace, self._name)
            self._candidate = observed(self._candidate, lease_record(existing) if existing else None, self._clock())
            requested = self._clock()
            term = wanted_term(self._candidate, requested, self._least())
            if term is not None:
                lease = self._write(term, holder=self._candidate.identity)
                self._candidate = won(self._candidate, lease_record(lease), requested, self._clock())
            self.problem = ""
        except KubeError as error:
            self.problem = "" if isinstance(error, ConflictError) else str(error)
        self._report()

    def _write(self, term: int, *, holder: str) -> dict[str, object]:
        """Write the Lease over the version that was read; a conflict means that another candidate was quicker."""
        wall = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        observed = self._candidate.observed
        if observed is None or observed.holder != self._candidate.identity:
            self._acquired = wall
        spec = {**lease_spec(self._candidate, term, wall, self._acquired or wall), "holderIdentity": holder}
        version = {"resourceVersion": observed.version} if observed else {}
        body = {"metadata": {"name": self._name, "namespace": self._namespace, **version}, "spec": spec}
        return self._leases.write_lease(self._namespace, body, fresh=observed is None)

    def _report(self) -> None:
        if (leads := self.leads()) != self._reported:
            self._changed(leads)
            self._reported = leads

    def _run(self) -> None:
        while not self._thread.stopped.is_set():
            self.step()
            self._thread.stopped.wait(self.timing.retry_period)
            self._report()
