"""What host setup does only by name: public addresses and names, and anything for another user's project."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from locallb.dns.zones import Embedded, Zone
from locallb.host.macos import PoolAlias
from locallb.host.resolvers import DNSMASQ_DIRECTORY
from locallb.host.setup_plan import SetupConsent, on_behalf, plan_setup, unnamed
from locallb.host.setup_steps import PRESENT, ObservedHost
from locallb.model.identities import ZoneName
from locallb.model.reasons import Problem, Reason
from locallb.planning.pool_routes import PoolRoute

BARE = ObservedHost({}, (), "")


def routed(*prefixes: str) -> ObservedHost:
    """Return a host that lacks routes for these."""
    return replace(BARE, routes=tuple(PoolRoute("p", ip_network(prefix)) for prefix in prefixes))


def with_zones(*names: str, texts: dict[str, str] | None = None) -> ObservedHost:
    """Return a host that would be told of these zones."""
    zones = tuple(Zone(ZoneName(name), Embedded(ip_address("127.0.0.77"), 5300)) for name in names)
    return replace(BARE, zones=zones, texts={DNSMASQ_DIRECTORY: PRESENT} if texts is None else texts)


def with_names(zone: str, **names: str) -> ObservedHost:
    """Return a host without a resolver for zones, and what a state says of names in one."""
    table = {f"{name}.{zone}": (ip_address(address),) for name, address in names.items()}
    return replace(with_zones(zone, texts={}), names=table)


@pytest.mark.parametrize(
    ("observed", "options"),
    [
        (routed("127.9.0.0/24", "10.0.0.0/24", "172.18.255.224/27", "192.168.7.0/29", "fd00:ff::e0/123"), []),
        (routed("1.1.1.1/32", "10.0.0.0/24"), ["--allow-network 1.1.1.1/32"]),
        (routed("1.1.1.0/24", "2606:4700::/64"), ["--allow-network 1.1.1.0/24", "--allow-network 2606:4700::/64"]),
        (routed("172.0.0.0/9"), ["--allow-network 172.0.0.0/9"]),
        (with_zones("test", "lb.test", "corp.internal", "lab.example", "home.arpa"), []),
        (with_zones("com"), ["--allow-zone com"]),
        (with_zones("github.com", "shop.test"), ["--allow-zone github.com"]),
        (with_zones("mytest", "test.com"), ["--allow-zone mytest", "--allow-zone test.com"]),
        (with_names("test", web="127.77.0.1", far="fd00::1"), []),
        (with_names("test", web="127.77.0.1", far="93.184.216.34"), ["--allow-network 93.184.216.34/32"]),
    ],
)  # fmt: skip
def test_public_addresses_and_names_have_to_be_named(observed: ObservedHost, options: list[str]) -> None:
    """Each sentence has the option that names it."""
    problems = list(unnamed(observed, SetupConsent()))
    assert [problem.message.split("`")[-2] for problem in problems] == options
    assert {problem.reason for problem in problems} <= {Reason.NOT_NAMED}


@pytest.mark.parametrize(
    ("observed", "consent", "missing"),
    [
        (routed("93.184.216.0/24"), SetupConsent(networks=(ip_network("93.184.0.0/16"),)), 0),
        (routed("93.184.216.0/24"), SetupConsent(networks=(ip_network("93.184.216.0/25"),)), 1),
        (routed("93.184.216.0/24"), SetupConsent(networks=(ip_network("::/0"),)), 1),
        (with_zones("lb.github.com"), SetupConsent(zones=frozenset({"github.com"})), 0),
        (with_zones("github.com"), SetupConsent(zones=frozenset({"lb.github.com"})), 1),
        (with_names("test", web="8.8.8.8"), SetupConsent(networks=(ip_network("8.8.8.0/24"),)), 0),
    ],
)
def test_what_is_named_is_done(observed: ObservedHost, consent: SetupConsent, missing: int) -> None:
    """A network covers its parts, a zone those below it, and neither anything else."""
    assert len(list(unnamed(observed, consent))) == missing


def test_what_is_there_already_needs_no_name() -> None:
    """Whoever made it; and what can't be done has its own sentence."""
    present = PoolRoute("p", ip_network("1.1.1.1/32"), local=True)
    never = PoolRoute("p", ip_network("1.1.1.1/32"), problem=Problem(Reason.POOL_OVERLAPS, "no"))
    aliased = PoolAlias("p", ip_address("1.1.1.1"), present=True)
    assert list(unnamed(replace(BARE, routes=(present, never), aliases=(aliased,)), SetupConsent())) == []
    assert len(list(unnamed(replace(BARE, aliases=(replace(aliased, present=False),)), SetupConsent()))) == 1
    fresh = with_zones("github.com")
    written = {step.what: step.wanted for step in plan_setup(fresh, persist=False).steps}
    assert list(unnamed(replace(fresh, texts={**fresh.texts, **written}), SetupConsent())) == []


@pytest.mark.parametrize(
    ("named", "refused"), [((), True), (("bob",), False), (("1001",), False), (("eve",), True), (("bob", "eve"), False)]
)
def test_changes_for_another_user_have_to_be_named_by_that_user(named: tuple[str, ...], refused: bool) -> None:  # noqa: FBT001
    """By name or number."""
    problems = list(on_behalf("user bob (1001)", ["bob", "1001"], SetupConsent(users=frozenset(named))))
    assert bool(problems) == refused
    assert all("user bob (1001)" in str(problem) and "`--on-behalf-of bob`" in str(problem) for problem in problems)
