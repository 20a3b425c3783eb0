"""Common parts of bound Gateways and Ingresses: ports, served traffic, backends by reference.

Not here: binding (`gateway.translation`, and `ingress.translation`), addresses and endpoints
(`planning.gateways.serving`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from locallb.gateway.conditions import Failure
from locallb.gateway.routes.backends import BackendTarget
from locallb.model.faults import Fault
from locallb.model.http.routes import Target
from locallb.model.http.serving import Chain
from locallb.model.identities import ObjectKey, UpstreamName
from locallb.model.naming import part_id
from locallb.model.objects import Service


class Bound(Struct, frozen=True, kw_only=True):
    """Requests to a proxy of a Gateway, or of Ingresses that share an address."""

    want: Service
    """As it is planned. If nothing can be served it has ports only if it keeps its address all the same."""
    chains: Mapping[int, tuple[Chain, ...]] = field(default_factory=dict)
    """Chains of TCP ports."""
    datagrams: Mapping[int, tuple[Target, ...]] = field(default_factory=dict)
    """Targets of UDP ports."""
    targets: Mapping[UpstreamName, BackendTarget] = field(default_factory=dict)
    """The upstreams, by name."""
    failure: Failure | None = None
    """The reason that nothing of it can be served."""

    @property
    def is_placed(self) -> bool:
        """Return whether it has an address: as long as it may be served again without a change of its own."""
        return self.failure is None or bool(self.want.ports)

    @property
    def key(self) -> ObjectKey:
        """The key of what it serves: of a Gateway, an Ingress, or a class of these."""
        return self.want.key

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The names that its rules are for, `*.` and a name among them."""
        return ()

    @property
    def refused_listeners(self) -> tuple[str, ...]:
        """The listeners of its own that aren't served although others are: a sentence each, with the reason."""
        return ()

    @property
    def faults(self) -> Mapping[str, Fault]:
        """Return the faults ordered by annotations of its rules, by object; a fault of its own precedes them."""
        return {}

    @property
    def prefix(self) -> str:
        """The prefix of the names of its upstreams, which no other one has."""
        return upstream_prefix(self.key)


def upstream_prefix(key: ObjectKey) -> str:
    """Return what the names of an object's upstreams begin with."""
    return f"{part_id(key)}-"
