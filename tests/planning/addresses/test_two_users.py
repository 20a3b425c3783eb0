"""Two users of one host without a common ledger: each keeps out of the other's way, and moves once where they met."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.cli.project import stack_text
from locallb.config.parsing import parse_settings
from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import Pool, Settings
from locallb.model.identities import Family, Protocol, SharingKey
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import IngressEntry, Service, ServicePort
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem
from locallb.model.snapshot import Claim, HostFacts, MappedPort, Snapshot, Socket
from locallb.planning import admission
from locallb.planning.allocation import allocate
from locallb.planning.plan import make_plan
from locallb.planning.port_mapping import LOOPBACK, map_ports
from tests.support.allocation import addresses_of, claim, given, service, terms
from tests.support.strategies import HOME

LOCALHOST = LOOPBACK[Family.IPV4]
HELD = "10.0.0.3"
WEB = replace(service("web"), ports=(ServicePort(80), ServicePort(443)))


def theirs(address: str = HELD, port: int = 80, *, foreign: bool = True, alone: bool = True) -> HostFacts:
    """Make a host on which a process that isn't this stack's listens."""
    return HostFacts(sockets=(Socket(ip_address(address), port, Protocol.TCP, "", foreign, alone),))


def web(host: HostFacts, one: Service = WEB, **held: Sequence[Claim]) -> str:
    """Return the address of the Service that holds HELD."""
    return terms(given(one, ledger=held.get("ledger", [claim(HELD, "web")]), host=host)["web"])


@pytest.mark.parametrize("port", [80, 443])
def test_an_address_that_another_user_has_is_given_up(port: int) -> None:
    """One of the Service's ports is enough: it can't serve there."""
    assert web(theirs(port=port)) not in {HELD, "InUse"}


@pytest.mark.parametrize(
    "host",
    {
        "this user's own process": theirs(foreign=False),
        "this stack serves at the address": theirs(alone=False),
        "a port that the Service doesn't have": theirs(port=22),
        "another address": theirs("10.0.0.2"),
        "every address": theirs("0.0.0.0"),
    }.values(),
)
def test_nothing_else_moves_an_address(host: HostFacts) -> None:
    """Moving wouldn't help, isn't needed, or would take what serves away."""
    assert web(host) == HELD


@pytest.mark.parametrize(("address", "calls"), [("127.0.0.53", 1), ("10.0.0.9", 2)])
def test_a_changed_port_concerns_addresses_only_where_another_user_has_some_of_a_pool(
    address: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most hosts have a resolver of another user at 127.0.0.53."""
    counted = Mock(wraps=allocate)
    monkeypatch.setattr(admission, "allocate", counted)
    pools = (Pool("p", (AddressRange(ip_address("10.0.0.1"), ip_address("10.0.0.20")),)),)
    memo: AnyMemo = Memo()
    for ports in ((ServicePort(80),), (ServicePort(81),)):
        read = Snapshot(HOME, (replace(WEB, ports=ports),), host=theirs(address))
        make_plan(read, Settings((), pools), memo)
    assert counted.call_count == calls


def test_an_address_moves_once() -> None:
    """The next plan keeps the new one, whether the other user stays or goes."""
    moved = web(theirs())
    both = [claim(HELD, "web"), claim(moved, "web")]
    assert web(theirs(), ledger=both) == web(theirs(), ledger=both[1:]) == web(HostFacts(), ledger=both[1:]) == moved


def test_an_address_that_is_asked_for_stays() -> None:
    """By the Service or by a pin."""
    wishes = replace(WEB, requested=(ip_address(HELD),))
    assert web(theirs(), wishes) == HELD
    answers = given(WEB, ledger=[claim(HELD, "web")], pins={"n/web": [HELD]}, host=theirs())
    assert terms(answers["web"]) == HELD


def test_without_another_address_it_stays() -> None:
    """What is served at its other ports goes on."""
    only = Pool("p", (AddressRange(ip_address(HELD), ip_address(HELD)),))
    assert terms(given(WEB, pools=[only], ledger=[claim(HELD, "web")], host=theirs())["web"]) == HELD


