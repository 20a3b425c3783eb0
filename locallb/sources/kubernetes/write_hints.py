"""Hints from informers to writers: the latest version of each object, and the rate limit of the cluster.

Changes of other kinds (Nodes, EndpointSlices) give no hint: local-lb never writes them. Not here: following
(`followed_cluster`), and what writers do with the hints (`kubernetes.api.live_object`, `kubernetes.api.writes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from locallb.gateway.kinds import kind_of
from locallb.gateway.status_patch import reported_kind
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.writes import QUOTAS
from locallb.kubernetes.events import Identity
from locallb.kubernetes.object_parsing import Parsed
from locallb.kubernetes.relevant import Document
from locallb.model.gateway_objects import Gateway, GatewayRoute, ListenerSet
from locallb.model.gateway_of_cluster import Ingress
from locallb.model.identities import ObjectKind
from locallb.model.objects import MalformedService, Service
from locallb.model.snapshot import Access

_READINGS = 6
"""For how many changes a first Gateway counts: ten kinds are listed and watched, and what it names is read."""


_FIRST = 12
"""The same for a cluster that is opened: everything is read once, then listed and watched, and classes are made."""


def hold_back(access: Access, *, opens: bool = False) -> None:
    """Let requests to a cluster wait for their turn from now on: it will be followed.

    One that `opens` may be read as fast as it answers: users wait for their first address.
    """
    QUOTAS.put(access, 0)
    if opens:
        QUOTAS.bring(access, "", times=_FIRST)


def _wishes(parsed: Parsed) -> tuple[Service | MalformedService, ...]:
    """Return the Services that get an address, or a refusal, without the statuses that controllers write."""
    return (
        *(replace(service, ingress=(), hostnames=(), was_served=False) for service in parsed.services),
        *parsed.malformed,
    )


class WriteHints:
    """Write hints of one cluster: caches latest versions and tunes the write quota."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._most: dict[ObjectKind, int] = {}
        """By kind, the most load balancers that there were since the last list."""
        self._is_over = False
        hold_back(access)

    def end(self) -> None:
        """Stop giving hints, and withdraw the given ones."""
        self._is_over = True
        RECENT.forget(self._access)
        QUOTAS.drop(self._access)

    def listed(self, kind: str, objects: Mapping[Identity, Document], parsed: Iterable[Parsed]) -> None:
        """Replace the cached versions of a kind by a complete list."""
        if (object_kind := self._reported(kind)) is None:
            return
        RECENT.forget(self._access, object_kind)
        for identity, document in objects.items():
            RECENT.note(self._access, identity.namespace, identity.name, document, object_kind)
        self._most[object_kind] = 0
        self.grown(kind, parsed)

    def grown(self, kind: str, parsed: Iterable[Parsed]) -> None:
        """Adapt the rate limit to the highest number of load balancers since the last list."""
        if object_kind := self._reported(kind):
            self._most[object_kind] = max(self._most.get(object_kind, 0), sum(bool(part.services) for part in parsed))
            QUOTAS.put(self._access, sum(self._most.values()))

    def changed(self, identity: Identity, after: Document | None) -> None:
        """Cache an object's new version; None: it was removed."""
        if (object_kind := self._reported(identity.kind)) is None:
            return
        if after is None:
            RECENT.drop(self._access, identity.namespace, identity.name, object_kind)
        else:
            RECENT.note(self._access, identity.namespace, identity.name, after, object_kind)

    def wanted(self, before: Parsed, after: Parsed) -> None:
        """Allow a burst of writes if the spec changed; a changed status alone doesn't count."""
        wishes = _wishes(after) or _wishes(before)
        if not self._is_over and _wishes(before) != _wishes(after):
            for wish in wishes:
                QUOTAS.bring(self._access, f"{wish.key} {wish.uid} {wish.deleting}")
        if not self._is_over and before.gateway_api != after.gateway_api:
            for _, api_object in after.gateway_api:
                if isinstance(api_object, Gateway | ListenerSet | GatewayRoute | Ingress):
                    QUOTAS.bring(self._access, f"{kind_of(api_object)} {api_object.meta.key} {api_object.meta.uid}")
                if isinstance(api_object, Gateway) and not before.gateway_api:
                    QUOTAS.bring(self._access, "what Gateways need", _READINGS)  # followed from the first one on

    def opened(self, kind: str) -> None:
        """Note that every change of a kind is reported from now on."""
        if object_kind := self._reported(kind):
            RECENT.opened(self._access, object_kind, is_open=True)

    @contextmanager
    def watching(self, kind: str) -> Iterator[None]:
        """Let writers read from the API again once the watch of a kind ends."""
        try:
            yield
        finally:
            if object_kind := self._reported(kind):
                RECENT.opened(self._access, object_kind, is_open=False)

    def remaining(self, kinds: Iterable[str]) -> None:
        """Drop the hints of kinds that are no longer followed."""
        for kind in kinds:
            if object_kind := self._reported(kind):
                RECENT.forget(self._access, object_kind)

    def _reported(self, kind: str) -> ObjectKind | None:
        """Return the kind of objects that are written to; None where nothing is written to them."""
        if self._is_over:
            return None
        return ObjectKind.SERVICE if kind == "Service" else reported_kind(kind)
