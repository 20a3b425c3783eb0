"""What a proxy serves, run by a second Envoy beside the one that serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locallb.envoy import render, rollout
from locallb.envoy.rollout import idle, trial_files
from tests.envoy.cases import CASES, V4, V6
from tests.support.envoy import quiet, validate


@pytest.mark.envoy
@pytest.mark.parametrize("case", ["dual-stack-ranges", "udp"])
def test_a_second_envoy_takes_what_the_first_one_serves(case: str, tmp_path: Path) -> None:
    """Of every protocol."""
    result = validate(tmp_path, trial_files(render(CASES[case]).files))
    assert (result.returncode, quiet(result.stderr)) == (0, ""), result.stdout


@pytest.mark.parametrize("case", CASES)
def test_trial_envoy_binds_no_client_address_and_checks_no_backend(case: str) -> None:
    """Everything else is the same."""
    before = render(CASES[case]).files
    after = trial_files(before)
    for listener in json.loads(after[rollout.LISTENERS])["resources"]:
        address = listener["address"]["socket_address"]["address"]
        assert listener.get("bind_to_port") is False or address not in (str(V4), str(V6))
    assert "health_checks" not in after[rollout.CLUSTERS]
    assert {name for name in before if before[name] != after[name]} <= {rollout.LISTENERS, rollout.CLUSTERS}


@pytest.mark.parametrize(
    "odd", ["", "{", "[]", "7", "{}", '{"resources": 7}', '{"resources": [7]}', '{"resources": null}']
)
def test_trial_configuration_ignores_changed_files(odd: str) -> None:
    """What is tried isn't what is damaged."""
    texts = trial_files({rollout.LISTENERS: odd, rollout.CLUSTERS: odd})
    assert texts == idle(texts)
