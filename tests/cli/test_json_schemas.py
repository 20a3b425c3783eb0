"""Every `--json` output is as its schema in docs/schemas says, and docs/commands.md names them all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from locallb.cli.failures import MEANINGS
from locallb.cli.grammar import COMMANDS
from locallb.model.identities import ROUTED, ObjectKind
from locallb.model.objects import Via
from locallb.planning.service_rows import State
from locallb.report.changes import Change, Gate, What
from tests.support.backends import Backend, backends
from tests.support.gateway_objects import gateway, gateway_class
from tests.support.manifests import node, port, service
from tests.support.schemas import mistakes
from tests.support.stages import Done, Stage, stage
from tests.support.watching import eventually, watching

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT = {"completion": "prints no JSON", "image": "needs Docker"}


@pytest.fixture
def play() -> Iterator[tuple[Stage, Backend]]:
    """Return a project of a Service that can be served, one that can't, and one with a port without backends."""
    with stage() as made, backends() as make:
        backend = make("web")
        good = service("web", port(8080, backend.port), {"port": 81, "protocol": "SCTP"})
        made.write("s.yaml", node(), good, service("odd", {"port": 80, "protocol": "SCTP"}))
        yield made, backend


OF_STATUS_ALONE = {"proxy", "backends", "routes", "leader", "waits", "failing"}


def test_services_are_described_alike_for_status_and_for_runs() -> None:
    """A run prints rows as `status` does, but for what is known of a named Service or asked of the proxies."""
    described = schema("status")["$defs"]["service"], schema("run")["$defs"]["service"]
    one, other = ({key: value for key, value in each.items() if key != "description"} for each in described)
    assert {key: one["properties"][key] for key in {*one["properties"]} - OF_STATUS_ALONE} == other.pop("properties")
    assert {key: value for key, value in one.items() if key != "properties"} == other


ENUMS: dict[str, set[str]] = {
    "nodePorts": {*Via, ""},
    "degraded": {*State},
    "ingressclasses": {ObjectKind.SERVICE, *ROUTED},
    "repaired": {*Change},
    "envoy": {*What},
    "headroom": {*Gate},
}
"""What a schema says of a list with this word."""


@pytest.mark.parametrize("word", ENUMS)
def test_a_schema_lists_every_value_that_can_be_printed(word: str) -> None:
    """Of each type that is printed as text, in every schema that lists its values."""
    texts = [path.read_text() for path in DOCS.rglob("*.schema.json") if path.name != "stack.schema.json"]
    having = [values for text in texts for values in enums(json.loads(text)) if word in values]
    assert having
    assert all(set(values) == ENUMS[word] for values in having)


def enums(value: object) -> Iterator[list[str]]:
    """Yield every list of values within a schema."""
    if isinstance(value, dict):
        if isinstance(values := value.get("enum"), list):
            yield values
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from enums(part)


def schema(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DOCS / "schemas" / f"{name}.schema.json").read_text())
    return read


def check(done: Done, name: str) -> None:
    """Compare what a command printed with its schema; it prints nothing else."""
    assert list(mistakes(done.json, schema(name), schema(name))) == [], done.out


@pytest.mark.envoy
def test_outputs_are_as_their_schemas_say(play: tuple[Stage, Backend]) -> None:
    """Each command, before, while and after something is deployed."""
    made, _ = play
    done = made.run("doctor", "--json")
    assert {finding["level"] for finding in done.json["findings"]} <= {"ok", "note", "warning", "problem"}
    check(done, "doctor")
    check(made.run("preview", "--json"), "run")
    check(made.run("up", "--yes", "--json"), "run")
    check(made.run("refresh", "--yes", "--json"), "run")
    for terms in (["status"], ["status", "web", "odd"]):
        check(made.run(*terms, "--json"), "status")
    check(made.run("top", "--once", "--json"), "top")
    check(made.run("fault", "--json"), "fault")
    check(made.run("fault", "web", "--hang", "0.01%", "--json"), "fault")
    check(made.run("status", "--json"), "status")
    check(made.run("up", "--yes", "--json"), "run")
    check(made.run("open", "--json"), "open")
    check(made.run("url", "web", "--json"), "open")
    check(made.run("curl", "web/x", "--json"), "curl")
    for url in (made.run("url", "web").out.strip(), "http://shop.test/"):
        check(made.run("explain", url, "--json"), "explain")
    for names in (["web", "none"], ["web", "--for", "address"]):
        check(made.run("wait", *names, "--timeout", "1s", "--json"), "wait")
    check(made.run("fault", "--undo", "--json"), "fault")
    for terms in (["web", "--backend", "127.0.0.1"], [], ["web"], ["--undo"]):
        check(made.run("drain", *terms, "--json"), "drain")
    for action in ("setup", "teardown", "status"):
        check(made.run("host", action, "--json"), "host")
    check(made.run("stack", "list", "--json"), "stack-list")
    with patch.dict(os.environ, XDG_DATA_HOME=str(made.root / "d")):
        for terms in (["show"], ["create"], ["show"], ["export"]):
            check(made.run("ca", *terms, "--json"), "ca")
        for action in ("trust", "untrust"):
            check(made.run("ca", action, "--json"), "ca-trust")
    check(made.run("--stack", "mine", "init", "--json"), "init")
    check(made.run("stack", "rm", "mine", "--yes", "--json"), "stack-rm")
    check(made.run("state", "check", "--json"), "state-check")
    check(made.run("state", "restore", "--yes", "--json"), "state-restore")
    (made.root / ".state/.pulumi/stacks/local-lb/dev.json").rename(made.root / "aside")
    check(made.run("gc", "--json"), "gc")
    assert made.run("gc", "--json").json
    (made.root / "aside").rename(made.root / ".state/.pulumi/stacks/local-lb/dev.json")
    check(made.run("destroy", "--yes", "--json"), "run")


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (["open", "web"], 1),
        (["status", "nothing"], 1),
        (["fault", "nothing", "--hang", "1%"], 1),
        (["-s", "none", "up"], 1),
        (["-s", "../x", "init"], 1),
        (["help", "nothing"], 1),
    ],
)
def test_a_failure_is_a_document_too(terms: list[str], code: int) -> None:
    """With the sentences of standard error, wherever a command fails: nothing on standard output would be no JSON."""
    with stage() as made:
        made.write("s.yaml", node(), service("web", port(8080, 30080)))
        done = made.run(*terms, "--json")
    check(done, "error")
    assert (done.code, done.json["code"]) == (code, code)
    assert done.json["errors"] == [line.removeprefix("error: ") for line in done.err.splitlines()]


