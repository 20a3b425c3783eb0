"""Providers that are called by the methods of Pulumi's protocol: objects of its SDK, without gRPC in between.

Coroutines run on worker threads, each on an event loop of a small pool: a loop costs more than most calls, so loops are
kept for a run. A provider with a true attribute `in_place` does everything in the thread that asks: its coroutines
never wait, and need no event loop. The program has a loop of its own.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

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

from locallb.engine.provider_handles import Difference, Found, Handle, attempt, refuse, require_id
from locallb.engine.sdk_wire import from_property_values, to_property_values
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.values import Properties, Value

T = TypeVar("T")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits. Raises RuntimeError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a provider that works in place waited for something")


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that complains of nothing where the host had no descriptor left for a part of it."""

    is_made = False

    def __init__(self) -> None:
        super().__init__()
        self.is_made = True

    def __del__(self, *given: Any) -> None:  # noqa: ANN401 - as asyncio has it
        if self.is_made:
            super().__del__(*given)


def new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop. Raises OSError where it can't be had; nothing is left of one that was begun."""
    return _Loop()


class LoopPool:
    """Event loops for blocking calls of coroutines; close it at the end of the run."""

    def __init__(self) -> None:
        self._idle: list[asyncio.AbstractEventLoop] = []
        self._closed = False
        self._lock = Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, on this thread unless it runs a loop of its own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(coroutine)
        with ThreadPoolExecutor(1) as other:
            return other.submit(self._run, coroutine).result()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            loop = self._idle.pop() if self._idle else None
        try:
            loop = loop or new_loop()
        except OSError:
            coroutine.close()
            raise
        try:
            return loop.run_until_complete(coroutine)
        finally:
            self._give_back(loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(loop)
                return
        loop.close()  # a call that outlived its run, after a second interrupt

    def close(self) -> None:
        """Close every loop, those in use when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for loop in idle:
            loop.close()


_REPLACING = frozenset((PropertyDiffKind.ADD_REPLACE, PropertyDiffKind.DELETE_REPLACE, PropertyDiffKind.UPDATE_REPLACE))


class ProtocolHandle(Handle):
    """One provider, as the engine calls it."""

    _provider: Provider

    def __init__(self, provider: Provider, loops: LoopPool) -> None:
        super().__init__(provider)
        self._loops = loops
        self._in_place = bool(getattr(provider, "in_place", False))
        self._supports_preview = True

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return attempt(lambda: finished(coroutine) if self._in_place else self._loops.run(coroutine))

    def _configure(self, config: Properties) -> None:
        request = ConfigureRequest({}, to_property_values(config), accept_secrets=True, accept_resources=True)
        response = self._run(self._provider.configure(request))
        self._supports_preview = bool(response.supports_preview)

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
        outputs = to_property_values(old.outputs)
        request = DeleteRequest(old.urn, old.id, outputs, timeout=_timeout(old, "delete"))
        self._run(self._provider.delete(request))

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
