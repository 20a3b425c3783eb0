"""The configuration of a trial Envoy: that of a proxy, without any socket that a client could reach.

Pure: texts in, texts out. Not here: running it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from locallb.envoy import rollout
from locallb.envoy.document import Discovered, socket_address, text

_Resource = dict[str, Any]
_NOTHING = text(Discovered(()).response)


def trial_files(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Make Envoy's files of a proxy: nothing is bound where clients connect, and no backend is checked."""
    return {
        **texts,
        rollout.LISTENERS: _each(texts.get(rollout.LISTENERS, ""), _unbound),
        rollout.CLUSTERS: _each(texts.get(rollout.CLUSTERS, ""), _unchecked),
    }


def idle(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Make files of the same bootstrap that serve nothing."""
    retained = {name: content for name, content in texts.items() if name == rollout.BOOTSTRAP}
    return {**retained, rollout.LISTENERS: _NOTHING, rollout.CLUSTERS: _NOTHING}


def _each(response: str, change: Callable[[_Resource], _Resource]) -> str:
    try:
        document = json.loads(response)
        changed = {**document, "resources": [change(resource) for resource in document["resources"]]}
    except (ValueError, LookupError, TypeError, AttributeError):  # somebody changed it
        return _NOTHING
    return text(changed)


def _unbound(listener: _Resource) -> _Resource:
    """Unbind the listener; Envoy binds a UDP one in any case: at an ephemeral port of this host."""
    apart = {key: value for key, value in listener.items() if key != "additional_addresses"}
    if "udp_listener_config" in listener:
        return {**apart, "address": socket_address("127.0.0.1", 0, "UDP")}
    return {**apart, "bind_to_port": False}


def _unchecked(cluster: _Resource) -> _Resource:
    return {key: value for key, value in cluster.items() if key != "health_checks"}
