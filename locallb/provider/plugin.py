"""Serves the provider over gRPC, as the SDK's own `server.main` does, but with errors that a user can read.

The SDK answers every exception with `Unexpected <class …>` and a traceback. Here what is meant for the user goes to
the engine as it is; a defect keeps its traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from pulumi.provider.experimental.provider import Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import provider_pb2_grpc

from locallb import __version__
from locallb.provider import make_provider
from locallb.resources.resource_type import sentence
from locallb.storage.paths import project_root

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
