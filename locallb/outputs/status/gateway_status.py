"""The resource GatewayStatus: our part of the status of a Gateway API object in a live cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from locallb.gateway.status.patch import is_said, says, status_patch, withdrawn
from locallb.gateway.status.verdicts import bad_news
from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.api import live_service
from locallb.kubernetes.api.unwritable import UNWRITABLE, lacks_right
from locallb.kubernetes.events import WARNING, shortened
from locallb.kubernetes.status_patch import Live
from locallb.model.fields import JsonObject
from locallb.model.status_entries import Event
from locallb.resources.errors import ProviderError
from locallb.resources.properties import GatewayStatusInputs, GatewayStatusState
from locallb.resources.resource_type import ResourceType, grown


class GatewayStatus(ResourceType[GatewayStatusInputs, GatewayStatusState]):
    """Publishes, repairs and withdraws. An object that is gone has no status, and none is missed."""

    inputs = GatewayStatusInputs
    state = GatewayStatusState

    def create(self, new: GatewayStatusInputs) -> tuple[str, GatewayStatusState]:
        """Publish it."""
        return str(new.owner.service), self._publish(new)

    def read(self, state: GatewayStatusState) -> GatewayStatusState | None:
        """Check whether the status is still published. An API that doesn't answer proves nothing: it is unchanged."""
        silent = replace(state, status="{}")
        return live_service.compare(
            state.access, state.owner, state, lambda live: _says(live, state), lambda _live: silent
        )

    def leaves_nothing(self, state: GatewayStatusState) -> bool:
        """Return whether nothing of ours remains, or the object or the whole cluster is gone."""
        return live_service.has_none(state.access, state.owner, is_said)

    def update(self, old: GatewayStatusState, new: GatewayStatusInputs) -> GatewayStatusState:
        """Publish it in place of our former part. The status of another object is gone with that object."""
        del old
        return self._publish(new)

    def delete(self, state: GatewayStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if self.belongs_to_copied_project(state.owner):
            return
        wanted, said = withdrawn(_said(state)), _said(state)

        def decide(live: Live) -> Mapping[str, object] | None:
            theirs = "loadBalancer" in said and not _says(live, state)
            is_ours = is_said(live) and not theirs
            return status_patch(live, wanted, state.generation, live_service.now()) if is_ours else None

        live_service.withdraw(state.access, state.owner, decide)

    def _publish(self, new: GatewayStatusInputs) -> GatewayStatusState:
        """Write it, and send its new refusals as events.

        Raises ProviderError, with one sentence for all objects of a cluster if the right is missing.
        """
        said, kind = _said(new), new.owner.service.kind
        news: tuple[tuple[str, str], ...] = ()

        def decide(live: Live) -> Mapping[str, object] | None:
            nonlocal news
            patch = status_patch(live, said, new.generation, live_service.now())
            news = bad_news(live.get("status") or {}, said) if patch else ()
            return patch

        if why := UNWRITABLE.why(new.access, kind):
            raise ProviderError(why)
        try:
            is_there = live_service.write(new.access, new.owner, decide) is not None
        except KubeError as error:
            if not lacks_right(error):
                raise
            raise ProviderError(UNWRITABLE.refused(new.access, kind)) from error
        UNWRITABLE.written(new.access, kind)
        for reason, note in news if is_there else ():
            live_service.tell(new.access, new.owner, Event(WARNING, reason, shortened(note)))
        return grown(self.state, new)


def _says(live: Live, state: GatewayStatusState) -> bool:
    return says(live, _said(state), state.generation)


def _said(known: GatewayStatusInputs) -> JsonObject:
    status: JsonObject = json.loads(known.status)
    return status
