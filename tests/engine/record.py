"""Makes the goldens in `goldens/` from a folder of recordings of the official command line, or records again.

    python -m tests.engine.record RECORDINGS           derive the goldens from recordings
    python -m tests.engine.record --record RECORDINGS  record the goldens' steps with the CLI (`make test-pulumi` builds
                                                       it), then derive

RECORDINGS has a folder per scenario and in it one per step, with `step.json` (command, exit code, the program's
specification, the provider's control), the state `before.json` and `after.json`, and the logs `events.jsonl`,
`provider.jsonl`. What a test compares is kept, in one file per scenario; words that fill half of it are shortened.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from locallb.engine.state.values import UNKNOWN
from tests.engine.live import Names, make_live_project, run_cli, start_cli
from tests.support.engine import instance, short, wrapped

GOLDENS = Path(__file__).parent / "goldens"
SCENARIOS = (
    "update",
    "replace",
    "replace-interrupted",
    "fail",
    "fail-continue-on-error",
    "refresh",
    "kill",
    "kill-refresh",
    "misc",
)
SHORT = {"urn:pulumi:dev::local-lb::": "~:", "locallb:index:": "@:"}
CALLS = ("Create", "Update", "Delete", "Read", "Check", "Diff")
_WHERE = ("sourcePosition", "stackTrace")


def shorten(text: str) -> str:
    """Shorten the words that every line has."""
    for word, brief in SHORT.items():
        text = text.replace(word, brief)
    return text


def expand(text: str) -> str:
    """Undo `shorten`."""
    for word, brief in SHORT.items():
        text = text.replace(brief, word)
    return text


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _latest(path: Path) -> dict[str, Any] | None:
    whole = json.loads(path.read_text()) if path.exists() else None
    if whole is None:
        return None
    latest: dict[str, Any] = whole["checkpoint"]["latest"]
    for resource in latest.get("resources", []):
        for name in _WHERE:
            resource.pop(name, None)
    return latest


def _calls(path: Path) -> list[str]:
    found = []
    for line in _lines(path):
        request = line.get("request")
        if request is not None and line["method"] in CALLS:
            found.append(f"{line['method'].lower()} {request['type'].split(':')[-1]}::{request['name']}")
    return sorted(found)


def _changes(step: Path) -> dict[str, int] | None:
    preview = step / "preview.json"
    if preview.exists():
        summary = json.loads(preview.read_text())
        return summary.get("changeSummary") if isinstance(summary, dict) else None
    for line in _lines(step / "events.jsonl"):
        if "summaryEvent" in line:
            changes: dict[str, int] = line["summaryEvent"]["resourceChanges"]
            return changes
    return None


def derive_step(step: Path) -> dict[str, Any]:
    """Keep of one step what tests compare."""
    given = json.loads((step / "step.json").read_text())
    retained = {
        "step": step.name,
        "command": given["command"][1:],
        "exit": given["exit"],
        "program": given.get("program"),
        "control": given.get("control"),
        "environment": given.get("environment"),
        "changes": _changes(step),
        "calls": _calls(step / "provider.jsonl"),
        "before": _latest(step / "before.json"),
        "after": _latest(step / "after.json"),
    }
    return {key: value for key, value in retained.items() if value not in (None, [], {})}


def derive(recordings: Path) -> None:
    """Write a golden for each scenario; a state that the step before left isn't repeated."""
    for scenario in SCENARIOS:
        folders = sorted(path.parent for path in (recordings / scenario).glob("*/step.json"))
        steps = [step for step in map(derive_step, folders) if step.get("calls") or step.get("after")]
        former: Any = None
        for step in steps:
            if "before" in step and step["before"] == former:
                del step["before"]
            former = step.get("after", former)
        lines = [json.dumps(step, ensure_ascii=False, separators=(",", ":")) for step in steps]
        (GOLDENS / f"{scenario}.jsonl").write_text(shorten("\n".join(lines)) + "\n")


def read_golden(scenario: str) -> list[dict[str, Any]]:
    """Read the steps of a scenario, each with the state before it."""
    steps = [json.loads(expand(line)) for line in (GOLDENS / f"{scenario}.jsonl").read_text().splitlines()]
    former = None
    for step in steps:
        former = step.setdefault("before", former)
        former = step.get("after", former)
    return steps


