"""Whatever the model of HTTP can say, Envoy takes: so nothing that somebody wrote into a cluster stops a proxy."""

from __future__ import annotations

import shutil
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from locallb.envoy import http_chains as names
from locallb.envoy import render, render_empty, render_part, watches
from locallb.envoy.fragments import as_files
from locallb.envoy.http_chains import SYSTEM_AUTHORITIES, watched_by_chains
from locallb.model.http_routes import (
    Forward,
    HeaderChanges,
    HttpRoute,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    Target,
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
from locallb.model.identities import ClusterName, Digest, PartId, Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, Part, Proxy, Upstream
from tests.envoy import http_strategies
from tests.support.certificates import Authority, Pair
from tests.support.envoy import Envoy, quiet, validate
from tests.support.envoy_traffic import Block
from tests.support.goldens import GOLDENS, Golden

pytestmark = pytest.mark.envoy
_CERTIFICATE = Certificate(ClusterName("kind"), "default", "web", Digest("ab" * 32))
_TOGETHER = 15
"""Listeners of a proxy: it takes an Envoy about as long to start as to look at them."""


def _check(pair: Pair, authority: Authority, examples: int) -> None:
    """Have Envoy take listeners, many at once, with everything inline, so that it looks at all of them."""
    certificate, authorities = pair.reference("web"), authority.own.pem
    drawn: list[HttpListener] = []

    @settings(max_examples=examples, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(http_strategies.listeners(certificate, authorities))
    def draw(listener: HttpListener) -> None:
        drawn.append(listener)

    def refusal(listeners: list[HttpListener]) -> str:
        with TemporaryDirectory() as directory:
            files = render(http_strategies.proxy(listeners, certificate, authorities)).files
            result = validate(_prepared(Path(directory), pair, authority), files)
        return result.stderr if result.returncode else ""

    draw()
    for first in range(0, len(drawn), _TOGETHER):
        together = drawn[first : first + _TOGETHER]
        if why := refusal(together):
            pytest.fail("\n".join([why, *(f"{one}: {alone}" for one in together if (alone := refusal([one])))]))


def _prepared(directory: Path, pair: Pair, authority: Authority) -> Path:
    pair.put(directory, "web")
    shutil.copy(authority.own.chain, directory / SYSTEM_AUTHORITIES)
    return directory


def test_envoy_accepts_sampled_http_configurations(pair: Pair, authority: Authority) -> None:
    """A few of all listeners; the slow tier tries many."""
    _check(pair, authority, 45)


@pytest.mark.slow
def test_envoy_accepts_http_configurations_with_extreme_values(pair: Pair, authority: Authority) -> None:
    """Names, values, paths, expressions and statuses at their edges, in every combination."""
    _check(pair, authority, 750)


@pytest.mark.parametrize("discovery", list(Discovery))
def test_watched_files_of_a_proxy_are_counted(
    discovery: Discovery, tmp_path: Path, pair: Pair, authority: Authority, block: Block
) -> None:
    """Each file of routes, certificates, authorities and endpoints takes an inotify instance; inline none does."""
    secure = BackendTls("a.test", authority.own.pem, client=pair.reference("web"))
    routes = HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), Forward((Target(UpstreamName("tcp-80")),))),)),))
    clients = Termination((pair.reference("web"),), ClientValidation(authority.own.pem))
    proxy = Proxy(
        ProxyName("kind/gateways/default/web"),
        ProxyId("0123456789ab"),
        discovery,
        upstreams=(Upstream(UpstreamName("tcp-80"), Protocol.TCP, (), http=HttpBackends(tls=secure)),),
        http=(
            HttpListener(ip_address(block[9]), 8080, (Chain(routes),)),
            HttpListener(ip_address(block[9]), 8443, (Chain(routes, ("a.test",), clients), Chain(routes, (), clients))),
        ),
        may_serve_http=True,
    )
    rendered = render(proxy)
    with Envoy(_prepared(tmp_path, pair, authority), rendered) as envoy:
        envoy.wait(rendered)
        of_upstreams = 2  # endpoints and authorities
        counted = watched_by_chains([chain for each in proxy.http for chain in each.chains], 1) + of_upstreams
        assert (envoy.watches(), counted) == (watches(discovery, counted), 9)
        assert envoy.log() == ""


