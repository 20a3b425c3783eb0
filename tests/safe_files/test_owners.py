"""Which paths only trusted users decide about: owners and modes of all parts, links, groups, sticky directories."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from locallb import safe_files
from locallb.safe_files import distrust

OTHER = 65534
pytestmark = pytest.mark.root(only="can give files away")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project's directory with a file, below a directory of its own."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(safe_files, "_ACCEPTED", set())
    base = tmp_path / "above" / "project"
    base.mkdir(parents=True)
    (base / "file").write_text("")
    return base


def give(path: Path) -> None:
    """Give a file, a directory or a link to another user."""
    os.lchown(path, OTHER, OTHER)


def linked(base: Path) -> None:
    """Put the file elsewhere, with a link in its place."""
    (base / "file").rename(base.parent / "elsewhere")
    (base / "file").symlink_to("../elsewhere")


def linked_through(base: Path) -> None:
    """Put it into another user's directory, of which the link's target is only a part."""
    linked(base)
    (base.parent / "theirs").mkdir()
    (base.parent / "theirs" / "way").symlink_to(base.parent)
    give(base.parent / "theirs")
    (base / "file").unlink()
    (base / "file").symlink_to(base.parent / "theirs" / "way" / "elsewhere")


def linked_by_another(base: Path) -> None:
    """Have another user's link in place of the file."""
    linked(base)
    give(base / "file")


def linked_to_another(base: Path) -> None:
    """Have a link to another user's file."""
    linked(base)
    give(base.parent / "elsewhere")


def linked_to_itself(base: Path) -> None:
    (base / "file").unlink()
    (base / "file").symlink_to("file")


def open_and_given(base: Path) -> None:
    """Let everybody write to the directory, and another user have the file."""
    base.chmod(0o777)
    give(base / "file")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, ""),
    "file of another": (lambda base: give(base / "file"), "project/file belongs to user nobody (65534)"),
    "directory of another": (give, "project belongs to user nobody (65534)"),
    "directory above of another": (lambda base: give(base.parent), "above belongs to user nobody (65534)"),
    "file for all": (lambda base: (base / "file").chmod(0o666), "write to /above/project/file (mode 666)"),
    "directory for all": (lambda base: base.chmod(0o777), "write to /above/project (mode 777)"),
    "sticky directory for all": (lambda base: base.chmod(0o1777), "write to /above/project (mode 1777)"),
    "directory above for all": (lambda base: base.parent.chmod(0o777), "write to /above (mode 777)"),
    "sticky directory above for all": (lambda base: base.parent.chmod(0o1777), ""),
    "readable by all": (lambda base: (base / "file").chmod(0o644), ""),
    "no file": (lambda base: (base / "file").unlink(), ""),
    "link": (linked, ""),
    "link of another": (linked_by_another, "project/file belongs to user"),
    "target of another": (linked_to_another, "elsewhere belongs to user"),
    "by way of another's directory": (linked_through, "theirs belongs to user nobody (65534)"),
    "link in a circle": (linked_to_itself, ""),
    "an owner rather than a mode": (open_and_given, "project/file belongs to user nobody (65534)"),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_path_is_trusted_if_only_trusted_users_can_change_any_part(
    base: Path, change: Callable[[Path], object], expected: str
) -> None:
    """As OpenSSH has it, but for directories above: a sticky one, such as /tmp, protects what others have in it."""
    change(base)
    found = str(distrust(base / "file", base) or "").replace(str(base.parents[1]), "")
    assert expected in found
    assert bool(expected) == bool(found)


def test_the_user_who_called_sudo_is_trusted(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What root does then is done for that user; another one stays another."""
    give(base / "file")
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert distrust(base / "file", base) is None
    for caller in ("1", "", "x", "\N{SUPERSCRIPT TWO}"):
        monkeypatch.setenv("SUDO_UID", caller)
        assert distrust(base / "file", base)


@pytest.mark.parametrize(
    ("name", "members", "primary", "trusted"),
    [
        ("root", [], (), True),
        ("root", ["root"], (), True),
        ("root", ["eve"], (), False),
        ("root", [], ("eve",), False),
        ("users", [], (), False),
        (None, [], (), False),
    ],
)
def test_a_group_may_write_if_it_is_the_own_group_of_a_trusted_user(  # noqa: PLR0913, PLR0917 - a table's row
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    members: list[str],
    primary: tuple[str, ...],
    trusted: bool,  # noqa: FBT001 - likewise
) -> None:
    """As distributions make one per user, with the umask 002; not if others are in it, by either table."""

    def entry(_: int) -> SimpleNamespace:
        if name is None:
            raise KeyError
        return SimpleNamespace(gr_name=name, gr_mem=members)

    users = [SimpleNamespace(pw_name=user, pw_uid=4711, pw_gid=4242) for user in primary]
    monkeypatch.setattr(grp, "getgrgid", entry)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    for path in (base, base / "file"):
        os.chown(path, 0, 4242)
        path.chmod(path.stat().st_mode | 0o020)
    assert (distrust(base / "file", base) is None) == trusted


def test_a_list_of_access_rights_lets_others_write(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode shows them as the group's."""
    os.chown(base / "file", 0, 0)
    (base / "file").chmod(0o664)
    assert distrust(base / "file", base) is None
    monkeypatch.setattr(os, "getxattr", lambda *_: b"\2\0\0\0")
    assert distrust(base / "file", base)


def test_what_was_accepted_is_trusted_whoever_can_change_it(base: Path) -> None:
    """Its caller named the directory; what is beside it is as before."""
    give(base)
    sibling = base.parent / "beside"
    sibling.mkdir()
    give(sibling)
    safe_files.accept(base)
    assert distrust(base / "file", base) is None
    assert distrust(sibling, sibling)
