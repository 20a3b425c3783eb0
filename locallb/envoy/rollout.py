"""The order in which a running Envoy gets new files, so that no listener ever lacks its cluster. Pure.

Endpoints and clusters that are new come before the listeners and routes that use them, and are ready by then; unused
ones are removed after the listeners that used them. Where one change does both, the clusters of before and after exist
side by side in between, and for as long as requests may be delayed that the earlier routes have sent to a cluster which
is removed: Envoy needs it once the delay is over.

Not here: the execution of the steps (`push`), and the run of a trial Envoy (`validation`,
`runtimes.resource_types`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from locallb.envoy.document import Discovered, digest, socket_address, text
from locallb.envoy.http_policies import longest_delay
from locallb.envoy.listeners import GATE
from locallb.model.fields import JsonObject
from locallb.model.identities import Digest
from locallb.patterns import pattern

NAME = pattern(r"(bootstrap|lds|cds|eds-[a-z0-9-]+|(?:rds|sds)-[0-9a-f]{12})\.json")
"""The files of a proxy that are Envoy's."""
BOOTSTRAP, LISTENERS, CLUSTERS = "bootstrap.json", "lds.json", "cds.json"
OWN_WATCHES = 2
"""Inotify instances that every Envoy takes: of listeners and of clusters."""
ROUTES, SECRETS, ENDPOINTS = "rds-", "sds-", "eds-"
"""How files begin that listeners and clusters refer to."""
_BRIDGE = "+previous"
_AND = "+"
_LATE = 0.25
"""Seconds by which a delay may be longer than ordered, on a busy machine."""
LONGEST_PAUSE = 5.0
"""Seconds that a change waits at most for delayed requests: an ordered delay may be an hour."""


class Write(Struct, frozen=True):
    """Put a file into place; where it has a `version`, the next steps need Envoy to have taken it."""

    name: str
    text: str
    version: str = ""
    clusters: frozenset[str] = frozenset()
    """New ones that the next steps lead to: Envoy answers 500 for those until their backends were checked once."""


class Remove(Struct, frozen=True):
    """Remove a file."""

    name: str


class Pause(Struct, frozen=True):
    """Release delayed requests, where an Envoy runs."""

    seconds: float


RolloutStep = Write | Remove | Pause


def steps(present: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[RolloutStep]:
    """Return how to get from the files `present` to those `wanted`; nothing for a file that is right already."""
    different = {name for name, text in wanted.items() if present.get(name) != text}
    routes = {name for name in different if name.startswith(ROUTES)}
    for name in sorted(different - routes - {LISTENERS, CLUSTERS}):
        yield Write(name, wanted[name])
    before, after = present.get(CLUSTERS, ""), wanted[CLUSTERS]
    between = _bridge(before, after) if routes or LISTENERS in different else after
    if not _same_resources(before, between):
        new = _resources(between).keys() - _resources(before).keys() if routes or LISTENERS in different else ()
        yield replace(_versioned(CLUSTERS, between), clusters=frozenset(new))
    for name in sorted(routes):
        # Routes that are new wait for their listener: nobody takes them before.
        yield _versioned(name, wanted[name]) if name in present else Write(name, wanted[name])
    if LISTENERS in different:
        yield _versioned(LISTENERS, wanted[LISTENERS])
    former = (text for name, text in present.items() if name.startswith(ROUTES) and wanted.get(name) != text)
    if between != after and (delay := max(map(longest_delay, former), default=0)):
        yield Pause(min(delay + _LATE, LONGEST_PAUSE))
    if CLUSTERS in different and (between != after or _same_resources(before, between)):
        yield _versioned(CLUSTERS, after)
    for name in sorted(present.keys() - wanted.keys()):
        yield Remove(name)


def new_watches(before: str, after: str) -> int:
    """Count the EDS files that Envoy watches again when its clusters change from `before` to `after`.

    A changed cluster counts: Envoy makes its successor before it drops it.
    """
    old, new = _resources(before), _resources(after)
    return sum(1 for name, cluster in new.items() if cluster.get("type") == "EDS" and old.get(name) != cluster)


def new_references(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Count what Envoy watches besides endpoints, once there are other files: a certificate's own files as well."""
    added = [text for name, text in after.items() if name.startswith((ROUTES, SECRETS)) and name not in before]
    return sum(2 if "tls_certificate" in resource else 1 for text in added for resource in _resources(text).values())


def more_watches(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Count the inotify instances that a running Envoy takes besides when its files change from `before` to `after`."""
    endpoints = new_watches(before.get(CLUSTERS, ""), after.get(CLUSTERS, ""))
    return endpoints + new_references(before, after) + new_gate(before, after)


def all_watches(texts: Mapping[str, str]) -> int:
    """Count those of an Envoy that starts with these files."""
    return OWN_WATCHES + more_watches({}, texts)


def new_gate(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Count the gates of logs that listeners refer to from now on: one for all of a proxy."""
    return int(GATE in after.get(LISTENERS, "") and GATE not in before.get(LISTENERS, ""))


def referred(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the versions of the files that listeners and clusters refer to, endpoints apart."""
    named = (text for name, text in texts.items() if name.startswith((ROUTES, SECRETS)))
    return frozenset(str(document(text).get("version_info", "")) for text in named)


def with_referred(version: str, referred: Collection[str]) -> str:
    """Name listeners together with what they refer to, where they do."""
    return f"{version}{_AND}{digest({'referred': sorted(referred)})}" if referred else version


def has_referred(version: str) -> bool:
    return _AND in version


def document(text: str) -> JsonObject:
    """Parse a file; a damaged one counts as empty."""
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _versioned(name: str, text: str) -> Write:
    return Write(name, text, str(document(text).get("version_info", "")))


def _bridge(before: str, after: str) -> str:
    """Make the clusters of `after` and those of `before` that it lacks; `after` itself if it lacks none."""
    old, new = _resources(before), _resources(after)
    remaining = [resource for name, resource in old.items() if name not in new]
    if not remaining:
        return after
    response = document(after)
    version = f"{response.get('version_info', '')}{_BRIDGE}"
    bridge = {**response, "version_info": version, "resources": [*new.values(), *remaining]}
    return json.dumps(bridge, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def _same_resources(text: str, other: str) -> bool:
    return bool(text) and _resources(text) == _resources(other)


def _resources(text: str) -> JsonObject:
    resources = document(text).get("resources", ())
    listed = resources if isinstance(resources, list) else ()
    return {str(item.get("name")): item for item in listed if isinstance(item, dict)}


def fingerprint(texts: Mapping[str, str]) -> Digest:
    """Make the sha256 (hex) of the bootstrap; empty if there is none."""
    text = texts.get(BOOTSTRAP)
    return Digest("" if text is None else hashlib.sha256(text.encode()).hexdigest())


_Resource = dict[str, Any]
_NOTHING = text(Discovered.of(()).response)


def trial_files(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Make a trial Envoy's files of a proxy: nothing is bound where clients connect, and no backend is checked."""
    return {
        **texts,
        LISTENERS: _each(texts.get(LISTENERS, ""), _unbound),
        CLUSTERS: _each(texts.get(CLUSTERS, ""), _unchecked),
    }


def idle(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Make files of the same bootstrap that serve nothing."""
    retained = {name: content for name, content in texts.items() if name == BOOTSTRAP}
    return {**retained, LISTENERS: _NOTHING, CLUSTERS: _NOTHING}


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
