"""ProxyConfig: what is on disk, what a refresh sees of it, what an up repairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from locallb.envoy.admin import EnvoyAdmin
from locallb.ledger.ledger import LedgerError
from locallb.model.texts import owner_fields
from locallb.provider import ProviderError
from locallb.storage.proxy_directories import ProxiesError
from tests.support.provider import Driver, Wanted, owner


def inodes(directory: Path) -> dict[str, int]:
    """Return which file is which: one that is written again is another."""
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


def test_a_config_is_written_with_its_owner(driver: Driver, wanted: Wanted) -> None:
    """The directory has Envoy's files and whose it is."""
    state = driver.create("ProxyConfig", wanted.config)
    names = {path.name for path in Path(state["directory"]).iterdir()}
    assert names == {*wanted.config["files"], "owner.json"}
    assert driver.read("ProxyConfig", state) == state
    assert driver.diff("ProxyConfig", state, wanted.config).changes is False


def test_only_files_that_differ_are_written(driver: Driver, wanted: Wanted) -> None:
    """A changed backend touches its EDS file and nothing else."""
    state = driver.create("ProxyConfig", wanted.config)
    before = inodes(Path(state["directory"]))
    driver.update("ProxyConfig", state, replace(wanted, ports={8080: 10}).config)
    after = inodes(Path(state["directory"]))
    assert {name for name, inode in after.items() if before[name] != inode} == {"eds-tcp-8080-ipv4.json"}


