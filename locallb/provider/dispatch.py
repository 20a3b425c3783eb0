"""Pulumi's provider protocol for all our kinds: typed values for them, plain ones for the engine.

Nothing here knows what a resource is for. In a preview only `check`, `diff` and `foresee` of a kind are asked, so a
preview can't change anything. Kinds block, so they run on threads of our own and many may wait at once; or, `in_place`,
on that of whoever asks, if it has a thread for each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, TypeVar

from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import PropertyDiff, PropertyDiffKind
from pulumi.runtime.rpc import UNKNOWN

from locallb.clients.fence import FENCE
from locallb.provider import codec
from locallb.provider.errors import ProviderError
from locallb.provider.kind import Kind

T = TypeVar("T")
AnyKind = Kind[Any, Any]
_AT_ONCE = 32


class Dispatcher(protocol.Provider):
    """A provider made of kinds, by their tokens."""

    def __init__(self, kinds: Mapping[str, AnyKind], schema: str, *, in_place: bool) -> None:
        self.in_place = in_place
        """Whether a call is over when its coroutine was started: what the embedded engine looks at."""
        self._kinds = kinds
        self._schema = schema
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="locallb")

    async def get_schema(self, request: protocol.GetSchemaRequest) -> protocol.GetSchemaResponse:
        """Give the package's schema."""
        del request
        return protocol.GetSchemaResponse(self._schema)

    async def configure(self, request: protocol.ConfigureRequest) -> protocol.ConfigureResponse:
        """Ask for plain values: nothing of ours is secret, and outputs follow from inputs."""
        del request
        return protocol.ConfigureResponse(supports_preview=True)

    async def check(self, request: protocol.CheckRequest) -> protocol.CheckResponse:
        """Tell every property that is of the wrong type or can't be used."""
        kind = self._kind(request.type)
        try:
            failures = list(kind.check(_decode(kind, request.new_inputs)))
        except codec.CodecError as error:
            failures = list(error.failures)
        told = [protocol.CheckFailure(path, reason) for path, reason in failures]
        return protocol.CheckResponse(inputs=request.new_inputs, failures=told)

    async def diff(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        """Tell which properties change, and which of them need another resource."""
        kind = self._kind(request.type)
        difference = kind.diff(_recall(kind, request.old_state), _decode(kind, request.new_inputs))
        names = sorted(difference.changed - set(request.ignore_changes))
        replaces = [name for name in names if name in difference.replacing]
        update, replace = PropertyDiffKind.UPDATE, PropertyDiffKind.UPDATE_REPLACE
        return protocol.DiffResponse(
            changes=bool(names),
            replaces=replaces,
            delete_before_replace=bool(replaces) and difference.delete_first,
            diffs=names,
            detailed_diff={n: PropertyDiff(replace if n in replaces else update, input_diff=True) for n in names},
        )

    async def create(self, request: protocol.CreateRequest) -> protocol.CreateResponse:
        """Create, or tell what creating would give."""
        kind, inputs = self._kind(request.type), request.properties
        new = _decode(kind, inputs)
        if request.preview:
            return protocol.CreateResponse("", _foreseen(kind, inputs, kind.foresee(new, None)))
        identity, state = await self._change(lambda: kind.create(new))
        return protocol.CreateResponse(identity, codec.encode(state))

    async def read(self, request: protocol.ReadRequest) -> protocol.ReadResponse:
        """Read what is there; an empty id tells that nothing is."""
        kind = self._kind(request.type)
        if not request.properties:
            raise ProviderError(f"{request.name} can't be imported: declare it, `up` adopts what is there already")
        known = _recall(kind, request.properties)
        found = await self._run(lambda: kind.read(known))
        if found is None:
            return protocol.ReadResponse("", {}, {})
        properties = codec.encode(found)
        inputs = {name: properties[name] for name in _names(kind.inputs)}
        return protocol.ReadResponse(request.resource_id, properties, inputs)

    async def update(self, request: protocol.UpdateRequest) -> protocol.UpdateResponse:
        """Update, or tell what updating would give."""
        kind = self._kind(request.type)
        old, new = _recall(kind, request.olds), _decode(kind, request.news)
        if request.preview:
            return protocol.UpdateResponse(_foreseen(kind, request.news, kind.foresee(new, old)))
        return protocol.UpdateResponse(codec.encode(await self._change(lambda: kind.update(old, new))))

    async def delete(self, request: protocol.DeleteRequest) -> None:
        """Delete."""
        kind = self._kind(request.type)
        state = _recall(kind, request.properties)
        await self._change(lambda: kind.delete(state))

    def _kind(self, token: str) -> AnyKind:
        """Find the kind of a URN's type, `<parents' types>$<token>`."""
        short = token.rpartition("$")[2]
        if short not in self._kinds:
            raise ProviderError(f"the provider has no resource {short}: known are {', '.join(sorted(self._kinds))}")
        return self._kinds[short]

    async def _change(self, work: Callable[[], T]) -> T:
        """Do what changes the world, unless another process leads."""

        def fenced() -> T:
            FENCE.term()
            return work()

        return await self._run(fenced)

    async def _run(self, work: Callable[[], T]) -> T:
        return work() if self.in_place else await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _decode(kind: AnyKind, given: codec.Properties) -> Any:  # noqa: ANN401 - the kind's own inputs
    return codec.decode(kind.inputs, dict(codec.plain(given)))


def _recall(kind: AnyKind, given: codec.Properties) -> Any:  # noqa: ANN401 - the kind's own state
    return codec.recall(kind.state, dict(codec.plain(given)))


def _foreseen(kind: AnyKind, inputs: codec.Properties, certain: Mapping[str, object]) -> dict[str, PropertyValue]:
    """Join inputs and outputs; what isn't certain is unknown."""
    outputs = [name for name in _names(kind.state) if name not in _names(kind.inputs)]
    known = {name: codec.value(certain[name]) if name in certain else PropertyValue(UNKNOWN) for name in outputs}
    return {**inputs, **known}


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]
