"""Which Ingresses are ours, which share an address, what is told of the rest: tables."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from locallb.config.parsing import parse_ingress
from locallb.config.settings import AddressPer, IngressSettings, Settings
from locallb.config.values import Mistakes
from locallb.gateway.kinds import parse_api_object
from locallb.ingress.parsing import CLASS_ANNOTATION, INGRESS_KINDS, class_notices, grouped, left_out
from locallb.ingress.translation import (
    MAX_LISTED_IN_STATUS,
    BoundIngresses,
    ingress_statuses,
    served_text,
    serving_text,
)
from locallb.model.gateway_of_cluster import Ingress
from locallb.model.http_routes import DirectResponse, Forward
from locallb.model.http_serving import HttpRoutes, VirtualHost
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.model.objects import ServicePort
from locallb.model.own_classes import DEFAULT_ANNOTATION
from tests.support.gateway_objects import DEMO
from tests.support.ingress_objects import (
    JsonObject,
    backend,
    ingress,
    ingress_class,
    objects,
    only,
    path,
    rule,
    secret,
    settings,
)

OURS = ingress_class()
OTHERS = ingress_class("nginx", "k8s.io/ingress-nginx")
DEFAULT = ingress_class(**{DEFAULT_ANNOTATION.replace("/", "__"): "true"})
CLASS_KEY = "demo/ingressclasses//local"


def annotated(name: str, class_name: str | None = None) -> JsonObject:
    """Make an Ingress with the old annotation."""
    return ingress(rule(path()), metadata={"annotations": {CLASS_ANNOTATION: name}}, class_name=class_name)


@pytest.mark.parametrize(
    ("documents", "stated", "keys"),
    [
        ([OURS, ingress(rule(path()))], {}, [CLASS_KEY]),
        ([OURS, ingress(rule(path()), class_name="nginx")], {}, []),
        ([OURS, ingress(rule(path()), class_name=None)], {}, []),
        ([DEFAULT, ingress(rule(path()), class_name=None)], {}, [CLASS_KEY]),
        ([OURS, annotated("local")], {}, [CLASS_KEY]),
        ([OURS, annotated("nginx", "local")], {}, []),
        ([OTHERS, ingress(rule(path()), class_name="nginx")], {}, []),
        ([ingress(rule(path()))], {}, []),
        ([ingress(rule(path()))], {"class_name": "local"}, [CLASS_KEY]),
        ([OURS, ingress(rule(path()))], {"class_name": "other"}, []),
        ([OTHERS, ingress(rule(path()), class_name="nginx")], {"class_name": "nginx"}, []),
        ([OURS, ingress(rule(path()))], {"is_off": True}, []),
        ([OURS, ingress(rule(path()))], {"address": AddressPer.NAMESPACE}, ["demo/ingressclasses/shop/local"]),
        ([OURS, ingress(rule(path()))], {"address": AddressPer.INGRESS}, ["demo/ingresses/shop/web"]),
        ([OURS, ingress(rule(path()), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})], {}, []),
    ],
)
def test_whose_an_ingress_is(documents: list[JsonObject], stated: dict[str, object], keys: list[str]) -> None:
    """By class, annotation or default class; only of our controller, or of the class that the stack names."""
    found = grouped(objects(*documents), settings(**stated))
    assert [str(key) for key in found] == keys
    assert [ObjectKey.parse(key) for key in keys] == list(found)


def test_ingresses_of_a_class_share_an_address_within_selected_namespaces() -> None:
    """Of two namespaces; a stack that selects one of them serves that one, and reports the other."""
    both = objects(OURS, ingress(rule(path())), ingress(rule(path()), namespace="team", name="other"))
    assert [len(some) for some in grouped(both, settings()).values()] == [2]
    narrow = Settings((), (), namespaces=frozenset({"shop"}))
    assert [len(some) for some in grouped(both, narrow).values()] == [1]
    assert list(left_out(both, narrow)) == [
        "1 Ingress left out: local-lb:namespaces or local-lb:selector leaves them out: demo/ingresses/team/other"
    ]


def test_class_of_another_controller_is_not_served_and_reported() -> None:
    """Also where the stack names it."""
    (reported,) = class_notices(objects(OTHERS), IngressSettings("nginx"))
    assert "IngressClass nginx has the controller k8s.io/ingress-nginx" in reported


@pytest.mark.parametrize(
    ("document", "stated"),
    [
        (ingress(), "spec has neither rules nor defaultBackend; give it one of both"),
        (ingress(rule(path("cart"))), '"cart" isn\'t a path'),
        (ingress(rule(path("/a//b"))), 'path is "/a//b"; give a path such as /cart'),
        (ingress(rule(path("/a(/|$)(.*)", "ImplementationSpecific"))), "expressions aren't served"),
        (ingress(rule(path("/a", "Regex"))), 'pathType is "Regex"; use Exact or Prefix or ImplementationSpecific'),
        (ingress(rule({"path": "/", "backend": backend()})), "pathType is missing"),
        (ingress(rule(path(), host="127.0.0.1")), "give a DNS name such as"),
        (ingress(rule(path(), host="*")), "give a DNS name such as"),
        (ingress(rule(path(to={"service": {"name": "api"}}))), "service.port is missing; give it a number or a name"),
        (ingress(rule(path(to={"resource": {"kind": "Bucket"}}))), "only `service` is served"),
        (ingress(rule(path(to="gone"))), "Service shop/gone isn't there; make it, or correct the backend"),
        (ingress(rule(path(to=backend("api", "web")))), "Service shop/api has no TCP port called web"),
        (ingress(rule(path(to=backend("api", 9)))), "Service shop/api has no TCP port 9"),
        (ingress(rule(path(), path())), "every host/: the older Ingress shop/web has it; remove one of both"),
        (ingress(rule(path()), tls=[{"hosts": ["a.test"]}]), "spec.tls names no Secret for a.test"),
        (ingress(rule(path()), tls=[{"secretName": "gone"}]), "Secret shop/gone, for every name, can't be used"),
        (ingress(rule(path()), tls=[{"secretName": "../etc"}]), 'secretName is "../etc"'),
    ],
)
def test_each_unserved_part_of_an_ingress_is_reported(document: JsonObject, stated: str) -> None:
    """One sentence each, with the Ingress."""
    (reported,) = only(document).notices
    assert reported.startswith("demo: Ingress shop/web: ")
    assert stated in reported


@pytest.mark.parametrize("junk", [None, 1, "x", [], {"rules": 1}, {"rules": [1]}, {"tls": [1]}, {"defaultBackend": 1}])
def test_rubbish_is_kept_with_its_problem(junk: object) -> None:
    """Nothing is raised, whatever stands there."""
    read = parse_api_object({**ingress(), "spec": junk}, INGRESS_KINDS)
    assert isinstance(read, Ingress)
    parts = [read.default, *read.rules]
    assert read.problem or read.refused or any(part.problem for part in parts if part)


def plain(served: BoundIngresses) -> tuple[VirtualHost, ...]:
    table = served.chains[80][0].serves
    assert isinstance(table, HttpRoutes)
    return table.hosts


OTHER = {"hosts": ["b.test"], "secretName": "cert"}


@pytest.mark.parametrize(
    ("tls", "stated", "names"),
    [
        ([1, OTHER], "spec.tls[0] is 1; give an object", ("b.test",)),
        ([{"hosts": ["a.test"], "secretName": "../etc"}, OTHER], 'secretName is "../etc"', ("b.test",)),
        ([{"hosts": ["a_b"], "secretName": "cert"}, OTHER], 'spec.tls[0].hosts[0] is "a_b"', ("b.test",)),
        ([{"hosts": ["a_b", "b.test"], "secretName": "cert"}], 'spec.tls[0].hosts[0] is "a_b"', ("b.test",)),
        ([{"hosts": "a.test", "secretName": "cert"}, OTHER], 'hosts is "a.test"; give a list', ("b.test",)),
        ([{"hosts": ["a_b"], "secretName": "cert"}], 'spec.tls[0].hosts[0] is "a_b"', None),
        ({"hosts": ["a.test"]}, "give a list", None),
        ([OTHER] * 1001, "spec.tls has 1001 entries", None),
    ],
)
def test_invalid_tls_entries_are_refused_and_valid_ones_serve(
    tls: object, stated: str, names: tuple[str, ...] | None
) -> None:
    """An entry with invalid hosts only doesn't count as one for every name."""
    served = only(ingress(rule(path()), tls=tls), secret())
    (reported,) = served.notices
    assert reported.startswith("demo: Ingress shop/web: spec.tls")
    assert stated in reported
    assert [chain.names for chain in served.chains.get(443, ())] == ([names] if names else [])
    assert len(plain(served)[0].routes) == 1


