"""Declares groups of desired resources to Pulumi: a component each, with custom resources below it.

The only place that turns data into resources of the SDK. Not here: desired resources (`locallb.desired`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
from msgspec import Struct, field

import locallb
from locallb import safe_files
from locallb.desired import OUR_PACKAGE, Desired, desired, exports, provider_version
from locallb.model.desired import DesiredResource as Resource
from locallb.model.desired import Group, Ref, ResourceKey
from locallb.planning.planned import Plan

_MAX_SIZE = 64 * 1024
"""Bytes of a repository's configuration."""


def declare_groups(
    groups: Collection[Group], after: Sequence[pulumi.Resource] = ()
) -> Mapping[ResourceKey, pulumi.Resource]:
    """Declare all resources of these groups, which refer to each other only, what is needed first; return them.

    Their roots come after the resources `after`, which the program made.
    """
    declaration = _Declaration({resource.key: resource for group in groups for resource in group.members}, after)
    for group in groups:
        for resource in group.members:
            declaration.declared(resource.key)
    for group in groups:
        declaration.register_outputs(group.members[0])
    return declaration.made


@cache
def _plugin(package: str) -> tuple[str | None, str | None]:
    """Return the version of a package's plugin, and where the CLI has it from.

    A component that runs in a clone which `pulumi package add` made of a Git repository has its resources there too:
    the CLI finds that plugin by this URL alone.
    """
    root = Path(locallb.__file__).parents[1]
    clone = re.fullmatch(r"resource-.+-v(\d+\.\d+\.\d+(?:-\w+)?)", root.name) if package == OUR_PACKAGE else None
    text = safe_files.read_if_present(root / ".git/config", _MAX_SIZE) if clone else None
    origin = re.search(rb"^\s*url = https://(\S+)$", text, re.MULTILINE) if text else None
    if clone and origin:
        return clone[1], f"git://{origin[1].decode()}/{OUR_PACKAGE}/provider"
    return provider_version(package), None


class _Declaration(Struct):
    """The resources of one update, each declared once."""

    desired: Mapping[ResourceKey, Resource]
    after: Sequence[pulumi.Resource] = ()
    made: dict[ResourceKey, pulumi.Resource] = field(default_factory=dict)
    _outputs: dict[ResourceKey, set[str]] = field(default_factory=dict)
    """The outputs to which others refer."""

    def __post_init__(self) -> None:
        for resource in self.desired.values():
            for ref in resource.references:
                self._outputs.setdefault(ref.key, set()).update(ref.fields)

    def declared(self, key: ResourceKey) -> pulumi.Resource:
        """Return a resource of the SDK, declared after its dependencies."""
        if key not in self.made:
            self.made[key] = self._declare(self.desired[key])
        return self.made[key]

    def register_outputs(self, resource: Resource) -> None:
        """Register the outputs of a component, once what is below it is declared."""
        component = self.declared(resource.key)
        if isinstance(component, pulumi.ComponentResource):
            component.register_outputs(self._resolved(resource.outputs or {}))

    def _declare(self, resource: Resource) -> pulumi.Resource:
        parent = self.declared(resource.parent) if resource.parent else None
        needs = [self.declared(key) for key in resource.needs]
        needs += [self.declared(key) for key in resource.follows if key in self.desired]
        needs += () if parent else self.after
        inputs = self._resolved(resource.inputs)
        version, url = _plugin(resource.key.type.partition(":")[0])
        options = pulumi.ResourceOptions(parent=parent, depends_on=needs, version=version, plugin_download_url=url)
        if resource.outputs is not None:
            return pulumi.ComponentResource(resource.key.type, resource.key.name, inputs, options)
        resolved_later = self._outputs.get(resource.key, set()) - {"id"}
        properties = {**dict.fromkeys(sorted(resolved_later)), **inputs}
        return pulumi.CustomResource(resource.key.type, resource.key.name, properties, options)

    def _resolved(self, value: Any) -> Any:  # noqa: ANN401 - a JSON-like value
        """Return a value with outputs of the SDK in the place of references."""
        if isinstance(value, Ref):
            return self._output(value)
        if isinstance(value, Mapping):
            return {name: self._resolved(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in value]
        return value

    def _output(self, ref: Ref) -> pulumi.Output[Any]:
        resource = self.declared(ref.key)
        outputs = [getattr(resource, name) for name in ref.fields]
        return pulumi.Output.all(*outputs).apply(lambda values: ref.value(*values))


def declare(
    plan: Plan, wanted: Desired | None = None, *, after: Sequence[pulumi.Resource] = (), exported: bool = True
) -> Mapping[ResourceKey, pulumi.Resource]:
    """Declare all resources of a plan, which are `wanted` if given, after others; export the addresses if that is so.

    Return the resources.
    """
    made = declare_groups((wanted or desired(plan)).groups, after)
    if exported:
        for name, value in exports(plan).items():
            pulumi.export(name, value)
    return made


def warn(plan: Plan) -> None:
    """Log what isn't served, and other notices of a plan."""
    for rejection in plan.rejections:
        pulumi.log.warn(str(rejection.problem))
    for notice in plan.notices:
        pulumi.log.warn(notice)
