"""Pulumi's provider protocol for our resource types, and its server over gRPC.

Kinds block, so they run on threads of our own and many may wait at once. The embedded engine, which has a thread for
each call, asks `kinds` directly. The SDK's own `server.main` answers every exception with `Unexpected <class …>` and a
traceback. Here what is meant for the user goes to the engine as it is; a defect keeps its traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import grpc
from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import provider_pb2_grpc

from locallb import __version__
from locallb.provider import make_provider
from locallb.provider.resource_types import ResourceTypes
from locallb.resources.codec import Values
from locallb.resources.resource_type import sentence
from locallb.resources.wire import parts, plain, reported_difference, wrapped
from locallb.storage.paths import project_root

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


_MESSAGE_LIMIT = 1024 * 1024 * 400  # bytes, the SDK's own
_OPTIONS = [("grpc.max_receive_message_length", _MESSAGE_LIMIT), ("grpc.max_send_message_length", _MESSAGE_LIMIT)]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class PlainErrors(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Answers what is meant for the user without the class and traceback around it."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap the method that is called."""
        handler = await continuation(handler_call_details)
        method = getattr(handler, "unary_unary", None)  # no handler for a method that nobody knows
        if method is None:
            return handler

        async def plain(request: object, context: Any) -> object:  # noqa: ANN401 - the stubs mix grpc and grpc.aio
            try:
                return await method(request, context)
            except Exception as error:
                if text := sentence(error):
                    await context.abort(grpc.StatusCode.UNKNOWN, text)
                raise

        return grpc.unary_unary_rpc_method_handler(plain, handler.request_deserializer, handler.response_serializer)


def main(
    arguments: list[str] | None = None,
    _found_in: Path | None = None,
    make: Callable[[Path | None], Provider] = make_provider,
) -> None:
    """Serve what `make` makes until the engine ends us; the port goes to stdout, as the plugin protocol wants.

    The CLI runs a plugin in the directory of the program that is deployed, wherever the plugin itself is: so the
    project is found from there. Projects of earlier versions pass the directory that they have the plugin in.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="pulumi-resource-locallb", description="the Pulumi provider locallb")
    parser.add_argument("engine", help="address of the Pulumi engine")
    engine = parser.parse_known_args(arguments)[0].engine
    try:
        asyncio.run(_serve(arguments, engine, make(project_root(Path.cwd()))))
    except KeyboardInterrupt:
        sys.exit(130)


async def _serve(arguments: list[str], engine: str, provider: Provider) -> None:
    server = grpc.aio.server(options=_OPTIONS, interceptors=[PlainErrors()])
    servicer = ProviderServicer(arguments, __version__, provider, engine)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()
