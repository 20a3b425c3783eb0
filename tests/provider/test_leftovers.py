"""What a lost state left is found and removed; what belongs to others is shown at most."""

from __future__ import annotations

import shutil
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.engine.state.resource import ResourceState
from locallb.engine.state.values import Properties, Value
from locallb.ledger import claims
from locallb.ledger.ledger import Ledger
from locallb.leftovers import ClaimKey, LeftoverKind, StateClaimError, claim_key, claim_keys_in, leftovers, remove
from locallb.model.desired import PORTS
from locallb.model.identities import Owner, ProxyId, ProxyName, SharingKey, Uid
from locallb.model.snapshot import MappedPort
from locallb.model.texts import owner_fields
from locallb.runtimes import processes
from locallb.runtimes.processes import Process
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies
from tests.support.provider import Driver, Wanted, accepts, owner

pytestmark = pytest.mark.usefixtures("no_engines")

ADDRESS = ip_address("127.77.0.5")


@pytest.mark.usefixtures("home")
def test_resources_in_the_state_are_no_leftovers(root: Path) -> None:
    """Known addresses and proxies aren't listed."""
    mine = owner(root)
    Ledger(paths.ledger_directory()).claim(ADDRESS, mine)
    Proxies(paths.proxies_root()).make(ProxyId("0123456789ab"), mine, ProxyName("web"))
    existing = {ClaimKey(str(ADDRESS), mine.home, mine.service)}
    assert leftovers(mine.home, {"0123456789ab"}, existing) == ()
    assert [str(leftover.sort) for leftover in leftovers(mine.home, set(), set())] == ["address", "proxy"]


@pytest.mark.usefixtures("home")
def test_gc_lists_nothing_of_another_project_or_stack(root: Path, tmp_path: Path) -> None:
    """The same names in another directory, and another stack of this project."""
    mine = owner(root)
    elsewhere = replace(mine, home=mine.home._replace(root=str(tmp_path)))
    sibling = replace(mine, home=mine.home._replace(stack="prod"))
    proxies = Proxies(paths.proxies_root())
    for number, other in enumerate((elsewhere, sibling)):
        Ledger(paths.ledger_directory()).claim(ADDRESS + number, other)
        proxies.make(ProxyId(f"0123456789a{number}"), other, ProxyName("web"))
    assert leftovers(mine.home, set(), set()) == ()


@pytest.mark.usefixtures("home")
def test_a_claim_is_known_by_whom_it_has(root: Path) -> None:
    """A stack that is gone had ports for a Service of the same name at the same address; ours may have another uid."""
    mine, ports = owner(root), tuple(map(MappedPort.parse, ("80/TCP=30080", "81/TCP=30081")))
    removed = replace(mine, home=mine.home._replace(root="/nowhere/at/all"))
    ledger = Ledger(paths.ledger_directory())
    ledger.claim(ADDRESS, removed, ports=ports[:1])
    ledger.claim(ADDRESS, replace(mine, uid=Uid("later")), ports=ports[1:])
    existing = claim_keys_in([resource(mine)])
    assert [(remaining.what, remaining.owner) for remaining in leftovers(mine.home, (), existing)] == [
        (f"{ADDRESS}/{mine.service}", removed)
    ]
    assert {claim_key(claim) for claim in ledger.claims()} >= existing
    ledger.release(ADDRESS, replace(mine, uid=Uid("later")))
    assert not {claim_key(claim) for claim in ledger.claims()} & existing


def resource(mine: Owner, **inputs: Value) -> ResourceState:
    """Return the ports of a Service as a state has them."""
    retained: Properties = {"address": str(ADDRESS), "owner": dict(owner_fields(mine)), **inputs}
    return ResourceState("urn", PORTS, custom=True, id=f"{ADDRESS}/{mine.service}", inputs=retained)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("ports", [(), (MappedPort.parse("80/TCP=30080"),)])
