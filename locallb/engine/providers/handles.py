"""Providers as the engine calls them: by the methods of Pulumi's protocol, in plain values.

Providers are objects of the provider SDK (`pulumi.provider.experimental.Provider`). What one raises becomes a StepError
with the exception's own message; there is no gRPC in between. One that has a true attribute `in_place` does everything
in the thread that asks: its coroutines never wait, and need no event loop. One that has a method `leaves_nothing` can
be asked what an interrupted creation left; of another one nobody knows. One that has a method `prepare` gets ready for
a creation whose predecessor must be deleted before, or refuses it. One that has a method `one_look` is told when many
resources are only looked at.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from pulumi.provider.experimental.provider import (
    CheckRequest,
    CheckResponse,
    ConfigureRequest,
    CreateRequest,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    PropertyDiffKind,
    Provider,
    ReadRequest,
    UpdateRequest,
)

from locallb.engine.providers.loops import LoopPool, finished
from locallb.engine.providers.wire import from_property_values, to_property_values
from locallb.engine.state.errors import HostRefused, StepError, Unsupported
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import name_of, type_of
from locallb.engine.state.values import UNKNOWN, Properties, Value

T = TypeVar("T")
LeavesNothing: TypeAlias = Callable[[str, Properties], bool]
Prepare: TypeAlias = Callable[[str, Properties], None]
OneLook: TypeAlias = Callable[[], AbstractContextManager[None]]
_REPLACING = frozenset((PropertyDiffKind.ADD_REPLACE, PropertyDiffKind.DELETE_REPLACE, PropertyDiffKind.UPDATE_REPLACE))


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


class Handle:
    """One provider, as the engine calls it."""

    def __init__(self, provider: Provider, loops: LoopPool) -> None:
        self._provider = provider
        self._loops = loops
        self._config: dict[str, Value] | None = None
        self._in_place = bool(getattr(provider, "in_place", False))
        self._supports_preview = True
        self._lock = Lock()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return attempt(lambda: finished(coroutine) if self._in_place else self._loops.run(coroutine))

    def configure(self, urn: str, config: Properties) -> None:
        """Configure the provider, once a run; `urn` is the provider resource, for errors."""
        with self._lock:
            if self._config is not None:
                if self._config != dict(config):
                    raise Unsupported(f"a second configuration of one provider object ({urn})")
                return
            request = ConfigureRequest({}, to_property_values(config), accept_secrets=True, accept_resources=True)
            response = self._run(self._provider.configure(request))
            self._supports_preview = bool(response.supports_preview)
            self._config = dict(config)

    def can_plan(self) -> bool:
        """Return whether create and update may be called in a preview."""
        return self._supports_preview

    def check(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Check a resource's inputs; gives them with the provider's defaults."""
        request = CheckRequest(urn, to_property_values(olds), to_property_values(news), random_seed=b"")
        return _checked(urn, news, self._run(self._provider.check(request)))

    def check_config(self, urn: str, olds: Properties, news: Properties) -> dict[str, Value]:
        """Check a provider resource's inputs."""
        request = CheckRequest(urn, to_property_values(olds), to_property_values(news), random_seed=b"")
        return _checked(urn, news, self._run(self._provider.check_config(request)))

    def diff(self, old: ResourceState, news: Properties) -> Difference:
        """Compare a resource's state with new inputs."""
        return _difference(self._run(self._provider.diff(_diff_request(old, news))))

    def diff_config(self, old: ResourceState, news: Properties) -> Difference:
        """Compare a provider resource's state with new inputs."""
        return _difference(self._run(self._provider.diff_config(_diff_request(old, news))))

    def create(self, new: ResourceState, *, preview: bool) -> tuple[str, dict[str, Value]]:
        """Create a resource; gives its id (empty in a preview) and outputs."""
        timeout = _timeout(new, "create")
        request = CreateRequest(new.urn, to_property_values(new.inputs), timeout=timeout, preview=preview)
        response = self._run(self._provider.create(request))
        identity = require_id(new.urn, response.resource_id, preview=preview)
        return identity, from_property_values(response.properties, new.urn)

    def update(self, old: ResourceState, new: ResourceState, *, preview: bool) -> dict[str, Value]:
        """Update a resource in place; gives its outputs."""
        request = UpdateRequest(
            old.urn,
            old.id,
            to_property_values(old.outputs),
            to_property_values(new.inputs),
            timeout=_timeout(new, "update"),
            ignore_changes=[],
            preview=preview,
        )
        return from_property_values(self._run(self._provider.update(request)).properties, old.urn)

    def delete(self, old: ResourceState) -> None:
        """Delete a resource."""
        outputs = to_property_values(old.outputs)
        request = DeleteRequest(old.urn, old.id, outputs, timeout=_timeout(old, "delete"))
        self._run(self._provider.delete(request))

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

    def one_look(self) -> AbstractContextManager[None]:
        """Return a time in which the provider may tell of all that is read what was so at one moment of it."""
        ask: OneLook = getattr(self._provider, "one_look", nullcontext)
        return ask()

    def read(self, old: ResourceState) -> Found | None:
        """Read a resource as it is now."""
        request = ReadRequest(old.urn, old.id, to_property_values(old.outputs), to_property_values(old.inputs))
        response = self._run(self._provider.read(request))
        if not response.resource_id:
            return None
        return Found(
            response.resource_id,
            from_property_values(response.inputs, old.urn),
            from_property_values(response.properties, old.urn),
        )


def _timeout(resource: ResourceState, operation: str) -> float:
    """Return what the program allows the provider for an operation, in seconds; 0 when it doesn't say."""
    timeouts = resource.extras.get("customTimeouts")
    seconds = timeouts.get(operation) if isinstance(timeouts, dict) else None
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _diff_request(old: ResourceState, news: Properties) -> DiffRequest:
    return DiffRequest(old.urn, old.id, to_property_values(old.outputs), to_property_values(news), ignore_changes=[])


def _difference(response: DiffResponse) -> Difference:
    detailed = response.detailed_diff
    replaces = {*response.replaces, *(key for key, change in detailed.items() if change.kind in _REPLACING)}
    keys = sorted({*response.diffs, *detailed, *replaces})
    return Difference(response.changes, tuple(keys), tuple(sorted(replaces)), bool(response.delete_before_replace))


def _checked(urn: str, news: Properties, response: CheckResponse) -> dict[str, Value]:
    refuse(urn, news, [(failure.property, failure.reason) for failure in response.failures or ()])
    return from_property_values(response.inputs, urn)


def refuse(urn: str, news: Properties, failures: Sequence[tuple[str, str]]) -> None:
    """Raise StepError if there are failures: pairs of a property and what is wrong with it."""
    if failures:
        who = f"{type_of(urn)} resource '{name_of(urn)}'"
        raise StepError("; ".join(_failure(who, key, reason, news) for key, reason in failures))


def _failure(who: str, key: str, reason: str, news: Properties) -> str:
    if not key:
        return f"{who} has a problem: {reason}"
    return f"{who}: property {key} value {{{news.get(key, '<nil>')}}} has a problem: {reason}"
