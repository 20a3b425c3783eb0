"""Gateway API objects that are about other objects: ReferenceGrant and BackendTLSPolicy.

As in `objects`, frozen and under the API's own names. Not here: their effect (`gateway`).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from locallb.model.gateway.objects import GROUP, Meta, Named, Reference


class ReferenceGrant(Struct, frozen=True):
    """References into a grant's namespace that it allows."""

    namespace: str
    sources: frozenset[tuple[str, str, str]] = frozenset()
    """Groups, kinds and namespaces of the referring objects."""
    targets: frozenset[tuple[str, str, str]] = frozenset()
    """Groups, kinds and names of what is referred to; an empty name for all."""


class PolicyTarget(NamedTuple):
    """The target of a policy in its own namespace."""

    group: str
    kind: str
    name: str
    section: str = ""
    """The name of a Service's port; empty for every port."""


class BackendTlsPolicy(Struct, frozen=True):
    """Settings of TLS to the backends of Services."""

    meta: Meta
    targets: tuple[PolicyTarget, ...] = ()
    hostname: str = ""
    authorities: tuple[Reference, ...] = ()
    is_well_known: str = ""
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    """Names of which a certificate must have one, in place of the hostname."""
    unsupported: tuple[str, ...] = ()
    """Fields that are set and that nothing is made of here."""
    problem: str = ""

    @property
    def reference(self) -> Reference:
        """Return what it is called."""
        return Reference(GROUP, "BackendTLSPolicy", self.meta.key)

    @property
    def services(self) -> tuple[PolicyTarget, ...]:
        """Return its targets that are Services: the only supported ones."""
        return tuple(target for target in self.targets if (target.group, target.kind) == ("", "Service"))

    def service(self, target: PolicyTarget) -> Named:
        """Return the Service that a target is."""
        return Named(self.meta.key.namespace, target.name)
