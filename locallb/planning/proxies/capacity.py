"""The host's capacity for proxies: the budget of inotify instances, and each proxy's discovery of endpoints within it.

Every proxy watches its listeners and clusters; one that learns endpoints by EDS also watches a file for each upstream.
A running proxy keeps its method, so that a new Service never reconfigures a neighbour; new ones get EDS as far as the
budget goes once all are admitted. Not here: addresses, and the size of the budget (a fact of the host).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from locallb.envoy import watches
from locallb.model.identities import ObjectKey
from locallb.model.objects import Discovery


class Need(Struct, frozen=True):
    """A proxy that needs instances, with the number of its upstreams, or of all its watched files."""

    service: ObjectKey
    upstreams: int
    held: Discovery | None = None
    """Its current discovery; None for a new one."""
    logs: bool = False
    """Whether it can write a log on request."""

    def cost(self, discovery: Discovery) -> int:
        """Return how many inotify instances this proxy takes."""
        return watches(discovery, self.upstreams, logs=self.logs)


def share_out(needs: Sequence[Need], budget: int) -> Mapping[ObjectKey, Discovery]:
    """Decide which proxies run, and how they learn endpoints. Those missing in the answer don't fit.

    Running proxies are admitted first, then the others in the order given.
    """
    admitted: dict[ObjectKey, Discovery] = {}
    remaining = budget
    in_order = sorted(needs, key=lambda need: need.held is None)
    for need in in_order:
        pod_paths = (need.held, Discovery.STATIC) if need.held else (Discovery.STATIC,)
        way = next((way for way in pod_paths if way and need.cost(way) <= remaining), None)
        if way:
            admitted[need.service] = way
            remaining -= need.cost(way)
    for need in in_order:
        more = need.cost(Discovery.EDS) - need.cost(Discovery.STATIC)
        if need.held is None and need.service in admitted and more <= remaining:
            admitted[need.service] = Discovery.EDS
            remaining -= more
    return admitted
