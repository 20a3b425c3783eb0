"""Annotations of Ingresses in the dialects that a stack enables, of ingress-nginx and Traefik, as one policy.

Only annotations with exactly the same meaning here are read; all others are reported, by name. They apply to a whole
Ingress. Readers of values raise FieldError, with the annotation and the remedy.

Not here: the effect of a policy on routes (`rules`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Dialect
from locallb.model import http_checks
from locallb.model.fields import FieldError
from locallb.model.gateway_of_cluster import Ingress
from locallb.model.http_checks import checked
from locallb.model.http_routes import MAX_WEIGHT, Cors, PathRewrite, Redirect, ValueMatch
from locallb.model.http_serving import Speaks
from locallb.model.identities import IPNetwork
from locallb.model.texts import clipped, few, shown
from locallb.patterns import pattern

_Value = TypeVar("_Value")
LONGEST = 4096
"""Characters of a value."""
_MAX = 200
"""Items of a list."""
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}
_NUMBER = pattern(r"[0-9]{1,9}")


class AnnotationValues(Struct):
    """The annotations of one controller on an Ingress; it records which were read."""

    prefix: str
    data: Mapping[str, str]
    requested: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, prefix: str, annotations: Mapping[str, str]) -> AnnotationValues:
        """Take those with a prefix."""
        return cls(
            prefix, {name.removeprefix(prefix): text for name, text in annotations.items() if name.startswith(prefix)}
        )

    @property
    def unknown(self) -> list[str]:
        """The names of annotations that no reader requested."""
        return sorted(self.data.keys() - self.requested)

    def fault(self, name: str, remedy: str) -> FieldError:
        """Make the error for an unsupported value."""
        return FieldError(f"{self.prefix}{name} is {shown(self.data.get(name, ''))}; {remedy}")

    def text(self, name: str) -> str:
        """Return a value without blanks around it; empty where there is none."""
        self.requested.add(name)
        text = self.data.get(name, "")
        if len(text) > LONGEST:
            raise self.fault(name, f"give at most {LONGEST} characters")
        return text.strip()

    def flag(self, name: str, *, default: bool = False) -> bool:
        text = self.text(name)
        if text and text not in _TRUE | _FALSE:
            raise self.fault(name, "use true or false")
        return text in _TRUE if text else default

    def number(self, name: str, low: int, high: int, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise self.fault(name, f"use a number from {low} to {high}")
        return int(text)

    def items(self, name: str) -> tuple[str, ...]:
        """Return the texts between commas."""
        listed = tuple(item.strip() for item in self.text(name).split(",") if item.strip())
        if len(listed) > _MAX:
            raise self.fault(name, f"list at most {_MAX}")
        return listed

    def networks(self, name: str) -> Iterator[IPNetwork]:
        """Return ranges of addresses; one that is written is never none."""
        listed = self.items(name)
        if not listed and name in self.data:
            raise self.fault(name, "give ranges such as 10.0.0.0/8")
        for text in listed:
            fault = self.fault(name, "give ranges such as 10.0.0.0/8, with commas between them")
            if "%" in text:  # a scope, which means nothing to who sees only a packet's address
                raise fault
            try:
                yield ip_network(text, strict=False)
            except ValueError:
                raise fault from None

    def made(self, name: str, make: Callable[[], _Value]) -> _Value:
        """Return what a type of the model takes, with the annotation where it refuses."""
        try:
            return make()
        except ValueError as error:
            raise FieldError(f"{self.prefix}{name}: {error}") from None


class Canary(Struct, frozen=True):
    """The Ingress takes a share of the requests of another one that has the same host and path."""

    weight: int = 0
    total: int = 100
    always: ValueMatch | None = None
    """A header that selects the canary whatever its share."""
    never: ValueMatch | None = None


class BackendProtocol(Struct, frozen=True):
    """Protocol to backends, whatever their port says."""

    speaks: Speaks
    by_tls: bool
    """Every server is trusted."""


class Location(Struct, frozen=True):
    """Where clients are sent instead of a backend."""

    status: int
    url: str
    """An absolute one; with `keeps_request` scheme, host and port alone."""
    keeps_request: bool = False
    """Path and query of the request follow it."""

    @property
    def redirect(self) -> Redirect:
        """The redirect to its scheme, host and port. Raises ValueError where one of them is none."""
        scheme, _, rest = self.url.partition("://")
        name, _, port = re.split(r"[/?]", rest, maxsplit=1)[0].lower().partition(":")
        return Redirect(self.status, scheme, name, int(port or 0))


class Policy(Struct, frozen=True):
    """Policy for all paths of an Ingress, and its default backend."""

    expressions: bool = False
    """Paths of the type ImplementationSpecific are expressions."""
    rewrite: str = ""
    """The path that backends are asked for; `\\1` is the first group of an expression."""
    location: Location | None = None
    app_root: str = ""
    """Where clients are sent who ask for `/`."""
    to_https: bool = False
    """Clients of plain HTTP are sent to HTTPS, where the host has a certificate."""
    must_be_https: bool = False
    """Even where it has none."""
    spoken: BackendProtocol | None = None
    idle: int = 0
    """As `Forward` has it."""
    cors: Cors | None = None
    sources: tuple[IPNetwork, ...] = ()
    """As `HttpRoute` has it."""
    canary: Canary | None = None
    plain: bool = True
    """Served by plain HTTP."""
    secured: bool = True
    """Served by TLS."""
    is_denied: bool = False
    """Something that must not be passed over can't be kept: requests are answered 503."""
    problems: tuple[str, ...] = field(default=())
    """Sentences about ignored parts."""


NONE = Policy()


