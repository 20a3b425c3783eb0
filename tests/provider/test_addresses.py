"""LoopbackAddress: claimed, handed over, released, and never taken from anybody."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.ledger.ledger import LedgerError
from locallb.model.identities import Owner
from locallb.model.texts import owner_fields
from locallb.provider import ProviderError
from tests.support.provider import Driver, owner


def inputs(party: Owner, address: str = "127.77.0.5") -> dict[str, Any]:
    return {"address": address, "owner": dict(owner_fields(party)), "sharing": ""}


def claims(home: Path) -> list[dict[str, Any]]:
    """Read the ledger's files, which all say the format that every version of local-lb reads."""
    documents = [json.loads(path.read_text()) for path in sorted((home / "ledger").iterdir())]
    assert all(document.pop("format") == 1 for document in documents)
    return [{**document, "sharing": ""} for document in documents]


def test_an_address_is_claimed_and_released(driver: Driver, root: Path, home: Path) -> None:
    """One file with the full identity, then none."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    assert state == {**inputs(owner(root)), "claim": str(home / "ledger")}
    assert claims(home) == [inputs(owner(root))]
    assert driver.read("LoopbackAddress", state) == state
    driver.delete("LoopbackAddress", state)
    driver.delete("LoopbackAddress", state)
    assert claims(home) == []
    assert driver.read("LoopbackAddress", state) is None


def test_a_claim_that_is_ours_is_adopted(driver: Driver, root: Path, home: Path) -> None:
    """A crash between the claim and the state converges."""
    first = driver.create("LoopbackAddress", inputs(owner(root)))
    assert driver.create("LoopbackAddress", inputs(owner(root))) == first
    assert len(claims(home)) == 1


def test_an_address_of_another_is_refused_with_his_name(driver: Driver, root: Path, home: Path) -> None:
    """The sentence names the holder and what to do; his claim stays."""
    driver.create("LoopbackAddress", inputs(owner(root)))
    with pytest.raises(LedgerError, match=r"127\.77\.0\.5 belongs to local/default/web of shop/dev .*choose another"):
        driver.create("LoopbackAddress", inputs(owner(root, "other")))
    assert claims(home) == [inputs(owner(root))]


def test_a_claim_that_went_to_another_is_gone_for_us(driver: Driver, root: Path) -> None:
    """A refresh tells that the address isn't ours any more, and deleting leaves it to its owner."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    driver.delete("LoopbackAddress", state)
    theirs = driver.create("LoopbackAddress", inputs(owner(root, "other")))
    assert driver.read("LoopbackAddress", state) is None
    driver.delete("LoopbackAddress", state)
    assert driver.read("LoopbackAddress", theirs) == theirs


def test_a_service_created_again_takes_over_in_place(driver: Driver, root: Path, home: Path) -> None:
    """Another uid is an update of the owner, not another claim."""
    old, new = inputs(owner(root)), inputs(owner(root, uid="u2"))
    state = driver.create("LoopbackAddress", old)
    difference = driver.diff("LoopbackAddress", state, new)
    assert (difference.changes, difference.diffs, difference.replaces) == (True, ["owner"], [])
    assert driver.update("LoopbackAddress", state, new)["owner"] == new["owner"]
    assert claims(home) == [new]


def test_changed_address_is_claimed_before_the_old_one_is_released(driver: Driver, root: Path) -> None:
    """The resource is replaced, and not deleted first."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    difference = driver.diff("LoopbackAddress", state, inputs(owner(root), "127.77.0.6"))
    assert (difference.replaces, difference.delete_before_replace) == (["address"], False)


def test_a_moved_project_takes_its_addresses_along(driver: Driver, root: Path, home: Path, tmp_path: Path) -> None:
    """The old directory is gone: the claim goes to the new one."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    moved = root.rename(tmp_path / "moved")
    driver.update("LoopbackAddress", state, inputs(owner(moved)))
    assert claims(home) == [inputs(owner(moved))]


def test_a_copied_project_does_not_steal(driver: Driver, root: Path, home: Path, tmp_path: Path) -> None:
    """The original still exists: the copy gets a sentence, its destroy leaves the original's claim."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    with pytest.raises(LedgerError, match=r"belongs to .*which still exists.*looks like a copy"):
        driver.update("LoopbackAddress", state, inputs(owner(copy)))
    with pytest.raises(ProviderError, match=f"isn't deleted: .* of the project at {root}, which still exists"):
        Driver(copy).delete("LoopbackAddress", state)
    assert claims(home) == [inputs(owner(root))]
    Driver(root).delete("LoopbackAddress", state)
    assert claims(home) == []


def test_a_project_reached_by_a_link_is_no_copy(driver: Driver, root: Path, home: Path, tmp_path: Path) -> None:
    """Two names of one directory are one project."""
    state = driver.create("LoopbackAddress", inputs(owner(root)))
    link = tmp_path / "link"
    link.symlink_to(root)
    driver.update("LoopbackAddress", state, inputs(owner(link)))
    assert claims(home) == [inputs(owner(link))]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost", "'localhost' isn't an IPv4 or IPv6 address"),
        ("127.77.0.256", "'127.77.0.256' isn't an IPv4 or IPv6 address"),
        ("FD00:0::1", "write 'FD00:0::1' as 'fd00::1'"),
    ],
)
def test_invalid_address_is_refused_before_any_effect(driver: Driver, root: Path, address: str, reason: str) -> None:
    """One address has one spelling."""
    assert driver.check("LoopbackAddress", inputs(owner(root), address)) == [("address", reason)]


def test_an_owner_that_lost_a_field_is_refused(driver: Driver, root: Path) -> None:
    """The check names the path of what is missing and of what is too much."""
    party = {**owner_fields(replace(owner(root))), "colour": "red"}
    del party["uid"]
    failures = driver.check("LoopbackAddress", {"address": "127.77.0.5", "owner": party, "sharing": "", "port": 80})
    assert sorted(failures) == [
        ("owner.colour", "isn't a property of Owner"),
        ("owner.uid", "is missing"),
        ("port", "isn't a property of LoopbackAddressInputs"),
    ]
