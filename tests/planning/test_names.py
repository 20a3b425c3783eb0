"""Names in plans: what wishes them, what they cost who has none, and the Envoy that answers."""

from __future__ import annotations

import json
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import OtherServices
from locallb.kubernetes.object_parsing import parse_objects
from locallb.kubernetes.status import NAME_IN_STATUS_ANNOTATION, publication
from locallb.model.identities import ClusterName, Home, Protocol
from locallb.model.snapshot import HostFacts, Snapshot, Socket
from locallb.model.texts import NAME_SERVER
from locallb.planning.names import MAX_LISTED_IN_STATUS, MAX_NAMES, REFUSED
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.sources.snapshot import with_objects
from tests.support.gateway_objects import gateway, gateway_class, listener, route, rule
from tests.support.manifests import node, port, service

HOME = Home("local-lb", "dev", "/nowhere")
DNS = {"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}]}
HOSTNAME, TTL, TARGET = (f"external-dns.alpha.kubernetes.io/{word}" for word in ("hostname", "ttl", "target"))


def snapshot(*objects: object) -> Snapshot:
    return with_objects(HOME, [parse_objects(ClusterName("c"), objects)], OtherServices())


def plan(*objects: object, dns: object = DNS, **config: object) -> Plan:
    settings = parse_settings({"sources": [{"manifests": "m", "name": "c"}], "dns": dns, **config})
    return make_plan(snapshot(*objects), settings)


def names(made: Plan) -> dict[str, list[str]]:
    """Return the names of every load balancer."""
    return {placement.key.name: [name.name for name in placement.names] for placement in made.placements}


def table(made: Plan) -> dict[str, tuple[str, ...]]:
    (server,) = [planned for planned in made.proxies if planned.proxy.name == NAME_SERVER]
    (written,) = json.loads(server.rendered.files["lds.json"])["resources"]
    domains = written["listener_filters"][0]["typed_config"]["server_config"]["inline_dns_table"]["virtual_domains"]
    return {each["name"]: tuple(each["endpoint"]["address_list"]["address"]) for each in domains}


def test_plan_without_zones_lacks_only_names_and_their_server() -> None:
    """Everything else of the plan is the same."""
    objects = node(), service("a", port(80, 30080), annotations={HOSTNAME: "a.test"}), service("b", port(80, 30081))
    with_names, without = plan(*objects), plan(*objects, dns=None)
    assert [replace(placement, names=()) for placement in with_names.placements] == list(without.placements)
    assert [planned for planned in with_names.proxies if planned.proxy.name != NAME_SERVER] == list(without.proxies)
    assert all(not placement.names for placement in without.placements)


def test_annotations_and_the_template() -> None:
    """Several names, a TTL, other targets; the template's beside them."""
    wishes = {HOSTNAME: "a.test, B.test. ,,", TTL: "2m", TARGET: "127.9.9.9, fd00::9"}
    made = plan(node(), service("web", port(80, 30080), annotations=wishes))
    assert names(made) == {"web": ["a.test", "b.test", "web.n.c.test"]}
    assert {name.ttl for name in made.placements[0].names} == {120}
    assert table(made) == dict.fromkeys(("a.test", "b.test", "web.n.c.test"), ("127.9.9.9", "fd00::9"))
    assert names(plan(node(), service("web", port(80, 30080)), dns={**DNS, "template": False})) == {"web": []}


def test_an_annotation_asks_for_so_many_names_and_addresses() -> None:
    """The first names count, and one sentence tells of the rest; of a name with too many addresses there is none."""
    many = ",".join(f"a{number}.test" for number in range(20_000))
    made = plan(node(), service("web", port(80, 30080), annotations={HOSTNAME: many}), dns={**DNS, "template": False})
    assert names(made) == {"web": sorted(f"a{number}.test" for number in range(MAX_NAMES))}
    reported = f'metadata.annotations["{HOSTNAME}"] has 20000 names, of which the first {MAX_NAMES} count'
    assert made.notices == (f"c/n/web: {reported}; give the others to another Service",)
    elsewhere = many.replace(".test", ".org")
    made = plan(node(), service("web", port(80, 30080), annotations={HOSTNAME: elsewhere}))
    assert len(made.notices) == len(made.placements[0].notices) == MAX_LISTED_IN_STATUS + 1
    assert (
        made.notices[-1]
        == f"c/n/web: {MAX_NAMES + 1 - MAX_LISTED_IN_STATUS} more names aren't given; correct these first"
    )
    wishes = {HOSTNAME: "a.test", TARGET: ",".join(f"127.0.1.{number}" for number in range(33))}
    made = plan(node(), service("web", port(80, 30080), annotations=wishes), dns={**DNS, "template": False})
    assert names(made) == {"web": []}
    assert made.notices == ("c/n/web: the name a.test has 33 targets; give at most 32 addresses",)


def test_the_older_keeps_a_name_and_the_other_gets_a_notice() -> None:
    """By its age and not by its name; the sentence stands among the notices, and at the Service."""
    old, young = (service(name, port(80, 30080), annotations={HOSTNAME: "x.test"}) for name in ("old", "a-young"))
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    made = plan(node(), young, old, dns={**DNS, "template": False})
    assert names(made) == {"a-young": [], "old": ["x.test"]}
    reported = "c/n/a-young: the name x.test is that of c/n/old, which is older; choose another one"
    assert reported in made.notices
    (placement,) = [each for each in made.placements if each.key.name == "a-young"]
    assert [(notice.reason, notice.message) for notice in placement.notices] == [(REFUSED, reported)]


def test_names_of_the_stack_come_first() -> None:
    """Whatever Services wish; a TTL that can't be read is told, and the stack's is taken."""
    wishes = {HOSTNAME: "db.test", TTL: "soon"}
    made = plan(node(), service("a", port(80, 30080), annotations=wishes), dns={**DNS, "records": {"db.test": ["::9"]}})
    assert table(made)["db.test"] == ("::9",)
    assert {name.ttl for name in made.placements[0].names} == {60}
    assert "c/n/a: the name db.test is one of local-lb:dns.records; choose another one" in made.notices
    assert f'c/n/a: metadata.annotations["{TTL}"] is "soon"; write seconds such as 60' in made.notices


def test_gateways_have_the_hostnames_of_listeners_and_routes() -> None:
    """Those in a zone; the rest belongs to somebody else and is no mistake."""
    listeners = [listener("a", 80, hostname="*.apps.test"), listener("b", 81)]
    routes = [
        route(rule(), name="one", hostnames=["x.apps.test"]),
        route(rule(), name="two", hostnames=["shop.test", "shop.example"]),
    ]
    made = plan(gateway_class(), gateway(*listeners), *routes)
    ((key, given),) = names(made).items()
    assert set(given) == {"*.apps.test", "x.apps.test", "shop.test", f"{key}.shop.c.test"}
    assert not [notice for notice in made.notices if "shop.example" in notice]


def test_ports_that_are_published_leave_no_place_for_the_server() -> None:
    """And that is told."""
    made = plan(node(), service("a", port(80, 30080)), runtime="docker", network="publish")
    assert not [planned for planned in made.proxies if planned.proxy.name == NAME_SERVER]
    assert any("nobody answers for embedded zones" in notice for notice in made.notices)


def test_zones_at_two_places_have_tables_of_their_own() -> None:
    """In one Envoy, a listener each."""
    zones = [*DNS["zones"], {"zone": "lab.test", "embedded": "127.0.0.78:53"}]
    made = plan(node(), service("a", port(80, 30080), annotations={HOSTNAME: "a.lab.test"}), dns={"zones": zones})
    (server,) = [planned for planned in made.proxies if planned.proxy.name == NAME_SERVER]
    reported = {one.address: [each.name for each in one.table] for one in server.proxy.names}
    assert reported == {ip_address("127.0.0.77"): ["a.n.c.test"], ip_address("127.0.0.78"): ["a.lab.test"]}


@pytest.mark.parametrize(
    ("in_status", "annotations", "reported"),
    [
        (False, {}, ""),
        (True, {}, "web.n.c.test"),
        (True, {HOSTNAME: "*.z.test, z.test, a.test"}, "z.test"),
        (True, {HOSTNAME: "a_b.test"}, "web.n.c.test"),
        (True, {HOSTNAME: "a.test", TARGET: "127.9.9.9"}, ""),
        (True, {HOSTNAME: "taken.test"}, "web.n.c.test"),
        (True, {NAME_IN_STATUS_ANNOTATION: "false"}, ""),
        (False, {HOSTNAME: "a.test", NAME_IN_STATUS_ANNOTATION: "true"}, "a.test"),
    ],
)
def test_a_status_tells_a_name_of_the_load_balancers_own(
    in_status: bool,  # noqa: FBT001 - a case
    annotations: dict[str, str],
    reported: str,
) -> None:
    """On request; one that it has, that leads to it, and that a host may have: the first that it wishes."""
    dns = {**DNS, "records": {"taken.test": ["127.9.9.9"]}, "inStatus": in_status}
    made = plan(node(), service("web", port(80, 30080), annotations=annotations), dns=dns)
    (placement,) = made.placements
    assert [(entry.ip, entry.named.hostname) for entry in publication(placement).ingress] == [
        (str(address), reported) for address in placement.addresses
    ]


def test_a_service_says_yes_or_no_to_its_name() -> None:
    """Anything else is told."""
    made = plan(node(), service("web", port(80, 30080), annotations={NAME_IN_STATUS_ANNOTATION: "maybe"}))
    (rejection,) = made.rejections
    assert "use true or false, or remove the annotation" in rejection.problem.message


OWN = {"zones": [{"zone": "test", "embedded": True}]}


def server_of(made: Plan) -> tuple[str, int]:
    """Return where the stack's name server answers."""
    (server,) = [planned for planned in made.proxies if planned.proxy.name == NAME_SERVER]
    (answers,) = server.proxy.names
    return str(answers.address), answers.port


def planned(home: Home = HOME, dns: object = OWN, **observed: object) -> Plan:
    settings = parse_settings({"sources": [{"manifests": "m", "name": "c"}], "dns": dns})
    return make_plan(replace(snapshot(node(), service("a", port(80, 30080))), home=home, **observed), settings)


def test_each_stack_has_a_name_server_of_its_own() -> None:
    """At an address that its name and directory give."""
    homes = [Home("local-lb", stack, root) for stack in ("dev", "lab", "x") for root in ("/a", "/b")]
    servers = [server_of(planned(home)) for home in homes]
    assert len({*servers}) == len(homes)
    assert all(address.startswith("127.53.") and port == 5300 for address, port in servers)
    assert servers == [server_of(planned(home)) for home in homes]


def test_a_name_server_stays_where_it_is() -> None:
    """Such as at the address that all stacks had before."""
    before = ((ip_address("127.0.0.77"), 5300),)
    assert server_of(planned(name_servers=before)) == ("127.0.0.77", 5300)


def test_a_name_server_moves_out_of_anothers_way() -> None:
    """Whether it was there before, or begins."""
    first, before = server_of(planned()), ip_address("127.0.0.77")
    for address, existing in ((ip_address(first[0]), ()), (before, ((before, 5300),))):
        host = HostFacts(sockets=(Socket(address, 5300, Protocol.UDP, "envoy (7)"),))
        moved = server_of(planned(host=host, name_servers=existing))
        assert moved[0] != str(address)
        assert moved == server_of(planned(host=host, name_servers=((ip_address(moved[0]), 5300),)))


def test_a_pool_gives_no_address_to_the_name_server() -> None:
    """Nor the other way round."""
    everything = [{"name": "default", "addresses": ["127.53.0.0/17"]}]
    settings = {"sources": [{"manifests": "m", "name": "c"}], "dns": OWN, "pools": everything}
    for stack in range(20):
        home = Home("local-lb", str(stack), "/a")
        made = make_plan(replace(snapshot(node(), service("a", port(80, 30080))), home=home), parse_settings(settings))
        assert int(server_of(made)[0].split(".")[2]) >= 128


def test_given_servers_stay_beside_the_stacks_own() -> None:
    """Of what the state has, what the configuration gives is no address of the stack's own."""
    zones = [*OWN["zones"], {"zone": "lab.test", "embedded": "127.0.0.77:5300"}]
    existing = ((ip_address("127.0.0.77"), 5300), (ip_address("127.53.9.9"), 5300))
    (server,) = [
        one for one in planned(dns={"zones": zones}, name_servers=existing).proxies if one.proxy.name == NAME_SERVER
    ]
    assert {str(one.address) for one in server.proxy.names} == {"127.0.0.77", "127.53.9.9"}