def plain(resource: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs from run to run, and sort what the SDK sends as sets."""
    plain = {key: value for key, value in resource.items() if key not in {"created", "modified"}}
    plain["dependencies"] = sorted(resource.get("dependencies", []))
    depended = resource.get("propertyDependencies") or {}
    plain["propertyDependencies"] = {key: sorted(urns) for key, urns in depended.items() if urns}
    if not resource["custom"]:  # an unknown value of something that failed: left out here, the CLI writes it
        plain["outputs"] = {key: value for key, value in resource.get("outputs", {}).items() if value != UNKNOWN}
        plain = {key: value for key, value in plain.items() if value != {}}
    if "providers" in resource["type"]:
        plain["id"] = "some"
    if "provider" in plain:
        plain["provider"] = plain["provider"].rpartition("::")[0]
    return plain


def _key(resource: dict[str, Any]) -> tuple[str, bool]:
    return short(resource["urn"]), bool(resource.get("delete"))


def effects(calls: list[str]) -> list[str]:
    """Return the calls that do something, and those that read, which engines make alike."""
    return sorted(call for call in calls if call.split()[0] in {"create", "update", "delete", "read"})


def by_key(latest: dict[str, Any] | None) -> dict[tuple[str, bool], dict[str, Any]]:
    """Return the resources of a state, those that are about to be deleted apart."""
    return {_key(resource): resource for resource in (latest or {}).get("resources", [])}


def record(recordings: Path) -> None:
    """Run every step of the goldens once more with the official command line, each scenario in a fresh project."""
    for scenario in SCENARIOS:
        record_scenario(recordings / scenario, read_golden(scenario))


def record_scenario(place: Path, steps: list[dict[str, Any]]) -> None:
    """Run the steps of a golden once more, one after the other in a fresh project."""
    project = make_live_project(place / "project")
    run_cli(project, ["stack", "init"], {})
    _start_with(project, steps[0]["before"])
    for step in steps:
        _record_step(project, place / step["step"], step)


def _start_with(project: Path, latest: dict[str, Any] | None) -> None:
    """Begin with what a scenario begins with, when that isn't nothing (something that was killed)."""
    if not latest or not latest.get("resources"):
        return
    path = project / ".state" / ".pulumi" / "stacks" / "local-lb" / "dev.json"
    whole = json.loads(path.read_text())
    whole["checkpoint"]["latest"] = latest
    path.write_text(json.dumps(whole, separators=(",", ":")))
    world = Names(project / "world")
    for resource in latest["resources"]:
        world[instance(short(resource["urn"]), wrapped(resource.get("inputs", {})))] = {}


def _record_step(project: Path, folder: Path, step: dict[str, Any]) -> None:
    """Run one step and put down what `derive_step` reads."""
    folder.mkdir(parents=True)
    state = project / ".state" / ".pulumi" / "stacks" / "local-lb" / "dev.json"
    calls, events = project / "provider.jsonl", project / "events.jsonl"
    for path in (calls, events):
        path.unlink(missing_ok=True)
    plain = [word for word in step["command"] if word not in {"--stack", "dev"}]  # every command gets these
    command = [*plain, *_flags(plain, events)]
    writes = plain[0] != "preview" and "--preview-only" not in plain
    if writes:
        _copy(state, folder / "before.json")
    process = start_cli(project, command, step.get("program", {}), step.get("control", {}), step.get("environment"))
    if step["exit"] == -signal.SIGKILL:
        _kill_in_time(process, calls, step["control"].get("sleep") or step["control"]["sleep_delete"])
    stdout, _stderr = process.communicate(timeout=300)
    if "--json" in command:
        (folder / "preview.json").write_text(stdout)
    for path in (calls, events):
        _copy(path, folder / path.name)
    if writes:
        _copy(state, folder / "after.json")
    given = {key: step[key] for key in ("program", "control", "environment") if key in step}
    command = ["pulumi", *step["command"]]
    (folder / "step.json").write_text(json.dumps({"command": command, "exit": process.returncode, **given}))


def _flags(command: list[str], events: Path) -> list[str]:
    if command[0] not in {"up", "destroy", "refresh"} or "--preview-only" in command:
        return []
    return ["--yes", "--skip-preview", "--event-log", str(events)]


def _kill_in_time(process: "subprocess.Popen[str]", calls: Path, sleeping: dict[str, float]) -> None:
    """Wait until the provider sleeps in the call that is meant, and kill the command line with its children."""
    party = next(iter(sleeping)).split("::")
    while process.poll() is None:
        time.sleep(0.1)
        lines = [line["request"] for line in _lines(calls) if line["method"] in {"Create", "Update", "Delete"}]
        if any(line["type"].endswith(party[0]) and line["name"] == party[1] for line in lines):
            os.killpg(process.pid, signal.SIGKILL)
            return


def _copy(path: Path, to: Path) -> None:
    if path.exists():
        shutil.copy(path, to)


if __name__ == "__main__":
    place = Path(sys.argv[-1])
    if "--record" in sys.argv:
        record(place)
    derive(place)
