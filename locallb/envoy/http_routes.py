"""Envoy configuration of HTTP routes: virtual hosts, matches, actions and changes of headers.

An action forwards, redirects or responds directly. Request headers that Envoy or a route decides are removed where a
client sends them, in any spelling that a backend may read as the same name, and so are Envoy's own commands
(`x-envoy-`).

Not here: options of a route (`http_policies`), chains and listeners (`http_chains`), and routes as data
(`model/http_routes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Raw

from locallb.envoy import overload
from locallb.envoy.document import Json, Message, encoded, typed
from locallb.envoy.http_policies import awake, duration, mirror, per_filter, retries
from locallb.model.faults import Fault
from locallb.model.http_routes import (
    MAX_SEPARATORS,
    DirectResponse,
    Forward,
    GrpcMethod,
    HeaderChanges,
    HttpRoute,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    Target,
    ValueMatch,
)
from locallb.model.http_serving import Chain, HttpListener, HttpRoutes, VirtualHost
from locallb.model.memory import Memo
from locallb.patterns import pattern

_FILTER = "envoy.filters.http.header_mutation"
_KIND = "envoy.extensions.filters.http.header_mutation.v3"
_ENVOYS = "x-envoy-"
_DURATION = "x-envoy-upstream-stream-duration-ms"
"""The router takes it off each request that it sends."""
_LATER = 20
"""Milliseconds: an attempt without any response is ended by its other limit, with 504 instead of 408."""
_DECIDED = ("x-forwarded-for", "x-forwarded-proto")
"""Headers in which every backend gets what Envoy has seen."""
_ANY = "[-_]"
_SEPARATOR = pattern(_ANY)


def clients_headers() -> Message:
    """Make the filter of a listener: of no client there are Envoy's commands, nor doubles of what Envoy says itself."""
    commands: Message = {"remove_on_match": {"key_matcher": {"prefix": _ENVOYS}}}
    config = typed(f"{_KIND}.HeaderMutation", mutations={"request_mutations": [commands, *_removals(_DECIDED)]})
    return {"name": _FILTER, "typed_config": config}


def of_route(decided: Iterable[str], attempt_timeout: int = 0) -> Mapping[str, Message]:
    """Make the filter's settings of a route that decides headers and bounds attempts (milliseconds, or 0).

    The bound is a header, by which a route commands Envoy.
    """
    mutations = list(_removals(sorted({name.lower() for name in decided})))
    if attempt_timeout:
        mutations.append(_bounded(attempt_timeout))
    if not mutations:
        return {}
    return {_FILTER: typed(f"{_KIND}.HeaderMutationPerRoute", mutations={"request_mutations": mutations})}


