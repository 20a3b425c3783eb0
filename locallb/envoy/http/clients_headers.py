"""Request headers that no client may send, as Envoy or a route decides them; the one by which a route commands Envoy.

Many backends read `-` and `_` in a header's name as one (CGI, WSGI, Rack): a client's `x_user` would pass along with
the `x-user` that a route sets or removes. Such doubles are removed, and no other header with `_`: those are names of
applications, usual in gRPC's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from locallb.envoy.document import Message, typed
from locallb.model.http.policies import MAX_SEPARATORS

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
_SEPARATOR = re.compile(_ANY)


def clients_headers() -> Message:
    """Make the filter of a listener: of no client there are Envoy's commands, nor doubles of what Envoy says itself."""
    commands: Message = {"remove_on_match": {"key_matcher": {"prefix": _ENVOYS}}}
    config = typed(f"{_KIND}.HeaderMutation", mutations={"request_mutations": [commands, *_removals(_DECIDED)]})
    return {"name": _FILTER, "typed_config": config}


def of_route(decided: Iterable[str], attempt_timeout: int = 0) -> Mapping[str, Message]:
    """Make the filter's settings of a route that decides headers and bounds attempts (milliseconds, or 0)."""
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

    Of a name with more than `MAX_SEPARATORS` one expression removes its own spelling as well: otherwise all together
    would grow with the square of its length.
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
