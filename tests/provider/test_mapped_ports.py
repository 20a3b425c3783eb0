"""LoopbackPorts: ports of one address for many owners, each port for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from locallb.ledger.ledger import Ledger, LedgerError
from locallb.model.identities import Owner
from locallb.model.texts import owner_fields
from locallb.storage import paths
from tests.support.provider import Driver, owner

KIND = "LoopbackPorts"


def inputs(party: Owner, *ports: str, address: str = "127.0.0.1") -> dict[str, Any]:
    return {"address": address, "owner": dict(owner_fields(party)), "ports": list(ports)}


def test_ports_are_claimed_changed_and_released(driver: Driver, root: Path, home: Path) -> None:
    """One file, which says them; another set takes its place in one step."""
    web = owner(root)
    state = driver.create(KIND, inputs(web, "80/TCP=10080"))
    assert driver.read(KIND, state) == state
    (path,) = (home / "ledger").glob("127.0.0.1~*")
    assert json.loads(path.read_text())["ports"] == ["80/TCP=10080"]
    changed = driver.update(KIND, state, inputs(web, "80/TCP=10080", "53/UDP=53"))
    assert driver.read(KIND, state) is None
    assert driver.read(KIND, changed) == changed
    driver.delete(KIND, changed)
    assert Ledger(home / "ledger").claims() == ()


def test_a_port_has_one_owner_whichever_stack_it_is_of(driver: Driver, root: Path, home: Path) -> None:
    """Another port of the same address is fine, the same number of the other protocol too."""
    driver.create(KIND, inputs(owner(root), "80/TCP=10080"))
    other = owner(root, "other")
    with pytest.raises(LedgerError, match=r"127\.0\.0\.1 port 10080/TCP belongs to local/default/web .*run again"):
        driver.create(KIND, inputs(other, "443/TCP=10443", "8080/TCP=10080"))
    state = driver.create(KIND, inputs(other, "8080/UDP=10080", "443/TCP=10443"))
    with pytest.raises(LedgerError, match="port 10080/TCP"):
        driver.update(KIND, state, inputs(other, "8080/TCP=10080"))
    assert driver.read(KIND, state) == state
    assert len(Ledger(home / "ledger").claims()) == 2


def test_address_claim_and_port_claims_of_it_exclude_each_other(driver: Driver, root: Path) -> None:
    """Whoever came first."""
    whole = {"address": "127.77.0.5", "owner": dict(owner_fields(owner(root))), "sharing": ""}
    driver.create("LoopbackAddress", whole)
    with pytest.raises(LedgerError, match=r"127\.77\.0\.5 belongs to"):
        driver.create(KIND, inputs(owner(root, "other"), "80/TCP=80", address="127.77.0.5"))


def test_going_over_to_ports_of_the_same_address_and_back_keeps_a_claim(driver: Driver, root: Path) -> None:
    """A pool may be 127.0.0.1 itself: what is deleted last doesn't take along what was created before."""
    whole = {"address": "127.0.0.1", "owner": dict(owner_fields(owner(root))), "sharing": ""}
    before = driver.create("LoopbackAddress", whole)
    mapped = driver.create(KIND, inputs(owner(root), "80/TCP=10080"))
    driver.delete("LoopbackAddress", before)
    assert driver.read(KIND, mapped) == mapped
    after = driver.create("LoopbackAddress", whole)
    driver.delete(KIND, mapped)
    assert driver.read("LoopbackAddress", after) == after


def test_claim_made_before_host_setup_is_released_from_the_former_ledger(
    driver: Driver, root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left in a ledger that is no longer used, it would never be released."""
    monkeypatch.delenv(paths.LEDGER_VARIABLE)
    monkeypatch.setattr(paths, "SHARED_LEDGER", home / "shared")
    before, of_state_home = driver.create(KIND, inputs(owner(root), "80/TCP=10080")), Ledger(paths.ledger_directory())
    (home / "shared").mkdir()
    assert driver.read(KIND, before) is None
    after = driver.create(KIND, inputs(owner(root), "80/TCP=10080"))
    assert driver.read(KIND, after) == after
    assert of_state_home.claims() == ()


@pytest.mark.parametrize(
    ("address", "ports", "named"),
    [
        ("127.0.0.1", ["80/TCP"], "ports"),
        ("127.0.0.1", ["80/TCP=70000"], "ports"),
        ("127.0.0.1", ["80/TCP=../x"], "ports"),
        ("127.0.0.1", [], "ports"),
        ("192.0.2.1", ["80/TCP=80"], "address"),
        ("localhost", ["80/TCP=80"], "address"),
    ],
)
def test_invalid_port_claims_are_refused_by_name(
    driver: Driver, root: Path, address: str, ports: list[str], named: str
) -> None:
    """Before anything is done."""
    assert [fault[0] for fault in driver.check(KIND, inputs(owner(root), *ports, address=address))] == [named]


def test_a_damaged_claim_of_ports_is_held_and_reported(driver: Driver, root: Path, home: Path) -> None:
    """Nobody knows which ports it has, so nobody new gets any; what serves goes on."""
    driver.create(KIND, inputs(owner(root), "80/TCP=10080"))
    (path,) = (home / "ledger").glob("127.0.0.1~*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "ports": ["80"]}))
    with pytest.raises(LedgerError, match="it is damaged: remove the file if nobody uses"):
        driver.create(KIND, inputs(owner(root, "other"), "81/TCP=10081"))
    assert str(path) in Ledger(home / "ledger").problems()[0]
