"""Whatever can be served by HTTP: every value of `model.http_serving`, for properties."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.model.faults import WHOLE, Fault, RequestDelay, RequestFailure
from locallb.model.http_checks import checked
from locallb.model.http_routes import (
    Cors,
    DirectResponse,
    Forward,
    GrpcMethod,
    HeaderChanges,
    HttpRoute,
    Match,
    Mirror,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    RetryRule,
    SessionAffinity,
    SessionKind,
    Target,
    ValueMatch,
)
from locallb.model.http_serving import (
    ANY,
    BackendTls,
    Certificate,
    Chain,
    ClientValidation,
    HttpBackends,
    HttpListener,
    HttpRoutes,
    Speaks,
    TcpForward,
    Termination,
    VirtualHost,
)
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, HttpCheck, Proxy, Upstream

UPSTREAMS = ("web", "grpc", "secure", "empty")


def accepted(make: type, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Make values of a type from whatever its check lets pass."""

    def attempt(values: dict[str, object]) -> object:
        try:
            return make(**values)
        except ValueError:
            return None

    return st.fixed_dictionaries(fields).map(attempt).filter(lambda value: value is not None)


def _many(of: st.SearchStrategy[object], maximum: int = 3) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=maximum).map(tuple)


_pieces = st.sampled_from(
    [
        "a",
        ".",
        r"\w",
        r"\-",
        "[a-z-]",
        "[^/]",
        "(b|c)",
        "(?:d)",
        "(?i)",
        "x*",
        "y+?",
        "z{2,3}",
        "^",
        "$",
        "|",
        "/",
        r"\.",
    ]
)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_values = st.one_of(_texts, st.sampled_from(["%START_TIME%", "%", "a b", "", "ä", "\\1"]))
_names = st.one_of(
    st.sampled_from(["X-A", "accept", "cookie", "x.y", "!#$%&'*+-.^_`|~"]), st.text("abcABC-_1", min_size=1)
)


def _is_regex(text: str) -> bool:
    try:
        return bool(checked(text))
    except ValueError:
        return False


regexes = st.one_of(
    st.lists(_pieces, min_size=1, max_size=8).map("".join),
    st.text(r"ab/.[]^-()|*+?{}1,2\wd:=!<P>", min_size=1, max_size=10),
).filter(_is_regex)
_paths = st.one_of(
    st.sampled_from(["/", "/a", "/a/", "//a", "/a%2Fb", "/a;b", "/../x", '/a"b', "/{x}", "/a\\b", "/é"]),
    st.text("abc/%.~", max_size=8).map("/{}".format),
)
_labels = st.sampled_from(["a.test", "b.test", "c.b.test", "x-1.test", "localhost", "*.test", "*.b.test"])
_changes = accepted(
    HeaderChanges,
    set=_many(st.tuples(_names, _values), 2),
    add=_many(st.tuples(_names, _values), 2),
    remove=_many(_names, 2),
)
_targets = accepted(
    Target,
    upstream=st.sampled_from(["", *UPSTREAMS]),
    weight=st.sampled_from([0, 1, 90, 1_000_000]),
    request=_changes,
    response=_changes,
)
_rewrites = st.none() | accepted(
    PathRewrite,
    value=st.one_of(_paths, st.sampled_from(["", r"/\0", r"/x\1"])),
    prefix=st.booleans(),
    groups=st.booleans(),
)
_milliseconds = st.sampled_from([0, 1, 999, 1000, 7 * 24 * 3600 * 1000])
_retries = st.none() | accepted(
    RetryRule, codes=_many(st.sampled_from([400, 503, 599])), attempts=st.integers(0, 100), backoff=_milliseconds
)
_sessions = st.none() | accepted(
    SessionAffinity,
    name=_names,
    kind=st.sampled_from(SessionKind),
    lifetime=_milliseconds,
    path=st.one_of(_paths, st.just("")),
)
_forwards = accepted(
    Forward,
    targets=_many(_targets),
    hostname=st.one_of(_labels, st.just("")),
    path=_rewrites,
    mirrors=_many(accepted(Mirror, upstream=st.sampled_from(UPSTREAMS), per_million=st.integers(0, 1_000_000)), 2),
    timeout=_milliseconds,
    attempt_timeout=_milliseconds,
    retry=_retries,
    session=_sessions,
    idle=_milliseconds,
)
_redirects = accepted(
    Redirect,
    code=st.sampled_from([301, 302, 303, 307, 308]),
    scheme=st.sampled_from(["", "http", "https"]),
    hostname=st.one_of(_labels, st.just("")),
    port=st.sampled_from([0, 80, 443, 8080]),
    path=_rewrites,
)
_answers = accepted(DirectResponse, status=st.integers(200, 599), body=_texts)
_path_matches = accepted(PathMatch, kind=st.sampled_from(PathKind), value=st.one_of(_paths, regexes))
_calls = accepted(
    GrpcMethod,
    service=st.one_of(st.just(""), st.just("a.B"), regexes),
    method=_names | st.just(""),
    regex=st.booleans(),
)
_compared = accepted(ValueMatch, name=_names, value=st.one_of(_values, regexes), regex=st.booleans())
_matches = accepted(
    Match,
    path=st.one_of(st.none(), _path_matches, _calls),
    headers=_many(_compared, 2),
    query=_many(_compared, 2),
    method=st.sampled_from(["", "GET", "PURGE"]),
)
_cors = st.none() | accepted(
    Cors,
    origins=_many(st.one_of(st.sampled_from(["*", "https://*.a.test:8443", "http://a.test"]), _texts)),
    methods=_many(st.sampled_from(["*", "GET"])),
    headers=_many(st.one_of(st.just("*"), _names)),
    exposed=_many(_names),
    credentials=st.booleans(),
    max_age=st.integers(0, 2**31 - 1),
)
routes = accepted(
    HttpRoute,
    match=_matches,
    action=st.one_of(_forwards, _redirects, _answers),
    request=_changes,
    response=_changes,
    cors=_cors,
    sources=st.sampled_from([(), (ip_network("10.0.0.0/8"), ip_network("::1"))]),
)
_hosts = st.lists(
    accepted(VirtualHost, domains=_many(st.one_of(_labels, st.just(ANY))), routes=_many(routes)), max_size=3
)
_tables = accepted(HttpRoutes, hosts=_hosts.map(tuple), by_source=st.booleans())
_plain = accepted(Target, upstream=st.sampled_from(["", *UPSTREAMS]), weight=st.sampled_from([0, 1, 90]))
_forwarded = accepted(TcpForward, targets=_many(_plain))


