"""`preview --from-pulumi`: what the official command line printed, told like our own preview.

data/pulumi-preview.json was printed by `pulumi preview --json` (its states without outputs and times, the project's
place replaced), data/pulumi-preview.report.json by `locallb preview --format json` at the same moment.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.cli.commands.preview import _previewed_roots as _touched
from locallb.cli.commands.preview import _states
from locallb.report.deployed import deployed_side
from tests.support.reports import HOSTILE, SCHEMA
from tests.support.schemas import mistakes
from tests.support.stages import Stage, stage

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "pulumi-preview.json").read_text(encoding="utf-8"))
EXPECTED: dict[str, Any] = json.loads((DATA / "pulumi-preview.report.json").read_text(encoding="utf-8"))


@pytest.fixture
def project() -> Iterator[Stage]:
    with stage() as made:
        yield made


def reported(project: Stage, recorded: object, form: str = "json", code: int = 0) -> Any:  # noqa: ANN401 - the document
    path = project.root / "preview.json"
    path.write_text(json.dumps(recorded))
    done = project.run("preview", "--from-pulumi", str(path), "--format", form)
    assert done.code == code, done.err
    return done.json if form == "json" else done.out


def without_via(service: dict[str, Any]) -> dict[str, Any]:
    """Leave out the way to backends, which isn't known on a side that is made from resources."""
    existing = copy.deepcopy(service)
    for port in (port for side in ("before", "after") for port in (existing[side] or {"ports": []})["ports"]):
        assert port.pop("via", "") == ""
    return existing


def test_report_of_a_pulumi_preview_equals_our_own_preview(project: Stage) -> None:
    """The same changes, addresses, ports, exposures and rejections.

    Only the sentences of closed ports are missing, and by which way connections go: resources don't say it.
    """
    document = reported(project, RECORDED)
    assert list(mistakes(document, SCHEMA, SCHEMA)) == []
    for mine, its in zip(document["services"], EXPECTED["services"], strict=True):
        assert without_via(mine) == without_via(its)
    assert document["counts"] == EXPECTED["counts"]
    assert document["alerts"] == EXPECTED["alerts"]


def test_every_format_tells_it(project: Stage) -> None:
    """Like any other report."""
    for form in ("tree", "markdown", "html"):
        assert "127.77.0.28" in reported(project, RECORDED, form)


def test_policies_of_the_project_count(project: Stage) -> None:
    """With the same exit codes."""
    project.configure(policies={"addressChanges": "forbidden"})
    assert [violation["policy"] for violation in reported(project, RECORDED, code=10)["violations"]] == [
        "addressChanges"
    ]


def test_a_resource_that_is_made_again_is_reported_as_repaired(project: Stage) -> None:
    """The refresh before the preview found it missing."""
    recorded = copy.deepcopy(RECORDED)
    process = next(
        step for step in recorded["steps"] if step["urn"].endswith("EnvoyProcess::c/n/keep") and step["op"] == "refresh"
    )
    retry = {**process, "op": "create", "newState": process["oldState"]}
    del process["newState"]
    recorded["steps"].append(retry)
    keep = next(service for service in reported(project, recorded)["services"] if service["name"] == "keep")
    assert keep["change"] == "repaired"
    assert keep["differences"][0]["after"] == ["EnvoyProcess create"]


def test_errors_of_the_preview_fail_the_report(project: Stage) -> None:
    """It isn't the whole truth."""
    recorded = {**RECORDED, "diagnostics": [{"severity": "error", "message": "error: it\nfailed\n"}]}
    assert reported(project, recorded, code=1)["complaints"] == ["error: it failed"]


def test_a_hostile_document_is_reported_without_harm(project: Stage) -> None:
    """Names, values and kinds of anybody's making."""
    text = json.dumps(RECORDED)
    for bad in HOSTILE:
        recorded = json.loads(text.replace('"fresh"', json.dumps(bad)).replace("127.77.0.28", "nonsense"))
        recorded["steps"] += [{"op": bad, "urn": bad, "newState": bad}, {"op": 1, "newState": {"inputs": bad}}, bad]
        for form in ("json", "html", "markdown", "tree"):
            assert reported(project, recorded, form)


def places(value: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - a document
    """Return every place in a document: a list or object, and the index or key in it."""
    found: list[tuple[Any, Any]] = []
    remaining = [value]
    while remaining:
        part = remaining.pop()
        keys: Any = part.keys() if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            found.append((part, key))
            remaining.append(part[key])
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_to_the_document_makes_it_raise(seed: int) -> None:
    """Anything may stand anywhere in it, also within Envoy's files."""
    dice = random.Random(seed)
    recorded = copy.deepcopy(RECORDED)
    odd: list[Any] = [None, [], {}, 0, -1, 1.5, True, "", "x", [[]], {"a": []}, [1], 10**400, nested(900)]
    files = [place for place in places(recorded) if place[1] in {"lds.json", "cds.json"}]
    for holder, key in files:
        inner = json.loads(holder[key])
        for where, name in dice.sample(places(inner), 3):
            where[name] = dice.choice(odd[:-1])
        holder[key] = json.dumps(inner) if dice.random() < 0.8 else "[" * 900 + "]" * 900
    for holder, key in dice.sample(places(recorded["steps"]), 60):
        holder[key] = dice.choice(odd)
    steps = [step for step in recorded["steps"] if isinstance(step, dict)]
    for new in (False, True):
        deployed_side("x", _states(steps, new=new))
    _touched(steps, (deployed_side("x", _states(steps, new=True)),) * 2)


def nested(depth: int) -> object:
    """Make a list in a list in a list."""
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "isn't what `pulumi preview --json` prints"),
        ("[]", "isn't what `pulumi preview --json` prints"),
        ('{"steps": 1}', "isn't what `pulumi preview --json` prints"),
        ("[" * 100_000, "isn't what `pulumi preview --json` prints"),
        (None, "doesn't exist; make it with `pulumi preview --json >"),
    ],
)
def test_file_that_is_no_pulumi_preview_is_refused(project: Stage, text: str | None, why: str) -> None:
    """With the command that makes one."""
    path = project.root / "p.json"
    if text is not None:
        path.write_text(text)
    done = project.run("preview", "--from-pulumi", str(path))
    assert done.code == 1
    assert why in done.err
