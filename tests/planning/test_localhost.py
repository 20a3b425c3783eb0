"""Names below `localhost`: which ports have them, who wins, which port is chosen and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb import envoy
from locallb.config.parsing import parse_settings
from locallb.envoy import http_routes
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.http_serving import HttpListener, HttpRoutes, Speaks
from locallb.model.identities import LOCALHOST, ClusterName, Fingerprint, Home, ObjectKey, Owner, Protocol
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import ServicePort
from locallb.model.snapshot import Claim, HostFacts, LocalAuthority, MappedPort, Snapshot, Socket
from locallb.planning import gateways, localhost
from locallb.planning.localhost import spoken_by
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement, Plan
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.gateway_objects import service as cluster_service
from tests.support.ingress_objects import ingress, ingress_class, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.objects import node, service

HOME, OTHER = Home("p", "s", "/p"), Home("p", "s", "/other")
UNPRIVILEGED = HostFacts(unprivileged_port_start=1024)
AUTHORITY = LocalAuthority(Fingerprint("ab" * 32), ("test", "localhost"))
V4, V6, EVERY = map(ip_address, ("127.0.0.1", "::1", "0.0.0.0"))
JsonObject = dict[str, Any]


def ports(*named: tuple[str, int]) -> list[JsonObject]:
    return [{"name": name, "port": port, "nodePort": 30000 + number} for number, (name, port) in enumerate(named)]


def snapshot(clusters: Mapping[str, Iterable[object]], host: HostFacts = UNPRIVILEGED, **more: Any) -> Snapshot:  # noqa: ANN401
    """Return what these clusters have, each with a Node."""
    read = [parse_objects(ClusterName(name), [node(), *objects]) for name, objects in clusters.items()]
    return Snapshot(
        HOME,
        tuple(each for part in read for each in part.services),
        nodes=tuple(each for part in read for each in part.nodes),
        gateway_api=tuple(each for part in read for each in part.gateway_api),
        host=host,
        **more,
    )


def planned(existing: Snapshot, memo: AnyMemo | None = None, **config: object) -> Plan:
    """Plan a stack with these names."""
    names = sorted({node.cluster for node in existing.nodes})
    sources = [{"manifests": name, "name": str(name)} for name in names]
    return make_plan(existing, parse_settings({"sources": sources, "localhost": True, **config}), memo)


def local(plan: Plan) -> Placement:
    return next(placement for placement in plan.placements if placement.key == LOCALHOST)


def urls(plan: Plan) -> dict[str, list[str]]:
    """Return the URLs of everything that has some."""
    found = {each.key: each.local_urls for each in plan.placements}
    found |= {each.key: each.local_urls for each in plan.rejections}
    return {str(key): [each.url for each in some] for key, some in found.items() if some}


def numbers(plan: Plan) -> list[int]:
    return [port.port.number for port in local(plan).ports]


def hosts(plan: Plan, port: int = 80) -> dict[str, str]:
    """Return what each name leads to, by the upstream's place."""
    (listener, *_) = next(each.listeners for each in local(plan).ports if each.port.port == port)
    assert isinstance(listener, HttpListener)
    (chain,) = listener.chains
    assert isinstance(chain.serves, HttpRoutes)
    return {host.domains[0]: str(host.routes[0].action) for host in chain.serves.hosts}


@pytest.mark.parametrize(
    ("port", "speaks", "by_tls"),
    [
        (ServicePort(80), Speaks.HTTP1, False),
        (ServicePort(8080), Speaks.HTTP1, False),
        (ServicePort(443), Speaks.HTTP1, True),
        (ServicePort(5432), None, False),
        (ServicePort(5432, name="http"), Speaks.HTTP1, False),
        (ServicePort(5432, name="http-metrics"), Speaks.HTTP1, False),
        (ServicePort(80, name="redis"), None, False),
        (ServicePort(9000, name="grpc-web"), Speaks.HTTP2, False),
        (ServicePort(9000, name="web"), Speaks.HTTP1, False),
        (ServicePort(5432, app_protocol="http"), Speaks.HTTP1, False),
        (ServicePort(5432, app_protocol="HTTPS"), Speaks.HTTP1, True),
        (ServicePort(5432, app_protocol="kubernetes.io/ws"), Speaks.HTTP1, False),
        (ServicePort(5432, app_protocol="kubernetes.io/h2c"), Speaks.HTTP2, False),
        (ServicePort(80, name="http", app_protocol="mongo"), None, False),
        (ServicePort(80, name="grpc", app_protocol="http"), Speaks.HTTP1, False),
        (ServicePort(80, Protocol.UDP), None, False),
    ],
)
def test_which_port_is_one_of_http(port: ServicePort, speaks: Speaks | None, by_tls: bool) -> None:  # noqa: FBT001
    """First appProtocol, then the name, then the number."""
    spoken = spoken_by(port)
    assert (spoken and spoken.speaks) == speaks
    assert bool(spoken and spoken.tls) is by_tls


