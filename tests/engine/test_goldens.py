"""The engine answers as the official command line did in the recordings: calls, counts and the state afterwards.

Each step starts from the recorded state, so it also shows that a state of the official command line is taken over.
Where the engine does better on purpose, the step isn't compared; `DIFFERS` says why.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from locallb.engine.core.events import Result
from locallb.engine.engine import Engine
from locallb.engine.state.checkpoint import magic_of
from tests.engine.record import by_key, effects, plain, read_golden
from tests.support.balancers import declare
from tests.support.engine import Bench, World, instance, make_project, short, wrapped

DIFFERS = {
    "replace/12-up-set-replace-on-changes": "the option replace_on_changes is refused",
    "replace/13-up-replace-on-changes": "the option replace_on_changes is refused",
    "replace/14-up-replace-flag": "there is no flag --replace",
    "fail/01-up-create-fails": "independent resources go on, as with --continue-on-error",
    "fail/04-up-update-fails": "likewise",
    "fail/08-up-check-fails": "likewise",
    "fail/09-up-delete-fails": "likewise",
    "fail/11-destroy-fails": "likewise",
    "replace-interrupted/02-up-deletes-first-then-create-fails": "likewise",
    "replace-interrupted/05-up-create-before-delete-where-create-fails": "likewise",
    "kill/01-up-killed-in-create": "was killed",
    "kill-refresh/04-up-killed-in-update": "was killed",
    "kill-refresh/07-up-killed-in-delete": "was killed",
    "kill/02-up-locked": "the lock isn't part of the golden",
    "kill/06-up-with-pending-create": "pending creations are finished, not kept",
    "kill/07-up-after-that": "likewise",
    "kill/08-destroy": "likewise",
    "kill-refresh/02-refresh-clear-pending-creates": "there is no flag --clear-pending-creates",
    "kill-refresh/06-up-with-pending-update": "pending updates are looked up first",
    "kill-refresh/09-up-with-pending-delete": "pending deletions are looked up first",
    "misc/01-preview-invoke": "functions are refused",
    "misc/02-up-invoke": "functions are refused",
    "misc/03-up-invoke-fails": "functions are refused",
    "misc/04-up-duplicate-urn": "which of the program's registrations still came in time varies",
    "misc/05-up-secret-input": "secrets are refused",
    "misc/06-up-explicit-provider": "starts with a secret in the state, which is refused",
}
RUNS = ("up", "preview", "destroy", "refresh")


def _steps() -> list[Any]:
    scenarios = sorted(path.stem for path in (Path(__file__).parent / "goldens").glob("*.jsonl"))
    named = [(f"{scenario}/{step['step']}", step) for scenario in scenarios for step in read_golden(scenario)]
    return [
        pytest.param(step, id=name)
        for name, step in named
        if step["command"][0] in RUNS and name not in DIFFERS and "--target" not in step["command"]
    ]


def _world(step: dict[str, Any], latest: dict[str, Any] | None) -> World:
    """Make the world that the state tells of."""
    world = World(control=step.get("control", {}))
    world.preview_support = "REC_NO_PREVIEW_SUPPORT" not in step.get("environment", {})
    for resource in (latest or {}).get("resources", []):
        if resource["custom"] and "providers" not in resource["type"] and not resource.get("pendingReplacement"):
            key = instance(short(resource["urn"]), wrapped(resource["inputs"]))
            world.things[key] = resource["inputs"]
    return world


def _write(bench: Bench, latest: dict[str, Any] | None) -> None:
    if latest is None:
        return
    latest = latest | {"manifest": {"time": "then", "magic": magic_of("v3.272.0"), "version": "v3.272.0"}}
    bench.state_path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"version": 3, "checkpoint": {"stack": "organization/local-lb/dev", "latest": latest}}
    bench.state_path.write_text(json.dumps(whole, separators=(",", ":"), ensure_ascii=False))


def _run(engine: Engine, step: dict[str, Any]) -> Result:
    command = step["command"]
    refresh = "--refresh" in command
    match command[0]:
        case "up":
            return engine.up(lambda: declare(step["program"]), refresh=refresh)
        case "preview":
            return engine.preview(lambda: declare(step["program"]), refresh=refresh)
        case "refresh":
            return engine.refresh(preview="--preview-only" in command)
        case _:
            return engine.destroy(preview="--preview-only" in command, refresh=refresh)


def _times(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[tuple[str, bool], tuple[bool, bool]]:
    """Return for each resource that stayed whether its times of creation and change are new."""
    old, new = by_key(before), by_key(after)
    return {
        key: (old[key].get("created") != new[key].get("created"), old[key].get("modified") != new[key].get("modified"))
        for key in old.keys() & new.keys()
    }


@pytest.mark.parametrize("step", _steps())
def test_a_recorded_step_has_the_recorded_effect(step: dict[str, Any], tmp_path: Path) -> None:
    """Result, counts, provider calls, resources and their times are those of the official command line."""
    bench = Bench(make_project(tmp_path), _world(step, step["before"]))
    _write(bench, step["before"])
    text = bench.state_path.read_text() if bench.state_path.exists() else ""
    result = _run(bench.engine(), step)
    assert result.ok is (step["exit"] == 0), result.diagnostics
    assert {op.value: count for op, count in result.changes.items()} == step.get("changes", {})
    dry = step["command"][0] == "preview" or "--preview-only" in step["command"]
    made, wanted = [f"{method} {party}" for method, party in bench.world.calls], step.get("calls", [])
    assert dry or effects(made) == effects(wanted)
    assert set(made) <= set(wanted)  # what only asks is asked less often: docs/design/engine.md
    if dry:
        assert (bench.state_path.read_text() if bench.state_path.exists() else "") == text
        return
    after = bench.raw()
    assert {key: plain(resource) for key, resource in by_key(after).items()} == {
        key: plain(resource) for key, resource in by_key(step["after"]).items()
    }
    assert _times(step["before"], after) == _times(step["before"], step["after"])
    bench.checkpoint()  # keeps the rules


def test_every_step_that_is_not_compared_exists() -> None:
    """The list of differences doesn't outlive the recordings."""
    scenarios = {name.split("/")[0] for name in DIFFERS}
    existing = {f"{scenario}/{step['step']}" for scenario in scenarios for step in read_golden(scenario)}
    assert set(DIFFERS) <= existing
