"""PodRoutes: routes to the pods of a cluster, in this host's table or in the network namespace of a container.

Our protocol and the stack's metric distinguish them from all other routes, even without the state. Not here: how routes
are changed, and which ones conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from locallb.model.routes import PodRoute
from locallb.model.texts import metric_of
from locallb.resources.codec import is_unknown
from locallb.resources.properties import PodRoutesInputs, PodRoutesState
from locallb.resources.resource_type import ProviderError, ResourceType, grown
from locallb.runtimes.pod_routes import HOST, change_routes, present_routes


class PodRoutes(ResourceType[PodRoutesInputs, PodRoutesState]):
    """Makes, follows and removes routes."""

    inputs = PodRoutesInputs
    state = PodRoutesState
    replaced_for = frozenset({"container", "owner"})
    """Replace for another table or owner; routes are added and removed in place."""

    def check(self, new: PodRoutesInputs) -> Iterator[tuple[str, str]]:
        """Accept routes as they are printed."""
        for text in () if is_unknown(new.routes) else new.routes:
            try:
                written = str(PodRoute.parse(text))
            except ValueError as error:
                yield "routes", f"{text!r} isn't like 10.244.1.0/24 via 172.18.0.3: {error}"
            else:
                if written != text:
                    yield "routes", f"write {text!r} as {written!r}"

    def preview_outputs(self, new: PodRoutesInputs, old: PodRoutesState | None) -> Mapping[str, object]:
        """Return the metric, which only the owner decides."""
        del old
        return {} if is_unknown(new.owner) else {"metric": metric_of(new.owner.home)}

    def create(self, new: PodRoutesInputs) -> tuple[str, PodRoutesState]:
        metric = metric_of(new.owner.home)
        _change(new, put=_parsed(new.routes), remove=())
        return f"{new.container or HOST}/{metric}", grown(self.state, new, metric=metric)

    def read(self, state: PodRoutesState) -> PodRoutesState | None:
        """Read which of the routes exist; None if none does."""
        present = present_routes(state.owner.home, state.container)
        remaining = tuple(text for text in state.routes if PodRoute.parse(text) in present)
        return replace(state, routes=remaining) if remaining else None

    def update(self, old: PodRoutesState, new: PodRoutesInputs) -> PodRoutesState:
        """Make what is new, and remove what it no longer has."""
        before, after = _parsed(old.routes), _parsed(new.routes)
        _change(new, put=after, remove=before - after)
        return grown(self.state, new, metric=old.metric)

    def delete(self, state: PodRoutesState) -> None:
        """Remove them, unless they belong to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            _change(state, put=frozenset(), remove=_parsed(state.routes))


def _parsed(texts: Collection[str]) -> frozenset[PodRoute]:
    return frozenset(map(PodRoute.parse, texts))


def _change(given: PodRoutesInputs, *, put: Collection[PodRoute], remove: Collection[PodRoute]) -> None:
    """Raise ProviderError where a route isn't there afterwards."""
    for route in sorted(change_routes(given.owner, put, remove, given.container), key=str):
        where = "its proxy's container doesn't run" if given.container else "look at `ip route show proto 78`"
        raise ProviderError(f"the route {route} can't be made: {where}; run up again")