def test_the_lowest_port_has_the_name_and_others_names_of_their_own() -> None:
    """A port of HTTP/2 only comes after those that a browser can use; any other protocol has none."""
    listed = ports(("grpc", 50), ("admin", 8081), ("http", 8080), ("db", 5432))
    found = urls(planned(snapshot({"demo": [service("web", ports=listed)]})))
    names = (
        "web.shop",
        "admin.web.shop",
        "grpc.web.shop",
        "web.shop.demo",
        "admin.web.shop.demo",
        "grpc.web.shop.demo",
    )
    assert sorted(found["demo/shop/web"]) == sorted(f"http://{name}.localhost:8080/" for name in names)
    assert found["demo/shop/web"][0] == "http://web.shop.localhost:8080/"


def test_never_two_under_one_name() -> None:
    """Of two clusters with such a Service each has the name with its cluster, and none the short one."""
    web = [service("web", ports=ports(("http", 80)))]
    found = urls(planned(snapshot({"one": web, "two": [*web, service("api", ports=ports(("http", 80)))]})))
    assert found == {
        "one/shop/web": ["http://web.shop.one.localhost:8080/"],
        "two/shop/web": ["http://web.shop.two.localhost:8080/"],
        "two/shop/api": ["http://api.shop.localhost:8080/", "http://api.shop.two.localhost:8080/"],
    }


def test_a_service_precedes_a_port_of_another_one_with_its_name() -> None:
    """`a.b.c` is Service a in namespace b of cluster c, and no port a of Service b in a namespace c."""
    port = service("b", namespace="c", ports=ports(("http", 80), ("a", 8080)))
    whole = service("a", namespace="b", ports=ports(("http", 80)))
    found = urls(planned(snapshot({"c": [port, whole]})))
    assert "http://a.b.c.localhost:8080/" in found["c/b/a"]
    assert "http://a.b.c.localhost:8080/" not in found["c/c/b"]


def routed(*listeners: JsonObject, hostname: str = "app.localhost", **metadata: object) -> list[JsonObject]:
    """Return a Gateway with a route to the Service `api`."""
    routes = route(rule("/", backends=[backend()]), hostnames=[hostname])
    return [gateway_class(), gateway(*listeners, metadata=metadata), routes, cluster_service("api")]


def test_hosts_of_routes_are_served_too() -> None:
    """By whichever port of the Gateway is the lowest; hosts elsewhere aren't."""
    found = urls(planned(snapshot({"demo": routed(listener("high", 9000), listener("low", 8000))})))
    assert found == {"demo/gateways/shop/web": ["http://app.localhost:8080/"]}
    assert urls(planned(snapshot({"demo": routed(hostname="app.test")}))) == {}


def test_a_gateway_that_claims_a_name_has_it() -> None:
    """Its rules name the host, which the Service's name only follows from; one sentence says so."""
    objects = [*routed(hostname="web.shop.localhost"), service("web", ports=ports(("http", 80)))]
    plan = planned(snapshot({"demo": objects}))
    assert urls(plan) == {
        "demo/gateways/shop/web": ["http://web.shop.localhost:8080/"],
        "demo/shop/web": ["http://web.shop.demo.localhost:8080/"],
    }
    (notice,) = (each for each in plan.notices if "localhost" in each)
    assert notice == ("demo/shop/web isn't found as web.shop.localhost: demo/gateways/shop/web has it in its own rules")


def test_of_two_clusters_the_older_object_has_a_host() -> None:
    """The younger one keeps its address, and one sentence names the other."""
    old, young = (routed(creationTimestamp=f"2026-01-0{day}T00:00:00Z") for day in (1, 2))
    plan = planned(snapshot({"a": young, "b": old}))
    assert urls(plan) == {"b/gateways/shop/web": ["http://app.localhost:8080/"]}
    sentence = "a/gateways/shop/web: app.localhost is not served at 127.0.0.1: the older b/gateways/shop/web has it"
    assert sentence in plan.notices


def test_an_ingress_has_its_hosts() -> None:
    """As Gateways have theirs."""
    rules = [ingress_rule(path(), host="shop.localhost")]
    objects = [ingress_class(), ingress(*rules), cluster_service("api")]
    assert urls(planned(snapshot({"demo": objects}))) == {
        "demo/ingressclasses//local": ["http://shop.localhost:8080/"],
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
        {"meta": {"annotations": {"local-lb.dev/proxy-protocol": "v1"}}},
        {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"loadBalancerClass": "other"},
        {"ports": ports(("db", 5432))},
    ],
)
def test_what_is_not_for_everybody_has_no_name(spec: JsonObject) -> None:
    """Nothing is served by a name that isn't by the Service's own address, to whoever asks."""
    whole = {"ports": ports(("http", 80)), **spec}
    assert not urls(planned(snapshot({"demo": [service("web", **whole)]})))


