"""Clusters with an API that drops `ipMode` (before Kubernetes 1.30): kube-proxy takes mapped ports for its own there.

Detected by the written status: a Service with the annotation for mapped ports got a mode in the same patch. Pure. Not
here: that an entry without a mode counts as desired, and isn't written again (`status_patch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from locallb.config.settings import Settings
from locallb.kubernetes.parsing.objects import AnyStatus, Parsed
from locallb.kubernetes.status import ObservedStatus
from locallb.model.identities import ClusterName
from locallb.planning.port_mapping import LOOPBACK
from locallb.sources.source import SourceRead, SourceResult

_HERE = frozenset(map(str, LOOPBACK.values()))


def mode_notices(settings: Settings, read: Iterable[SourceRead]) -> SourceRead:
    """Return the notices of running clusters with mapped ports, in the form of a source's result."""
    if not settings.port_mapping:
        return SourceRead(SourceResult(Parsed()))
    live = sorted({name for source in read for name in _losing(source)})
    return SourceRead(SourceResult(Parsed(notices=tuple(map(_sentence, live)))))


def _losing(read: SourceRead) -> Iterator[ClusterName]:
    """Return the running clusters of a source that lost a mode."""
    for key, stated in read.reading.parsed.observed_statuses:
        if key.cluster in read.access and _has_lost(stated):
            yield key.cluster


def _has_lost(stated: AnyStatus) -> bool:
    return (
        isinstance(stated, ObservedStatus)
        and stated.claimed
        and bool(stated.mapped)
        and any(entry.ip in _HERE and not entry.mode for entry in stated.ingress)
    )


def _sentence(cluster: ClusterName) -> str:
    return (
        f"{cluster}: its API doesn't keep ipMode, as before Kubernetes 1.30, so kube-proxy takes what its Nodes send to"
        " their own 127.0.0.1 at ports of these Services; upgrade the cluster, or remove local-lb:portMapping"
    )
