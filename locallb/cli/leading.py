"""Leader election for commands: whoever changes a stack that several processes may serve holds its Lease meanwhile."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from locallb.clients import places
from locallb.clients.election import Election
from locallb.clients.fence import FENCE, NotLeaderError
from locallb.clients.kube import Cluster
from locallb.clients.kubeconfig import resolve
from locallb.clients.ledger import Ledger
from locallb.planning.leadership import Candidate
from locallb.planning.model import Home
from locallb.planning.settings import KubernetesSource, LeaderElection, Settings

_GLANCE = 0.05


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
    """Lead while the block runs. Raises NotLeaderError if somebody else goes on leading."""
    with taking_part(settings, home) as election:
        if election:
            _await(election)
        yield


def _await(election: Election) -> None:
    timing = election.timing
    deadline = time.monotonic() + timing.lease_duration + 2 * timing.retry_period
    while not election.leads():
        if time.monotonic() > deadline:
            told = election.problem or f"{election.holder or 'somebody else'} leads"
            raise NotLeaderError(
                f"the Lease of this stack can't be had: {told}; leave the stack to it, or end it first"
            )
        time.sleep(_GLANCE)


def _election(wanted: LeaderElection, settings: Settings, home: Home, changed: Callable[[bool], None]) -> Election:
    sources = [one for one in settings.sources if isinstance(one, KubernetesSource)]
    source = next(one for one in sources if one.cluster == wanted.cluster)
    cluster = Cluster(resolve(source.kubeconfig, source.context, Path(home.root)))
    identity = f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
    return Election(
        cluster,
        (wanted.namespace, wanted.lease),
        Candidate(identity, wanted.timing),
        least=lambda: Ledger(places.ledger_directory()).term(home) + 1,
        changed=changed,
    )
