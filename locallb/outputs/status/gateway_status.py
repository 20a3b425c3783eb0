"""The resource GatewayStatus: our part of the status of a Gateway API object in a live cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from locallb.gateway.status_patch import bad_news, contains, is_stated, status_patch, withdrawn
from locallb.kubernetes.access.servers import KubeError
from locallb.kubernetes.api import live_service
from locallb.kubernetes.api.writes import UNWRITABLE, lacks_right
from locallb.kubernetes.events import WARNING, shortened
from locallb.kubernetes.status import Live
from locallb.model.fields import JsonObject
from locallb.model.reasons import Event
from locallb.resources.properties import GatewayStatusInputs, GatewayStatusState
from locallb.resources.resource_type import ProviderError, ResourceType, grown


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
            state.access, state.owner, state, lambda live: _contains(live, state), lambda _live: silent
        )

    def leaves_nothing(self, state: GatewayStatusState) -> bool:
        """Return whether nothing of ours remains, or the object or the whole cluster is gone."""
        return live_service.has_none(state.access, state.owner, is_stated)

    def update(self, old: GatewayStatusState, new: GatewayStatusInputs) -> GatewayStatusState:
        """Publish it in place of our former part. The status of another object is gone with that object."""
        del old
        return self._publish(new)

    def delete(self, state: GatewayStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if self.belongs_to_copied_project(state.owner):
            return
        wanted, stated = withdrawn(_stated(state)), _stated(state)

        def decide(live: Live) -> Mapping[str, object] | None:
            theirs = "loadBalancer" in stated and not _contains(live, state)
            is_ours = is_stated(live) and not theirs
            return status_patch(live, wanted, state.generation, live_service.now()) if is_ours else None

        live_service.withdraw(state.access, state.owner, decide)

    def _publish(self, new: GatewayStatusInputs) -> GatewayStatusState:
        """Write it, and send its new refusals as events.

        Raises ProviderError, with one sentence for all objects of a cluster if the right is missing.
        """
        stated, kind = _stated(new), new.owner.service.kind
        news: tuple[tuple[str, str], ...] = ()

        def decide(live: Live) -> Mapping[str, object] | None:
            nonlocal news
            patch = status_patch(live, stated, new.generation, live_service.now())
            news = bad_news(live.get("status") or {}, stated) if patch else ()
            return patch

        if why := UNWRITABLE.why(new.access, kind):
            raise ProviderError(why)
        try:
            exists = live_service.write(new.access, new.owner, decide) is not None
        except KubeError as error:
            if not lacks_right(error):
                raise
            raise ProviderError(UNWRITABLE.refused(new.access, kind)) from error
        UNWRITABLE.written(new.access, kind)
        for reason, note in news if exists else ():
            live_service.report_to(new.access, new.owner, Event(WARNING, reason, shortened(note)))
        return grown(self.state, new)


def _contains(live: Live, state: GatewayStatusState) -> bool:
    return contains(live, _stated(state), state.generation)


def _stated(existing: GatewayStatusInputs) -> JsonObject:
    status: JsonObject = json.loads(existing.status)
    return status