def test_a_part_of_a_stacks_proxy_has_all_of_it_inside(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    """No file but those of listeners and clusters, and a certificate's own; what has no backends is answered 503."""
    part, proxy = PartId("ba9876543210"), Proxy(ProxyName("shared-1"), ProxyId("0123456789ab"), Discovery.STATIC)
    routes = HttpRoutes(
        (VirtualHost((ANY,), (HttpRoute(Match(), Forward((Target(UpstreamName(f"{part}-tcp-80")),))),)),)
    )
    terminated = Termination((pair.reference("web"),), ClientValidation(authority.own.pem))
    served = HttpListener(ip_address("127.77.0.5"), 8443, (Chain(routes, ("a.test",), terminated),))
    upstream = Upstream(UpstreamName(f"{part}-tcp-80"), Protocol.TCP, (), http=HttpBackends())
    rendered = render_part(Part(part, proxy.id, (), (upstream,), (served,)))
    assert (list(rendered.listeners), list(rendered.clusters)) == ([served.name], [upstream.name])
    files = {**render_empty(proxy).files, **as_files(rendered.listeners, rendered.clusters)}
    assert set(files) == {"bootstrap.json", "lds.json", "cds.json"}
    result = validate(_prepared(tmp_path, pair, authority), files)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("discovery", list(Discovery))
def test_a_proxy_with_http_renders_to_its_golden_files(discovery: Discovery, golden: Golden) -> None:
    """What was written stays what it is, byte for byte: routes, a certificate by reference, backends by TLS."""
    forward = Forward(
        (Target(UpstreamName("tcp-80"), 9, HeaderChanges((("x-a", "1%"),))), Target(UpstreamName(""))),
        path=PathRewrite("", prefix=True),
    )
    routes = HttpRoutes(
        (
            VirtualHost(("a.test", "*.b.test"), (HttpRoute(Match(PathMatch(PathKind.PREFIX, "/a/")), forward),)),
            VirtualHost((ANY,), (HttpRoute(Match(), Redirect(301, "https")),)),
        )
    )
    chain = Chain(routes, ("a.test",), Termination((_CERTIFICATE,)))
    through = Chain(TcpForward((Target(UpstreamName("tcp-443")),)), ("*.c.test",))
    address, backends = ip_address("127.77.0.5"), (Backend.at(ip_address("127.0.0.1"), 30080),)
    secure = HttpBackends(Speaks.HTTP2, BackendTls("a.test", dns_names=("*.a.test",)))
    proxy = Proxy(
        ProxyName("kind/gateways/default/web"),
        ProxyId("0123456789ab"),
        discovery,
        upstreams=(
            Upstream(UpstreamName("tcp-80"), Protocol.TCP, backends, health=ConnectCheck(), http=secure),
            Upstream(UpstreamName("tcp-443"), Protocol.TCP, backends),
        ),
        http=(HttpListener(address, 80, (Chain(routes),)), HttpListener(address, 443, (chain, through))),
        may_serve_http=True,
    )
    golden.check(f"envoy_http/{discovery}", render(proxy).files)


def test_no_golden_http_case_is_stale(golden: Golden) -> None:
    """`fault` is written by `test_request_faults`."""
    golden.cases("envoy_http", (*map(str, Discovery), "fault"))


@pytest.mark.parametrize("case", [*map(str, Discovery), "fault"])
def test_envoy_validates_every_golden_http_configuration(
    case: str, tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    """`envoy --mode validate` accepts the golden files without a warning."""
    files = {path.name: path.read_text() for path in (GOLDENS / "envoy_http" / case).iterdir()}
    directory = _prepared(tmp_path, pair, authority)
    shutil.copy(pair.chain, directory / names.chain_file(_CERTIFICATE))
    shutil.copy(pair.key, directory / names.key_file(_CERTIFICATE))
    result = validate(directory, files)
    assert (result.returncode, quiet(result.stderr)) == (0, "")
