"""Ports of the loopback address for Services without addresses of their own: laws, and what becomes of collisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.ledger.claims import UNKNOWN
from locallb.model.http_routes import HttpRoute, Match, Redirect
from locallb.model.http_serving import Chain, HttpRoutes, VirtualHost
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner, Protocol
from locallb.model.objects import FamilyPolicy, Service, ServicePort
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import HostAddresses
from locallb.model.snapshot import Claim, HostFacts, MappedPort, Snapshot, Socket
from locallb.planning.gateways import with_mapped_redirects
from locallb.planning.port_mapping import COUNT, FIRST, LOOPBACK, map_ports
from tests.support import strategies as draw

OTHER = Owner(draw.OTHER_HOME, ObjectKey(ClusterName("one"), "shop", "theirs"))
LOCALHOST = ip_address("127.0.0.1")
_Given = Mapping[tuple[ObjectKey, int, Protocol], int]

unrequested = draw.services().map(lambda service: replace(service, requested=()))
several = st.lists(unrequested, max_size=6, unique_by=lambda service: service.key)
places = st.tuples(st.sampled_from([80, 443, 8080, FIRST, FIRST + 1]), st.sampled_from([Protocol.TCP, Protocol.UDP]))


@st.composite
def snapshots(drawn: st.DrawFn) -> Snapshot:
    """Draw Services, ports that others have claimed, and ports on which others listen."""
    theirs = drawn(st.lists(places, max_size=4, unique=True))
    claim = Claim(LOCALHOST, OTHER, tuple(MappedPort(number, protocol, number) for number, protocol in theirs))
    at = st.sampled_from([*LOOPBACK.values(), ip_address("0.0.0.0"), ip_address("10.0.0.1")])
    sockets = [Socket(drawn(at), *place) for place in drawn(st.lists(places, max_size=3))]
    host = HostFacts(drawn(st.sampled_from([0, 100, 1024])), sockets=tuple(sockets))
    return Snapshot(draw.HOME, tuple(drawn(several)), claims=(claim,) if theirs else (), host=host)


def numbers(snapshot: Snapshot, services: Sequence[Service] | None = None) -> _Given:
    made = map_ports(snapshot, snapshot.services if services is None else services)
    return {(s.key, port.port, port.protocol): port.mapped for s in made.services for port in s.ports}


def claims(snapshot: Snapshot) -> tuple[Claim, ...]:
    """Return what the ledger says once a plan was carried out."""
    made = map_ports(snapshot, snapshot.services)
    mine = [
        Claim(address, Owner(snapshot.home, s.key, s.uid), _mapped(s))
        for s in made.services
        if not isinstance(addresses := made.answers[s.key], Problem)
        for address in addresses
    ]  # fmt: skip
    return (*(claim for claim in snapshot.claims if claim.owner == OTHER), *mine)


def _mapped(service: Service) -> tuple[MappedPort, ...]:
    return tuple(MappedPort(port.port, port.protocol, port.mapped) for port in service.ports)


@given(snapshots(), st.randoms())
def test_numbers_depend_on_no_order(snapshot: Snapshot, random: object) -> None:
    """Services in any order, ports in any order."""
    shuffled = [replace(s, ports=s.ports[::-1]) for s in snapshot.services]
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' own Random
    assert numbers(replace(snapshot, services=tuple(shuffled))) == numbers(snapshot)


@given(snapshots())
def test_mapped_number_belongs_to_one_port_and_is_free_on_the_host(snapshot: Snapshot) -> None:
    """Neither claimed by others, nor listened on, nor one that this user may not bind."""
    given_ = [(number, protocol) for (_, _, protocol), number in numbers(snapshot).items() if number]
    assert len(given_) == len(set(given_))
    assert not set(given_) & {port.place for claim in snapshot.claims for port in claim.ports}
    at = {*LOOPBACK.values(), ip_address("0.0.0.0")}
    assert not set(given_) & {(s.port, s.protocol) for s in snapshot.host.sockets if s.address in at}
    assert all(number >= snapshot.host.unprivileged_port_start for number, _ in given_)


@given(snapshots(), several, st.sampled_from([0, 1024]))
def test_mapped_ports_are_sticky(snapshot: Snapshot, newcomers: Sequence[Service], first: int) -> None:
    """Whoever comes, leaves or listens: as long as the number may be bound."""
    before, keys = numbers(snapshot), {s.key for s in snapshot.services}
    held = claims(snapshot)
    others = tuple(s for s in newcomers if s.key not in keys)
    sockets = tuple(Socket(LOCALHOST, number, key[2]) for key, number in before.items())
    host = HostFacts(min(first, snapshot.host.unprivileged_port_start), sockets=sockets)
    after = replace(snapshot, services=(*others, *snapshot.services), claims=held, host=host)
    assert {key: number for key, number in numbers(after).items() if key in before} == before
    assert numbers(replace(after, claims=(), remembered=held), snapshot.services) == before


@given(snapshots())
def test_a_port_has_its_own_number_where_that_is_free(snapshot: Snapshot) -> None:
    """Of those that want one the oldest gets it; everybody else's is one of the range."""
    made = numbers(snapshot)
    claimed = {(number, protocol) for (_, _, protocol), number in made.items()}
    at = {*LOOPBACK.values(), ip_address("0.0.0.0")}
    bound = {(s.port, s.protocol) for s in snapshot.host.sockets if s.address in at}
    theirs = {port.place for claim in snapshot.claims for port in claim.ports}
    for (_, port, protocol), number in made.items():
        if number and number != port:
            privileged = port < snapshot.host.unprivileged_port_start
            assert privileged or (port, protocol) in claimed | bound | theirs
            assert FIRST <= number < FIRST + COUNT