def test_reported_mistakes_of_one_ingress_are_limited_and_the_rest_counted() -> None:
    """One Ingress can't fill the log, and those of other Ingresses are still reported."""
    bad = [path(f"/a//{number}") for number in range(900)]
    tls = [{"hosts": ["_"] * 1000, "secretName": "cert"} for _ in range(3)]
    served = only(ingress(rule(*bad), tls=tls), ingress(rule(path("b")), name="z"), secret())
    mine, other = ([reported for reported in served.notices if f"shop/{name}:" in reported] for name in ("web", "z"))
    assert (len(mine), len(other)) == (MAX_LISTED_IN_STATUS + 1, 1)
    assert mine[-1].endswith(f"{1900 - MAX_LISTED_IN_STATUS} more of its parts aren't served; correct these first")


@pytest.mark.parametrize("default", [1, {"service": {"name": "../etc"}}, {"service": {"name": "api", "port": {}}}])
def test_a_default_backend_that_is_wrong_is_refused_and_rules_serve(default: object) -> None:
    """What no rule takes is answered 503, as where a Service is missing, and goes to nobody else."""
    other = ingress(name="z-newer", defaultBackend=backend())
    served = only(ingress(rule(path("/a")), defaultBackend=default), other)
    reported, shadowed = served.notices
    assert reported.startswith("demo: Ingress shop/web: spec.defaultBackend")
    assert shadowed.startswith("demo: Ingress shop/z-newer: its default backend: the older Ingress shop/web has that")
    actions = [route.action for route in plain(served)[0].routes]
    assert isinstance(actions[0], Forward)
    assert actions[1:] == [DirectResponse(503)]


