"""Where Docker is, as its own command finds it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from locallb.host.capabilities import docker_context_problem
from locallb.runtimes.docker.daemon import DEFAULT, ContextError, DockerAbsentError, docker_place
from locallb.runtimes.docker.engine_api import Containers


@pytest.mark.parametrize(
    ("host", "named", "place"),
    [
        ("", "", "unix:///current.sock"),
        ("", "other", "unix:///other.sock"),
        ("", "default", DEFAULT),
        ("unix:///host.sock", "other", "unix:///host.sock"),
    ],
)
def test_a_variable_counts_before_the_current_context(
    host: str, named: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOCKER_HOST, then DOCKER_CONTEXT, then what `docker context use` wrote."""
    for variable, value in (("DOCKER_CONFIG", str(tmp_path)), ("DOCKER_HOST", host), ("DOCKER_CONTEXT", named)):
        monkeypatch.setenv(variable, value)
    (tmp_path / "config.json").write_text('{"currentContext": "current"}')
    for name in ("current", "other"):
        _keep(tmp_path, name, {"Host": f"unix:///{name}.sock", "SkipTLSVerify": False})
    assert str(docker_place()["base_url"]).replace("http+unix", "unix") == place


def test_a_context_that_a_variable_names_needs_no_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's directory has no config.json before somebody logs in or chooses a context."""
    _name(monkeypatch, tmp_path, "other")
    _keep(tmp_path, "other", {"Host": "unix:///other.sock"})
    assert docker_place()["base_url"] == "unix:///other.sock"


def test_docker_context_brings_its_tls_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them its connection is what its address says."""
    _name(monkeypatch, tmp_path, "far")
    _keep(tmp_path, "far", {"Host": "tcp://192.0.2.1:2376", "SkipTLSVerify": False})
    assert docker_place()["tls"] is False
    retained = tmp_path / "contexts" / "tls" / _digest("far") / "docker"
    retained.mkdir(parents=True)
    for name in ("ca", "cert", "key"):
        (retained / f"{name}.pem").touch()
    tls = docker_place()["tls"]
    assert (tls.ca_cert, tls.cert, tls.verify) == (
        str(retained / "ca.pem"),
        (str(retained / "cert.pem"), str(retained / "key.pem")),
        True,
    )


@pytest.mark.parametrize(
    ("variable", "current", "reported"),
    [
        ("nope", "", "no Docker context nope, which DOCKER_CONTEXT names: .*, or unset DOCKER_CONTEXT$"),
        ("", "nope", "no Docker context nope, which .*/config.json names: .*, or run `docker context use default`$"),
    ],
)
def test_a_context_that_is_not_there_is_reported(
    variable: str, current: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon of this host isn't taken in its place: it serves others."""
    _name(monkeypatch, tmp_path, variable)
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": current}))
    with pytest.raises(ContextError, match=reported):
        docker_place()
    with pytest.raises(DockerAbsentError, match=reported):
        Containers().ping()


def test_contexts_that_may_not_be_looked_at_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DOCKER_CONFIG came along from another user."""
    _name(monkeypatch, tmp_path, "theirs")
    retained, stat = _keep(tmp_path, "theirs", {"Host": "unix:///theirs.sock"}), os.stat

    def closed(path: Any, **more: Any) -> os.stat_result:  # noqa: ANN401 - those of `stat`
        if path == retained:
            raise PermissionError(13, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", closed)
    assert docker_context_problem().startswith("there is no Docker context theirs, which DOCKER_CONTEXT names: ")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"Endpoints": {}}', '{"Endpoints": {"docker": {}}}', "[" * 100_000]
)
def test_a_context_that_cannot_be_read_is_reported(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its file says."""
    _name(monkeypatch, tmp_path, "odd")
    _keep(tmp_path, "odd", {}).write_text(text)
    with pytest.raises(ContextError, match=r"the Docker context odd names no place of Docker in .*meta.json: make it"):
        docker_place()


def _name(monkeypatch: pytest.MonkeyPatch, directory: Path, context: str) -> None:
    for variable, value in (("DOCKER_CONFIG", str(directory)), ("DOCKER_HOST", ""), ("DOCKER_CONTEXT", context)):
        monkeypatch.setenv(variable, value)


def _keep(directory: Path, name: str, endpoint: dict[str, object]) -> Path:
    """Keep a context as Docker's command does."""
    meta = directory / "contexts" / "meta" / _digest(name) / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}))
    return meta


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
