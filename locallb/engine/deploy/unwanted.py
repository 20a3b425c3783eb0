"""Decides what is to be deleted once the program has ended: what it no longer declares, within the scope.

After a failure, a root resource in which something failed or was skipped keeps everything, because what the failed
part would have declared or still uses can't be told from what is unwanted.
"""

from collections.abc import Mapping

from msgspec import Struct

from locallb.engine.deploy.deployment import Deployment
from locallb.engine.deploy.goal import Outcome
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.snapshot import is_stack
from locallb.engine.state.urns import is_provider


class Unwanted(Struct, frozen=True):
    """Live resources, and old instances by number, to be deleted."""

    live: tuple[ResourceState, ...]
    old_instances: Mapping[int, ResourceState]


def find_unwanted(deployment: Deployment) -> Unwanted:
    """List what the program that has ended leaves over."""
    snapshot = deployment.snapshot
    retained = deployment.broken_roots()
    scope = deployment.scope
    candidates = snapshot.in_order_live() if scope.roots is None else snapshot.members_of(sorted(scope.roots))
    live = tuple(
        resource
        for resource in candidates
        if _is_orphan(resource, deployment) and snapshot.root_of(resource.urn) not in retained
    )
    old_instances = {
        number: resource for number, resource in snapshot.condemned.items() if _may_go(resource, deployment, retained)
    }
    return Unwanted(live, old_instances)


def _is_orphan(resource: ResourceState, deployment: Deployment) -> bool:
    if is_stack(resource) or resource.urn in deployment.outcomes:
        return False
    return resource.urn not in deployment.providers.used if is_provider(resource.type) else True


def _may_go(resource: ResourceState, deployment: Deployment, retained: frozenset[str]) -> bool:
    """Return whether an old instance is in the scope and nothing that failed still uses it."""
    snapshot = deployment.snapshot
    root = snapshot.root_of(resource.urn if resource.urn in snapshot.live else resource.parent or resource.urn)
    users = snapshot.users_of(resource.urn)
    in_use = any(deployment.outcomes.get(user.urn) in {Outcome.FAILED, Outcome.SKIPPED} for user in users)
    return deployment.scope.covers(root) and root not in retained and not in_use