def test_a_host_without_paths_goes_to_its_own_default() -> None:
    """Before rules without a host, and after its longer paths; who has all of the host already is told of both."""
    older, newer = ({"creationTimestamp": f"2026-01-0{day}T00:00:00Z"} for day in (1, 2))
    older_one = ingress(rule(path(to="gone")), name="plain", metadata=older)
    longer = ingress(rule(path("/a", to="gone"), host="a.test"), name="longer", metadata=newer)
    mine = ingress(rule(host="a.test"), defaultBackend=backend(), metadata=newer)
    hosts = {one.domains: one.routes for one in plain(only(older_one, longer, mine))}
    assert [isinstance(route.action, Forward) for route in hosts["a.test",]] == [False, True]
    claimed = only(ingress(rule(path(), host="a.test"), name="old", metadata=older), mine)
    assert claimed.notices == (
        "demo: Ingress shop/web: a.test/: the older Ingress shop/old has it; remove one of both",
    )
    assert only(ingress(rule(host="a.test"), rule(path(), host="a.test"), defaultBackend=backend())).notices == ()


def test_ports_of_the_stack_and_tls() -> None:
    """TLS has its port only where there is a certificate to show; the names of an Ingress are there for others."""
    tls = [{"hosts": ["a.test", "*.b.test"], "secretName": "cert"}]
    secured = only(ingress(rule(path(), host="c.test"), tls=tls), secret(), http=8080, https=8443)
    assert [port.port for port in secured.want.ports] == [8080, 8443]
    assert [chain.names for chain in secured.chains[8443]] == [("*.b.test", "a.test")]
    assert secured.hostnames == ("c.test", "a.test", "*.b.test")
    assert [port.port for port in only(ingress(rule(path()))).want.ports] == [80]


def test_a_status_has_address_and_ports() -> None:
    """Of each Ingress that could be read."""
    mine = only(ingress(rule(path())), ingress(name="odd"))
    (reported,) = ingress_statuses(mine, [ip_address("127.0.0.9")], [ServicePort(80)], {})
    assert reported.of.key == ("shop", "web")
    assert reported.status == {
        "loadBalancer": {"ingress": [{"ip": "127.0.0.9", "ports": [{"port": 80, "protocol": "TCP"}]}]}
    }


