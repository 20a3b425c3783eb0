"""Policies of hostnames and TLS: what Gateways and Ingresses serve."""

from __future__ import annotations

import pytest

from tests.support.gateway_objects import JsonObject, gateway, gateway_class, listener, route, rule, service
from tests.support.ingress_objects import backend as to
from tests.support.ingress_objects import ingress, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.repository import git, report
from tests.support.stages import Stage

PASSED = listener("tls", 443, "TLS", tls={"mode": "Passthrough"})
TO_HTTPS = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}
HTTPS = listener("https", 443, "HTTPS", hostname="*.shop.test")


def tls_route(*hostnames: str) -> JsonObject:
    """Make a route of connections by name."""
    backends = {"backendRefs": [{"name": "api", "port": 8080}]}
    return route(backends, kind="TLSRoute", hostnames=list(hostnames))


def refused(
    repo: Stage, *objects: JsonObject, proxies: str = "per-service", **policies: object
) -> list[tuple[str, str]]:
    """Return what a preview refuses of objects that are new."""
    repo.configure(policies=policies, proxies=proxies, ingress={"class": "local"}, certificates="local")
    git(repo.root, "add", "-A")
    git(repo.root, "commit", "-q", "--allow-empty", "-m", "x")
    repo.write("new.yaml", gateway_class(), service(), *objects)
    code = repo.run("preview", "--against", "HEAD", "--format", "json").code
    reported = [(each["policy"], each["message"]) for each in report(repo, code=code)["violations"]]
    assert code == ({"hostnames": 14, "tls": 15}[reported[0][0]] if reported else 0)
    (repo.manifests / "new.yaml").unlink()
    return reported


def test_hostnames_beyond_those_that_are_allowed_are_refused(repo: Stage) -> None:
    """Of requests and of connections by name, with the object, the value and the remedy."""
    allowed: JsonObject = {"hostnames": ["*.test", "shop.example.com"]}
    fine = route(hostnames=["a.b.test", "*.c.test", "shop.example.com"])
    assert refused(repo, gateway(), fine, **allowed) == []
    (reported,) = refused(repo, gateway(), route(hostnames=["a.test", "test", "*.example.com"]), **allowed)
    remedy = "use hostnames of these, or add them there"
    assert reported[0] == "hostnames"
    assert "gateways/shop/web: serves " in reported[1]
    assert "*.example.com" in reported[1]
    assert reported[1].endswith(f"local-lb:policies.hostnames allows (*.test, shop.example.com); {remedy}")
    assert "serves every hostname," in refused(repo, gateway(), route(), **allowed)[0][1]
    assert "serves evil.org," in refused(repo, gateway(PASSED), tls_route("evil.org"), **allowed)[0][1]
    assert refused(repo, gateway(PASSED), tls_route("a.test"), **allowed) == []
    everywhere = ingress(ingress_rule(path("/", to=to("web")), host="a.org"), namespace="n")
    assert "serves a.org," in refused(repo, everywhere, **allowed)[0][1]


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_connections_by_tls_for_every_name_are_seen(repo: Stage, proxies: str) -> None:
    """Where neither the listener nor a route has a hostname; otherwise the listener's counts, and bytes have none."""
    allowed: JsonObject = {"hostnames": ["*.test"], "proxies": proxies}
    sibling = {**tls_route("a.test"), "metadata": {"namespace": "shop", "name": "b"}}
    for routes in ([tls_route()], [tls_route(), sibling]):
        (reported,) = refused(repo, gateway(PASSED), *routes, **allowed)
        assert "gateways/shop/web: serves every hostname," in reported[1]
    named = listener("tls", 443, "TLS", hostname="*.test", tls={"mode": "Passthrough"})
    assert refused(repo, gateway(named), tls_route(), **allowed) == []
    bytes_only = route({"backendRefs": [{"name": "api", "port": 8080}]}, kind="TCPRoute")
    assert refused(repo, gateway(listener("tcp", 90, "TCP")), bytes_only, **allowed) == []


def test_requests_without_tls_are_refused_unless_they_are_sent_to_it(repo: Stage) -> None:
    """Each port that takes some is named; bytes are nobody's matter."""
    wished: JsonObject = {"tls": "required"}
    hosts = ["a.shop.test"]
    (reported,) = refused(repo, gateway(listener(), listener("b", 8080)), route(hostnames=hosts), **wished)
    assert reported[0] == "tls"
    assert "gateways/shop/web: ports 80/TCP, 8080/TCP are open to requests without TLS" in reported[1]
    redirects = route(rule(backends=[], filters=[TO_HTTPS]), parentRefs=[{"name": "web", "sectionName": "http"}])
    secure = route(name="b", parentRefs=[{"name": "web", "sectionName": "https"}], hostnames=hosts)
    assert refused(repo, gateway(listener(), HTTPS), redirects, secure, **wished) == []
    assert refused(repo, gateway(PASSED), tls_route("a.test"), **wished) == []
    bytes_only = route({"backendRefs": [{"name": "api", "port": 8080}]}, kind="TCPRoute")
    assert refused(repo, gateway(listener("tcp", 90, "TCP")), bytes_only, **wished) == []
    assert refused(repo, gateway(), **wished) == []