def test_a_backend_that_comes_or_goes_asks_envoy_nothing_and_no_change_whether_it_runs(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions would come before the file; where there are watches enough, nobody need know who takes them."""
    state = driver.create("ProxyConfig", wanted.config)
    requested = list[str]()

    def ask(_admin: EnvoyAdmin, _method: str, path: str, **_: object) -> str:
        requested.append(path)
        return ""

    monkeypatch.setattr(EnvoyAdmin, "_ask", ask)
    driver.update("ProxyConfig", state, replace(wanted, ports={8080: 10}).config)
    assert requested == []
    driver.update("ProxyConfig", state, replace(wanted, ports={8081: 10}).config)
    assert requested
    assert "/ready" not in requested


def test_an_update_without_a_change_writes_nothing(driver: Driver, wanted: Wanted) -> None:
    """What is right stays the same file."""
    state = driver.create("ProxyConfig", wanted.config)
    before = inodes(Path(state["directory"]))
    driver.update("ProxyConfig", state, wanted.config)
    driver.create("ProxyConfig", wanted.config)
    assert inodes(Path(state["directory"])) == before


@pytest.mark.parametrize("damage", ["edited", "removed", "added", "binary"])
def test_changed_config_files_are_detected_and_restored(driver: Driver, wanted: Wanted, damage: str) -> None:
    """A refresh shows the files as they are, the diff names them, the update restores them."""
    state = driver.create("ProxyConfig", wanted.config)
    directory = Path(state["directory"])
    if damage == "edited":
        (directory / "lds.json").write_text("{}")
    elif damage == "removed":
        (directory / "cds.json").unlink()
    elif damage == "added":
        (directory / "eds-mine.json").write_text("{}")
    else:
        (directory / "lds.json").write_bytes(b"\xff\x00")
    observed = driver.read("ProxyConfig", state)
    assert observed is not None
    assert observed["files"] != state["files"]
    assert driver.diff("ProxyConfig", observed, wanted.config).diffs == ["files"]
    assert driver.update("ProxyConfig", observed, wanted.config) == state
    assert driver.read("ProxyConfig", state) == state


def test_a_changed_bootstrap_shows_in_its_digest(driver: Driver, wanted: Wanted) -> None:
    """The digest is that of the file on disk, so that the process is replaced where it read another one."""
    state = driver.create("ProxyConfig", wanted.config)
    (Path(state["directory"]) / "bootstrap.json").write_text("{}")
    observed = driver.read("ProxyConfig", state)
    assert observed is not None
    assert observed["bootstrap"] != state["bootstrap"]


def test_a_directory_of_another_is_refused(driver: Driver, wanted: Wanted, root: Path) -> None:
    """Its id may be the same; its owner isn't."""
    driver.create("ProxyConfig", wanted.config)
    theirs = {**wanted.config, "owner": dict(owner_fields(owner(root, "other")))}
    with pytest.raises(ProxiesError, match=r"belongs to local/default/web of shop/dev"):
        driver.create("ProxyConfig", theirs)
    state = {**theirs, "directory": "", "bootstrap": ""}
    assert driver.read("ProxyConfig", state) is None
    driver.delete("ProxyConfig", state)
    assert driver.create("ProxyConfig", wanted.config)


def test_a_service_created_again_keeps_its_proxy(driver: Driver, wanted: Wanted) -> None:
    """Another uid signs the directory again, with and without a state that knows it."""
    state = driver.create("ProxyConfig", wanted.config)
    retry = replace(wanted, owner=structs.replace(wanted.owner, uid=owner(Path("/"), uid="u2").uid))
    assert driver.diff("ProxyConfig", state, retry.config).diffs == ["owner"]
    updated = driver.update("ProxyConfig", state, retry.config)
    assert driver.read("ProxyConfig", updated) == updated
    assert driver.create("ProxyConfig", wanted.config) == state


def test_a_copied_project_does_not_take_a_proxy(driver: Driver, wanted: Wanted, tmp_path: Path) -> None:
    """Neither by an update nor by a destroy."""
    state = driver.create("ProxyConfig", wanted.config)
    copy = tmp_path / "copy"
    copy.mkdir()
    theirs = {**wanted.config, "owner": dict(owner_fields(owner(copy)))}
    with pytest.raises(LedgerError, match="looks like a copy"):
        driver.update("ProxyConfig", state, theirs)
    with pytest.raises(ProviderError, match="it isn't deleted"):
        Driver(copy).delete("ProxyConfig", state)
    assert driver.read("ProxyConfig", state) == state


@pytest.mark.parametrize(
    "name", ["../lds.json", "eds-/etc/x.json", "eds-A.json", "owner.json", "lds.json/x", "lds.json\n"]
)
def test_a_file_name_that_is_not_ours_is_refused(driver: Driver, wanted: Wanted, name: str) -> None:
    """Nothing is ever written beside the directory or over its other files."""
    failures = driver.check("ProxyConfig", {**wanted.config, "files": {**wanted.config["files"], name: "x"}})
    assert [path for path, _ in failures] == ["files"]


def test_a_config_without_a_needed_file_is_refused(driver: Driver, wanted: Wanted) -> None:
    """Bootstrap, listeners and clusters belong to every proxy."""
    failures = driver.check("ProxyConfig", {**wanted.config, "files": {}})
    assert failures == [("files", f"{name}.json is missing") for name in ("bootstrap", "lds", "cds")]


@pytest.mark.parametrize("proxy", ["", "..", "0123456789AB", "0123456789abc", "../../etc/x", "0123456789ab\n"])
def test_an_id_that_is_none_is_refused(driver: Driver, wanted: Wanted, proxy: str) -> None:
    """An id is the name of a directory, and nothing else."""
    for kind, given in (("ProxyConfig", wanted.config), ("EnvoyProcess", wanted.process)):
        assert [path for path, _ in driver.check(kind, {**given, "proxy": proxy})] == ["proxy"]


def test_a_link_in_the_place_of_the_directory_is_not_followed(driver: Driver, wanted: Wanted, home: Path) -> None:
    """Somebody put a link where the proxy's directory should be: nothing is written or removed through it."""
    target = home / "target"
    target.mkdir()
    (target / "precious").touch()
    state = driver.create("ProxyConfig", wanted.config)
    directory = Path(state["directory"])
    (target / "owner.json").write_text((directory / "owner.json").read_text())
    driver.delete("ProxyConfig", state)
    directory.symlink_to(target)
    assert driver.read("ProxyConfig", state) is None
    driver.delete("ProxyConfig", state)
    with pytest.raises(ProxiesError, match="can't be made"):
        driver.create("ProxyConfig", wanted.config)
    assert {path.name for path in target.iterdir()} == {"precious", "owner.json"}
