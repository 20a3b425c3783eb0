"""ReferenceGrants: which objects of another namespace may be referred to, and the reason otherwise.

Not here: the consequences.
"""

from __future__ import annotations

from collections.abc import Iterable

from locallb.gateway.conditions import Failure
from locallb.model.gateway_objects import Reference, ReferenceGrant


class Grants:
    """The ReferenceGrants of a cluster, by the namespace of what is referred to."""

    def __init__(self, grants: Iterable[ReferenceGrant]) -> None:
        self._by_namespace: dict[str, list[ReferenceGrant]] = {}
        for grant in grants:
            self._by_namespace.setdefault(grant.namespace, []).append(grant)

    def allow(self, source: Reference, target: Reference) -> bool:
        """Return whether `source` may refer to `target`: in its own namespace always."""
        if source.key.namespace == target.key.namespace:
            return True
        requested = source.group, source.kind, source.key.namespace
        wanted = {(target.group, target.kind, name) for name in ("", target.key.name)}
        grants = self._by_namespace.get(target.key.namespace, ())
        return any(requested in grant.sources and wanted & grant.targets for grant in grants)


def not_permitted(source: Reference, target: Reference) -> Failure:
    """Explain that a reference into another namespace needs a grant there."""
    why = f"no ReferenceGrant in namespace {target.key.namespace} lets {source.kind} of {source.key.namespace}"
    return Failure("RefNotPermitted", f"{why} refer to {target.kind} {target.key.name}; make one")
