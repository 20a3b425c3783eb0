"""A `locallb` that writes what Envoy refuses, wherever an object says so by name: mistakes that no check of ours knows.

Run as a program it is the command; `mistakes` makes them in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from locallb.cli import main

NODE_PORT = 31_313
"""Of a backend to which no cluster can lead."""
PORT = 9_099
"""Of listeners that can't be made."""
SECRET = "unforeseen"  # noqa: S105 - a name
ROUTES = ("matched-header", "added-header", "same-domain", "large-answer", "no-code")
"""Mistakes in routes: a path that names one makes it."""
_Made = dict[str, Any]


def _route(route: _Made) -> _Made:
    where = str(route["match"])
    if "matched-header" in where:
        return {**route, "match": {**route["match"], "headers": [{"name": "a\nb", "string_match": {"exact": "x"}}]}}
    if "added-header" in where:
        return {**route, "request_headers_to_add": [{"header": {"key": "a\nb", "value": "x"}}]}
    answer = {key: value for key, value in route.items() if key != "route"}
    if "large-answer" in where:
        return {**answer, "direct_response": {"status": 200, "body": {"inline_string": "x" * 5000}}}
    if "no-code" in where:
        return {**answer, "direct_response": {"status": 9999}}
    return route


def _host(host: _Made) -> _Made:
    return {**host, "domains": [*host["domains"], "good.test"]} if "same-domain" in str(host["routes"]) else host


def _files(pair: _Made) -> _Made:
    return {**pair, "certificate_chain": {"inline_string": "none"}} if SECRET in str(pair) else pair


def _backends(cluster: _Made, upstream: Any) -> _Made:  # noqa: ANN401 - of the model
    has_it = any(backend.port == NODE_PORT for backend in upstream.backends)
    return {**cluster, "dns_refresh_rate": "0s"} if has_it else cluster


def _bound_at(listener: _Made, spec: Any) -> _Made:  # noqa: ANN401 - of the model
    return {**listener, "access_log": [{"name": "none"}]} if spec.port == PORT else listener


@contextmanager
def mistakes() -> Iterator[None]:
    """Make mistakes as Envoy's configuration is rendered."""

    def wrapped(name: str, change: Callable[..., _Made], *, requires: bool = False) -> Any:  # noqa: ANN401 - a patch
        module, _, function = name.rpartition(".")
        original = getattr(sys.modules[module], function)

        def made(*given: Any, **named: Any) -> _Made:  # noqa: ANN401 - of any function
            result = original(*given, **named)
            return change(result, given[0]) if requires else change(result)

        return patch(name, made)

    with (
        wrapped("locallb.envoy.http_routes._route", _route),
        wrapped("locallb.envoy.http_routes._host", _host),
        wrapped("locallb.envoy.http_chains._files", _files),
        wrapped("locallb.envoy.clusters._backends", _backends, requires=True),
        wrapped("locallb.envoy.listeners.bound_at", _bound_at, requires=True),
    ):
        yield


if __name__ == "__main__":
    import locallb.envoy  # noqa: F401 - what is patched

    with mistakes():
        sys.exit(main())
