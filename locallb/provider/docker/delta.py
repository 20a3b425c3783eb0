"""`__pulumi_raw_state_delta`: how the bridge below the official plugin gets from outputs back to its own raw state.

It lists which outputs are arrays and maps, which wrap one object, and which have another name there. Without it the
other engine can't read a state exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.resources.values import Values

_MAPS = ("logOpts", "storageOpts", "sysctls", "tmpfs")
_RENAMED = {
    "dnsSearches": "dns_search",
    "entrypoints": "entrypoint",
    "envs": "env",
    "groupAdds": "group_add",
    "hosts": "host",
    "networkDatas": "network_data",
    "ulimits": "ulimit",
    "uploads": "upload",
}
_SINGLES: Mapping[str, Mapping[str, str]] = {
    "capabilities": {"adds": "add", "drops": "drop"},
    "healthcheck": {"tests": "test"},
}
"""Objects that are lists of one there, with the names of the lists in them."""


def raw_state_delta(outputs: Values) -> dict[str, Any]:
    """Describe `outputs`."""
    shapes: dict[str, Any] = {key: _array(value) for key, value in outputs.items() if isinstance(value, list)}
    shapes |= {key: {"map": {}} for key in _MAPS if outputs.get(key) is not None}
    for key, renamed in _SINGLES.items():
        if outputs.get(key) is not None:
            inner: dict[str, Any] = {name: {"arr": {}} for name in renamed}
            shapes[key] = {"plu": {"i": {"obj": {"ps": inner, "renamed": dict(renamed)}}}}
    shapes.setdefault("capabilities", {"plu": {"i": {}}})
    return {"obj": {"ps": shapes, "renamed": _RENAMED}}


def _array(items: list[Any]) -> dict[str, Any]:
    elements = {str(number): _object(item) for number, item in enumerate(items) if isinstance(item, Mapping)}
    return {"arr": {"el": elements} if elements else {}}


def _object(item: Values) -> dict[str, Any]:
    inner = {key: _array(value) for key, value in item.items() if isinstance(value, list)}
    return {"obj": {"ps": inner} if inner else {}}
