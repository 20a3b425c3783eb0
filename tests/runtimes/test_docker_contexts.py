"""Where Docker is, as its own command finds it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from locallb.runtimes.docker.engines import DEFAULT, docker_place


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
        meta = tmp_path / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
        meta.parent.mkdir(parents=True)
        endpoints = {"docker": {"Host": f"unix:///{name}.sock", "SkipTLSVerify": False}}
        meta.write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))
    assert str(docker_place()["base_url"]).replace("http+unix", "unix") == place
