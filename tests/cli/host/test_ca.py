"""The commands `ca show | create | export`: what is told of an authority, and never its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stages import Stage, stage


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage() as made:
        monkeypatch.setenv("XDG_DATA_HOME", str(made.root / "d"))
        yield made


def test_ca_is_created_shown_and_exported(play: Stage, tmp_path: Path) -> None:
    """Without a project, too; the key is in nothing that is told."""
    assert play.run("ca", "show").out.startswith("You have no authority yet: `locallb")
    refused = play.run("ca", "export")
    assert (refused.code, refused.out) == (1, "")
    made = play.run("ca", "create", "--domain", "*.Shop.example.com", "--json")
    directory = play.root / "d/local-lb/ca"
    assert made.json["domains"][-1] == "shop.example.com"
    assert made.json["certificate"] == str(directory / "ca.crt")
    pem = (directory / "ca.crt").read_text()
    file = tmp_path / "my-ca.crt"
    reported = [made, play.run("ca", "show"), play.run("ca", "export"), play.run("ca", "export", str(file))]
    assert [done.code for done in reported] == [0] * 4
    assert reported[1].out.splitlines()[2] == f"fingerprint: {made.json['fingerprint']}"
    assert reported[2].out == file.read_text() == pem
    assert (directory / "ca.key").read_text().splitlines()[1] not in "".join(done.out + done.err for done in reported)


def test_ca_is_replaced_only_with_the_replace_option(play: Stage) -> None:
    """What there is stays; with --replace there is another one, for its own domains."""
    first = play.run("ca", "create", "--json").json
    retry = play.run("ca", "create")
    assert retry.code == 1
    assert "you have an authority already; --replace makes another one" in retry.err
    assert play.run("ca", "show", "--json").json == first
    second = play.run("ca", "create", "--replace", "--json").json
    assert second["fingerprint"] != first["fingerprint"]
    odd = play.run("ca", "create", "--replace", "--domain", "a b")
    assert (odd.code, play.run("ca", "show", "--json").json) == (1, second)
    assert '--domain "a b" is no domain; write one such as shop.example.com' in odd.err


def test_unusable_ca_is_reported_with_the_replace_option(play: Stage) -> None:
    """One sentence, and an exit code; --replace helps."""
    play.run("ca", "create")
    (play.root / "d/local-lb/ca/ca.key").chmod(0o644)
    shown = play.run("ca", "show")
    assert shown.code == 1
    assert "ca.key has mode 644, so that others may read it" in shown.err
    assert play.run("ca", "create", "--replace").code == 0
    assert play.run("ca", "show").code == 0
