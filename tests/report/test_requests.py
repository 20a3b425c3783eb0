"""`preview --against REV --requests FILE`: the sample requests that a change sends elsewhere."""

from __future__ import annotations

import pytest

from locallb.model.http_requests import HttpRequest
from locallb.report.requests import parse_requests
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.reports import SCHEMA
from tests.support.repository import commit
from tests.support.schemas import mistakes
from tests.support.stages import Stage


def test_requests_that_go_elsewhere_are_listed_in_each_format(repo: Stage) -> None:
    """As text, in Markdown and in JSON; the others are only counted."""
    repo.write("gateway.yaml", gateway_class(), gateway(listener("http", 8080), metadata={"namespace": "n"}))
    web, api = backend("web", namespace="n"), backend("api", namespace="n")

    def routed(*rules: object) -> None:
        parents = [{"name": "web", "namespace": "n"}]
        repo.write("route.yaml", route(*rules, namespace="n", parentRefs=parents))  # type: ignore[arg-type]

    routed(rule("/", backends=[web]))
    commit(repo.root)
    routed(rule("/", backends=[web]), rule("/api", backends=[api]))
    (repo.root / "requests.txt").write_text("# all\nhttp://a.test:8080/\n\nPOST http://a.test:8080/api -H 'x: 1'\n")
    terms = ("preview", "--against", "HEAD", "--requests", str(repo.root / "requests.txt"))
    moved = {"request": "POST http://a.test:8080/api (x: 1)", "before": "n/web:8080", "after": "n/api:8080"}
    document = repo.run(*terms, "--format", "json").json
    assert list(mistakes(document, SCHEMA, SCHEMA)) == []
    assert document["requests"] == {"compared": 2, "moved": [moved]}
    text = repo.run(*terms).out
    assert "1 of 2 sample requests goes elsewhere" in text
    assert f"{moved['request']}  n/web:8080 → n/api:8080" in text
    assert "**1 of 2 sample requests goes elsewhere**" in repo.run(*terms, "--format", "markdown").out
    commit(repo.root)
    assert repo.run(*terms, "--format", "json").json["requests"] == {"compared": 2, "moved": []}
    assert "none of 2 sample requests go elsewhere" in repo.run(*terms).out
    assert repo.run(*terms[:3], "--format", "json").json["requests"] == {"compared": 0, "moved": []}
    assert "sample" not in repo.run(*terms[:3]).out + repo.run(*terms[:3], "--format", "markdown").out


@pytest.mark.parametrize(
    ("text", "is_yaml"),
    [
        ("http://a.test/\n  # none\nPOST http://b.test/x -H 'X-A: 1 2'\n", False),
        ("- http://a.test/\n- {url: http://b.test/x, method: POST, headers: {X-A: 1 2}}\n", True),
        ("- GET http://a.test/\n- \"POST http://b.test/x -H 'x-a: 1 2'\"\n", True),
    ],
)
def test_a_file_has_lines_or_objects(text: str, is_yaml: bool) -> None:  # noqa: FBT001 - a column
    """Of the same requests."""
    assert parse_requests(text, is_yaml=is_yaml) == (
        HttpRequest.parse("http://a.test/"),
        HttpRequest.parse("http://b.test/x", "POST", ["x-a: 1 2"]),
    )


@pytest.mark.parametrize(
    ("text", "is_yaml", "sentence"),
    [
        ("http://a.test/\nGET POST http://a.test/", False, "line 2: .* more than a method and a URL"),
        ("GET 'http://a.test/", False, "line 1: .*quotation"),
        ("-H 'x: 1'", False, "line 1: .* has no URL"),
        ("ftp://a.test/", False, "line 1: .* isn't a URL of http"),
        ("a: b", True, "it is no list"),
        ("[", True, "it isn't YAML"),
        ("", False, "it has no requests; write one a line"),
        ("# none\n", False, "it has no requests"),
        ("[]", True, "it has no requests"),
        ("a.test/ -H Host:", False, "line 1: the Host header is empty"),
        ("- 7", True, "request 1: 7 isn't a request"),
        ("- {url: http://a.test/, body: x}", True, 'request 1: "body" is unknown'),
        ("- {method: GET}", True, "request 1: .* needs a host"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_place(text: str, is_yaml: bool, sentence: str) -> None:  # noqa: FBT001 - a column
    """And what to write."""
    with pytest.raises(ValueError, match=sentence):
        parse_requests(text, is_yaml=is_yaml)


@pytest.mark.parametrize(
    ("terms", "code", "sentence"),
    [
        (["--against", "HEAD", "--requests", "gone.txt"], 1, "gone.txt can't be read"),
        (["--requests", "gone.txt"], 2, "say --against"),
    ],
)
def test_requests_need_a_file_and_two_sides(repo: Stage, terms: list[str], code: int, sentence: str) -> None:
    """Said in a sentence."""
    done = repo.run("preview", *terms)
    assert (done.code, sentence in done.err) == (code, True), done.err
