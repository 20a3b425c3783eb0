"""Annotations of a GitHub workflow: each alert at the line of a manifest, and nothing that a name makes a command."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from msgspec.structs import replace

from locallb.model.snapshot import Place
from locallb.report.annotations import workflow_commands
from locallb.report.changes import Gate, Report, Violation
from locallb.report.wording import Topic, alerts
from tests.support.gateway_objects import gateway, gateway_class
from tests.support.manifests import port, service
from tests.support.reports import HOSTILE, hostile_report
from tests.support.repository import commit
from tests.support.stages import Stage

ANNOTATION = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:]*,?)*)::(.*)")


def test_an_annotation_is_at_the_line_where_the_service_is_named(repo: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file of several documents, in a list, in JSON; an error of a policy has the message alone."""
    monkeypatch.chdir(repo.root)
    new = [service(name, port(8080, 30_080), {"port": 81, "protocol": "SCTP"}) for name in ("one", "two", "three")]
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [new[1], gateway_class(), gateway(metadata={"namespace": "n"})],
    }
    (repo.manifests / "new").mkdir()
    (repo.manifests / "new/a.yaml").write_text(f"# one\n---\n{yaml.safe_dump(new[0])}---\n{yaml.safe_dump(listed)}")
    (repo.manifests / "new/b.json").write_text(json.dumps(new[2], indent=1))
    done = repo.run("preview", "--against", "HEAD", "--format", "github")
    found = [match.groups() for line in done.out.splitlines() if (match := ANNOTATION.fullmatch(line))]
    assert len(found) == len(done.out.splitlines())
    for name, file in (("one", "a.yaml"), ("two", "a.yaml"), ("three", "b.json")):
        text = (repo.manifests / "new" / file).read_text().replace('"', "").replace(",", "").splitlines()
        line = next(number for number, each in enumerate(text, 1) if each.strip() == f"name: {name}")
        where = f"file=manifests/new/{file},line={line},title="
        assert [level for level, properties, _ in found if where in properties] == ["notice"]
    level, properties, message = found[-1]
    assert (level, properties) == ("notice", "title=Load balancers (dev)")
    assert "added" in message


def test_an_annotation_of_a_change_is_at_the_field_that_changed(repo: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new port, wider source ranges; what is gone from the file is at the name."""
    monkeypatch.chdir(repo.root)
    repo.write(
        "z.yaml", service("wide", port(8080, 30_080), port(8081, 30_081), loadBalancerSourceRanges=["10.0.0.0/8"])
    )
    commit(repo.root)
    changed = service("wide", port(8080, 30_080), port(9090, 30_081), loadBalancerSourceRanges=["10.0.0.0/7"])
    repo.write("z.yaml", changed)
    text = (repo.manifests / "z.yaml").read_text().splitlines()
    done = repo.run("preview", "--against", "HEAD", "--format", "github")
    found = {
        text[int(match[1]) - 1].strip(): line.rpartition("::")[2]
        for line in done.out.splitlines()
        if (match := re.search(r"line=(\d+),", line))
    }
    assert "port 9090/TCP is new" in found["port: 9090"]
    assert "10.0.0.0/7" in found["- 10.0.0.0/7"]
    assert "port 8081/TCP is removed" in found["name: wide"]


def test_what_is_removed_has_no_line(repo: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It isn't there any more; a directory outside of the current one isn't named."""
    monkeypatch.chdir(repo.root)
    repo.write("z.yaml", service("gone", port(8080, 30_080)))
    commit(repo.root)
    (repo.manifests / "z.yaml").unlink()
    done = repo.run("preview", "--against", "HEAD", "--format", "github")
    (removal,) = (line for line in done.out.splitlines() if "removal" in line)
    assert removal.startswith("::warning title=removal%3A c/n/gone::c/n/gone: removed")
    monkeypatch.chdir(repo.root / "stacks")
    assert "file=" not in repo.run("preview", "--against", "HEAD", "--format", "github").out


def test_no_name_makes_a_command() -> None:
    """Each line is ours, whatever a name, a path or a sentence has."""
    report = hostile_report()
    places = {each.key: Place(text, 1) for each, text in zip(report.services, HOSTILE * 9, strict=False)}
    violations = tuple(Violation(Gate.PORTS, f"::error::{text}\n::stop-commands::x") for text in HOSTILE)
    lines = workflow_commands(replace(report, places=places, violations=violations)).splitlines()
    assert all(ANNOTATION.fullmatch(line) for line in lines)
    assert not any("##[" in line for line in lines)


def test_as_many_are_written_as_are_shown() -> None:
    """Of each level nine; the sum says how many are left out, and an advisory policy is a warning."""
    violations = tuple(Violation(Gate.PORTS, f"port {number}", number > 19) for number in range(24))
    report = Report("dev", "old", "new", (), violations=violations)
    lines = workflow_commands(report).splitlines()
    assert len(alerts(report)) == 24
    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 9 + ["::warning"] * 4 + ["::notice"]
    assert lines[0] == f"::error title={Topic.POLICY}::port 0"
    assert "11 more annotations are left out" in lines[-1]


def test_nothing_changes_in_a_line() -> None:
    """The sum is there in any case."""
    assert workflow_commands(Report("dev", "old", "new", ())) == (
        "::notice title=Load balancers (dev)::No Services of type LoadBalancer.\n"
    )
