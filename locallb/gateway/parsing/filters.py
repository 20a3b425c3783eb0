"""Parses the filters of a rule or of a backend. Raises FieldError for unsupported ones.

A rule with an unsupported filter answers with an error, as the API specifies: ignoring the filter would serve something
else than was asked for. Not here: the rest of a rule (`rules`), and which texts are safe (`model.http.checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from locallb.gateway.parsing.fields import items, made, raw_items, texts
from locallb.gateway.parsing.references import LARGEST_PORT, backend_ref
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.formatting import shown
from locallb.model.gateway.rules import Filters, MirrorRef
from locallb.model.http.policies import Cors, HeaderChanges
from locallb.model.http.routes import Forward, PathRewrite, Redirect

_MAX = 16
_MAX_OF_CORS = 64


def parse_filters(fields: Fields, namespace: str, kinds: tuple[str, ...]) -> Filters:
    """Read the filters of a rule or of a backend, which may be of these kinds."""
    filters, observed = Filters(), Counter[str]()
    for entry in items(fields, "filters", _MAX):
        kind = entry.text("type")
        if kind not in kinds:
            raise FieldError(f"{entry.at('type')} is {shown(kind)}, which isn't served; use one of {', '.join(kinds)}")
        observed[kind] += 1
        if observed[kind] > 1 and kind != "RequestMirror":
            raise FieldError(f"{entry.path} repeats {kind}; put all into one")
        name, add = _READERS[kind]
        filters = add(filters, entry.inner(name), namespace)
    return filters


def _request_headers(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    return replace(filters, request=_headers(fields))


def _response_headers(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    return replace(filters, response=_headers(fields))


def _headers(fields: Fields) -> HeaderChanges:
    removed = (as_text(path, item) for path, item in raw_items(fields, "remove", _MAX))
    return made(fields, lambda: HeaderChanges(_pairs(fields, "set"), _pairs(fields, "add"), tuple(removed)))


def _pairs(fields: Fields, name: str) -> tuple[tuple[str, str], ...]:
    """Return names and values; of several with one name the first counts, as the API specifies."""
    pairs: dict[str, tuple[str, str]] = {}
    for entry in items(fields, name, _MAX):
        pairs.setdefault(entry.text("name").lower(), (entry.text("name"), entry.text("value")))
    return tuple(pairs.values())


def _redirect(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    port = fields.integer("port", 1, LARGEST_PORT) if fields.get("port") is not None else 0
    code = fields.integer("statusCode", 300, 399, 302)
    scheme, hostname = fields.text("scheme"), fields.text("hostname").lower()
    redirect = made(fields, lambda: Redirect(code, scheme, hostname, port, _path(fields)))
    return replace(filters, redirect=redirect)


def _rewrite(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    hostname = fields.text("hostname").lower()
    made(fields, lambda: Forward((), hostname))
    return replace(filters, hostname=hostname, path=_path(fields))


_REPLACED = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}


def _path(fields: Fields) -> PathRewrite | None:
    if fields.get("path") is None:
        return None
    inner = fields.inner("path")
    kind = inner.text("type")
    for name in ("replaceFullPath", "replacePrefixMatch"):
        if kind in _REPLACED and (inner.get(name) is not None) != (name == _REPLACED[kind]):
            raise FieldError(f"{inner.path} is of type {kind}; give {_REPLACED[kind]} and nothing else")
    if kind == "ReplaceFullPath":
        return made(inner, lambda: PathRewrite(inner.text("replaceFullPath") or "/"))
    if kind == "ReplacePrefixMatch":
        return made(inner, lambda: PathRewrite(inner.text("replacePrefixMatch"), prefix=True))
    raise FieldError(f"{inner.at('type')} is {shown(kind)}; use ReplaceFullPath or ReplacePrefixMatch")


def _mirror(filters: Filters, fields: Fields, namespace: str) -> Filters:
    backend = backend_ref(fields.inner("backendRef"), namespace)
    if fields.get("fraction") is None:
        share = fields.integer("percent", 0, 100, 100) * 10_000
    else:
        part = fields.inner("fraction")
        denominator = part.integer("denominator", 1, 2**31 - 1, 100)
        share = part.integer("numerator", 0, denominator) * 1_000_000 // denominator
    return replace(filters, mirrors=(*filters.mirrors, MirrorRef(backend, share)))


def _cors(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    origins, methods, headers, exposed = (
        texts(fields, name, _MAX_OF_CORS) for name in ("allowOrigins", "allowMethods", "allowHeaders", "exposeHeaders")
    )
    credentials = fields.flag("allowCredentials") is True
    age = fields.integer("maxAge", 1, 2**31 - 1, 5)
    return replace(filters, cors=made(fields, lambda: Cors(origins, methods, headers, exposed, credentials, age)))


_READERS: Mapping[str, tuple[str, Callable[[Filters, Fields, str], Filters]]] = {
    "RequestHeaderModifier": ("requestHeaderModifier", _request_headers),
    "ResponseHeaderModifier": ("responseHeaderModifier", _response_headers),
    "RequestMirror": ("requestMirror", _mirror),
    "RequestRedirect": ("requestRedirect", _redirect),
    "URLRewrite": ("urlRewrite", _rewrite),
    "CORS": ("cors", _cors),
}
OF_HTTP = tuple(_READERS)
OF_GRPC = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror")
OF_BACKENDS = ("RequestHeaderModifier", "ResponseHeaderModifier")
"""The kinds of filters that are served, of rules and of single backends."""
