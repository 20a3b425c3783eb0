"""Ingresses in manifests, served by a real Envoy: a table of requests, each answered as the API says."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.gateway_clients import address_of, answering, get, service, tls_secret
from tests.support.ingress_objects import JsonObject, backend, ingress, old, path, rule, shown
from tests.support.manifests import node
from tests.support.stages import CHECKOUT, Stage

pytestmark = pytest.mark.envoy

PORTS = {"http": 8080, "https": 8443}


INGRESSES = (
    ingress(
        rule(
            path("/foo", "Exact", "exact"),
            path("/foo", "Prefix", "short"),
            path("/foo/bar/", "Prefix", "long"),
            path("/ours/*", "ImplementationSpecific", "ours"),
            path("/named", "Prefix", backend("named", "web")),
            path("/gone", "Prefix", "gone"),
            path("/bucket", "Prefix", {"resource": {"kind": "Bucket", "name": "b"}}),
            host="a.test",
        ),
        rule(path("/", "Prefix", "wild"), host="*.a.test"),
        rule(path("/", "Prefix", "deep"), host="x.a.test"),
        rule(path("/any", "Prefix", "any")),
        rule(host="bare.test"),
        name="first",
        metadata=old(1),
        defaultBackend=backend("default"),
    ),
    ingress(
        rule(path("/foo", "Prefix", "other"), path("/else", "Prefix", "other"), host="a.test"),
        name="second",
        metadata=old(2),
    ),
    ingress(class_name=None, name="third", metadata=old(3), defaultBackend=backend("other")),
)
TABLE = [
    ("a.test", "/foo", "exact"),
    ("A.TEST:8080", "/foo?q=1", "exact"),
    ("a.test", "/foo/", "short"),
    ("a.test", "/foo/x", "short"),
    ("a.test", "/foobar", "default"),
    ("a.test", "/foo/bar", "long"),
    ("a.test", "/foo/bar/", "long"),
    ("a.test", "/foo/bar/x", "long"),
    ("a.test", "/foo/barx", "short"),
    ("a.test", "/Foo", "default"),
    ("a.test", "/ours", "ours"),
    ("a.test", "/ours/x", "ours"),
    ("a.test", "/named", "named"),
    ("a.test", "/gone", 503),
    ("a.test", "/bucket", 503),
    ("a.test", "/else", "other"),
    ("a.test", "/any", "any"),
    ("a.test", "/", "default"),
    ("b.a.test", "/", "wild"),
    ("B.a.test:8080", "/any", "wild"),
    ("x.a.test", "/any", "deep"),
    ("b.c.a.test", "/", "default"),
    ("b.c.a.test", "/any", "any"),
    ("bare.test", "/", "default"),
    ("other.test", "/any/x", "any"),
    ("other.test", "/", "default"),
]
BACKENDS = ("exact", "short", "long", "ours", "named", "wild", "deep", "any", "default", "other")


def test_a_table_of_requests(play: Stage) -> None:
    """Path types, hosts, wildcards of one label and defaults; of two for a path the older one."""
    play.configure(ingress={"class": "local", **PORTS})
    with ExitStack() as servers:
        ports = {name: servers.enter_context(answering(name)) for name in BACKENDS}
        named = service("named", ports["named"])
        named["spec"]["ports"][0]["name"] = "web"
        play.write("cluster.yaml", node(), named, *(service(name, at) for name, at in ports.items() if name != "named"))
        play.write("ingress.yaml", *INGRESSES)
        done = play.up()
        reported = done.out + done.err
        assert "Ingress shop/first: Service shop/gone isn't there" in reported
        assert "resource names no Service; only `service` is served" in reported
        assert "Ingress shop/second: a.test/foo: the older Ingress shop/first has it" in reported
        assert "1 Ingress left out: they have no class, and no IngressClass is the default; write one" in reported
        address = address_of(play)
        for host, requested, wanted in TABLE:
            status, text = get(address, requested, host)
            assert (status if wanted == status else text.partition(" ")[0]) == wanted, (host, requested, status, text)
    detail = play.run("status", "c/ingressclasses//local").out
    assert "8080: a.test/foo → shop/exact:8080" in detail


def test_ingress_example_serves_as_documented(play: Stage) -> None:
    """Its stack and its manifests, with ports of the test in place of the shop's."""
    example = CHECKOUT / "examples" / "ingress"
    stated = yaml.safe_load((example / "Pulumi.ingress.yaml").read_text())["config"]
    play.configure(ingress=stated["local-lb:ingress"])
    with answering("web") as web, answering("api") as api:
        cluster = (example / "manifests" / "cluster.yaml").read_text()
        cluster = cluster.replace("30880", str(web)).replace("30980", str(api))
        play.write("cluster.yaml", node(), *yaml.safe_load_all(cluster))
        play.write("ingress.yaml", *yaml.safe_load_all((example / "manifests" / "ingress.yaml").read_text()))
        play.up()
        address = address_of(play)
        for host, requested, wanted in (
            ("shop.test", "/", "web"),
            ("shop.test", "/api/v1", "api"),
            ("a.shop.test", "/", "web"),
        ):
            assert get(address, requested, host)[1].startswith(wanted)
        assert get(address, host="else.test")[0] == 404
    assert "8080: shop.test/api/* → shop/api:80" in play.run("status", "c/ingressclasses//local-lb").out


