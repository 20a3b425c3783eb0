"""Finds what must be deleted together with a resource that is deleted before its successor is created.

A dependent goes too when its provider would replace it, were the properties that come from the deleted resource
unknown; one that merely waits for it (`depends_on`) stays.
"""

from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.snapshot import Snapshot
from locallb.engine.state.values import UNKNOWN


def dependents_to_replace(snapshot: Snapshot, old: ResourceState, providers: ProviderResources) -> list[ResourceState]:
    """List the dependents that go too, each before what it depends on."""
    doomed = {old.urn: old}
    dependents: list[ResourceState] = []
    for resource in _users_in_order(snapshot, old):
        if resource.custom and not resource.pending_replacement and _must_go(resource, doomed, providers):
            doomed[resource.urn] = resource
            dependents.append(resource)
    return dependents[::-1]


def _users_in_order(snapshot: Snapshot, old: ResourceState) -> list[ResourceState]:
    """List everything that depends on a resource, directly or not, dependencies first."""
    reached: dict[str, ResourceState] = {}
    waiting = [old]
    while waiting:
        for user in snapshot.users_of(waiting.pop().urn):
            if user.urn not in reached:
                reached[user.urn] = user
                waiting.append(user)
    return snapshot.sort(reached)


def _must_go(resource: ResourceState, doomed: dict[str, ResourceState], providers: ProviderResources) -> bool:
    if resource.property_dependencies is None:
        return any(urn in doomed for urn in resource.dependencies)
    lost = {key for key, urns in resource.property_dependencies.items() if any(urn in doomed for urn in urns)}
    if not lost:
        return False
    inputs = {key: UNKNOWN if key in lost else value for key, value in resource.inputs.items()}
    return bool(providers.handle_of(resource).diff(resource, inputs).replaces)
