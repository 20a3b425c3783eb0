"""Directories of proxies: whole, signed, and gone without a trace."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from locallb.model.identities import Digest, Home, Owner, ProxyId, ProxyName
from locallb.sources import stack_home
from locallb.storage.proxy_directories import ProcessRecord, Proxies, ProxiesError, ProxyDirectory
from tests.support.descriptors import few_files
from tests.support.owners import owner

ID = ProxyId("0123456789ab")
RECORD = ProcessRecord(7, "boot.1", "/envoy", "1.40.0", Digest("digest"))


@pytest.fixture
def proxies(tmp_path: Path) -> Proxies:
    """Return an empty root that isn't made yet."""
    return Proxies(tmp_path / "proxies")


def test_proxy_directory_records_its_owner(proxies: Proxies) -> None:
    """Made, found and listed with its owner and readable name."""
    assert (proxies.list(), proxies.find(ID)) == ((), None)
    made = proxies.make(ID, owner("web"), ProxyName("local/default/web"))
    assert made == ProxyDirectory(ID, proxies.root / ID, owner("web"), ProxyName("local/default/web"))
    assert proxies.find(ID) == made
    assert proxies.list() == (made,)
    assert made.path.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_the_same_service_is_taken(proxies: Proxies) -> None:
    """Whatever life of the Service it is from; nothing in it is lost."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    (made.path / "lds.json").touch()
    retry = proxies.make(ID, owner("web", uid="u2"), ProxyName("web"))
    assert proxies.find(ID) == retry
    assert retry.owner == owner("web", uid="u2")
    assert (made.path / "lds.json").exists()


def test_concurrent_creators_get_the_same_directory(proxies: Proxies) -> None:
    """Several certificates of a proxy come side by side: none fails, and nothing unfinished stays."""
    ready = threading.Barrier(8)

    def make(number: int) -> ProxyDirectory:
        ready.wait()
        made = proxies.make(ID, owner("web"), ProxyName("web"))
        (made.path / str(number)).touch()
        return made

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(make, range(8)))
    assert made == {proxies.find(ID)}
    assert [path.name for path in proxies.root.iterdir()] == [ID]
    assert len(list((proxies.root / ID).iterdir())) == 9


@pytest.mark.parametrize("other", [owner("other"), owner("web", root="/elsewhere")])
def test_a_directory_of_another_is_refused(proxies: Proxies, other: Owner) -> None:
    """And stays his."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    with pytest.raises(ProxiesError, match="belongs to local/default/web"):
        proxies.make(ID, other, ProxyName("x"))
    assert proxies.find(ID) == made


def test_unsigned_directory_is_refused_unless_empty(proxies: Proxies) -> None:
    """Its files may be precious; an empty one has no owner."""
    (proxies.root / ID).mkdir(parents=True)
    assert proxies.list()[0].owner is None
    assert proxies.make(ID, owner("web"), ProxyName("web")).owner == owner("web")
    (proxies.root / ID / "owner.json").write_text("{}")
    with pytest.raises(ProxiesError, match=r"has no readable owner\.json"):
        proxies.make(ID, owner("web"), ProxyName("web"))


def test_a_removal_ends_with_the_signature(proxies: Proxies) -> None:
    """What a stopped removal leaves still says whose it is; the next one finishes."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    for name in ("a", "z", "owner.json.x"):
        (made.path / name).touch()
    (made.path / "deep").mkdir()
    (made.path / "deep" / "file").touch()
    made.path.joinpath("link").symlink_to("/etc")
    proxies.remove(ID)
    proxies.remove(ID)
    assert list(proxies.root.iterdir()) == []
    assert Path("/etc").exists()


def test_a_directory_that_was_never_finished_is_listed_and_can_go(proxies: Proxies) -> None:
    """A crash before the rename leaves it under another name, signed."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    made.path.rename(proxies.root / f".{ID}.01234567.new")
    directories = proxies.list()
    assert [directory.owner for directory in directories] == [owner("web")]
    proxies.remove(directories[0].id)
    assert proxies.list() == ()


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("how", ["make", "remove"])
def test_half_made_directory_of_a_killed_run_is_removed(proxies: Proxies, how: str, *, signed: bool) -> None:
    """Before it was signed or after; what others make stays."""
    mine, theirs = (proxies.root / f".{name}.01234567.new" for name in (ID, "ffffffffffff"))
    for unfinished in (mine, theirs):
        unfinished.mkdir(parents=True)
    if signed:
        (mine / "owner.json").write_text("{}")
    if how == "make":
        proxies.make(ID, owner("web"), ProxyName("web"))
    else:
        proxies.remove(ID)
    assert {path.name for path in proxies.root.iterdir()} == {theirs.name, *([ID] if how == "make" else [])}


