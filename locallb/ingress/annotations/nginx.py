"""Annotations of ingress-nginx that have exactly the same meaning here. All others are reported, by name.

They apply to a whole Ingress. Not here: their effect on its routes (`annotations.applied`, `rules`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from locallb.ingress.annotations.policy import NONE, BackendProtocol, Canary, Location, Policy
from locallb.ingress.annotations.values import Values
from locallb.model.fields import FieldError
from locallb.model.http import checks as check
from locallb.model.http.backends import Speaks
from locallb.model.http.policies import Cors
from locallb.model.http.regexes import checked
from locallb.model.http.routes import MAX_WEIGHT, PathRewrite, ValueMatch

PREFIX = "nginx.ingress.kubernetes.io/"
_LONGEST_TIMEOUT = 7 * 24 * 3600
_GROUP = re.compile(r"\$([0-9])")
_URL = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?([/?][!%&'()*+,./:;=?@_~A-Za-z0-9-]*)?")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")
_REQUEST = "$request_uri"
_CODES = (301, 302, 303, 307, 308)
_PROTOCOLS = {
    "HTTP": BackendProtocol(Speaks.HTTP1, by_tls=False),
    "HTTPS": BackendProtocol(Speaks.HTTP1, by_tls=True),
    "GRPC": BackendProtocol(Speaks.HTTP2, by_tls=False),
    "GRPCS": BackendProtocol(Speaks.HTTP2, by_tls=True),
}
_METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")
_HEADERS = (
    *("DNT", "Keep-Alive", "User-Agent", "X-Requested-With", "If-Modified-Since"),
    *("Cache-Control", "Content-Type", "Range", "Authorization"),
)
_MAX_AGE = 1728000
_REMEMBERED = 2**31 - 1
GUARDS = re.compile(
    r"auth-.*|.*denylist-source-range|.*-snippet|enable-(modsecurity|owasp-core-rules)|proxy-ssl-(secret|verify)"
)
"""Unserved annotations that may keep clients out, or unverified backends."""
_Reader = Callable[[Values, Policy], Policy]


def read(values: Values) -> Policy:
    """Return the policy of these annotations; a canary has nothing else, as its routes belong to another Ingress.

    An invalid canary is not served at all: it must not take all requests of its intended share.
    """
    try:
        is_canary = values.flag("canary")
    except FieldError as error:
        return Policy(plain=False, secured=False, problems=(str(error),))
    policy, problems = NONE, list[str]()
    for reader, is_needed in _READERS.items():
        try:
            policy = reader(values, policy)
        except FieldError as error:
            if is_canary == (reader is _canary):  # the others aren't used
                problems.append(str(error))
                # Whether paths are expressions isn't known then: as such they take the more.
                expressions = policy.expressions or reader is _paths
                policy = replace(policy, is_denied=policy.is_denied or is_needed, expressions=expressions)
    if is_canary:
        return Policy(canary=policy.canary, plain=False, secured=False, problems=tuple(problems))
    return replace(policy, canary=None, problems=tuple(problems))


def _paths(values: Values, policy: Policy) -> Policy:
    expressions, target = values.flag("use-regex"), values.text("rewrite-target")
    rewrite = _GROUP.sub(r"\\\1", target)
    if target:
        if "\\" in target or "$" in rewrite:
            raise values.fault("rewrite-target", "give a path such as /$2, in which only groups of the path are named")
        values.made("rewrite-target", lambda: PathRewrite(rewrite, groups=True))
    return replace(policy, expressions=expressions or bool(target), rewrite=rewrite)


def _location(values: Values, policy: Policy) -> Policy:
    permanent = values.number("permanent-redirect-code", 300, 308, 301)
    temporal = values.number("temporal-redirect-code", 300, 308, 302)
    values.text("permanent-redirect")
    name = "temporal-redirect" if values.text("temporal-redirect") else "permanent-redirect"
    status, url = temporal if name == "temporal-redirect" else permanent, values.text(name)
    if not url:
        return policy
    if status not in _CODES:
        raise values.fault(f"{name}-code", f"use one of {', '.join(map(str, _CODES))}")
    keeps = url.endswith(_REQUEST)
    written = url.removesuffix(_REQUEST)
    if not (_ORIGIN if keeps else _URL).fullmatch(written):
        why = f"give a URL such as https://shop.test/new, or one of a host alone with {_REQUEST} after it"
        raise values.fault(name, why)
    location = Location(status, written, keeps)
    values.made(name, lambda: location.redirect)
    return replace(policy, location=location)


def _app_root(values: Values, policy: Policy) -> Policy:
    path = values.text("app-root")
    return replace(policy, app_root=path and values.made("app-root", lambda: check.path(path)))


def _spoken(values: Values, policy: Policy) -> Policy:
    text = values.text("backend-protocol").upper()
    if text and text not in _PROTOCOLS:
        raise values.fault("backend-protocol", f"use one of {', '.join(_PROTOCOLS)}")
    return replace(policy, spoken=_PROTOCOLS.get(text))


def _sources(values: Values, policy: Policy) -> Policy:
    older, newer = (tuple(values.networks(f"{word}list-source-range")) for word in ("white", "allow"))
    return replace(policy, sources=newer or older)


def _to_https(values: Values, policy: Policy) -> Policy:
    wished, must = values.flag("ssl-redirect"), values.flag("force-ssl-redirect")
    return replace(policy, to_https=wished or must, must_be_https=must)


def _idle(values: Values, policy: Policy) -> Policy:
    return replace(policy, idle=1000 * values.number("proxy-read-timeout", 1, _LONGEST_TIMEOUT, 0))


def _cors(values: Values, policy: Policy) -> Policy:
    is_on, any_origin = values.flag("enable-cors"), "*" in (origins := values.items("cors-allow-origin") or ("*",))
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise values.fault("cors-allow-origin", "give origins such as https://a.test:8443, or * alone")
    # Where every origin may, browsers are told so by `*`, with which no credentials are sent.
    credentials = values.flag("cors-allow-credentials", default=True) and not any_origin
    methods, headers = (
        tuple(_tokens(values, name, usual, credentials=credentials))
        for name, usual in (("cors-allow-methods", _METHODS), ("cors-allow-headers", _HEADERS))
    )
    exposed = tuple(_tokens(values, "cors-expose-headers", (), credentials=credentials))
    age = values.number("cors-max-age", 0, _REMEMBERED, _MAX_AGE)
    cors = Cors(("*",) if any_origin else origins, methods, headers, exposed, credentials, age)
    return replace(policy, cors=cors if is_on else None)


def _tokens(values: Values, name: str, usual: tuple[str, ...], *, credentials: bool) -> Iterator[str]:
    for text in values.items(name) or usual:
        if text == "*" and credentials:
            raise values.fault(name, "with credentials * means nothing to browsers; list them by name")
        yield values.made(name, lambda text=text: check.header_name(text))  # type: ignore[misc]


def _canary(values: Values, policy: Policy) -> Policy:
    total = values.number("canary-weight-total", 1, MAX_WEIGHT, 100)
    weight = values.number("canary-weight", 0, total, 0)
    name, value, pattern = (values.text(f"canary-by-header{end}") for end in ("", "-value", "-pattern"))
    if not name:
        return replace(policy, canary=Canary(weight, total))
    if value:
        always = values.made("canary-by-header-value", lambda: ValueMatch(name, value))
        return replace(policy, canary=Canary(weight, total, always))
    if pattern:
        anywhere = values.made("canary-by-header-pattern", lambda: f".*(?:{checked(pattern)}).*")
        matched = values.made("canary-by-header-pattern", lambda: ValueMatch(name, anywhere, regex=True))
        return replace(policy, canary=Canary(weight, total, matched))
    always, never = (
        values.made("canary-by-header", lambda word=word: ValueMatch(name, word))  # type: ignore[misc]
        for word in ("always", "never")
    )
    return replace(policy, canary=Canary(weight, total, always, never))


_READERS: dict[_Reader, bool] = {
    _paths: True,
    _location: True,
    _app_root: False,
    _spoken: True,
    _sources: True,
    _to_https: False,
    _idle: False,
    _cors: False,
    _canary: True,
}
"""Readers of annotations; True for annotations that must not be ignored."""