@pytest.mark.parametrize(
    ("line", "command", "reported"),
    [
        ("--json", "", "COMMAND is missing"),
        ("upp --json", "", "'upp' isn't a command; did you mean up?"),
        ("up dev --json", "up", "`up` doesn't take 'dev'"),
        ("--json up --fail-on no", "up", "'no' isn't one of rejected, pending, degraded"),
        ("host --json", "host", "ACTION is missing: setup, teardown, status"),
        ("host setup --allow-network x --json", "host", "write a network such as"),
        ("describe --json --traffic -o wide", "status", "-o shows once what is served"),
        ("drain --backend b --json", "drain", "name the SERVICE whose backend it is"),
    ],
)
def test_an_invalid_command_line_is_a_document_too(line: str, command: str, reported: str) -> None:
    """Beside the usage and the sentence on standard error, which ends with the same words."""
    with stage() as made:
        done = made.run(*line.split())
    check(done, "error")
    (sentence,) = done.json["errors"]
    assert (done.code, done.json["code"], done.json["command"]) == (2, 2, command)
    assert reported in sentence
    assert done.err.endswith(f": error: {sentence}\n")


@pytest.mark.parametrize(
    "line", ["watch x --json", "logs --json --nonsense", "curl -- --json", "up x -- --json", "upp"]
)
def test_an_invalid_command_line_without_a_document_is_a_sentence_alone(line: str) -> None:
    """Commands that print lines have none, and what is after `--` isn't an option."""
    with stage() as made:
        done = made.run(*line.split())
    assert (done.code, done.out) == (2, "")
    assert ": error: " in done.err


def test_a_gateway_is_distinguished_from_a_service_of_the_same_name(play: tuple[Stage, Backend]) -> None:
    """In both documents of a preview, by its kind."""
    made, _ = play
    made.write("g.yaml", gateway_class(), gateway(metadata={"namespace": "n"}))
    text, reported = made.run("preview", "--json"), made.run("preview", "--format", "json")
    check(text, "run")
    read = json.loads((DOCS / "preview-report.schema.json").read_text())
    assert list(mistakes(reported.json, read, read)) == []
    for document in (text.json, reported.json):
        kinds = [one["kind"] for one in document["services"] if one["name"] == "web"]
        assert sorted(kinds) == ["gateways", "services"]
    assert " / gateways / n<" in made.run("preview", "--format", "html").out


@pytest.mark.envoy
@pytest.mark.slow
def test_lines_of_the_watch_are_as_their_schema_says(play: tuple[Stage, Backend]) -> None:
    """From its start to its end, with a Service that comes."""
    made, backend = play
    with watching(made, "--json") as watch:
        eventually(lambda: made.status()["n/web"]["state"] == "degraded", watch)
        made.write("t.yaml", service("more", port(8080, backend.port)))
        eventually(lambda: "n/more" in watch.reported(), watch)
        assert watch.stop() == 0
        lines = watch.reported().splitlines()
    assert lines
    for line in lines:
        assert list(mistakes(json.loads(line), schema("watch"), schema("watch"))) == [], line


def test_every_schema_is_of_a_command_and_named() -> None:
    """In docs/commands.md, with each command and each exit code."""
    text = (DOCS / "commands.md").read_text()
    for path in (DOCS / "schemas").iterdir():
        assert f"(schemas/{path.name})" in text
        assert path.name.removesuffix(".schema.json").split("-")[0] in {*COMMANDS, "run", "error"}
    for command in COMMANDS:
        assert re.search(rf"^#+ `{command}\b", text, re.MULTILINE), command
    for code in MEANINGS:
        assert f"| {code.value} |" in text
