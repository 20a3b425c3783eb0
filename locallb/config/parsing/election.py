"""Parses the key `leaderElection`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locallb.config.lease_timing import Timing
from locallb.config.settings import LeaderElection
from locallb.config.source import Source
from locallb.config.values import Mistakes
from locallb.model.formatting import clipped, shown

KEY = "leaderElection"
_EXAMPLE = "{enabled: true, cluster: shop, lease: local-lb, namespace: kube-system}"
_TIMES = {"leaseDuration": "lease_duration", "renewDeadline": "renew_deadline", "retryPeriod": "retry_period"}


def parse_election(mistakes: Mistakes, value: object, sources: Sequence[Source]) -> LeaderElection | None:
    """Read the key; None where it isn't enabled."""
    entry = mistakes.mapping(KEY, value, _EXAMPLE)
    mistakes.unknown(f"{KEY}.", entry, ("enabled", "cluster", "lease", "namespace", *_TIMES))
    if not mistakes.flag(f"{KEY}.enabled", entry.get("enabled", False)):
        return None
    live = [source.cluster for source in sources if source.live]
    cluster = _cluster(mistakes, entry, live)
    lease = mistakes.label(f"{KEY}.lease", entry.get("lease", "local-lb"), "local-lb")
    own = "namespace" not in entry
    namespace = "" if own else mistakes.label(f"{KEY}.namespace", entry["namespace"], "kube-system")
    timing = _timing(mistakes, entry)
    live_cluster = next((name for name in live if name == cluster), None)
    return LeaderElection(live_cluster, lease, namespace, timing) if live_cluster else None


def _cluster(mistakes: Mistakes, entry: Mapping[str, object], live: Sequence[str]) -> str:
    if not live:
        mistakes.add(KEY, "no source is a live cluster, so nobody has a Lease; remove the key")
        return ""
    if "cluster" not in entry and len(live) > 1:
        mistakes.add(f"{KEY}.cluster", f"it is missing; name the cluster that has the Lease: {' or '.join(live)}")
        return ""
    name = mistakes.label(f"{KEY}.cluster", entry.get("cluster", live[0]), live[0])
    if name and name not in live:
        mistakes.add(f"{KEY}.cluster", f"{clipped(name)} is no live cluster; name {' or '.join(live)}")
    return name


def _timing(mistakes: Mistakes, entry: Mapping[str, object]) -> Timing:
    given: dict[str, float] = {}
    for key, field in _TIMES.items():
        value = entry.get(key, getattr(Timing(), field))
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            mistakes.add(f"{KEY}.{key}", f"{shown(value)} is no number of seconds; write one such as 15")
            return Timing()
        given[field] = float(value)
    timing = Timing(**given)
    if not timing.lease_duration > timing.renew_deadline > timing.retry_period:
        mistakes.add(KEY, "leaseDuration must be longer than renewDeadline, and that longer than retryPeriod")
    return timing