@pytest.mark.parametrize(
    ("value", "stated"),
    [
        (1, "must be a mapping, not 1"),
        ({"klass": "x"}, "no such key; did you mean class?"),
        ({"class": "a/b"}, '"a/b" is no name of a class'),
        ({"http": 0.5}, "is not a whole number"),
        ({"https": 70000}, "70000 is no port"),
        ({"http": 443}, "443 is the port of `http` as well"),
        ({"address": "host"}, '"host" is no choice; use class, namespace or ingress'),
    ],
)
def test_mistakes_in_the_key(value: object, stated: str) -> None:
    """Each with the remedy."""
    mistakes = Mistakes()
    parse_ingress(mistakes, value)
    assert stated in " ".join(mistakes.sentences)


def test_ingress_key_selects_the_classes_that_are_served() -> None:
    """Absent: every class of ours. Without a class the default one; false: none."""
    mistakes = Mistakes()
    assert parse_ingress(mistakes, None) == IngressSettings()
    assert parse_ingress(mistakes, {}) == IngressSettings("local-lb")
    assert parse_ingress(mistakes, False).is_off
    whole = parse_ingress(mistakes, {"class": "x", "http": 8080, "https": 8443, "address": "ingress"})
    assert whole == IngressSettings("x", 8080, 8443, AddressPer.INGRESS)
    assert mistakes.sentences == []


def test_keys_of_different_kinds_with_one_name_differ() -> None:
    """Those of Services, Ingresses and Ingress classes, also as texts."""
    kinds = [ObjectKind.SERVICE, ObjectKind.INGRESS, ObjectKind.INGRESS_CLASS]
    keys = [ObjectKey(DEMO, "shop", "web", kind) for kind in kinds]
    assert len({str(key) for key in keys}) == len(keys)
    assert [ObjectKey.parse(str(key)) for key in keys] == keys


def test_an_ingress_status_has_the_ports_that_clients_use() -> None:
    """On an address that all share they may be others than its own."""
    ports = [ServicePort(80, mapped=10080), ServicePort(443, mapped=443)]
    assert serving_text(["a.test"], [ip_address("127.0.0.1")], ports) == "serves a.test on 10080, 443 at 127.0.0.1"


def test_a_default_backend_that_an_older_ingress_has_is_told_and_serves_nothing() -> None:
    """The younger one has no other rule; its neighbour with one goes on, and is told the same of its default."""
    older, younger = ingress(name="a", defaultBackend=backend()), ingress(name="b", defaultBackend=backend())
    ruled = ingress(rule(path("/c"), host="c.test"), name="c", defaultBackend=backend())
    bound = only(older, younger, ruled)
    why = "its default backend: the older Ingress shop/a has that of every host; remove one of both"
    assert bound.notices == (f"demo: Ingress shop/b: {why}", f"demo: Ingress shop/c: {why}")
    assert {str(name) for name in bound.shadowed} == {"shop/b"}
    assert only(older).shadowed == frozenset()


def test_an_ingress_without_a_class_is_told_what_to_write() -> None:
    """It is of no other class."""
    alone = objects(OURS, ingress(class_name=None))
    (sentence,) = left_out(alone, settings())
    assert sentence.startswith("1 Ingress left out: they have no class, and no IngressClass is the default; write one")
    assert "spec.ingressClassName (served: local)" in sentence


def test_an_event_names_the_port_for_tls_only_for_hosts_with_a_certificate() -> None:
    """Those of the Ingress itself: its neighbour's certificate is the neighbour's."""
    certified = ingress(rule(path(), host="a.test"), name="a", tls=[{"hosts": ["a.test"], "secretName": "cert"}])
    plain_one = ingress(rule(path(), host="c.test"), name="c")
    mixed = ingress(rule(path(), host="d.test"), rule(path("/x"), host="a.test"), name="d")
    bound = only(certified, plain_one, mixed, secret())
    ports = [ServicePort(80), ServicePort(443)]
    terms = {each.meta.key.name: served_text(bound, each, [ip_address("127.0.0.1")], ports) for each in bound.ingresses}
    assert terms == {
        "a": "serves a.test on 80, 443 at 127.0.0.1",
        "c": "serves c.test on 80 at 127.0.0.1",
        "d": "serves d.test, a.test on 80 at 127.0.0.1 (a.test also on 443)",
    }