def listeners(certificate: Certificate, authorities: str) -> st.SearchStrategy[Any]:
    """Make HTTP listeners at 127.77.0.5, all of whose certificates are `certificate`; their port is still to choose."""
    clients = st.none() | st.builds(ClientValidation, st.just(authorities), st.booleans())
    terminations = st.none() | st.builds(Termination, st.just((certificate,)), clients)
    chains = accepted(
        Chain, serves=st.one_of(_tables, _tables, _forwarded), names=_many(_labels, 2), termination=terminations
    )
    ranges = st.sampled_from([(), (ip_network("10.0.0.0/8"), ip_network("fd00::/64"))])
    faults = st.none() | accepted(
        Fault,
        until=st.just("2999-01-01T00:00:00Z"),
        delay=st.none() | st.builds(RequestDelay, st.integers(1, 3_600_000), st.integers(1, WHOLE)),
        status=st.none() | st.builds(RequestFailure, st.integers(200, 599), st.integers(1, WHOLE)),
    )
    return accepted(
        HttpListener,
        address=st.just(ip_address("127.77.0.5")),
        port=st.just(1),
        chains=st.lists(chains, min_size=1, max_size=3).map(tuple),
        source_ranges=ranges,
        may_fail=st.booleans(),
        fault=faults,
        http3=st.booleans(),
    )


def proxy(drawn: Iterable[HttpListener], certificate: Certificate, authorities: str) -> Proxy:
    """Make a proxy that has these listeners, each at a port of its own."""
    nodes = (Backend.at(ip_address("127.0.0.1"), 30080),)
    system = BackendTls("a.test", "", ("*.a.test",), ("spiffe://a/b",))
    secure = BackendTls("a.test", authorities, client=certificate)
    upstreams = (
        Upstream(
            UpstreamName("web"), Protocol.TCP, nodes, health=HttpCheck(10256), http=HttpBackends(Speaks.HTTP1, system)
        ),
        Upstream(UpstreamName("grpc"), Protocol.TCP, nodes, health=ConnectCheck(), http=HttpBackends(Speaks.HTTP2)),
        Upstream(UpstreamName("secure"), Protocol.TCP, nodes, http=HttpBackends(Speaks.HTTP2, secure)),
        Upstream(UpstreamName("bytes"), Protocol.TCP, nodes, bytes_by=secure),
        Upstream(UpstreamName("empty"), Protocol.TCP, (), http=HttpBackends(tls=BackendTls("", believes_all=True))),
    )
    made = tuple(replace(each, port=8080 + number) for number, each in enumerate(drawn))
    name, identity = ProxyName("kind/gateways/default/web"), ProxyId("0123456789ab")
    return Proxy(name, identity, Discovery.STATIC, (), upstreams, http=made, may_serve_http=True)
