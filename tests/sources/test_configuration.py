"""The stack's configuration as Pulumi hands it over: whose keys are ours."""

from __future__ import annotations

import pytest

from locallb.config.settings import SettingsError
from locallb.sources.configuration import stack_settings

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
