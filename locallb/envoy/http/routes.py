"""Envoy configuration of routes: virtual hosts, matches and header changes.

Not here: what becomes of a request (`actions`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from locallb.envoy import overload
from locallb.envoy.document import Message
from locallb.envoy.http.actions import NO_OWNER, Entrance, action, header_changes
from locallb.envoy.http.clients_headers import of_route
from locallb.envoy.http.faults import awake
from locallb.envoy.http.policies import per_filter
from locallb.model.faults import Fault
from locallb.model.http.routes import OPTIONS, Forward, GrpcMethod, Match, PathKind, PathMatch, Route, ValueMatch
from locallb.model.http.serving import HttpRoutes, VirtualHost

_DAY = 86_400
_ANY_PART = "[^/]+"


TABLE = "envoy.config.route.v3.RouteConfiguration"


def table(name: str, routes: HttpRoutes, entrance: Entrance, fault: Fault | None = None) -> Message:
    """Make the RouteConfiguration (`TABLE`) of a chain, with an optional fault."""
    return {
        "name": name,
        "virtual_hosts": [_host(host, entrance, failing=not fault) for host in routes.hosts],
        "ignore_port_in_host_matching": True,
        # Envoy's own, beside x-forwarded-for.
        "request_headers_to_remove": ["x-envoy-external-address"],
        "request_headers_to_add": [_CLIENT],
        # A target that is nobody names a cluster that there isn't.
        "validate_clusters": False,
        # What comes nearest to the backend is changed last.
        "most_specific_header_mutations_wins": True,
        **({"typed_per_filter_config": awake(fault)} if fault else {}),
        **({"response_headers_to_add": [_elsewhere(entrance.port)]} if entrance.http3 else {}),
    }


_CLIENT: Message = {
    "header": {"key": "x-forwarded-for", "value": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"},
    "append_action": "APPEND_IF_EXISTS_OR_ADD",
}
"""The client as Envoy sees it, behind what the client itself says, as proxies before it may have said."""


def _elsewhere(port: int) -> Message:
    """Tell clients where HTTP/3 is; what backends say of their own is none of the clients' business."""
    header = {"key": "alt-svc", "value": f'h3=":{port}"; ma={_DAY}'}
    return {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _host(host: VirtualHost, entrance: Entrance, *, failing: bool) -> Message:
    own = frozenset(route.match for route in host.routes if route.match.method == OPTIONS)
    name, *others = host.domains
    only = "" if others or "*" in name else name
    return {
        "name": name,
        "domains": list(host.domains),
        "request_body_buffer_limit": overload.REPEATED,
        "routes": [
            message
            for route in host.routes
            for message in (_route(route, entrance, only, failing=failing), *_preflights(route, own))
        ],
    }


def _preflights(route: Route, own: Container[Match]) -> Iterator[Message]:
    """Make a route for preflights of a route's requests, which have another method; `own` matches have a route."""
    match = route.match.preflight
    if route.cors is None or match is None or match in own:
        return
    method: Message = {"name": "access-control-request-method", "string_match": {"exact": route.match.method}}
    yield {
        "match": _match(match, {"name": "origin", "present_match": True}, method),
        "route": {"cluster": NO_OWNER, "cluster_not_found_response_code": "NOT_FOUND"},
        "typed_per_filter_config": per_filter(Route(match, _NOWHERE, cors=route.cors, sources=route.sources)),
    }


_NOWHERE = Forward(())
"""No backend: the CORS filter answers preflights, and 404 is for others that match, as with an empty origin.

The filter ignores routes with a direct response.
"""


def _route(route: Route, entrance: Entrance, host: str, *, failing: bool) -> Message:
    """Make a route of a host; `failing` heeds its own fault."""
    attempt_timeout = route.action.attempt_timeout if isinstance(route.action, Forward) else 0
    filters = {
        **per_filter(route),
        **of_route(_decided(route), attempt_timeout),
        **(awake(route.fault) if route.fault and failing else {}),
    }
    return {
        "match": _match(route.match),
        **action(route, entrance, host),
        **({"request_body_buffer_limit": overload.MIRRORED} if _is_mirrored(route) else {}),
        **header_changes(route.request, route.response),
        **({"typed_per_filter_config": filters} if filters else {}),
    }


def _is_mirrored(route: Route) -> bool:
    return isinstance(route.action, Forward) and bool(route.action.mirrors)


def _decided(route: Route) -> frozenset[str]:
    """Return the names of request headers that a route, or a share of it, decides."""
    shares = route.action.targets if isinstance(route.action, Forward) else ()
    changes = (route.request, *(share.request for share in shares))
    return frozenset(name for change in changes for name in change.names)


def _match(match: Match, *more: Message) -> Message:
    """Make a RouteMatch; `more` are further conditions on headers."""
    headers = [_compared(header) for header in match.headers]
    if match.method:
        headers.append({"name": ":method", "string_match": {"exact": match.method}})
    headers += more
    return {
        **_path(match.path),
        **({"headers": headers} if headers else {}),
        **({"query_parameters": [_compared(parameter) for parameter in match.query]} if match.query else {}),
    }


def _compared(match: ValueMatch) -> Message:
    value: Mapping[str, Message | str] = (
        {"safe_regex": {"regex": match.value}} if match.regex else {"exact": match.value}
    )
    return {"name": match.name, "string_match": value}


def _path(path: PathMatch | GrpcMethod | None) -> Message:
    match path:
        case None:
            return {"prefix": "/"}
        case GrpcMethod():
            return _grpc(path)
        case PathMatch(kind=PathKind.EXACT, value=value):
            return {"path": value}
        case PathMatch(kind=PathKind.REGEX, value=value):
            return {"safe_regex": {"regex": value}}
        case PathMatch(value=value):
            elements = value.rstrip("/")
            return {"path_separated_prefix": elements} if elements else {"prefix": "/"}


def _grpc(call: GrpcMethod) -> Message:
    parts: Sequence[str] = (call.service, call.method)
    if not any(parts):
        return {"prefix": "/"}
    if all(parts) and not call.regex:
        return {"path": f"/{call.service}/{call.method}"}
    service, method = (_part(part, regex=call.regex) for part in parts)
    return {"safe_regex": {"regex": f"/{service}/{method}"}}


def _part(text: str, *, regex: bool) -> str:
    if not text:
        return _ANY_PART
    return f"(?:{text})" if regex else re.escape(text)
