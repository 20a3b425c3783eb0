"""The Docker provider against recordings of the official plugin: inputs, outputs, decisions. Needs no daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from locallb.provider import docker_spec
from locallb.provider.docker_container import compare

GOLDENS = Path(__file__).parent / "goldens"


def golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDENS / f"{name}.json").read_text())
    return document


HOST, PUBLISHED, MINIMAL = (golden(name) for name in ("host-network", "published-ports", "minimal"))
BOTH = pytest.mark.parametrize("recorded", [HOST, PUBLISHED], ids=["host", "published"])
CHANGES = [(recorded, row) for recorded in (HOST, PUBLISHED) for row in recorded["changes"]]
STOPPED = [(recorded, key) for recorded in (HOST, PUBLISHED) for key in ("after kill", "after stop")]


@pytest.mark.parametrize("recorded", [HOST, PUBLISHED, MINIMAL], ids=["host", "published", "minimal"])
def test_inputs_get_the_official_defaults_and_their_notes(recorded: dict[str, Any]) -> None:
    """What the program declares becomes what the official plugin puts into the state."""
    assert docker_spec.checked(recorded["declared"]) == recorded["inputs"]


@BOTH
def test_a_new_container_has_all_official_outputs(recorded: dict[str, Any]) -> None:
    """Every field, its value, and the notes of the bridge."""
    assert docker_spec.made(recorded["inputs"], recorded["inspect"]) == recorded["made"]


@BOTH
def test_a_refresh_writes_outputs_as_the_official_plugin_does(recorded: dict[str, Any]) -> None:
    """Empty lists where there was null: or the other engine would see a change."""
    assert docker_spec.refreshed(recorded["made"], recorded["inspect"]) == recorded["refreshed"]["outputs"]


@BOTH
def test_created_container_has_no_difference_afterwards(recorded: dict[str, Any]) -> None:
    """Nothing to change, before a refresh and after it."""
    for outputs in (recorded["made"], recorded["refreshed"]["outputs"]):
        assert compare(outputs, recorded["inputs"], docker_spec.SUPPORTED).changed == frozenset()


@pytest.mark.parametrize(("recorded", "row"), CHANGES, ids=[f"{r['op']}-{r['change']}" for _, r in CHANGES])
def test_a_change_is_an_update_or_a_replacement_as_recorded(recorded: dict[str, Any], row: dict[str, Any]) -> None:
    """One input at a time: the properties that differ, and those that take a new container."""
    wanted = {key: value for key, value in {**recorded["declared"], **row["to"]}.items() if value is not None}
    change = compare(recorded["refreshed"]["outputs"], docker_spec.checked(wanted), docker_spec.SUPPORTED)
    assert (sorted(change.changed), sorted(change.replacing)) == (row["diff"], row["replace"])


@pytest.mark.parametrize(("recorded", "key"), STOPPED)
def test_a_container_that_ended_must_run_again(recorded: dict[str, Any], key: str) -> None:
    """The recorded state of a killed or stopped one asks for an update, or a new one where ports were published."""
    change = compare(recorded[key]["outputs"], recorded["inputs"], docker_spec.SUPPORTED)
    assert "mustRun" in change.changed
    assert change.replacing == ({"ports"} if recorded is PUBLISHED else frozenset())


@pytest.mark.parametrize("key", ["after kill", "after stop"])
def test_a_refresh_tells_that_a_container_ended(key: str) -> None:
    """It says so by mustRun and the exit code, as recorded."""
    expected = HOST[key]["outputs"]
    state = {"Status": "exited", "Running": False, "Paused": False, "ExitCode": expected["exitCode"]}
    observed = {**HOST["inspect"], "State": state, "Id": expected["id"]}
    assert docker_spec.refreshed(HOST[key]["before"], observed) == expected


@pytest.mark.parametrize(
    ("state", "changed"),
    [({"Status": "exited", "Running": False}, {"mustRun"}), ({"Status": "restarting", "Restarting": True}, set())],
    ids=["ended", "restarting"],
)
def test_a_container_that_does_not_run_has_the_ports_that_it_publishes_once_it_does(
    state: dict[str, object], changed: set[str]
) -> None:
    """Unlike with the official plugin: so the same container goes on, which Docker may be about to start."""
    state = {**PUBLISHED["inspect"]["State"], **state}
    observed = {**PUBLISHED["inspect"], "State": state}
    observed["NetworkSettings"] = {**observed["NetworkSettings"], "Ports": {}}
    refreshed = docker_spec.refreshed(PUBLISHED["made"], observed)
    change = compare(refreshed, PUBLISHED["inputs"], docker_spec.SUPPORTED)
    assert change.changed == changed
    assert not change.replacing


def test_a_paused_container_counts_as_ended() -> None:
    """The official plugin doesn't see it; here the next update lets it go on."""
    observed = {**HOST["inspect"], "State": {**HOST["inspect"]["State"], "Paused": True}}
    assert docker_spec.refreshed(HOST["made"], observed)["mustRun"] is False


@pytest.mark.parametrize("key", ["update memory", "up after kill"])
def test_an_update_changes_in_the_state_only_what_changed(key: str) -> None:
    """Everything else stays in the form that it had."""
    row = HOST[key]
    changed = compare(row["before"], row["inputs"], docker_spec.SUPPORTED).changed
    assert docker_spec.updated(row["before"], row["inputs"], changed) == row["outputs"]


@pytest.mark.parametrize("row", json.loads((GOLDENS / "ports-order.json").read_text()), ids=lambda row: row["case"])
def test_lists_of_ports_settle_or_not_as_recorded(row: dict[str, Any]) -> None:
    """One container port on two addresses never settles there, so it doesn't here."""
    wanted = docker_spec.checked({"ports": row["declared"]})["ports"]
    change = compare({"ports": row["outputs"]}, {"ports": wanted}, frozenset())
    assert (not change.changed) is row["settles"]


@BOTH
def test_docker_gets_the_requests_of_the_official_plugin(recorded: dict[str, Any]) -> None:
    """The body of the creation, against what Docker said that it was told."""
    body, observed = docker_spec.body(recorded["inputs"]), recorded["inspect"]
    for key in ("Cmd", "Env", "Image", "Labels", "User", "Healthcheck", "Volumes"):
        assert body[key] == observed["Config"][key], key
    reported = body["HostConfig"]
    for key in ("Binds", "CapAdd", "CapDrop", "LogConfig", "Memory", "MemorySwap", "ReadonlyRootfs", "SecurityOpt"):
        assert reported[key] == observed["HostConfig"][key], key
    assert (reported.get("PortBindings") or None) == (observed["HostConfig"]["PortBindings"] or None)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"privileged": True}, "privileged"),
        ({"mounts": []}, "mounts"),
        ({"wait": True}, "wait"),
        ({"restart": "sometimes"}, "restart"),
        ({"volumes": [{"volumeName": "v", "containerPath": "/v"}]}, "volumes"),
        ({"image": None}, "image"),
    ],
)
def test_unknown_container_properties_are_refused_by_name(given: dict[str, Any], refused: str) -> None:
    """Never ignored."""
    assert [key for key, _ in docker_spec.faults({"name": "n", "image": "i", **given})] == [refused]
