"""Checks a container's inputs as the official plugin does: its defaults, its notes of them, and what is refused.

The embedded engine knows what the components declare and a little more; everything else is refused by its name, because
a property that is silently ignored is worse than one that isn't there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from locallb.resources.values import Values, holds_unknown

DEFAULTS: Values = {
    "containerReadRefreshTimeoutMilliseconds": 15000,
    "mustRun": True,
    "networkMode": "bridge",
    "removeVolumes": True,
    "restart": "no",
    "start": True,
    "waitTimeout": 60,
}
_HEALTH: Values = {"interval": "0s", "retries": 0, "startInterval": "0s", "startPeriod": "0s", "timeout": "0s"}
_PORT: Values = {"ip": "0.0.0.0", "protocol": "tcp"}  # noqa: S104 - the official plugin's default, told in the state
NOTE = "__defaults"
"""The list of properties that got their value here, in the inputs and in every object of them."""

SUPPORTED = frozenset(
    {
        *DEFAULTS,
        *("capabilities", "command", "cpuShares", "cpus", "destroyGraceSeconds", "entrypoints", "envs", "healthcheck"),
        *("image", "labels", "logDriver", "logOpts", "memory", "memorySwap", "name", "networksAdvanced", "ports"),
        *("readOnly", "securityOpts", "stopSignal", "stopTimeout", "user", "volumes", "wait", "workingDir"),
    }
)
_RESTARTS = ("no", "always", "unless-stopped", "on-failure")
_REMEDY = "is not known to the embedded engine; use `pulumi up` for it"


def checked(given: Values) -> dict[str, Any]:
    """Return the inputs with the defaults, and the notes of which they are."""
    inputs = {key: _noted(key, value) for key, value in given.items() if key != NOTE and value is not None}
    missing = sorted(DEFAULTS.keys() - inputs.keys())
    return {NOTE: missing, **inputs, **{key: DEFAULTS[key] for key in missing}}


def faults(given: Values) -> Iterator[tuple[str, str]]:
    """Name what can't be had here: pairs of the property and why."""
    for key in sorted(given.keys() - SUPPORTED - {NOTE}):
        yield key, f"property {key} of docker:index/container:Container {_REMEDY}"
    yield from ((key, "is missing; a container needs it") for key in ("name", "image") if not given.get(key))
    if given.get("wait"):
        yield "wait", f"wait: true {_REMEDY}"
    restart = given.get("restart", "no")
    if not holds_unknown(restart) and restart not in _RESTARTS:
        yield "restart", f"{restart!r} is no restart policy; use one of {', '.join(_RESTARTS)}"
    for volume in given.get("volumes") or ():
        if not isinstance(volume, Mapping) or not {*volume} <= {NOTE, "hostPath", "containerPath", "readOnly"}:
            yield "volumes", f"a volume other than a directory of the host {_REMEDY}"


def without_notes(value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Leave out the notes of defaults inside a value."""
    if isinstance(value, Mapping):
        return {key: without_notes(item) for key, item in value.items() if key != NOTE}
    if isinstance(value, list | tuple):
        return [without_notes(item) for item in value]
    return value


def _noted(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Add the notes, and the defaults of objects that have any."""
    if holds_unknown(value):
        return value
    if key == "healthcheck":
        return _filled(value, _HEALTH)
    if key == "ports":
        return [_filled(item, _PORT) for item in value]
    if key in {"labels", "volumes", "networksAdvanced"}:
        return [_filled(item, {}) for item in value]
    return _filled(value, {}) if key == "capabilities" else value


def _filled(given: Values, defaults: Values) -> dict[str, Any]:
    own = {key: item for key, item in given.items() if key != NOTE and item is not None}
    missing = sorted(defaults.keys() - own.keys())
    return {NOTE: missing, **own, **{key: defaults[key] for key in missing}}
