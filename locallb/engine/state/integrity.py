"""The rules that a state must keep at every instant, those of the official command line and a few it only panics on.

A function of its own, so that a user can ask for it (`locallb state check`) and tests can assert it anywhere.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.urns import is_provider, is_urn, provider_reference
from locallb.engine.state.values import Value


def magic_of(version: str) -> str:
    """Return the checksum that a manifest of this version must carry."""
    return hashlib.sha256(version.encode()).hexdigest()


def check_manifest(manifest: Mapping[str, Value]) -> Iterator[str]:
    """Complain about a manifest whose checksum doesn't fit."""
    version, magic = manifest.get("version", ""), manifest.get("magic", "")
    wanted = magic_of(version) if isinstance(version, str) and version else ""
    if magic != wanted:
        yield f"the checksum (manifest.magic) doesn't fit the version {version!r}"


def check_resources(resources: Sequence[ResourceState]) -> Iterator[str]:
    """Complain, in order, about each resource that breaks a rule."""
    everywhere = {resource.urn for resource in resources}
    before: set[str] = set()
    providers: set[str] = set()
    for resource in resources:
        yield from _check_shape(resource)
        if is_provider(resource.type):
            providers.add(provider_reference(resource.urn, resource.id))
        elif resource.provider and resource.provider not in providers:
            yield f"{resource.urn}: its provider {resource.provider} is missing or comes later"
        for urn in sorted(resource.references - before):
            yield f"{resource.urn}: {urn} {'comes later' if urn in everywhere else 'is missing'}"
        if resource.urn in before and not resource.delete:
            yield f"{resource.urn}: listed twice"
        before.add(resource.urn)


def _check_shape(resource: ResourceState) -> Iterator[str]:
    if not is_urn(resource.urn):
        yield f"{resource.urn!r}: not a URN"
    if resource.custom and not resource.id:
        yield f"{resource.urn}: a custom resource without an id"
    if not resource.custom and resource.id:
        yield f"{resource.urn}: a component with the id {resource.id!r}"
    if resource.custom and not resource.provider and not is_provider(resource.type):
        yield f"{resource.urn}: a custom resource without a provider"


def check_pending(pending: Iterable[Pending]) -> Iterator[str]:
    """Complain about operations under way that can't be understood."""
    for operation in pending:
        if not is_urn(operation.resource.urn):
            yield f"{operation.resource.urn!r}: not a URN, in the pending operations"