PREFIX = "nginx.ingress.kubernetes.io/"
_LONGEST_TIMEOUT = 7 * 24 * 3600
_GROUP = pattern(r"\$([0-9])")
_URL = pattern(r"https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?([/?][!%&'()*+,./:;=?@_~A-Za-z0-9-]*)?")
_ORIGIN = pattern(r"https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")
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
GUARDS = pattern(
    r"auth-.*|.*denylist-source-range|.*-snippet|enable-(modsecurity|owasp-core-rules)|proxy-ssl-(secret|verify)"
)
"""Unserved annotations that may keep clients out, or unverified backends."""
_Reader = Callable[[AnnotationValues, Policy], Policy]


def read(values: AnnotationValues) -> Policy:
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


def _paths(values: AnnotationValues, policy: Policy) -> Policy:
    expressions, target = values.flag("use-regex"), values.text("rewrite-target")
    rewrite = _GROUP.sub(r"\\\1", target)
    if target:
        if "\\" in target or "$" in rewrite:
            raise values.fault("rewrite-target", "give a path such as /$2, in which only groups of the path are named")
        values.made("rewrite-target", lambda: PathRewrite(rewrite, groups=True))
    return replace(policy, expressions=expressions or bool(target), rewrite=rewrite)


def _location(values: AnnotationValues, policy: Policy) -> Policy:
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


def _app_root(values: AnnotationValues, policy: Policy) -> Policy:
    path = values.text("app-root")
    return replace(policy, app_root=path and values.made("app-root", lambda: http_checks.path(path)))


def _spoken(values: AnnotationValues, policy: Policy) -> Policy:
    text = values.text("backend-protocol").upper()
    if text and text not in _PROTOCOLS:
        raise values.fault("backend-protocol", f"use one of {', '.join(_PROTOCOLS)}")
    return replace(policy, spoken=_PROTOCOLS.get(text))


def _sources(values: AnnotationValues, policy: Policy) -> Policy:
    older, newer = (tuple(values.networks(f"{word}list-source-range")) for word in ("white", "allow"))
    return replace(policy, sources=newer or older)


def _to_https(values: AnnotationValues, policy: Policy) -> Policy:
    wished, must = values.flag("ssl-redirect"), values.flag("force-ssl-redirect")
    return replace(policy, to_https=wished or must, must_be_https=must)


def _idle(values: AnnotationValues, policy: Policy) -> Policy:
    return replace(policy, idle=1000 * values.number("proxy-read-timeout", 1, _LONGEST_TIMEOUT, 0))


def _cors(values: AnnotationValues, policy: Policy) -> Policy:
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


def _tokens(values: AnnotationValues, name: str, usual: tuple[str, ...], *, credentials: bool) -> Iterator[str]:
    for text in values.items(name) or usual:
        if text == "*" and credentials:
            raise values.fault(name, "with credentials * means nothing to browsers; list them by name")
        yield values.made(name, lambda text=text: http_checks.header_name(text))  # type: ignore[misc]


def _canary(values: AnnotationValues, policy: Policy) -> Policy:
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


_EXAMPLES = 5
TRAEFIK = "traefik.ingress.kubernetes.io/"
_PLAIN, _SECURED = "web", "websecure"
"""Traefik's usual entry points."""
_GUARDS = pattern(r"router\.(middlewares|tls\.options)")
"""Unserved annotations that may keep clients out."""
_OFF = frozenset({"", "false", "off"})


def policy_of(ingress: Ingress, dialects: Collection[Dialect]) -> Policy:
    """Return what the annotations of an Ingress say."""
    policy = NONE
    if Dialect.NGINX in dialects:
        values = AnnotationValues.of(PREFIX, ingress.meta.annotations)
        policy = _with_unknown(read(values), values, GUARDS)
    if Dialect.TRAEFIK in dialects:
        values = AnnotationValues.of(TRAEFIK, ingress.meta.annotations)
        policy = _with_unknown(_of_traefik(values, policy), values, _GUARDS)
    return policy


def _of_traefik(values: AnnotationValues, policy: Policy) -> Policy:
    """Return the policy with what Traefik's annotations say: which of both ports has the rules."""
    try:
        entries = set(values.items("router.entrypoints"))
        if entries - {_PLAIN, _SECURED}:
            raise values.fault("router.entrypoints", f"use {_PLAIN} and {_SECURED}")
        by_tls = values.flag("router.tls")
        if by_tls and entries == {_PLAIN}:
            raise values.fault("router.tls", f"TLS has the entry point {_SECURED} here; add it")
    except FieldError as error:
        return replace(policy, is_denied=True, problems=(*policy.problems, str(error)))
    plain, secured = not entries or _PLAIN in entries, not entries or _SECURED in entries
    return replace(policy, plain=policy.plain and plain and not by_tls, secured=policy.secured and secured)


def _with_unknown(policy: Policy, values: AnnotationValues, guards: re.Pattern[str]) -> Policy:
    """Report unknown annotations. If one may keep clients out, all requests are refused, as none would be checked."""
    guarding = [name for name in values.unknown if guards.fullmatch(name) and values.data[name] not in _OFF]
    harmless = [name for name in values.unknown if name not in guarding]
    problems = list(policy.problems)
    if guarding:
        names = _named(guarding)
        problems.append(
            f"of {values.prefix} these annotations keep clients out and aren't understood: {names}; {_CLOSED}"
        )
    if harmless:
        why = f"of {values.prefix} these annotations aren't understood, and nothing comes of them"
        problems.append(f"{why}: {_named(harmless)}")
    return replace(policy, is_denied=policy.is_denied or bool(guarding), problems=tuple(problems))


_CLOSED = "requests are answered 503 until they are removed"


def _named(names: Sequence[str]) -> str:
    return few([clipped(name) for name in names], _EXAMPLES)