def _bounded(attempt_timeout: int) -> Message:
    """Bound an attempt from its first byte to the last of its response: Envoy's other limit ends with the headers.

    An open WebSocket has no end: with the protocol behind it, the value is no number, and the router ignores it. The
    manager removes `upgrade` from any request that isn't an upgrade which it serves.
    """
    header: Message = {"key": _DURATION, "value": f"{attempt_timeout + _LATER}%REQ(upgrade)%"}
    return {"append": {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}


def _removals(names: Iterable[str]) -> Iterator[Message]:
    """Yield what removes every double of each name: one expression for each separator that differs.

    Many backends read `-` and `_` in a header's name as one (CGI, WSGI, Rack): a client's `x_user` would pass along
    with the `x-user` that a route sets or removes. Other headers with `_` stay: they are names of applications, usual
    in gRPC's metadata. Of a name with more than `MAX_SEPARATORS` one expression removes its own spelling as well:
    otherwise all together would grow with the square of its length.
    """
    for name in names:
        separators, parts = _SEPARATOR.findall(name), [re.escape(part) for part in _SEPARATOR.split(name)]
        if len(separators) > MAX_SEPARATORS:
            yield _removal(_ANY.join(parts))
            continue
        for number, separator in enumerate(separators):
            first, rest = _ANY.join(parts[: number + 1]), _ANY.join(parts[number + 1 :])
            yield _removal(f"{first}{'_' if separator == '-' else '-'}{rest}")


def _removal(expression: str) -> Message:
    return {"remove_on_match": {"key_matcher": {"safe_regex": {"regex": expression}}}}


NO_CLUSTER = "nobody"
"""The cluster that there isn't: requests for it are answered 500, connections closed."""
_CODES = {
    301: "MOVED_PERMANENTLY",
    302: "FOUND",
    303: "SEE_OTHER",
    307: "TEMPORARY_REDIRECT",
    308: "PERMANENT_REDIRECT",
}
_PORTS = {"http": 80, "https": 443}


class Entrance(NamedTuple):
    """Where clients came in, as far as redirects lead back there."""

    port: int
    scheme: str
    http3: bool = False
    """Whether they may come by HTTP/3 as well."""

    @classmethod
    def of(cls, listener: HttpListener, chain: Chain) -> Entrance:
        """Return how clients come to a chain."""
        secure = chain.termination is not None
        return cls(listener.port, "https" if secure else "http", secure and listener.quic)


def action(route: HttpRoute, entrance: Entrance, host: str) -> Message:
    """Make the action of a Route for requests of one host; empty: of several ones."""
    path = route.match.path
    matched = path.value if isinstance(path, PathMatch) else ""
    match route.action:
        case Forward() as forward if any(target.weight for target in forward.targets):
            return {"route": _forward(forward, matched)}
        case Redirect() as redirect:
            return {"redirect": _redirect(redirect, matched, entrance, host)}
        case DirectResponse(status=status, body=body):
            return {"direct_response": {"status": status, **({"body": {"inline_string": body}} if body else {})}}
        case _:
            return {"direct_response": {"status": 500}}


def targets(listed: Sequence[Target]) -> Message:
    """Return how requests or connections are split between clusters."""
    live = [target for target in listed if target.weight]
    if len(live) == 1 and not header_changes(live[0].request, live[0].response):
        return {"cluster": live[0].upstream or NO_CLUSTER}
    return {"weighted_clusters": {"clusters": [_share(target) for target in live]}}


def header_changes(request: HeaderChanges, response: HeaderChanges) -> Message:
    """Make the fields of a route, or of a share of it, that change headers."""
    changes: dict[str, Json] = {}
    for kind, requested in (("request", request), ("response", response)):
        added = [_header(*header, "OVERWRITE_IF_EXISTS_OR_ADD") for header in requested.set]
        added += [_header(*header, "APPEND_IF_EXISTS_OR_ADD") for header in requested.add]
        if added:
            changes[f"{kind}_headers_to_add"] = added
        if requested.remove:
            changes[f"{kind}_headers_to_remove"] = list(requested.remove)
    return changes


def _share(target: Target) -> Message:
    changes = header_changes(target.request, target.response)
    return {"name": target.upstream or NO_CLUSTER, "weight": target.weight, **changes}


def _header(name: str, value: str, how: str) -> Message:
    # What stands between two % would be a command of Envoy's.
    header: Message = {"key": name, "value": value.replace("%", "%%")}
    return {"header": header, "append_action": how, "keep_empty_value": True}


def _forward(forward: Forward, matched: str) -> Message:
    mirrors = [mirror(target) for target in forward.mirrors if target.upstream]
    return {
        **targets(forward.targets),
        "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
        "timeout": duration(forward.timeout),
        "idle_timeout": duration(forward.idle) if forward.idle else overload.NEVER_STALLED,
        "retry_policy": retries(forward.retry, forward.attempt_timeout),
        **({"host_rewrite_literal": forward.hostname} if forward.hostname else {}),
        **_rewritten(forward.path, matched, "regex_rewrite"),
        **({"request_mirror_policies": mirrors} if mirrors else {}),
    }


def _redirect(redirect: Redirect, matched: str, entrance: Entrance, host: str) -> Message:
    scheme = redirect.scheme or entrance.scheme
    port = redirect.port or (_PORTS[scheme] if redirect.scheme else entrance.port)
    implied = port == _PORTS[scheme]
    hostname = redirect.hostname or (host if implied else "")
    # The client's host is taken together with its port, unless another one is named.
    named = not implied or (not hostname and entrance.port != _PORTS[entrance.scheme])
    return {
        "response_code": _CODES[redirect.code],
        **({"scheme_redirect": redirect.scheme} if redirect.scheme else {}),
        **({"host_redirect": hostname} if hostname else {}),
        **({"port_redirect": port} if named else {}),
        **_rewritten(redirect.path, matched, "path_redirect"),
    }


def _rewritten(path: PathRewrite | None, matched: str, whole: str) -> Message:
    """Return how the path is rewritten; the query stays."""
    if path is None:
        return {}
    if path.groups:
        return {"regex_rewrite": {"pattern": {"regex": f"^(?:{matched})$"}, "substitution": path.value}}
    if not path.prefix:
        if whole == "path_redirect":
            return {whole: path.value}
        return {whole: _replaced(".*", path.value)}
    rest, prefix = path.value.rstrip("/"), matched.rstrip("/")
    if rest or not prefix:
        # Elements of the path begin with a slash each, but for a prefix that is one itself.
        return {"prefix_rewrite": rest if prefix else f"{rest}/"}
    return {"regex_rewrite": _replaced(f"{re.escape(prefix)}/*", "/")}


def _replaced(pattern: str, value: str) -> Message:
    return {"pattern": {"regex": f"^{pattern}"}, "substitution": value.replace("\\", "\\\\")}


_DAY = 86_400


TABLE = "envoy.config.route.v3.RouteConfiguration"


def table(
    name: str, routes: HttpRoutes, entrance: Entrance, fault: Fault | None = None, hosts: Memo[Raw] | None = None
) -> Message:
    """Make the RouteConfiguration (`TABLE`) of a chain, with an optional fault; `hosts` caches those of this table."""
    hosts = hosts or Memo()
    hosts.within(entrance, not fault)
    return {
        "name": name,
        "virtual_hosts": hosts.each(lambda host: encoded(_host(host, entrance, failing=not fault)), routes.hosts),
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
    name, *others = host.domains
    only = "" if others or "*" in name else name
    return {
        "name": name,
        "domains": list(host.domains),
        "request_body_buffer_limit": overload.REPEATED,
        "routes": [
            message
            for route, preflight in host.entries
            for message in (_route(route, entrance, only, failing=failing), *_preflights(route, preflight))
        ],
    }


def _preflights(route: HttpRoute, match: Match | None) -> Iterator[Message]:
    """Make a route for preflights of a route's requests, which have another method."""
    if match is None:
        return
    method: Message = {"name": "access-control-request-method", "string_match": {"exact": route.match.method}}
    yield {
        "match": _match(match, {"name": "origin", "present_match": True}, method),
        "route": {"cluster": NO_CLUSTER, "cluster_not_found_response_code": "NOT_FOUND"},
        "typed_per_filter_config": per_filter(HttpRoute(match, _NOWHERE, cors=route.cors, sources=route.sources)),
    }


_NOWHERE = Forward(())
"""No backend: the CORS filter answers preflights, and 404 is for others that match, as with an empty origin.

The filter ignores routes with a direct response.
"""


def _route(route: HttpRoute, entrance: Entrance, host: str, *, failing: bool) -> Message:
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


def _is_mirrored(route: HttpRoute) -> bool:
    return isinstance(route.action, Forward) and bool(route.action.mirrors)


def _decided(route: HttpRoute) -> frozenset[str]:
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
    if call.path:
        return {"path": call.path}
    return {"safe_regex": {"regex": call.expression}} if call.expression else {"prefix": "/"}
