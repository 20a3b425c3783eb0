"""Envoy configuration of a route's action: forward, redirect or direct response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from locallb.envoy import overload
from locallb.envoy.document import Json, Message
from locallb.envoy.http.policies import mirror, retries, seconds
from locallb.model.http.policies import HeaderChanges
from locallb.model.http.routes import Answer, Forward, PathMatch, PathRewrite, Redirect, Route, Target
from locallb.model.http.serving import Chain, HttpListener

NO_OWNER = "nobody"
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


def action(route: Route, entrance: Entrance, host: str) -> Message:
    """Make the action of a Route for requests of one host; empty: of several ones."""
    path = route.match.path
    matched = path.value if isinstance(path, PathMatch) else ""
    match route.action:
        case Forward() as forward if any(target.weight for target in forward.targets):
            return {"route": _forward(forward, matched)}
        case Redirect() as redirect:
            return {"redirect": _redirect(redirect, matched, entrance, host)}
        case Answer(status=status, body=body):
            return {"direct_response": {"status": status, **({"body": {"inline_string": body}} if body else {})}}
        case _:
            return {"direct_response": {"status": 500}}


def targets(listed: Sequence[Target]) -> Message:
    """Return how requests or connections are split between clusters."""
    live = [target for target in listed if target.weight]
    if len(live) == 1 and not header_changes(live[0].request, live[0].response):
        return {"cluster": live[0].upstream or NO_OWNER}
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
    return {"name": target.upstream or NO_OWNER, "weight": target.weight, **changes}


def _header(name: str, value: str, how: str) -> Message:
    # What stands between two % would be a command of Envoy's.
    header: Message = {"key": name, "value": value.replace("%", "%%")}
    return {"header": header, "append_action": how, "keep_empty_value": True}


def _forward(forward: Forward, matched: str) -> Message:
    mirrors = [mirror(target) for target in forward.mirrors if target.upstream]
    return {
        **targets(forward.targets),
        "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
        "timeout": seconds(forward.timeout),
        "idle_timeout": seconds(forward.idle) if forward.idle else overload.NEVER_STALLED,
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