def test_without_the_key_there_is_nothing() -> None:
    """And with it nothing as long as there is no name."""
    existing = snapshot({"demo": [service("web", ports=ports(("http", 80)))]})
    assert not urls(planned(existing, localhost=False))
    plan = planned(snapshot({"demo": [service("web", ports=ports(("db", 5432)))]}))
    assert [str(placement.key) for placement in plan.placements] == ["demo/shop/web"]


def test_a_name_that_no_host_may_have_is_told() -> None:
    """A label is at most 63 characters, and a name 253."""
    label = "a" * 63
    existing = snapshot({label: [service(label, namespace=label, ports=ports(("http", 80), (label[:62], 8080)))]})
    plan = planned(existing)
    (found,) = urls(plan).values()
    assert len(found) == 3
    (notice,) = (each for each in plan.notices if "isn't found" in each)
    assert "it has 264 characters; use at most 253" in notice


@pytest.mark.parametrize(
    ("host", "chosen"),
    [
        (HostFacts(), [80]),
        (UNPRIVILEGED, [8080]),
        (HostFacts(sockets=(Socket(EVERY, 80, Protocol.TCP, "nginx (7)"),)), [8080]),
        (HostFacts(1024, sockets=(Socket(V6, 8080, Protocol.TCP),)), [8081]),
        (HostFacts(1024, sockets=(Socket(V4, 8080, Protocol.UDP),)), [8080]),
        (HostFacts(1024, sockets=(Socket(ip_address("127.0.0.2"), 8080, Protocol.TCP),)), [8080]),
    ],
)
def test_the_first_choice_is_the_first_free_port(host: HostFacts, chosen: list[int]) -> None:
    """80 where this user may bind it, otherwise the first free one from 8080 on."""
    assert numbers(planned(snapshot({"demo": [service("web", ports=ports(("http", 80)))]}, host))) == chosen


def _claims(home: Home, *mapped: MappedPort) -> tuple[Claim, ...]:
    owner = LOCALHOST if home == HOME else ObjectKey(ClusterName("localhost"), "", "localhost", LOCALHOST.kind)
    return tuple(Claim(address, Owner(home, owner), mapped) for address in (V4, V6))


def test_another_stack_has_another_port() -> None:
    """The ledger says which are claimed."""
    claims = _claims(OTHER, MappedPort(80, Protocol.TCP, 8080))
    objects = [service("web", ports=ports(("http", 80)))]
    assert numbers(planned(snapshot({"demo": objects}, claims=claims))) == [8081]


@given(st.booleans(), st.sampled_from([V4, EVERY]))
def test_a_port_is_kept_and_waited_for(foreign: bool, at: Any) -> None:  # noqa: FBT001, ANN401
    """A bookmark stays right, whoever took the port meanwhile; the state says who, and the names are gone till then."""
    claims = _claims(HOME, MappedPort(80, Protocol.TCP, 8090))
    sockets = tuple(
        Socket(address, 8090, Protocol.TCP, "nginx (7)", foreign=foreign)
        for address in ((V4, V6) if at == V4 else (EVERY,))
    )
    objects = [service("web", ports=ports(("http", 80)))]
    existing = snapshot({"demo": objects}, claims=claims)
    assert urls(planned(existing)) == {
        "demo/shop/web": ["http://web.shop.localhost:8090/", "http://web.shop.demo.localhost:8090/"]
    }
    plan = planned(replace(existing, host=replace(UNPRIVILEGED, sockets=sockets)))
    refused = [each.problem for each in plan.rejections if each.key == LOCALHOST]
    closed = [port.problem for each in plan.placements if each.key == LOCALHOST for port in each.ports if port.problem]
    (problem,) = (*refused, *closed)
    assert "nginx (7) listens on" in problem.message
    assert "8090" in problem.message
    assert urls(plan) == {}


def test_https_has_the_certificate_of_the_users_own_authority() -> None:
    """By wildcards, so that a new Service of a namespace needs no new one; right below the domain by names."""
    objects = [*routed(), *(service(name, ports=ports(("http", 80))) for name in ("web", "shop"))]
    existing = snapshot({"demo": objects}, authority=AUTHORITY)
    plan = planned(existing)
    assert numbers(plan) == [8080, 8443]
    assert "https://web.shop.localhost:8443/" in urls(plan)["demo/shop/web"]
    (one, *_) = local(plan).ports[1].listeners
    assert isinstance(one, HttpListener)
    ends = one.chains[0].termination
    assert ends
    (certificate,) = ends.certificates
    assert set(getattr(certificate, "hosts")) == {"*.shop.demo.localhost", "*.shop.localhost", "127.0.0.1", "::1"}  # noqa: B009
    elsewhere = replace(existing, authority=LocalAuthority(Fingerprint("ab" * 32), ("test",)))
    assert numbers(planned(elsewhere)) == [8080]


