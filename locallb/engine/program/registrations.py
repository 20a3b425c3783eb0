"""Registrations of the program, parsed from Pulumi's protocol; what this engine lacks is refused by name."""

import re
from collections.abc import Callable

from pulumi.runtime.proto import resource_pb2

from locallb.engine.deploy.goal import Goal
from locallb.engine.providers.wire import from_struct
from locallb.engine.state.errors import EngineError, Unsupported
from locallb.engine.state.values import Value, number

Request = resource_pb2.RegisterResourceRequest

_HOOKS = ("before_create", "after_create", "before_update", "after_update", "before_delete", "after_delete", "on_error")
_REFUSED: dict[str, Callable[[Request], bool]] = {
    "protect": lambda r: r.protect,
    "retain_on_delete": lambda r: r.retainOnDelete,
    "ignore_changes": lambda r: bool(r.ignoreChanges),
    "replace_on_changes": lambda r: bool(r.replaceOnChanges),
    "additional_secret_outputs": lambda r: bool(r.additionalSecretOutputs),
    "aliases": lambda r: bool(r.aliases or r.aliasURNs),
    "import_": lambda r: bool(r.importId),
    "deleted_with": lambda r: bool(r.deletedWith),
    "replace_with": lambda r: bool(r.replace_with),
    "replacement_trigger": lambda r: r.HasField("replacement_trigger"),
    "transforms": lambda r: bool(r.transforms),
    "state_migrations": lambda r: bool(r.state_migrations),
    "hooks": lambda r: any(getattr(r.hooks, name) for name in _HOOKS),
    "hide_diffs": lambda r: bool(r.hideDiffs),
    "env_var_mappings": lambda r: bool(r.envVarMappings),
    "plugin_download_url": lambda r: bool(r.pluginDownloadURL or r.pluginChecksums),
}


def goal_of(request: Request) -> Goal:
    """Read a registration. Raises Unsupported for what this engine leaves to the official command line."""
    party = f"{request.type} resource '{request.name}'"
    if request.remote or request.packageRef:
        raise Unsupported(f"{party}: a component or package that a plugin provides")
    for option, is_set in _REFUSED.items():
        if is_set(request):
            raise Unsupported(f"{party}: the resource option {option}")
    return Goal(
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=from_struct(request.object, party),
        parent=request.parent,
        provider=request.provider,
        version=request.version,
        dependencies=tuple(sorted(request.dependencies)),
        property_dependencies={
            key: tuple(sorted(urns.urns)) for key, urns in sorted(request.propertyDependencies.items())
        },
        delete_before_replace=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
        timeouts=_timeouts(request.customTimeouts, party),
    )


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def _timeouts(given: Request.CustomTimeouts, party: str) -> dict[str, Value]:
    texts = {"create": given.create, "update": given.update, "delete": given.delete}
    return {name: number(_seconds(text, f"{party}: the {name} timeout")) for name, text in texts.items() if text}


def _seconds(text: str, what: str) -> float:
    """Read a duration as Go writes it, such as 1h30m."""
    parts = _DURATION.findall(text)
    if "".join(amount + unit for amount, unit in parts) != text:
        raise EngineError(f"{what} is {text!r}, which is no duration; write it like 30s or 1h30m")
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