def test_gc_releases_only_the_listed_claim_of_an_owner(root: Path, ports: tuple[MappedPort, ...]) -> None:
    """The owner may hold ports of an address and all of it, after a copy of a file or an update meanwhile."""
    mine, ledger = owner(root), Ledger(paths.ledger_directory())
    other = () if ports else (MappedPort.parse("80/TCP=30080"),)
    ledger.claim(ADDRESS, mine, ports=ports)
    listed = leftovers(mine.home, (), ())
    (name,) = paths.ledger_directory().glob("127*")
    name.rename(name.with_name(f"{ADDRESS}~{'0' * 16}.json"))
    ledger.claim(ADDRESS, mine, ports=ports)
    name.write_text(claims.entry_text(ADDRESS, mine, SharingKey(""), other))
    assert sorted(len(claim.ports) for claim in ledger.claims()) == [0, 1]
    assert len(remove(listed)) == 1
    assert [claim.ports for claim in ledger.claims()] == [other]


@pytest.mark.parametrize("odd", [None, 1, "web", {}, {"name": "web"}])
def test_a_state_that_does_not_say_whose_a_claim_is(root: Path, odd: Value) -> None:
    """One sentence: no claim is taken for a leftover because of it."""
    with pytest.raises(StateClaimError, match="doesn't say whose"):
        claim_keys_in([resource(owner(root), owner=odd)])


@pytest.mark.usefixtures("home")
def test_leftovers_of_a_missing_project_are_listed_and_kept(root: Path) -> None:
    """Its directory may be on a disk that isn't there today."""
    removed = replace(owner(root), home=owner(root).home._replace(root="/nowhere/at/all"))
    Ledger(paths.ledger_directory()).claim(ADDRESS, removed)
    remaining = leftovers(owner(root).home, set(), set())
    assert [(leftover.what, leftover.ours) for leftover in remaining] == [(str(ADDRESS), False)]
    assert remove(remaining) == ()
    assert leftovers(owner(root).home, set(), set()) == remaining


@pytest.mark.usefixtures("home")
def test_unreadable_leftovers_are_listed_and_kept(root: Path) -> None:
    """A damaged directory and a damaged claim belong to somebody unknown."""
    Proxies(paths.proxies_root()).make(ProxyId("0123456789ab"), owner(root), ProxyName("web"))
    (paths.proxies_root() / "0123456789ab" / "owner.json").write_text("{")
    Ledger(paths.ledger_directory()).claim(ADDRESS, owner(root))
    next(paths.ledger_directory().iterdir()).write_text("{")
    remaining = leftovers(owner(root).home, set(), set())
    assert [(leftover.sort, leftover.owner, leftover.ours) for leftover in remaining] == [
        (LeftoverKind.ADDRESS, None, False),
        (LeftoverKind.PROXY, None, False),
    ]
    assert remove(remaining) == ()


@pytest.mark.envoy
def test_a_forgotten_proxy_is_stopped_and_removed(driver: Driver, wanted: Wanted, home: Path) -> None:
    """Directory, process and claim go; nothing is left to list."""
    driver.create("LoopbackAddress", {"address": wanted.address, "owner": wanted.config["owner"], "sharing": ""})
    _, process, _ = driver.up(wanted)
    remaining = leftovers(wanted.owner.home, set(), set())
    assert [leftover.sort for leftover in remaining] == [LeftoverKind.ADDRESS, LeftoverKind.PROXY]
    assert len(remove(remaining)) == 2
    assert not accepts(wanted.address, 8080)
    assert not processes.is_alive(Process(process["pid"], process["started"]))
    assert leftovers(wanted.owner.home, set(), set()) == ()
    assert [*(home / "ledger").iterdir(), *paths.proxies_root().iterdir()] == []


@pytest.mark.envoy
def test_a_process_without_a_directory_is_found_by_its_mark(driver: Driver, wanted: Wanted) -> None:
    """Somebody removed the state directory under a running Envoy: it still says whose it is."""
    config, process, _ = driver.up(wanted)
    shutil.rmtree(config["directory"])
    remaining = leftovers(wanted.owner.home, set(), set())
    assert [(leftover.sort, leftover.owner, leftover.ours) for leftover in remaining] == [
        ("process", wanted.owner, True)
    ]
    remove(remaining)
    assert not processes.is_alive(Process(process["pid"], process["started"]))
