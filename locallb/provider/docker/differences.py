"""The diff of a container's inputs, and whether it takes a new container: as the official plugin decides.

Pure; the recorded table of changes is the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from locallb.provider.docker.spec import NOTE, without_notes
from locallb.resources.codec import Values

IN_PLACE = frozenset(
    {
        *("containerReadRefreshTimeoutMilliseconds", "cpuShares", "destroyGraceSeconds", "healthcheck", "init"),
        *("memory", "memorySwap", "mustRun", "removeVolumes", "restart", "start", "tmpfs", "wait", "waitTimeout"),
    }
)
"""All others take a new container."""
_DECIDED_BY_DAEMON = frozenset(
    {
        *("command", "domainname", "entrypoints", "envs", "hostname", "init", "ipcMode", "logDriver", "runtime"),
        *("labels", "platform", "securityOpts", "shmSize", "stopSignal", "stopTimeout", "user", "workingDir"),
    }
)
"""What the image or the daemon decides where the program doesn't say."""
_UNORDERED = frozenset({"labels", "envs", "securityOpts"})


class ContainerChange(Struct, frozen=True):
    """Names of properties."""

    changed: frozenset[str] = frozenset()
    replacing: frozenset[str] = frozenset()


def compare(outputs: Values, inputs: Values, existing: frozenset[str]) -> ContainerChange:
    """Compare the state's outputs with new inputs; `existing` are the properties that inputs may have."""
    keys = (existing | inputs.keys()) - {NOTE}
    changed = frozenset(key for key in keys if _differs(key, outputs.get(key), inputs.get(key)))
    return ContainerChange(changed, changed - IN_PLACE)


def _differs(key: str, old: Any, new: Any) -> bool:  # noqa: ANN401 - any JSON-like values
    if new is None:
        return key not in _DECIDED_BY_DAEMON and not _blank(old)
    if _blank(old) and _blank(new):
        return False
    return bool(_normal(key, old) != _normal(key, new))


def _blank(value: object) -> bool:
    """Return whether a value says nothing: absent, empty, zero or false."""
    return not value


def _normal(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Leave out what says nothing, and the order where it means nothing."""
    if key == "ports":
        return _sorted_ports(value or [])
    if key == "capabilities":
        return {name: sorted(items) for name, items in without_notes(value or {}).items() if items}
    if key in {"volumes", "networksAdvanced"}:
        return [_stated(item) for item in value or ()]
    if key == "healthcheck":
        return _stated(value or {})
    items = without_notes(value)
    if key in _UNORDERED and isinstance(items, list):
        return sorted(items, key=str)
    return items


def _sorted_ports(ports: list[Values]) -> list[Mapping[str, Any]]:
    """Order ports as the official plugin does: those of one container port stay in the order in which they come."""
    return sorted((_stated(port) for port in ports), key=lambda port: (port["internal"], port.get("protocol", "tcp")))


def _stated(item: Values) -> dict[str, Any]:
    return {key: value for key, value in without_notes(item).items() if value}