def test_sweep_removes_remains_of_killed_runs_of_any_proxy(proxies: Proxies) -> None:
    """Directories that were never signed, and files that were never complete; not what may be in the making."""
    old, young = (proxies.root / f".{name}.01234567.new" for name in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"))
    for unfinished in (old, young):
        (unfinished / "deep").mkdir(parents=True)
    os.utime(old, (0, 0))
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    proxies.record(ID, RECORD)
    (made.path / ".lds.json.01234567.new").touch()
    (proxies.root / ".notes.01234567.new").touch()
    (proxies.root / "0123456789ac").symlink_to(proxies.root / ID)
    proxies.sweep()
    remaining = {young.name, ".notes.01234567.new", ID, "0123456789ac"}
    assert {path.name for path in proxies.root.iterdir()} == remaining
    assert {path.name for path in made.path.iterdir()} == {"owner.json", "process.json"}
    Proxies(proxies.root / "absent").sweep()


def test_every_update_sweeps_what_killed_ones_left(proxies: Proxies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever stack it is of."""
    monkeypatch.setattr(Proxies, "ours", lambda: proxies)
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    (made.path / ".lds.json.01234567.new").touch()
    stack_home.settle(Home("shop", "dev", str(proxies.root.parent)))
    assert [path.name for path in made.path.iterdir()] == ["owner.json"]


def test_other_things_in_the_root_are_not_ours(proxies: Proxies) -> None:
    """Neither listed nor removed."""
    proxies.make(ID, owner("web"), ProxyName("web"))
    (proxies.root / "notes").mkdir()
    assert [directory.id for directory in proxies.list()] == [ID]
    for name in ("notes", "..", "", "../proxies"):
        with pytest.raises(ProxiesError, match="isn't the id of a proxy"):
            proxies.remove(ProxyId(name))


def test_run_record_is_written_read_and_removed(proxies: Proxies) -> None:
    """Written, read and removed; what can't be read is as if nothing were noted."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    assert proxies.recorded(ID) is None
    proxies.record(ID, RECORD)
    assert proxies.recorded(ID) == RECORD
    for text in ("", "{", "[]", '{"pid": 1}', '{"pid":"x","started":"","binary":"","version":"","bootstrap":""}'):
        (made.path / "process.json").write_text(text)
        assert proxies.recorded(ID) is None
    proxies.record(ID, None)
    assert not (made.path / "process.json").exists()


def test_record_of_a_run_that_may_not_be_read_is_reported(proxies: Proxies, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a run as root: something may run there."""
    path = proxies.make(ID, owner("web"), ProxyName("web")).path / "process.json"
    proxies.record(ID, RECORD)
    open_file = os.open

    def refused(name: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(name) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return open_file(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ProxiesError, match=r"process\.json can't be read: Permission denied; run this as the user"):
        proxies.recorded(ID)


@pytest.mark.parametrize("name", ["owner.json", "process.json"])
def test_links_and_fifos_in_a_proxy_directory_are_not_followed(proxies: Proxies, name: str) -> None:
    """They stand for nothing that can be read; so does a directory that is a link."""
    for hostile in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        proxies.make(ID, owner("web"), ProxyName("web"))
        (proxies.root / ID / name).unlink(missing_ok=True)
        hostile(proxies.root / ID / name)
        assert proxies.recorded(ID) is None
        assert [directory.owner for directory in proxies.list()] == [None if name == "owner.json" else owner("web")]
        proxies.remove(ID)
    proxies.make(ID, owner("web"), ProxyName("web"))
    (proxies.root / "0123456789ac").symlink_to(proxies.root / ID)
    assert {directory.id: directory.owner for directory in proxies.list()} == {ID: owner("web"), "0123456789ac": None}


def test_temporarily_unreadable_proxy_directory_is_neither_ownerless_nor_gone(proxies: Proxies) -> None:
    """While no file can be opened it must not be removed, nor its process forgotten."""
    made = proxies.make(ID, owner("web"), ProxyName("web"))
    proxies.record(ID, RECORD)
    with few_files(0):
        for inspect in (proxies.find, proxies.recorded):
            with pytest.raises(ProxiesError, match="raise the limit of open files"):
                inspect(ID)
        with pytest.raises(ProxiesError, match="raise the limit of open files"):
            proxies.make(ID, owner("web"), ProxyName("web"))
    assert (proxies.list(), proxies.recorded(ID)) == ((made,), RECORD)
