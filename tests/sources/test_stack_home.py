"""Where a stack belongs, where that can't be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from locallb.dns.owner_ids import owner_id
from locallb.dns.updates import early_owner_id
from locallb.model.errors import ClientError
from locallb.model.identities import Home
from locallb.sources import SourceError
from locallb.sources.stack_home import (
    FORMAT,
    _path,
    belonging,
    deployed_from,
    earlier_names,
    require_here,
    settle,
    write,
)
from tests.support.descriptors import few_files


def test_unreadable_ownership_of_a_stack_names_its_user_as_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never the removal of the file, which would let another user take the stack over."""
    home = Home("local-lb", "dev", str(tmp_path))
    write(home, None)
    require_here(home, None)

    def forbidden(path: str, _flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(SourceError) as caught:
        belonging(home, None)
    reported = str(caught.value)
    assert "Permission denied; run this as the user whose files these are" in reported
    assert reported.endswith("it says where stack dev belongs; run this as the user whose stack that is")
    assert "remove" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_invalid_stack_home_record_is_reported_with_a_remedy(text: str, tmp_path: Path) -> None:
    """Cut short, or another's file."""
    home = Home("local-lb", "dev", str(tmp_path))
    write(home, None)
    next(tmp_path.rglob("state-home")).write_text(text)
    with pytest.raises(SourceError, match=r"doesn't say where stack dev belongs .* remove it if the"):
        belonging(home, None)


def test_a_stack_that_a_newer_version_serves_is_left_to_that(tmp_path: Path) -> None:
    """In one sentence, before anything is read or written; nobody is told to remove the file."""
    home = Home("local-lb", "dev", str(tmp_path))
    write(home, None)
    (path,) = tmp_path.rglob("state-home")
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    newer = path.read_text()
    for attempt in (require_here, write, belonging):
        with pytest.raises(
            SourceError, match=r"stack dev is served by a newer version .* install that version"
        ) as reported:
            attempt(home, None)
        assert "remove" not in str(reported.value)
    assert path.read_text() == newer


def test_a_stack_that_was_never_deployed_gets_an_id_of_its_own_and_an_earlier_one_keeps_its(tmp_path: Path) -> None:
    """Once; what an earlier version deployed has written nothing but where it belongs."""
    first, second = (Home("local-lb", "dev", str(tmp_path / name)) for name in "ab")
    write(first, None)
    mine = owner_id(first)
    write(first, None)
    assert owner_id(first) == mine != early_owner_id(first)
    settle(second)
    write(second, None)
    assert owner_id(second) == early_owner_id(second)
    (path,) = tmp_path.rglob("dns-owner")
    for text in ("", "local-lb-1", f"{mine},external-dns/owner=x"):
        path.write_text(text)
        with pytest.raises(ClientError, match=r"dns-owner doesn't say which owner the marks of names have; write one"):
            owner_id(first)


def test_owner_of_a_stack_may_be_unknown_for_a_moment(tmp_path: Path) -> None:
    """Where no file can be opened: nobody is told to remove anything, and nobody takes it over."""
    home = Home("local-lb", "dev", str(tmp_path))
    write(home, None)
    with few_files(0), pytest.raises(SourceError, match=r"can't determine .*; raise the limit of open files") as caught:
        require_here(home, None)
    assert "remove" not in str(caught.value)


def test_owner_of_a_stack_is_unknown_while_its_disk_fails(tmp_path: Path) -> None:
    """It may say what it always did: nobody is told to remove it."""
    home = Home("local-lb", "dev", str(tmp_path))
    write(home, None)
    path = _path(home)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # whose first bytes give an error of input and output
    with pytest.raises(SourceError, match=r"can't determine .*; look after that disk") as caught:
        require_here(home, None)
    assert "remove" not in str(caught.value)


def test_owner_of_an_earlier_versions_stack_may_be_unknown_for_a_moment(tmp_path: Path) -> None:
    """Only its state tells: nobody takes it over meanwhile, nor under another name of the project."""
    state = tmp_path / "stacks" / "p" / "dev.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    home = Home("local-lb", "dev", str(tmp_path))
    for ask in (lambda: deployed_from(state), lambda: earlier_names(home, state)):
        with few_files(0), pytest.raises(SourceError, match=r"can't determine .*; raise the limit of open files"):
            ask()
        assert ask() == []


def test_a_directory_of_states_that_may_only_be_entered_names_no_other_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another user with mode 0711: no project can be found there, and the stack is served all the same."""
    state = tmp_path / "stacks" / "p" / "dev.json"

    def forbidden(_: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", forbidden)
    assert earlier_names(Home("local-lb", "dev", str(tmp_path)), state) == []
