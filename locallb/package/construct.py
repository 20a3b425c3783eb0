"""Constructs the component `LoadBalancers` for programs in other languages, beside the provider's own resources.

The component is the one that programs in Python declare (`locallb.program`). Here its inputs arrive by Pulumi's
protocol: what isn't known yet, what is secret and what others make stay so. Not here: the server (`provider.plugin`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.resource import DependencyResource

from locallb.model.desired import COMPONENT
from locallb.program import LoadBalancers
from locallb.provider import make_types
from locallb.provider.plugin import Dispatcher
from locallb.provider.resource_types import ResourceTypes
from locallb.resources.codec import UNKNOWN
from locallb.resources.resource_type import ProviderError
from locallb.resources.wire import parts, plain, wrapped

T = TypeVar("T")
OUTPUTS = ("addresses", "urls", "hostnames", "ports")
SCHEMA = Path(__file__).with_name("schema.json")


def make_package(root: Path | None) -> Package:
    """Make the provider of the whole package, for the project in `root`."""
    return Package(make_types(root), SCHEMA.read_text(encoding="utf-8"))


class Package(Dispatcher):
    """The provider, with the component."""

    def __init__(self, kinds: ResourceTypes, schema: str) -> None:
        super().__init__(kinds, schema)
        self._stacks: dict[tuple[str, bool], pulumi.Resource] = {}
        """The stack of each program that was run, by its URN and whether that was a preview."""

    async def configure(self, request: protocol.ConfigureRequest) -> protocol.ConfigureResponse:
        """Ask for secrets as such, which engines demand for components; `check` and the component refuse them."""
        del request
        return protocol.ConfigureResponse(supports_preview=True, accept_secrets=True)

    async def construct(self, request: protocol.ConstructRequest) -> protocol.ConstructResponse:
        """Declare the component and what serves, and return its outputs once they are known. Raises ProviderError."""
        if request.resource_type != COMPONENT:
            raise ProviderError(f"the package has no component {request.resource_type}: it has {COMPONENT}")
        pulumi.runtime.settings.set_root_resource(self._stack())
        try:
            made = LoadBalancers(request.name, request.options, **_arguments(request.inputs))
            urn = await made.urn.future()
            state = {name: await _property(getattr(made, name)) for name in OUTPUTS}
        except pulumi.RunError as error:
            raise ProviderError(str(error)) from None
        return protocol.ConstructResponse(str(urn), state, {})

    def _stack(self) -> pulumi.Resource:
        """Return the stack of the program, which this process knows by its URN only: the parent of what serves."""
        project, stack = pulumi.get_project(), pulumi.get_stack()
        urn = f"urn:pulumi:{stack}::{project}::pulumi:pulumi:Stack::{project}-{stack}"
        return self._stacks.setdefault((urn, pulumi.runtime.is_dry_run()), DependencyResource(urn))


def _arguments(inputs: Mapping[str, PropertyValue]) -> dict[str, pulumi.Output[Any]]:
    """Return inputs as a program in Python has them."""
    return {name: _output(value, plain({name: value})[name]) for name, value in inputs.items()}


def _output(given: PropertyValue, value: object) -> pulumi.Output[Any]:
    """Return an input as an output with what the engine said of it."""
    all_parts = list(parts(given))
    made_by: set[pulumi.Resource] = {DependencyResource(urn) for urn in given.all_dependencies()}
    known = not any(isinstance(part.value, Computed) or part.value == UNKNOWN for part in all_parts)
    secret = any(part.is_secret for part in all_parts)
    return pulumi.Output(made_by, _future(value), _future(known), _future(secret))


def _future(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


async def _property(output: pulumi.Output[Any]) -> PropertyValue:
    """Return an output of the component as the engine gets it: with what it depends on, or as unknown."""
    value = await output.future()
    urns = [await resource.urn.future() for resource in await output.resources()]
    reported = wrapped({"": value})[""] if await output.is_known() else PropertyValue(UNKNOWN)
    return reported.with_dependencies([str(urn) for urn in urns if urn])
