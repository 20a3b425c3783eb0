"""Pulumi's provider protocol for our resource types.

Kinds block, so they run on threads of our own and many may wait at once. The embedded engine, which has a thread for
each call, asks `kinds` directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import PropertyValue

from locallb.provider.resource_types import ResourceTypes
from locallb.resources.codec import Values
from locallb.resources.wire import parts, plain, reported_difference, wrapped

T = TypeVar("T")
_HIDDEN = "is a secret, and what serves is in the state: give it as plain text"
_AT_ONCE = 32


class Dispatcher(protocol.Provider):
    """A provider made of kinds. `direct` is what the embedded engine asks instead."""

    def __init__(self, kinds: ResourceTypes, schema: str) -> None:
        self.direct = kinds
        self.leaves_nothing = kinds.leaves_nothing
        self.prepare = kinds.prepare
        self.one_pass = kinds.one_pass
        self._schema = schema
        self._created: dict[tuple[str, str], Values] = {}
        """Inputs of each creation of this process by URN and id; the CLI runs a process for each of its updates."""
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="locallb")

    async def get_schema(self, request: protocol.GetSchemaRequest) -> protocol.GetSchemaResponse:
        del request
        return protocol.GetSchemaResponse(self._schema)

    async def configure(self, request: protocol.ConfigureRequest) -> protocol.ConfigureResponse:
        """Ask for plain values: nothing of ours is secret, and outputs follow from inputs."""
        del request
        return protocol.ConfigureResponse(supports_preview=True)

    async def check(self, request: protocol.CheckRequest) -> protocol.CheckResponse:
        """Return every property that is of the wrong type or can't be used, as a secret can't."""
        secrets = dict(_secrets(request.new_inputs))
        failures = [
            *(each for each in self.direct.check(request.type, plain(request.new_inputs)) if each[0] not in secrets),
            *secrets.items(),
        ]
        reported = [protocol.CheckFailure(path, reason) for path, reason in failures]
        return protocol.CheckResponse(inputs=request.new_inputs, failures=reported)

    async def diff(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        """Return which properties change, and which of them need another resource."""
        difference = self.direct.diff(request.type, plain(request.old_state), plain(request.new_inputs))
        changed, replacing, first = difference.changed, difference.replacing, difference.delete_first
        hidden = self.direct.hidden(request.type, changed)
        return reported_difference(request, changed, replacing, delete_first=first, by_inputs=True, hidden=hidden)

    async def create(self, request: protocol.CreateRequest) -> protocol.CreateResponse:
        """Create, or tell what creating would give."""
        news = plain(request.properties)
        made = await self._run(lambda: self.direct.create(request.type, news, preview=request.preview))
        if not request.preview:
            self._created[request.urn, made[0]] = news
        return protocol.CreateResponse(made[0], wrapped(made[1]))

    async def read(self, request: protocol.ReadRequest) -> protocol.ReadResponse:
        """Read what is there; an empty id tells that nothing is."""
        existing = plain(request.properties)
        observed = await self._run(lambda: self.direct.read(request.type, request.name, existing))
        if observed is None:
            return protocol.ReadResponse("", {}, {})
        return protocol.ReadResponse(request.resource_id, wrapped(observed[0]), wrapped(observed[1]))

    async def update(self, request: protocol.UpdateRequest) -> protocol.UpdateResponse:
        """Update, or tell what updating would give."""
        olds, news = plain(request.olds), plain(request.news)
        made = await self._run(lambda: self.direct.update(request.type, olds, news, preview=request.preview))
        return protocol.UpdateResponse(wrapped(made))

    async def delete(self, request: protocol.DeleteRequest) -> None:
        """Delete, unless a creation of the same update took this over: what is there is the new resource.

        The CLI replaces what a user tainted or named by `--replace`, although nothing of it needs another resource.
        """
        existing = plain(request.properties)
        news = self._created.get((request.urn, request.resource_id))
        if news is not None and not self._needs_another(request.type, existing, news):
            return
        await self._run(lambda: self.direct.delete(request.type, existing))

    def _needs_another(self, token: str, olds: Values, news: Values) -> bool:
        difference = self.direct.diff(token, olds, news)
        return bool(difference.changed & difference.replacing)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _secrets(inputs: Mapping[str, PropertyValue]) -> Iterator[tuple[str, str]]:
    """Return the properties that are secret or have secrets in them."""
    return ((name, _HIDDEN) for name, value in inputs.items() if any(part.is_secret for part in parts(value)))
