"""Request headers that no client may send, as Envoy or a route decides them.

Many backends read `-` and `_` in a header's name as one (CGI, WSGI, Rack): `x_user` of a client would pass beside the
`x-user` that a route sets or removes. Such doubles are removed, and no other header with `_`: those are names of
applications, usual in gRPC's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from locallb.envoy.document import Message, typed

_FILTER = "envoy.filters.http.header_mutation"
_KIND = "envoy.extensions.filters.http.header_mutation.v3"
_ENVOYS = "x-envoy-"
_DECIDED = ("x-forwarded-for", "x-forwarded-proto")
"""Headers in which every backend gets what Envoy has seen."""
_SEPARATOR = re.compile(r"[-_]")


def clients_headers() -> Message:
    """Make the filter of a listener: of no client there are Envoy's commands, nor doubles of what Envoy says itself."""
    commands: Message = {"remove_on_match": {"key_matcher": {"prefix": _ENVOYS}}}
    config = typed(f"{_KIND}.HeaderMutation", mutations={"request_mutations": [commands, *_removals(_DECIDED)]})
    return {"name": _FILTER, "typed_config": config}


def without_doubles(names: Iterable[str]) -> Mapping[str, Message]:
    """Make the filter's settings of a route that decides headers with these names."""
    removals = list(_removals(sorted({name.lower() for name in names})))
    if not removals:
        return {}
    return {_FILTER: typed(f"{_KIND}.HeaderMutationPerRoute", mutations={"request_mutations": removals})}


def _removals(names: Iterable[str]) -> Iterator[Message]:
    """Yield what removes every double of each name: one expression for each separator that differs."""
    for name in names:
        separators, parts = _SEPARATOR.findall(name), [re.escape(part) for part in _SEPARATOR.split(name)]
        for number, separator in enumerate(separators):
            first, rest = "[-_]".join(parts[: number + 1]), "[-_]".join(parts[number + 1 :])
            other = "_" if separator == "-" else "-"
            yield {"remove_on_match": {"key_matcher": {"safe_regex": {"regex": f"{first}{other}{rest}"}}}}
