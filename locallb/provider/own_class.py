"""The resource OwnClass: the GatewayClass or IngressClass `local-lb` of a running cluster.

An object that lacks the stack's label is another owner's and is left alone. A class that objects name stays when the
resource goes, without our finalizer and no longer as the default: no program is there any more that would serve new
objects or remove it. Not here: which fields are ours (`model.own_classes`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import (
    KubeError,
    NoContextError,
    TransientKubeError,
)
from locallb.kubernetes.status import Live
from locallb.model.fields import at, text_of
from locallb.model.identities import ClusterName, ObjectKind
from locallb.model.own_classes import (
    KINDS,
    NAME,
    WantedClass,
    class_body,
    class_differences,
    class_patch,
    controller_of,
    observed_class,
)
from locallb.planning.own_classes import RIGHTS
from locallb.resources.properties import OwnClassInputs, OwnClassState
from locallb.resources.resource_type import ProviderError, ResourceType, grown


class OwnClass(ResourceType[OwnClassInputs, OwnClassState]):
    """Makes, repairs and removes the class."""

    replaced_for = frozenset({"owner", "access", "cluster", "kind", "label"})
    delete_first = True

    def create(self, new: OwnClassInputs) -> tuple[str, OwnClassState]:
        """Make it; one with this stack's label is its own."""
        _repeat(new, lambda: _bring(new))
        return f"{new.kind}/{NAME}", grown(self.state, new)

    def read(self, state: OwnClassState) -> OwnClassState | None:
        """Read what it has now. An API that doesn't answer proves nothing: then it counts as unchanged."""
        try:
            live = live_object.find_class(state.access, _kind(state))
        except KubeError:
            return state
        if live is None or not _is_its_own(live, state):
            return None
        observed = observed_class(_kind(state), live)
        controller = "" if observed.has_parameters else observed.controller
        return replace(state, controller=controller, default=observed.is_default, used=observed.is_held)

    def leaves_nothing(self, state: OwnClassState) -> bool:
        """Return whether no class of this stack is there, or the whole cluster is gone."""
        try:
            live = live_object.find_class(state.access, _kind(state))
        except NoContextError:
            return True
        except KubeError:
            return False
        return live is None or not _is_its_own(live, state)

    def delete(self, state: OwnClassState) -> None:
        """Remove it, unless a Gateway or an Ingress names it; a removed cluster has none any more."""
        if self.belongs_to_copied_project(state.owner):
            return
        try:
            with suppress(NoContextError):
                _repeat(state, lambda: _remove(state))
        except TransientKubeError as error:
            remedy = live_object.remedy_of_silence(state.access)
            raise ProviderError(f"{_name(state)} can't be removed: {error}; {remedy}") from error


def _repeat(inputs: OwnClassInputs, step: Callable[[], bool]) -> None:
    """Take steps, each over the object as it was read, until one says that nothing is left to do."""
    live_object.repeated(lambda: step() or None, f"{_name(inputs)} is", f"{RIGHTS} has the rights for classes")


def _bring(new: OwnClassInputs) -> bool:
    """Create or patch the class; return whether it is as wanted."""
    kind, wanted = _kind(new), _wanted(new)
    live = live_object.find_class(new.access, kind)
    if live is None:
        if not live_object.create_class(new.access, kind, class_body(wanted)):
            raise ProviderError(f"{_name(new)} can't be made: the cluster has no kind {KINDS[kind]}; run up again")
        return True
    if not _is_ours(live, new):
        raise ProviderError(f"{_name(new)} exists and isn't this stack's, so it is left alone; run up again")
    patch = class_patch(live, wanted)
    if patch is None:
        return True
    live_object.patch_class(new.access, kind, patch)
    return not observed_class(kind, live).deleting  # without the finalizer it is gone, and is made anew


def _remove(state: OwnClassState) -> bool:
    """Delete the class or let go of it; return whether that is done."""
    kind = _kind(state)
    live = live_object.find_class(state.access, kind)
    if live is None or not _is_its_own(live, state):
        return True
    released = replace(_wanted(state), is_default=False, is_used=False)
    if {"annotations", "finalizers"} & {*class_differences(observed_class(kind, live), released)}:
        patch = class_patch(live, released) or {}
        live_object.patch_class(state.access, kind, patch)
        return False  # it has another version now
    if not live_object.class_is_named(state.access, kind):
        metadata = at(live, "metadata")
        live_object.delete_class(
            state.access, kind, text_of(at(metadata, "uid")), text_of(at(metadata, "resourceVersion"))
        )
    return True


def _kind(inputs: OwnClassInputs) -> ObjectKind:
    return ObjectKind(inputs.kind)


def _wanted(inputs: OwnClassInputs) -> WantedClass:
    return WantedClass(_kind(inputs), inputs.label, ClusterName(inputs.cluster), inputs.default, inputs.used)


def _is_ours(live: Live, inputs: OwnClassInputs) -> bool:
    observed = observed_class(_kind(inputs), live)
    return (observed.owner, observed.controller) == (inputs.label, controller_of(_kind(inputs)))


def _is_its_own(live: Live, state: OwnClassState) -> bool:
    """Return whether the class is this resource's: under another name for the cluster it is another resource's."""
    return _is_ours(live, state) and observed_class(_kind(state), live).cluster == state.cluster


def _name(inputs: OwnClassInputs) -> str:
    return f"{KINDS[_kind(inputs)]} {NAME} of {inputs.cluster}"