def test_an_ingress_has_the_address_that_it_asks_for(play: Stage) -> None:
    """Where each has its own; who asks for another's, or for one of no pool, gets none, and is told."""
    play.configure(ingress={"class": "local", "address": "ingress", **PORTS})

    def asking(name: str, day: int, addresses: str) -> JsonObject:
        metadata = {**old(day), "annotations": {"local-lb.dev/addresses": addresses}}
        return ingress(rule(path(to="one")), name=name, metadata=metadata)

    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.write(
            "ingress.yaml",
            asking("first", 1, play.at(9)),
            asking("late", 2, play.at(9)),
            asking("far", 3, "192.0.2.1"),
        )
        play.up()
        rows = play.status()
        assert rows["shop/first"]["addresses"] == [play.at(9)]
        assert get(play.at(9))[1] == "one / -"
        assert [rows[f"shop/{name}"]["reason"] for name in ("late", "far")] == ["InUse", "OutOfPool"]


def test_each_tls_host_gets_its_secrets_certificate(play: Stage, tmp_path: Path) -> None:
    """Each name has its Secret's certificate, of two the older Ingress'; a name without one gets no connection."""
    authority = Authority(tmp_path / "authority")
    play.configure(ingress={"class": "local", **PORTS})
    pairs = {name: authority.sign(f"DNS:{name}.test") for name in ("one", "two")}
    secrets = [{**tls_secret(pair), "metadata": {"name": name, "namespace": "shop"}} for name, pair in pairs.items()]
    tls = [{"hosts": ["one.test"], "secretName": "one"}, {"hosts": ["two.test", "*.two.test"], "secretName": "two"}]
    with answering("one") as one, answering("two") as two:
        play.write("cluster.yaml", node(), service("one", one), service("two", two), *secrets)
        play.write(
            "ingress.yaml",
            ingress(
                rule(path(to="one"), host="one.test"),
                rule(path(to="two"), host="two.test"),
                rule(path(to="two"), host="*.two.test"),
                rule(path(to="two"), host="none.test"),
                metadata=old(1),
                tls=tls,
            ),
            ingress(
                rule(path("/b"), host="b.test"),
                name="late",
                metadata=old(2),
                tls=[{"hosts": ["one.test"], "secretName": "two"}, {"hosts": ["b.test"], "secretName": "gone"}],
            ),
        )
        done = play.up()
        reported = done.out + done.err
        assert "Ingress shop/late: for one.test the older Ingress shop/web shows another certificate" in reported
        assert "Secret shop/gone, for b.test, can't be used: it isn't there" in reported
        address = address_of(play)
        first, second = shown(address, authority, "one.test"), shown(address, authority, "two.test")
        assert (first[1], second[1]) == ("200 one", "200 two")
        assert first[0] != second[0]
        assert shown(address, authority, "x.two.test") == second
        assert shown(address, authority, "one.test", "two.test")[1].startswith("421")
        assert get(address, host="none.test")[1].startswith("two")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(address, authority, "none.test")
