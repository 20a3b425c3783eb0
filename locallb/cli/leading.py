"""Leader election for commands: while one changes a stack that several processes may serve, it holds the Lease."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from msgspec import Struct

from locallb.config.registry import Source
from locallb.config.settings import LeaderElection, Settings, Timing
from locallb.kubernetes.answers import Object
from locallb.kubernetes.api import in_cluster
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.election import Election
from locallb.kubernetes.api.kubeconfig import Stamp, stamp
from locallb.kubernetes.api.servers import KubeconfigError
from locallb.kubernetes.api.writes import FENCE, NotLeaderError
from locallb.kubernetes.lease import Candidate, LeaseRecord, lease_record, validity
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ContextName, Home
from locallb.model.snapshot import Access
from locallb.sources.source import source_type
from locallb.storage import paths

_GLANCE = 0.05
_USUAL_NAMESPACE = "kube-system"


@contextmanager
def taking_part(
    settings: Settings, home: Home, changed: Callable[[bool], None] = lambda _leads: None
) -> Iterator[Election | None]:
    """Campaign while the block runs, if the stack has an election; what isn't the leader's to do is then refused.

    Raises KubeError if the cluster of the Lease can't be named or used.
    """
    if settings.leader_election is None:
        yield None
        return
    election = _election(settings.leader_election, settings, home, changed)
    FENCE.put(election.term)
    election.start()
    try:
        yield election
    finally:
        election.stop()
        FENCE.put(None)


@contextmanager
def leading(settings: Settings, home: Home) -> Iterator[None]:
    """Lead while the block runs. Raises NotLeaderError if another process keeps leading."""
    with taking_part(settings, home) as election:
        if election:
            _await(election)
        yield


class LeaseHolder(NamedTuple):
    """The holder of a stack's Lease."""

    identity: str = ""
    """Leader's identity; empty if there is no leader."""
    ran_out: str = ""
    """Since when it doesn't count any more, as it wasn't renewed."""
    doubtful: bool = False
    """Whether it ran out by these clocks, and it isn't known yet whether it is renewed all the same."""


class LeaderChecks(Struct):
    """Observes a Lease repeatedly: a holder that renews it in between leads, whatever the clocks show.

    A leader renews it every `retry_period`, so that half of one more is enough to see it.
    """

    timing: Timing
    _observed: LeaseRecord | None = None
    _since: float = 0.0
    """Since when it is as it was seen last (monotonic)."""
    _renewed: bool = False

    @property
    def timeout(self) -> float:
        """Seconds within which a renewal is seen."""
        return 1.5 * self.timing.retry_period

    def inspect(self, lease: Object | None) -> LeaseHolder:
        """Return the holder, as it was just read."""
        record, valid, now = lease_record(lease or {"metadata": {}}), validity(lease or {}), time.monotonic()
        if record != self._observed:
            self._observed, self._since, self._renewed = record, now, self._observed is not None
        if not record.holder or valid is None or valid.is_current(_now()):
            return LeaseHolder(record.holder)
        if now - self._since < self.timeout:
            return LeaseHolder(record.holder, doubtful=not self._renewed)
        return LeaseHolder(record.holder, valid.end(_now()))


class Leaders:
    """Finds the leader of a stack, and remembers what it saw; for one thread."""

    def __init__(self) -> None:
        self._checks: tuple[LeaderElection, LeaderChecks] | None = None

    def inspect(self, settings: Settings, root: Path) -> LeaseHolder:
        """Return the holder of the Lease; an empty one without an election. Raises KubeError."""
        if (wanted := settings.leader_election) is None:
            return LeaseHolder()
        if self._checks is None or self._checks[0] != wanted:
            self._checks = wanted, LeaderChecks(wanted.timing)
        return self._checks[1].inspect(_keeper(wanted, settings, root).lease(*_place(wanted)))

    def settled(self, settings: Settings, root: Path, waiting: Callable[[str], None]) -> LeaseHolder:
        """Return the same without a doubt; call `waiting` with the reason if that takes a while. Raises KubeError."""
        holder = self.inspect(settings, root)
        if holder.doubtful and settings.leader_election:
            timing = settings.leader_election.timing
            waiting(f"by these clocks the Lease of {holder.identity} ran out: looking whether it is renewed")
            while holder.doubtful:
                time.sleep(timing.retry_period / 8)
                holder = self.inspect(settings, root)
        return holder


def _now() -> datetime:
    return datetime.now(UTC)


class _CurrentCluster:
    """The cluster that keeps the Lease, as its files say now. Raises KubeError if they can't be used at first."""

    def __init__(self, source: Source, root: Path) -> None:
        self._source = source
        self._type = source_type(source.type)
        self._root = root
        self._observed = self._stamps()
        self._cluster = Cluster(self._intended())

    def lease(self, namespace: str, name: str) -> Object | None:
        """Return a Lease; None if there is none. Raises KubeError."""
        return self._now().lease(namespace, name)

    def write_lease(self, namespace: str, body: Mapping[str, object], *, fresh: bool) -> Object:
        """Create or replace a Lease. Raises KubeError (CONFLICT if there is one, or another version of it)."""
        return self._now().write_lease(namespace, body, fresh=fresh)

    def _now(self) -> Cluster:
        """Return the cluster that the source means; its files are read only where they are others."""
        if (observed := self._stamps()) != self._observed:
            if (access := self._intended()) != self._cluster.access:
                self._cluster = Cluster(access)
            self._observed = observed
        return self._cluster

    def _stamps(self) -> tuple[Stamp, ...]:
        files = self._type.access_files(self._source, self._root)
        return tuple(stamp(Access(str(path), ContextName(""))) for path in files)

    def _intended(self) -> Access:
        if access := self._type.access(self._source, self._root):
            return access
        raise KubeconfigError(
            f"source {self._source.cluster} has no API that could keep a Lease; name another cluster in"
            " local-lb:leaderElection"
        )


def _await(election: Election) -> None:
    timing = election.timing
    deadline = time.monotonic() + timing.lease_duration + 2 * timing.retry_period
    while not election.leads():
        if time.monotonic() > deadline:
            reason = election.problem or f"{election.holder or 'somebody else'} leads"
            raise NotLeaderError(
                f"the Lease of this stack can't be had: {reason}; leave the stack to it, or end it first"
            )
        time.sleep(_GLANCE)


def _election(wanted: LeaderElection, settings: Settings, home: Home, changed: Callable[[bool], None]) -> Election:
    party = os.environ.get(in_cluster.NAME_VARIABLE) or os.uname().nodename
    identity = f"{party}_{os.getpid()}_{uuid4().hex[:8]}"
    return Election(
        _keeper(wanted, settings, Path(home.root)),
        _place(wanted),
        Candidate(identity, wanted.timing),
        least=lambda: Ledger(paths.ledger_directory()).term(home) + 1,
        changed=changed,
    )


def _keeper(wanted: LeaderElection, settings: Settings, root: Path) -> _CurrentCluster:
    return _CurrentCluster(next(source for source in settings.sources if source.cluster == wanted.cluster), root)


def _place(wanted: LeaderElection) -> tuple[str, str]:
    return wanted.namespace or in_cluster.namespace() or _USUAL_NAMESPACE, wanted.lease
