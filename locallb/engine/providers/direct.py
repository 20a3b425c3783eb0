"""Providers that can be asked without Pulumi's protocol: in plain values, in the thread that asks.

The protocol wraps every value of every property, and a call of it is a coroutine; for a provider in this process that
costs several times what the engine does itself. A provider shows by an attribute `direct` that it can do without. Its
answers mean what those of the protocol mean.
"""

from collections.abc import Sequence
from typing import Protocol

from locallb.engine.providers.handles import Difference, Found, Handle, attempt, refuse, require_id
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import name_of, type_of
from locallb.engine.state.values import Properties, Value


class Changes(Protocol):
    """What new inputs change."""

    @property
    def changed(self) -> frozenset[str]:
        """The properties."""

    @property
    def replacing(self) -> frozenset[str]:
        """Properties, of these and others, that require a replacement when they change."""

    @property
    def delete_first(self) -> bool:
        """Whether the old one goes before its successor comes."""


class Direct(Protocol):
    """What such a provider can be asked; `token` is a resource type. Properties come sorted, as the state has them."""

    def check(self, token: str, news: Properties) -> Sequence[tuple[str, str]]:
        """Return properties that can't be used, and why."""

    def diff(self, token: str, olds: Properties, news: Properties) -> Changes:
        """Compare a state with new inputs."""

    def create(self, token: str, news: Properties, *, preview: bool) -> tuple[str, dict[str, Value]]:
        """Create; gives id and properties."""

    def read(self, token: str, name: str, properties: Properties) -> tuple[dict[str, Value], dict[str, Value]] | None:
        """Read; gives properties and inputs, None if nothing is there."""

    def update(self, token: str, olds: Properties, news: Properties, *, preview: bool) -> dict[str, Value]:
        """Update; gives properties."""

    def delete(self, token: str, properties: Properties) -> None:
        """Delete."""


class DirectHandle(Handle):
    """Such a provider, as the engine calls it."""

    def __init__(self, direct: Direct) -> None:
        super().__init__(direct)
        self._direct = direct

    def _configure(self, config: Properties) -> None:
        """Take any configuration."""

    def can_plan(self) -> bool:
        """Such a provider can."""
        return True

    def check_config(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Take any configuration."""
        del urn, olds
        return dict(news)

    def diff_config(self, old: ResourceState, news: Properties) -> Difference:
        """Leave it to the engine, for which another configuration is a change."""
        del old, news
        return Difference(changes=None)

    def check(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Check a resource's inputs; gives them."""
        del olds
        refuse(urn, news, attempt(lambda: self._direct.check(type_of(urn), news)))
        return dict(news)

    def diff(self, old: ResourceState, news: Properties) -> Difference:
        """Compare a resource's state with new inputs."""
        difference = attempt(lambda: self._direct.diff(old.type, old.outputs, news))
        keys = tuple(sorted(difference.changed))
        replaces = tuple(key for key in keys if key in difference.replacing)
        return Difference(bool(keys), keys, replaces, bool(replaces) and difference.delete_first)

    def create(self, new: ResourceState, *, preview: bool) -> tuple[str, dict[str, Value]]:
        """Create a resource; gives its id (empty in a preview) and outputs."""
        identity, outputs = attempt(lambda: self._direct.create(new.type, new.inputs, preview=preview))
        return require_id(new.urn, identity, preview=preview), outputs

    def update(self, old: ResourceState, new: ResourceState, *, preview: bool) -> dict[str, Value]:
        """Update a resource in place; gives its outputs."""
        return attempt(lambda: self._direct.update(old.type, old.outputs, new.inputs, preview=preview))

    def delete(self, old: ResourceState) -> None:
        """Delete a resource."""
        attempt(lambda: self._direct.delete(old.type, old.outputs))

    def read(self, old: ResourceState) -> Found | None:
        """Read a resource as it is now."""
        observed = attempt(lambda: self._direct.read(old.type, name_of(old.urn), old.outputs))
        return Found(old.id, observed[1], observed[0]) if observed else None
