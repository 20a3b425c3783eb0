"""The stack's configuration as Pulumi hands it over: whose keys are ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locallb.config.settings import EVERY_SERVICE, OtherServices, SettingsError
from locallb.model.identities import Home
from locallb.runtimes.single_instance import only_one
from locallb.sources.configuration import all_services_lock, program_settings, stack_settings

SOURCES = {"local-lb:sources": '[{"manifests":"m","name":"c"}]'}


@pytest.mark.parametrize("namespace", ["locallb", "local_lb", "Local-LB", "localLb"])
def test_keys_under_a_misspelt_namespace_are_refused(namespace: str) -> None:
    """Passed over, they would have no effect without a word."""
    with pytest.raises(SettingsError) as caught:
        stack_settings({**SOURCES, f"{namespace}:pools": "[]", f"{namespace}:pins": "{}"})
    assert caught.value.sentences == (
        f"{namespace}:pools: no such key; write local-lb:pools",
        f"{namespace}:pins: no such key; write local-lb:pins",
    )


def test_keys_of_others_are_passed_over() -> None:
    """A Pulumi program may have other providers."""
    assert stack_settings({**SOURCES, "aws:region": "x", "docker:host": "y"}) == stack_settings(SOURCES)


def test_a_program_serves_what_a_watch_serves_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pulumi up` beside `watch --all-services` takes nothing away that the watch would make again at once."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(SOURCES))
    home = Home("p", "dev", str(tmp_path))
    assert program_settings(home).services == OtherServices()
    with only_one(all_services_lock(home), "watch"):
        assert program_settings(home).services == EVERY_SERVICE
    assert program_settings(home).services == OtherServices()
