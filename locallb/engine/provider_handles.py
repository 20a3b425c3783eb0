"""Providers as the engine calls them, in plain values; what one raises becomes a StepError with its own message.

One that has a method `leaves_nothing` can be asked what an interrupted creation left; of another one that is unknown.
One that has a method `prepare` gets ready for a creation whose predecessor must be deleted before, or refuses it. One
that has a method `one_pass` is informed when many resources are only read.

A provider that shows by an attribute `direct` that it can do without Pulumi's protocol is called directly, in the
thread that asks: the protocol wraps every value of every property, and a call of it is a coroutine, which costs several
times what the engine does itself. The answers mean the same. Not here: calls by the protocol (`protocol_providers`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from locallb.engine.state.errors import HostRefused, StepError, Unsupported
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import name_of, type_of
from locallb.engine.state.values import UNKNOWN, Properties, Value

T = TypeVar("T")
_VERSION = "version"
LeavesNothing: TypeAlias = Callable[[str, Properties], bool]
Prepare: TypeAlias = Callable[[str, Properties], None]
OnePass: TypeAlias = Callable[[], AbstractContextManager[None]]


class Difference(Struct, frozen=True):
    """A provider's answer about a changed resource; `changes` is None when it doesn't know."""

    changes: bool | None
    keys: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    delete_before_replace: bool = False


class Found(Struct, frozen=True):
    """What a provider read of a resource; None stands for a resource that is gone."""

    id: str
    inputs: dict[str, Value]
    outputs: dict[str, Value]


def attempt(call: Callable[[], T]) -> T:
    """Call a provider. Raises StepError for whatever it raises."""
    try:
        return call()
    except OSError as error:
        raise StepError(str(HostRefused(error))) from error
    except Exception as error:
        raise StepError(str(error) or type(error).__name__) from error


def require_id(urn: str, identity: str | None, *, preview: bool) -> str:
    """Return the id that a provider gave. Raises StepError if it gave none."""
    if not identity and not preview:
        raise StepError(f"the provider gave no id for {urn}; that is a mistake in the provider")
    return identity or ""


class Handle(ABC):
    """One provider, as the engine calls it."""

    def __init__(self, provider: object) -> None:
        self._provider = provider
        self._settings: dict[str, Value] | None = None
        self._lock = Lock()

    def configure(self, urn: str, config: Properties) -> None:
        """Configure the provider, once a run; `urn` is the provider resource, for errors.

        A version chooses a provider and doesn't configure it: an entry that only a journal refers to has none.
        """
        settings = {key: value for key, value in config.items() if key != _VERSION}
        with self._lock:
            if self._settings is not None:
                if self._settings != settings:
                    raise Unsupported(f"a second configuration of one provider object ({urn})")
                return
            self._configure(config)
            self._settings = settings

    @abstractmethod
    def _configure(self, config: Properties) -> None:
        """Configure the provider."""

    @abstractmethod
    def can_plan(self) -> bool:
        """Return whether create and update may be called in a preview."""

    @abstractmethod
    def check(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Check a resource's inputs; gives them with the provider's defaults."""

    @abstractmethod
    def check_config(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Check a provider resource's inputs."""

    @abstractmethod
    def diff(self, old: ResourceState, news: Properties) -> Difference:
        """Compare a resource's state with new inputs."""

    @abstractmethod
    def diff_config(self, old: ResourceState, news: Properties) -> Difference:
        """Compare a provider resource's state with new inputs."""

    @abstractmethod
    def create(self, new: ResourceState, *, preview: bool) -> tuple[str, dict[str, Value]]:
        """Create a resource; gives its id (empty in a preview) and outputs."""

    @abstractmethod
    def update(self, old: ResourceState, new: ResourceState, *, preview: bool) -> dict[str, Value]:
        """Update a resource in place; gives its outputs."""

    @abstractmethod
    def delete(self, old: ResourceState) -> None:
        """Delete a resource."""

    @abstractmethod
    def read(self, old: ResourceState) -> Found | None:
        """Read a resource as it is now."""

    def is_same_thing(self, old: ResourceState, made: ResourceState) -> bool:
        """Return whether a creation took over what an old instance of its resource stands for, which then must stay."""
        if made.id not in {old.id, UNKNOWN}:
            return False
        try:
            return not self.diff(old, made.inputs).replaces
        except StepError:
            return False

    def leaves_nothing(self, wanted: ResourceState) -> bool:
        """Return whether it is certain that nothing is left of a creation with these inputs, however far it came."""
        ask: LeavesNothing | None = getattr(self._provider, "leaves_nothing", None)
        return ask is not None and attempt(lambda: ask(wanted.type, wanted.inputs))

    def prepare(self, wanted: ResourceState) -> None:
        """Get ready for this creation, which begins by the deletion of what serves. Raises StepError if it can't be."""
        prepare: Prepare | None = getattr(self._provider, "prepare", None)
        if prepare is not None:
            attempt(lambda: prepare(wanted.type, wanted.inputs))

    def one_pass(self) -> AbstractContextManager[None]:
        """Return a context in which the provider may answer all reads from one snapshot."""
        ask: OnePass = getattr(self._provider, "one_pass", nullcontext)
        return ask()


def refuse(urn: str, news: Properties, failures: Sequence[tuple[str, str]]) -> None:
    """Raise StepError if there are failures: pairs of a property and what is wrong with it."""
    if failures:
        party = f"{type_of(urn)} resource '{name_of(urn)}'"
        raise StepError("; ".join(_failure(party, key, reason, news) for key, reason in failures))


def _failure(party: str, key: str, reason: str, news: Properties) -> str:
    if not key:
        return f"{party} has a problem: {reason}"
    return f"{party}: property {key} value {{{news.get(key, '<nil>')}}} has a problem: {reason}"


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
        return True

    def check_config(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
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
        attempt(lambda: self._direct.delete(old.type, old.outputs))

    def read(self, old: ResourceState) -> Found | None:
        """Read a resource as it is now."""
        observed = attempt(lambda: self._direct.read(old.type, name_of(old.urn), old.outputs))
        return Found(old.id, observed[1], observed[0]) if observed else None
