"""Envoy configuration of HTTP and TLS: what `envoy.render` adds to a proxy's files for its HTTP listeners.

`rds-*.json` are routes, one a chain; `sds-*.json` certificates and authorities. Each is a file that Envoy watches, by
an inotify instance of its own, where endpoints are files (`Discovery.EDS`); otherwise all of it stands in the listeners
and clusters. Not here: keys, which are written by who may read the Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locallb.envoy import http_chains as names
from locallb.envoy.document import Discovered, typed
from locallb.envoy.http_chains import certificates, secrets
from locallb.envoy.http_routes import TABLE, Entrance, table
from locallb.model.http_serving import Chain, HttpListener, HttpRoutes
from locallb.model.serving import Upstream

__all__ = ["certificates", "files", "watched_by_chains"]


def files(listeners: Sequence[HttpListener], upstreams: Sequence[Upstream]) -> Mapping[str, Discovered]:
    """Make the files besides listeners, clusters and endpoints, by name."""
    tables = {
        name: typed(TABLE, **table(name, chain.serves, Entrance.of(listener, chain), listener.fault))
        for listener in listeners
        for chain in listener.chains
        if isinstance(chain.serves, HttpRoutes) and (name := names.table_name(listener, chain))
    }
    return {
        f"{name}.json": Discovered([resource])
        for name, resource in {**tables, **dict(secrets(listeners, upstreams))}.items()
    }


def watched_by_chains(chains: Sequence[Chain], addresses: int) -> int:
    """Count at most what a proxy watches for chains, served at so many addresses: routes, authorities, certificates.

    Envoy watches a certificate's own files as well as the one that names them.
    """
    terminations = [chain.termination for chain in chains if chain.termination]
    pairs = {certificate for termination in terminations for certificate in termination.certificates}
    tables = sum(isinstance(chain.serves, HttpRoutes) for chain in chains)
    return addresses * (tables + sum(termination.clients is not None for termination in terminations)) + 2 * len(pairs)
