"""Where Docker is looked for: a socket of this host, or it is said where else it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from locallb.host import capabilities


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of Docker's command for this test."""
    for variable in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


@pytest.mark.parametrize(
    ("given", "elsewhere"),
    [
        ("", ""),
        ("unix:///tmp/d.sock", ""),
        ("tcp://10.0.0.1:2376", "at tcp://10.0.0.1:2376, as DOCKER_HOST says"),
        ("ssh://me@there", "at ssh://me@there, as DOCKER_HOST says"),
        ("a\x1b[2J", "at a\\x1b[2J, as DOCKER_HOST says"),
    ],
)
def test_docker_host_precedes_the_context(
    config: Path, monkeypatch: pytest.MonkeyPatch, given: str, elsewhere: str
) -> None:
    """As for Docker's own command; what isn't a socket of this host isn't looked at, and the usual one isn't either."""
    config.write_text('{"currentContext": "far"}' if given else "{}")
    monkeypatch.setenv("DOCKER_HOST", given)
    assert capabilities.docker_elsewhere() == elsewhere


def test_a_context_leads_elsewhere(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker Desktop's and colima's are such; the variable counts before the file."""
    config.write_text('{"currentContext": "desktop-linux"}')
    assert capabilities.docker_elsewhere() == f"where its context desktop-linux leads, as {config} says"
    monkeypatch.setenv("DOCKER_CONTEXT", "colima")
    assert capabilities.docker_elsewhere() == "where its context colima leads, as DOCKER_CONTEXT says"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert capabilities.docker_elsewhere() == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '{"currentContext": ""}', '{"currentContext": "default"}', "[" * 100_000, "\0"]
)
def test_without_a_context_it_is_the_usual_socket(config: Path, text: str) -> None:
    """Also where the file is rubbish, or there is none."""
    assert capabilities.docker_elsewhere() == ""
    config.write_text(text)
    assert capabilities.docker_elsewhere() == ""
    config.unlink()
    config.mkdir()
    assert capabilities.docker_elsewhere() == ""