def service(name: str = "web", *ports: int, requested: tuple[IPAddress, ...] = ()) -> Service:
    key = ObjectKey(ClusterName("one"), "shop", name)
    return Service(key, tuple(ServicePort(port) for port in ports or (80,)), requested=requested)


def answer(one: Service, host: HostFacts | None = None) -> tuple[IPAddress, ...] | Problem:
    return map_ports(Snapshot(draw.HOME, (one,), host=host or HostFacts()), [one]).answers[one.key]


def test_a_request_for_another_address_is_refused_in_one_sentence() -> None:
    """There is but one; asking for that is fine."""
    refused = answer(service(requested=(ip_address("10.0.0.1"),)))
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.OUT_OF_POOL
    assert "one/shop/web asks for 10.0.0.1" in refused.message
    assert answer(service(requested=(LOCALHOST,))) == (LOCALHOST,)


def test_where_another_stack_has_all_of_127_0_0_1_a_service_is_refused_in_one_sentence() -> None:
    """Its pool may be that very address. What a damaged claim has nobody knows: claiming says which file it is."""
    web = service()
    refused = map_ports(Snapshot(draw.HOME, (web,), claims=(Claim(LOCALHOST, OTHER),)), [web]).answers[web.key]
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.IN_USE
    assert "all of 127.0.0.1 belongs to Service one/shop/theirs of" in refused.message
    for owner in (UNKNOWN, Owner(draw.HOME, web.key), Owner(draw.HOME, service("gone").key)):
        snapshot = Snapshot(draw.HOME, (web,), claims=(Claim(LOCALHOST, owner),))
        assert map_ports(snapshot, [web]).answers[web.key] == (LOCALHOST,)


def test_families_have_a_loopback_address_each_where_the_host_has_it() -> None:
    """PreferDualStack takes what there is."""
    both = replace(service(), families=tuple(LOOPBACK), family_policy=FamilyPolicy.REQUIRE_DUAL)
    assert answer(both) == tuple(LOOPBACK.values())
    loopback = AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255"))
    four = HostFacts(addresses=HostAddresses(local=(loopback,)))
    refused = answer(both, host=four)
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.NOT_ON_HOST
    assert answer(replace(both, family_policy=FamilyPolicy.PREFER_DUAL), host=four) == (LOCALHOST,)


REDIRECTS = (
    (Redirect(301, "https"), Redirect(301, "https", port=10443)),
    (Redirect(301, "https", port=443), Redirect(301, "https", port=10443)),
    (Redirect(301, port=8443), Redirect(301, port=8443)),
    (Redirect(301), Redirect(301)),
    (Redirect(301, "https", "other.test"), Redirect(301, "https", "other.test")),
    (Redirect(301, hostname="other.test"), Redirect(301, hostname="other.test", port=80)),
    (Redirect(301, hostname="other.test", port=443), Redirect(301, hostname="other.test", port=443)),
    (Redirect(301, hostname="a.test"), Redirect(301, hostname="a.test")),  # by the port at which it listens
    (Redirect(301, "https", "a.test"), Redirect(301, "https", "a.test", 10443)),
    (Redirect(301, "https", "x.b.test"), Redirect(301, "https", "x.b.test", 10443)),
    (Redirect(301, "https", "b.test"), Redirect(301, "https", "b.test")),
)


def test_a_redirect_to_a_port_of_the_same_listeners_names_what_clients_use() -> None:
    """One to another host, or to a port that isn't served here, stays."""
    routes = tuple(HttpRoute(Match(), action) for action, _ in REDIRECTS)
    chain = Chain(HttpRoutes((VirtualHost(("*",), routes),)))
    secure = Chain(HttpRoutes((VirtualHost(("a.test", "*.b.test"), ()),)))
    ports, every = (ServicePort(80, mapped=10080), ServicePort(443, mapped=10443)), [(chain,), (secure,)]
    (changed,) = with_mapped_redirects((chain,), ports[0], ports, every)
    assert isinstance(changed.serves, HttpRoutes)
    assert [route.action for route in changed.serves.hosts[0].routes] == [wanted for _, wanted in REDIRECTS]
    assert with_mapped_redirects((chain,), ports[0], [ServicePort(443, mapped=443)], every)[0] is chain


def test_a_number_of_a_service_that_is_gone_is_free_only_once_it_is_released() -> None:
    """Its data plane may still stand."""
    web = service("web", 8080)
    removed = Claim(LOCALHOST, Owner(draw.HOME, service("old").key), (MappedPort(8080, Protocol.TCP, 8080),))
    snapshot = Snapshot(draw.HOME, (web,), claims=(removed,))
    assert FIRST <= numbers(snapshot)[web.key, 8080, Protocol.TCP] < FIRST + COUNT
    assert numbers(replace(snapshot, claims=()))[web.key, 8080, Protocol.TCP] == 8080


def test_the_next_number_after_a_collision_is_the_next_of_the_same_sequence() -> None:
    """So a preview on another machine shows what `up` chooses."""
    web, host = service("web", 80), HostFacts(unprivileged_port_start=1024)
    (first,) = numbers(Snapshot(draw.HOME, (web,), host=host)).values()
    stranger = Claim(LOCALHOST, Owner(Home("p", "s", "/r"), web.key), (MappedPort(80, Protocol.TCP, first),))
    (second,) = numbers(Snapshot(draw.HOME, (web,), host=host, claims=(stranger,))).values()
    assert second == (first + 1 if first + 1 < FIRST + COUNT else FIRST)
