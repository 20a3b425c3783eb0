"""Envoy's configuration: the files of one proxy's directory, made from what it serves (`serving.Proxy`).

`bootstrap.json` never changes while the process lives. It names `lds.json` (listeners) and `cds.json` (clusters), which
Envoy watches, and a cluster names its `eds-<upstream>.json` (backends). A file takes effect when it is renamed into
place; an overwrite is not noticed. Write in the order EDS, CDS, wait for the CDS version, LDS; remove in reverse. With
`Discovery.EDS` a change of backends alters EDS files only.

How to see on the admin socket whether a configuration is active (the provider's part):

- `GET /stats?type=TextReadouts&format=json` has `listener_manager.lds.version_text` and
  `cluster_manager.cds.version_text` (two values, 120 bytes): they equal `Rendered.versions` once the file was accepted.
- `GET /listeners?format=json` lists the names of the listeners that are bound.
- When one listener can't be bound the others of the file are still added and removed, but the LDS version stays at
  the last one that was accepted whole. Then `GET /config_dump?resource=dynamic_listeners` has, for each listener that
  failed, `error_state.details` ("cannot bind '127.77.0.5:8080': Address already in use"); its name stands in
  `error_state.failed_configuration.name`. Envoy doesn't try again until the file changes or it is started again.

Not here: what is served (`planning`), writing the files and running Envoy (the provider).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct

from locallb.envoy.bootstrap import ADMIN_SOCKET, ALONE, ARGUMENTS, arguments, bootstrap
from locallb.envoy.clusters import assignment, cluster, file_name
from locallb.envoy.document import Discovered, encoded, text, typed
from locallb.envoy.fragments import RenderedPart, render_part
from locallb.envoy.http_chains import http_files
from locallb.envoy.http_chains import listeners as http_listeners
from locallb.envoy.listeners import listener, name_listener, reader
from locallb.envoy.rollout import OWN_WATCHES, with_referred
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy, Upstream

__all__ = [
    "ADMIN_SOCKET",
    "ALONE",
    "ARGUMENTS",
    "Rendered",
    "RenderedPart",
    "arguments",
    "render",
    "render_empty",
    "render_part",
    "watches",
]


class FileVersions(Struct, frozen=True):
    """The `version_info` of the LDS and the CDS file: digests of what they say.

    Where listeners refer to routes and secrets, a digest of those files' versions follows that of the listeners.
    """

    lds: str
    cds: str


class Rendered(Struct, frozen=True):
    """The files of a proxy's directory, by name, and the versions that Envoy reports when they are active."""

    files: Mapping[str, str]
    versions: FileVersions


def render(proxy: Proxy, memory: AnyMemo | None = None) -> Rendered:
    """Make the configuration of a proxy: the same proxy gives the same bytes, in any order of its parts.

    `memory` caches parts of it, for this proxy alone.

    A listener without an upstream or its backends is left out, so that its clients are refused. Raises ValueError for
    an upstream's name that can't be a file name.
    """
    memory = memory or Memo()
    upstreams = {upstream.name: upstream for upstream in sorted(proxy.upstreams, key=lambda upstream: upstream.name)}
    served = {name for name, upstream in upstreams.items() if upstream.backends}
    listeners = [listener(spec) for spec in proxy.listeners if spec.upstream in served]
    listeners += [http_listener for spec in proxy.http for http_listener in http_listeners(spec, proxy.discovery)]
    listeners += [name_listener(spec) for spec in proxy.names]
    lds = Discovered.of(sorted(listeners, key=lambda message: str(message["name"])))
    logs = {*(spec.log for spec in proxy.listeners), *(spec.log for spec in proxy.http)} - {""}
    clusters = [
        memory.of(("cluster", name), _cluster, upstream, proxy.discovery) for name, upstream in upstreams.items()
    ]
    cds = Discovered.of([*clusters, *map(reader, sorted(logs))])
    files = {"bootstrap.json": bootstrap(proxy), "lds.json": lds.response, "cds.json": cds.response}
    referred: Mapping[str, Discovered] = {}
    if proxy.discovery is Discovery.EDS:
        referred = http_files(proxy.http, tuple(upstreams.values()), memory)
        files |= {name: discovered.response for name, discovered in referred.items()}
    version = with_referred(lds.version, [discovered.version for discovered in referred.values()])
    texts = {name: text(message) for name, message in files.items()}
    if proxy.discovery is Discovery.EDS:
        for name, upstream in upstreams.items():
            texts[file_name(upstream)] = memory.of(("endpoints", name), _endpoints, upstream)
    memory.evict_unused()
    return Rendered(texts, FileVersions(version, cds.version))


def render_empty(proxy: Proxy) -> Rendered:
    """Make what a proxy of the stack is started with: the bootstrap alone, as what it serves comes in parts."""
    return Rendered({"bootstrap.json": text(bootstrap(proxy))}, FileVersions("", ""))


def _cluster(upstream: Upstream, discovery: Discovery) -> Raw:
    return encoded(cluster(upstream, discovery))


def _endpoints(upstream: Upstream) -> str:
    made = typed("envoy.config.endpoint.v3.ClusterLoadAssignment", **assignment(upstream))
    return text(Discovered.of([made]).response)


def watches(discovery: Discovery | None, upstream_count: int, *, logs: bool = False) -> int:
    """Count the inotify instances of a proxy: LDS, CDS, its logs' gate, each EDS file (seen in /proc/<pid>/fd)."""
    return OWN_WATCHES + logs + (upstream_count if discovery is Discovery.EDS else 0)