def test_services_that_share_an_address_move_together() -> None:
    """Although only one of them has the port."""
    one, other = (
        replace(service(name, created=name), ports=(ServicePort(port),), sharing_key=SharingKey("s"))
        for name, port in (("a", 80), ("b", 443))
    )
    answers = given(one, other, ledger=[claim(HELD, "a"), claim(HELD, "b")], host=theirs(port=443))
    assert terms(answers["a"]) == terms(answers["b"]) != HELD


def test_a_status_that_lists_the_address_is_no_reason_to_stay() -> None:
    """It can't serve there."""
    listed = replace(WEB, ingress=(IngressEntry(ip_address(HELD)),))
    assert web(theirs(), listed) != HELD


def test_the_remedy_of_the_default_pool_keeps_its_addresses() -> None:
    """A list of pools replaces it, so that it has to be listed as well; done so, nothing moves."""
    services = [service(f"s{number:02}", created=f"{number:02}") for number in range(33)]
    answers = given(*services, pools=[DEFAULT_POOL])
    (refused,) = [answer for answer in answers.values() if isinstance(answer, Problem)]
    assert "list this pool and another one in local-lb:pools or delete a Service" in refused.message
    held = [claim(terms(answer), name) for name, answer in answers.items() if not isinstance(answer, Problem)]
    text = stack_text([{"manifests": "m"}])
    bare = "\n".join(line.replace("  # ", "  ", 1) for line in text.splitlines() if not line.startswith("#"))
    template = parse_settings(
        {"sources": [{"manifests": "m"}], "pools": yaml.safe_load(bare)["config"]["local-lb:pools"]}
    )
    after = given(*services, pools=template.pools, ledger=held)
    assert {name: after[name] for name in answers if answers[name] != refused} == {
        name: answer for name, answer in answers.items() if answer != refused
    }
    assert not isinstance(after["s32"], Problem)


roomy = Settings((), (Pool("p", (AddressRange(ip_address("127.77.0.0"), ip_address("127.77.0.31")),)),))


@drawn(st.integers(1000, 60000), st.integers(1, 20), st.text("abc", min_size=1, max_size=8))
def test_neighbours_begin_at_different_addresses(user: int, apart: int, name: str) -> None:
    """Also for Services of one name, such as those of an example that both try first."""
    one = service(name)

    def first(number: int) -> object:
        return allocate(Snapshot(HOME, (one,), host=HostFacts(user=number)), [one], roomy)[one.key]

    assert first(user) != first(user + apart)


def test_root_and_the_first_user_get_what_a_preview_elsewhere_shows() -> None:
    """A preview on a machine without a host has no user."""
    for user in (0, 1000):
        assert given(service("web"), host=HostFacts(user=user)) == given(service("web"))


@drawn(st.sets(st.sampled_from([f"10.0.0.{n}" for n in range(1, 3)]), min_size=1), st.sampled_from([80, 443, 22]))
def test_what_was_planned_is_planned_again(addresses: set[str], port: int) -> None:
    """Wherever another user listens, a plan that was carried out stays."""
    sockets = tuple(socket for address in addresses for socket in theirs(address, port).sockets)
    host = HostFacts(sockets=sockets)
    services = [replace(service(name, created=name), ports=(ServicePort(80), ServicePort(443))) for name in "ab"]
    held = [claim("10.0.0.1", "a"), claim("10.0.0.2", "b")]
    first = given(*services, ledger=held, host=host)
    carried_out = [claim(str(address), name) for name, found in first.items() for address in addresses_of(found)]
    assert given(*services, ledger=carried_out, host=host) == first


@pytest.mark.parametrize(("foreign", "number"), [(False, 8080), (True, 0)])
def test_a_mapped_port_that_another_user_has_gets_another_number(foreign: bool, number: int) -> None:  # noqa: FBT001 - a parameter
    """What this user's own process has is reported."""
    one = replace(service("web"), ports=(ServicePort(8080),))
    held = claim(str(LOCALHOST), "web")
    held = replace(held, ports=(MappedPort(8080, Protocol.TCP, 8080),))
    host = HostFacts(sockets=(Socket(LOCALHOST, 8080, Protocol.TCP, "", foreign),))
    (made,) = map_ports(Snapshot(HOME, (one,), claims=(held,), host=host), [one]).services
    assert (made.ports[0].mapped == 8080) is (number == 8080)
    assert made.ports[0].mapped
