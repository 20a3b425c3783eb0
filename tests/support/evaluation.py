"""The proxy's tables, evaluated as the proxy does it; and objects in which one field is something else.

The most specific virtual host of a request counts, and there the first route that matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from locallb.gateway.routes import Bound
from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    GrpcMethod,
    Match,
    PathKind,
    PathMatch,
    Redirect,
    ValueMatch,
)
from locallb.model.http_serving import ANY, HttpRoutes
from locallb.model.identities import UpstreamName
from tests.support.gateway_objects import JsonObject


def answered(one: Bound, host: str, path: str, method: str = "GET", **headers: str) -> str:
    """Return the Service that gets a request, or the status of the answer that it gets without one."""
    (chain,) = one.chains.get(80, (None,))
    if chain is None:
        return "refused"
    assert isinstance(chain.serves, HttpRoutes)
    tables = {domain: table.routes for table in chain.serves.hosts for domain in table.domains}
    labels = host.split(".")
    names = [host, *("*." + ".".join(labels[number:]) for number in range(1, len(labels))), ANY]
    for each in next((tables[name] for name in names if name in tables), ()):
        if _fits(each.match, path, method, {"host": host, **headers}):
            match each.action:
                case DirectResponse(status=status) | Redirect(code=status):
                    return str(status)
                case Forward(targets=targets):
                    return " ".join(upstream_service(one, target.upstream) for target in targets) or "500"
    return "404"


def upstream_service(one: Bound, upstream: UpstreamName) -> str:
    """Return the Service behind an upstream; without one the answer."""
    return one.targets[upstream].service.name if upstream else "500"


def _fits(match: Match, path: str, method: str, headers: Mapping[str, str]) -> bool:
    same_method = match.method in {"", method}
    return same_method and _fits_path(match.path, path) and all(_has(each, headers) for each in match.headers)


def _fits_path(match: PathMatch | GrpcMethod | None, path: str) -> bool:
    match match:
        case None:
            return True
        case PathMatch(PathKind.EXACT, value):
            return path == value
        case PathMatch(PathKind.REGEX, value):
            return re.fullmatch(value, path) is not None
        case PathMatch(_, value):
            return path == value.rstrip("/") or path.startswith(f"{value.rstrip('/')}/")
        case GrpcMethod(service=called, method=method):
            parts = path.removeprefix("/").split("/")
            return len(parts) == 2 and called in {"", parts[0]} and method in {"", parts[1]}


def _has(wanted: ValueMatch, headers: Mapping[str, str]) -> bool:
    value = headers.get(wanted.name.lower())
    return value is not None and bool(re.fullmatch(wanted.value, value) if wanted.regex else value == wanted.value)


def fields(value: object, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from fields(inner, *path, key)


def broken(found: Sequence[JsonObject], path: tuple[str | int, ...], rubbish: object) -> list[JsonObject]:
    """Return the objects with something else in one field."""
    copy = deepcopy(list(found))
    at: Any = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = rubbish
    return copy


RUBBISH: dict[type, list[object]] = {
    str: [5, ["x"], {"x": "y"}, True],
    int: ["x", -1, {}],
    list: ["x", 5, {"x": 1}, ["x"]],
    dict: ["x", 5, [5]],
}
"""What can stand in place of a value, and means nothing there."""
