"""What a lost state left is found and removed; what belongs to others is shown at most."""

from __future__ import annotations

import shutil
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.ledger.ledger import Ledger
from locallb.leftovers.host import Sort, leftovers, remove
from locallb.model.identities import ProxyId, ProxyName
from locallb.runtimes.process import processes
from locallb.runtimes.process.processes import Process
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies
from tests.provider.support import Driver, Wanted, accepts, owner

ADDRESS = ip_address("127.77.0.5")


@pytest.mark.usefixtures("home")
def test_what_the_state_knows_is_no_leftover(root: Path) -> None:
    """Known addresses and proxies aren't listed."""
    mine = owner(root)
    Ledger(paths.ledger_directory()).claim(ADDRESS, mine)
    Proxies(paths.proxies_root()).make(ProxyId("0123456789ab"), mine, ProxyName("web"))
    assert leftovers(mine.home, {"0123456789ab"}, {str(ADDRESS)}) == ()
    assert [str(leftover.sort) for leftover in leftovers(mine.home, set(), set())] == ["address", "proxy"]


@pytest.mark.usefixtures("home")
def test_another_project_or_stack_is_never_listed(root: Path, tmp_path: Path) -> None:
    """The same names in another directory, and another stack of this project, are others."""
    mine = owner(root)
    elsewhere = replace(mine, home=mine.home._replace(root=str(tmp_path)))
    sibling = replace(mine, home=mine.home._replace(stack="prod"))
    proxies = Proxies(paths.proxies_root())
    for number, other in enumerate((elsewhere, sibling)):
        Ledger(paths.ledger_directory()).claim(ADDRESS + number, other)
        proxies.make(ProxyId(f"0123456789a{number}"), other, ProxyName("web"))
    assert leftovers(mine.home, set(), set()) == ()


@pytest.mark.usefixtures("home")
def test_what_belongs_to_a_project_that_is_gone_is_shown_and_stays(root: Path) -> None:
    """Its directory may be on a disk that isn't there today."""
    gone = replace(owner(root), home=owner(root).home._replace(root="/nowhere/at/all"))
    Ledger(paths.ledger_directory()).claim(ADDRESS, gone)
    left = leftovers(owner(root).home, set(), set())
    assert [(leftover.what, leftover.ours) for leftover in left] == [(str(ADDRESS), False)]
    assert remove(left) == ()
    assert leftovers(owner(root).home, set(), set()) == left


@pytest.mark.usefixtures("home")
def test_what_cannot_be_read_is_shown_and_stays(root: Path) -> None:
    """A damaged directory and a damaged claim belong to somebody unknown."""
    Proxies(paths.proxies_root()).make(ProxyId("0123456789ab"), owner(root), ProxyName("web"))
    (paths.proxies_root() / "0123456789ab" / "owner.json").write_text("{")
    Ledger(paths.ledger_directory()).claim(ADDRESS, owner(root))
    next(paths.ledger_directory().iterdir()).write_text("{")
    left = leftovers(owner(root).home, set(), set())
    assert [(leftover.sort, leftover.owner, leftover.ours) for leftover in left] == [
        (Sort.ADDRESS, None, False),
        (Sort.PROXY, None, False),
    ]
    assert remove(left) == ()


@pytest.mark.envoy
def test_a_forgotten_proxy_is_stopped_and_removed(driver: Driver, wanted: Wanted, home: Path) -> None:
    """Directory, process and claim go; nothing is left to list."""
    driver.create("LoopbackAddress", {"address": wanted.address, "owner": wanted.config["owner"], "sharing": ""})
    _, process, _ = driver.up(wanted)
    left = leftovers(wanted.owner.home, set(), set())
    assert [leftover.sort for leftover in left] == [Sort.ADDRESS, Sort.PROXY]
    assert len(remove(left)) == 2
    assert not accepts(wanted.address, 8080)
    assert not processes.is_alive(Process(process["pid"], process["started"]))
    assert leftovers(wanted.owner.home, set(), set()) == ()
    assert [*(home / "ledger").iterdir(), *paths.proxies_root().iterdir()] == []


@pytest.mark.envoy
def test_a_process_without_a_directory_is_found_by_its_mark(driver: Driver, wanted: Wanted) -> None:
    """Somebody removed the state directory under a running Envoy: it still says whose it is."""
    config, process, _ = driver.up(wanted)
    shutil.rmtree(config["directory"])
    left = leftovers(wanted.owner.home, set(), set())
    assert [(leftover.sort, leftover.owner, leftover.ours) for leftover in left] == [("process", wanted.owner, True)]
    remove(left)
    assert not processes.is_alive(Process(process["pid"], process["started"]))
