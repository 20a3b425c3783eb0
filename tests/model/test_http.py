"""What can be served by HTTP at all: a value that can't is refused as it is made, with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import pytest

from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    HeaderChanges,
    HttpRoute,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    RetryRule,
    Target,
    ValueMatch,
)
from locallb.model.http_serving import (
    ANY,
    BackendTls,
    Certificate,
    Chain,
    HttpListener,
    HttpRoutes,
    Termination,
    VirtualHost,
)
from locallb.model.identities import ClusterName, Digest, UpstreamName

PLAIN = HttpRoutes(())
EXACT = Match(PathMatch(PathKind.EXACT, "/a"))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: HeaderChanges(set=(("x", "a\r\ny: b"),)), "isn't a header's value"),
        (lambda: HeaderChanges(add=(("x\r\ny", "a"),)), "isn't the name of a header"),
        (lambda: HeaderChanges(remove=("Host",)), "the proxy's own"),
        (lambda: HeaderChanges(set=(("X-Envoy-Original-Path", "/"),)), "the proxy's own"),
        (lambda: ValueMatch("x", "a\0b"), "can't be compared"),
        (lambda: Match(method="GET / HTTP"), "isn't the name of a header"),
        (lambda: PathMatch(PathKind.EXACT, "a"), "isn't a path"),
        (lambda: PathMatch(PathKind.PREFIX, "/a?b"), "isn't a path"),
        (lambda: PathMatch(PathKind.EXACT, "/" + "a" * 1024), "isn't a path"),
        (lambda: PathMatch(PathKind.REGEX, "(a"), r"missing \)"),
        (lambda: VirtualHost(("a b.test",), ()), "is no host"),
        (lambda: VirtualHost(("a.*.test",), ()), "is no host"),
        (lambda: VirtualHost(("a.test:80",), ()), "is no host"),
        (lambda: Chain(PLAIN, ("a.test",)), "plain HTTP has no SNI"),
        (lambda: HttpListener(ip_address("127.77.0.5"), 80, (Chain(PLAIN), Chain(PLAIN))), "the same hostname"),
        (lambda: Termination(()), "without a certificate"),
        (lambda: Certificate(ClusterName("c"), "n", "s", Digest("../../x")), "isn't hexadecimal"),
        (lambda: BackendTls("*.a.test"), "isn't a hostname"),
        (lambda: Target(UpstreamName("a"), -1), "weight -1 isn't within 0 and 1000000"),
        (lambda: Redirect(code=200), "isn't the status of a redirect"),
        (lambda: Redirect(scheme="javascript"), "http or https"),
        (lambda: DirectResponse(99), "status 99 isn't within"),
        (lambda: RetryRule((200,)), "status 200 isn't within"),
        (lambda: HttpRoute(EXACT, Forward((), path=PathRewrite("/b", prefix=True))), "by prefix"),
    ],
)
def test_invalid_http_values_are_refused_by_name(make: Callable[[], object], complaint: str) -> None:
    """The sentence names what is wrong; nothing of it gets as far as Envoy."""
    with pytest.raises(ValueError, match=complaint):
        make()


@pytest.mark.parametrize("domain", [ANY, "a.test", "*.a.test", "localhost"])
def test_hostnames_that_are_served(domain: str) -> None:
    """Names, wildcards of one first label, and whatever."""
    assert VirtualHost((domain,), ()).domains == (domain,)