def redirected(*listeners: JsonObject, hostname: str = "") -> list[JsonObject]:
    """Return a Gateway with a route at `app.localhost` that leads to https, there or at another host."""
    to = {"scheme": "https", **({"hostname": hostname} if hostname else {})}
    filters = [{"type": "RequestRedirect", "requestRedirect": to}]
    routes = route({"filters": filters}, hostnames=["app.localhost"])
    return [gateway_class(), gateway(*listeners), routes, cluster_service("api")]


@pytest.mark.parametrize(("hostname", "leads"), [("", False), ("other.localhost", False), ("app.test", True)])
def test_a_host_that_only_redirects_to_where_nothing_is_has_no_name(hostname: str, leads: bool) -> None:  # noqa: FBT001
    """Its URL would lead to port 443, which is another program's; a sentence says what helps."""
    web = service("web", ports=ports(("http", 80)))
    for others in ([], [web]):
        plan = planned(snapshot({"demo": [*redirected(listener("http", 80), hostname=hostname), *others]}))
        assert ("demo/gateways/shop/web" in urls(plan)) is leads
        assert any(
            "app.localhost" in each and "`local-lb:certificates: local`" in each for each in plan.notices
        ) is not (leads)


def test_a_redirect_to_https_that_is_served_has_a_name() -> None:
    """It names the port of HTTPS; without a route there it says so."""
    web = service("web", ports=ports(("http", 80)))
    objects = redirected(listener("http", 80), hostname="web.shop.localhost")
    plan = planned(snapshot({"demo": [*objects, web]}, authority=AUTHORITY))
    assert urls(plan)["demo/gateways/shop/web"] == ["http://app.localhost:8080/"]
    assert "port=8443" in hosts(plan)["app.localhost"]
    plan = planned(snapshot({"demo": [*redirected(listener("http", 80)), web]}, authority=AUTHORITY))
    assert "demo/gateways/shop/web" not in urls(plan)
    assert any("app.localhost" in each and "no routes there" in each for each in plan.notices)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([80, 8080, 443, 5432])), min_size=1, max_size=6))
def test_an_earlier_plan_saves_work_and_decides_nothing(changes: list[tuple[int, int]]) -> None:
    """Of Services beside a Gateway, after any changes of their ports: by the bytes of the proxies, too."""
    memo: AnyMemo = Memo()
    numbers_of = dict.fromkeys(range(4), 80)
    for index, number in changes:
        numbers_of[index] = number
        objects = [service(f"web{each}", ports=ports(("", of))) for each, of in numbers_of.items()]
        existing = snapshot({"demo": [*routed(), *objects]}, authority=AUTHORITY)
        assert planned(existing, memo) == planned(existing)


def test_a_changed_service_makes_no_others_names_and_backends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change of any Service changes the names' proxy: it costs what changed."""
    calls = Counter[str]()
    for module, name in ((localhost, "_offer"), (gateways, "_behind"), (envoy, "_cluster"), (http_routes, "_host")):
        monkeypatch.setattr(module, name, _counted(calls, getattr(module, name)))
    memo: AnyMemo = Memo()
    for number in (80, 8080):
        calls.clear()
        objects = [service(f"web{each}", ports=ports(("http", 80))) for each in range(9)]
        planned(snapshot({"demo": [*objects, service("web", ports=ports(("http", number)))]}), memo)
    # Two names in the tables of two addresses, a cluster in the names' proxy and one in the Service's own.
    assert calls == {"_offer": 1, "_behind": 1, "_cluster": 2, "_host": 4}


def _counted(calls: Counter[str], made: Callable[..., object]) -> Callable[..., object]:
    def counting(*given: object, **more: object) -> object:
        calls[made.__name__] += 1
        return made(*given, **more)

    return counting


def test_names_live_beside_mapped_ports() -> None:
    """With `portMapping` other Services have ports of the same addresses, and none of them is that of names."""
    plan = planned(snapshot({"demo": [service("web", ports=ports(("http", 8080)))]}), portMapping="loopback")
    (web,) = (placement for placement in plan.placements if placement.key != LOCALHOST)
    assert sorted([*numbers(plan), web.ports[0].port.number]) == [8080, 8081]


def test_unknown_names_get_one_sentence() -> None:
    """It lists nothing."""
    plan = planned(snapshot({"demo": [service("web", ports=ports(("http", 80)))]}))
    assert "serves no Service and no route by this name" in hosts(plan)["*"]
    assert "web" not in hosts(plan)["*"]
