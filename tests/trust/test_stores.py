"""Stores of this host: a home of one's own with real databases of NSS, and a directory in the system's place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb import programs as program
from locallb.certificates import trust_stores as stores
from tests.support.certificates import certutil, nss
from tests.support.stages import Done, Stage, stage


class User:
    """A user with a home, an authority, Firefox and a system whose certificates are gathered by a script."""

    def __init__(self, play: Stage, home: Path) -> None:
        self._play, self.home = play, home
        self.anchors, self.tools = home / "anchors", home / "tools"
        self.chromium, self.firefox = home / ".pki/nssdb", home / ".mozilla/firefox/a b.'$(x)"
        self.anchors.mkdir()
        self.tools.mkdir()
        self.gathering("exit 0")
        self.firefox.mkdir(parents=True)
        nss(self.firefox, "-N", "--empty-password")

    def gathering(self, script: str) -> None:
        """Have the system gather its certificates so."""
        (self.tools / "gather").write_text(f'#!/bin/sh\necho "$@" >>"${{0%/*}}/gathered"\n{script}\n')
        (self.tools / "gather").chmod(0o755)

    def ca(self, *terms: str) -> Done:
        return self._play.run("ca", *terms)

    def believed(self) -> list[set[str]]:
        databases = (self.chromium, self.firefox)
        listed = [nss(place, "-L").splitlines()[4:] if (place / "cert9.db").exists() else [] for place in databases]
        return [{line.split()[0] for line in lines if "C," in line} for lines in listed] + [
            {path.stem for path in self.anchors.iterdir()}
        ]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    home = tmp_path / 'it\'s a "home"'
    home.mkdir()
    certutil()
    for name, value in {"HOME": home, "XDG_DATA_HOME": home / "data"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{home}/tools:{os.environ['PATH']}")
    monkeypatch.setattr(stores, "ANCHORS", ((str(home / "anchors"), ("gather",), ("--fresh",)),))
    with stage() as play:
        yield User(play, home)


def as_root(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user change the system's store, which here is a directory of the user's."""
    real = stores._system
    monkeypatch.setattr(stores, "_system", lambda: [replace(one, by_root=False, lacks="") for one in real()])
    assert user.anchors.exists()


def test_trust_is_printed_applied_and_undone_in_all_stores(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three stores; nothing of others is touched, also after another authority came and all files were lost."""
    as_root(user, monkeypatch)
    assert "you have no authority yet" in user.ca("trust").err
    foreign = user.ca("create", "--json").json
    by_hand = user.home / "other.crt"
    user.ca("export", str(by_hand))
    nss(user.firefox, "-A", "-t", "C,,", "-n", "local-lb", "-i", str(by_hand))
    (user.anchors / f"local-lb-77-{foreign['fingerprint'][:16]}.crt").write_bytes(by_hand.read_bytes())
    user.ca("create", "--replace")
    before = user.believed()
    printed = user.ca("trust")
    assert printed.code == 0
    assert user.believed() == before
    assert printed.out.count("certutil -d ") == 3
    assert user.ca("trust", "--yes").code == 0
    first = [now - then for now, then in zip(user.believed(), before, strict=True)]
    assert [len(names) for names in first] == [1] * 3
    assert "Nothing to do." in user.ca("trust", "--yes").out
    user.ca("create", "--replace")
    done = user.ca("trust", "--yes", "--json")
    assert (done.code, done.json["applied"]) == (0, True)
    second = [now - then for now, then in zip(user.believed(), before, strict=True)]
    assert [len(names) for names in second] == [1] * 3
    assert first != second
    for path in (user.home / "data/local-lb/ca").iterdir():
        path.unlink()
    assert user.ca("untrust").code == 0
    assert [now - then for now, then in zip(user.believed(), before, strict=True)] == second
    assert user.ca("untrust", "--yes").code == 0
    assert user.believed() == before
    assert (user.tools / "gathered").read_text() == "\n--fresh\n\n--fresh\n"


def test_stores_that_need_root_are_reported_and_others_changed(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the lines that sudo takes; the exit code says that something is left."""
    existing = user.ca("create", "--json").json
    real = stores._system
    why = stores._BY_ROOT
    monkeypatch.setattr(stores, "_system", lambda: [replace(one, by_root=True, lacks=why) for one in real()])
    done = user.ca("trust", "--yes")
    assert done.code == 1
    assert "  sudo install -m 644 " in done.out
    assert "it is root's to change: run the lines above with sudo" in done.err
    assert [len(names) for names in user.believed()] == [1, 1, 0]
    assert existing["fingerprint"][:16] in str(user.believed())


def test_a_store_with_a_password_stays_as_it_is(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NSS takes the certificate and doesn't believe it: it is out again, and the others are done."""
    as_root(user, monkeypatch)
    locked = user.home / ".mozilla/firefox/locked"
    locked.mkdir()
    (tmp_path / "password").write_text("secret\n")
    nss(locked, "-N", "-f", str(tmp_path / "password"))
    user.ca("create")
    done = user.ca("trust", "--yes")
    assert done.code == 1
    assert f"{locked} isn't changed: certutil says" in done.err
    assert "local-lb" not in nss(locked, "-L")
    assert [len(names) for names in user.believed()] == [1] * 3


def test_a_system_that_doesnt_gather_has_its_files_as_before(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both directions, so that what lies there says what is believed."""
    as_root(user, monkeypatch)
    user.ca("create")
    user.gathering("echo no >&2; exit 3")
    assert f'{user.anchors} isn\'t changed: gather says "no"' in user.ca("trust", "--yes").err
    assert [len(names) for names in user.believed()] == [1, 1, 0]
    user.gathering("exit 0")
    assert user.ca("trust", "--yes").code == 0
    user.gathering("exit 1")
    assert "gather ended with 1" in user.ca("untrust", "--yes").err
    assert [len(names) for names in user.believed()] == [0, 0, 1]
    user.gathering("exit 0")
    assert user.ca("untrust", "--yes").code == 0
    assert [len(names) for names in user.believed()] == [0, 0, 0]


def test_a_store_that_cannot_be_used_is_reported(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged one by itself; all of them without certutil; the doctor says who doesn't believe it."""
    as_root(user, monkeypatch)
    user.ca("create")
    (user.firefox / "cert9.db").write_text("x" * 5000)
    done = user.ca("trust", "--yes")
    assert done.code == 1
    assert f"{user.firefox}: certutil says" in done.err
    findings = user._play.run("doctor", "--json").json["findings"]
    (about,) = [each for each in findings if each["topic"] == "authority"]
    assert (about["level"], about["text"].endswith(" isn't believed by Firefox")) == ("note", True)
    monkeypatch.setenv("PATH", str(user.tools))
    monkeypatch.setattr(program, "find", lambda name, *_: "" if name == "certutil" else name)
    assert "it takes certutil (Debian: apt install libnss3-tools" in user.ca("trust").err
