"""`locallb gateway install-crds` beside an API that says anything: what it has isn't taken for served."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

from locallb.cli.arguments import parse
from locallb.cli.commands import gateway as command
from locallb.cli.console import Out
from locallb.cli.failures import Refused
from locallb.gateway.crds import Name, carried, name_of
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

SERVED = [{"type": "Established", "status": "True"}]


class HttpServer:
    """An API that has all of a release, with a status of its own choice."""

    def __init__(self, status: object) -> None:
        present = carried().channels["standard"]
        self._there: dict[Name, Mapping[str, Any]] = {name_of(each): {**each, "status": status} for each in present}

    def definition(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return self._there.get((kind, name))


def install(monkeypatch: pytest.MonkeyPatch, status: object) -> str:
    """Run the command; return what it says."""
    monkeypatch.setattr(command, "Definitions", lambda _access: HttpServer(status))
    monkeypatch.setattr(command, "resolve", lambda *_terms: Access("/kubeconfig", ContextName("dev")))
    monkeypatch.setattr(command, "require_named_or_local", lambda *_terms: None)
    monkeypatch.setattr(command, "_TIMEOUT", 0.0)
    reported = io.StringIO()
    assert command.gateway(parse(["gateway", "install-crds", "--yes"]), Out(reported)) == 0
    return reported.getvalue()


@pytest.mark.parametrize("status", [None, 7, {}, {"conditions": 7}, {"conditions": [7, {"type": []}]}])
def test_installed_but_unserved_definitions_are_reported(status: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody else, or a run before, installed it a moment ago."""
    with pytest.raises(Refused, match="is installed, but the API doesn't serve it"):
        install(monkeypatch, status)


def test_served_definitions_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written: this API takes nothing."""
    assert install(monkeypatch, {"conditions": SERVED}).endswith("already.\n")
