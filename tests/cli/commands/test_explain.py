"""The command `explain`: by what it goes, what it prints, and its exit code."""

from __future__ import annotations

import pytest

from locallb.cli.failures import Exit
from tests.support import ingress_objects as ingresses
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node, port, service
from tests.support.repository import GIT, commit, git
from tests.support.stages import Stage

URL = "http://shop.test:8080/api/cart"


@pytest.fixture
def shop(play: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a project under Git, of which the last commit leads /api elsewhere than the work tree."""
    for name, value in GIT.items():
        monkeypatch.setenv(name, value)
    play.write(
        "services.yaml", node(), *(service(name, port(8080, 30080), namespace="shop") for name in ("api", "next"))
    )
    play.write("gateway.yaml", gateway_class(), gateway(listener("http", 8080, hostname="*.test")))
    play.write("route.yaml", route(rule("/api", backends=[backend("next")])))
    git(play.root, "init", "-q", "-b", "main")
    commit(play.root)
    play.write("route.yaml", route(rule("/api"), rule("/")))
    return play


@pytest.mark.parametrize("side", [[], ["--from", "live"], ["--from", "manifests"]])
def test_the_work_tree_is_explained(shop: Stage, side: list[str]) -> None:
    """As `up` reads it, or as manifests alone."""
    done = shop.run("explain", URL, *side)
    assert (done.code, done.err) == (Exit.OK, "")
    lines = done.out.splitlines()
    assert lines[:2] == [f"GET {URL}", "  a backend answers"]
    assert "  listener   http, *.test" in lines
    assert "  rule       HTTPRoute shop/route, rule 1: *.test/api/*" in lines
    assert "  later      HTTPRoute shop/route, rule 2: *.test/*: its path is shorter" in lines


@pytest.mark.parametrize("side", ["HEAD", "other"])
def test_another_revision_or_directory_is_explained(shop: Stage, side: str) -> None:
    """Without a state, and with its own manifests."""
    git(shop.root, "worktree", "add", "-q", str(shop.root / "other"), "HEAD")
    done = shop.run("explain", URL, "--from", side if side == "HEAD" else str(shop.root / side), "--json")
    assert (done.code, [each["service"] for each in done.json["backends"]]) == (Exit.OK, ["shop/next:8080"])


def test_a_request_that_nothing_serves_has_a_code_of_its_own(shop: Stage) -> None:
    """Whether the proxy answers it or there is none."""
    for terms in (["http://shop.test:8080/", "--from", "HEAD"], ["http://shop.example/"]):
        done = shop.run("explain", *terms)
        assert done.code == Exit.UNSERVED, done.out
    assert shop.run("explain", "shop.test:8080/").code == Exit.OK


@pytest.mark.parametrize(
    ("terms", "code", "sentence"),
    [
        (["ftp://x/"], Exit.FAILED, "isn't a URL of http or https"),
        ([URL, "-H", "x"], Exit.FAILED, "isn't a header"),
        ([URL, "--from", "nowhere"], Exit.FAILED, "nowhere"),
        ([], Exit.USAGE, "URL"),
    ],
)
def test_what_cant_be_explained_is_said_in_a_sentence(shop: Stage, terms: list[str], code: int, sentence: str) -> None:
    """Without a result."""
    done = shop.run("explain", *terms)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err


def test_method_and_headers_are_those_of_curl(shop: Stage) -> None:
    """By their letters, and by address with a host."""
    shop.write(
        "ingress.yaml", ingresses.ingress_class(), ingresses.ingress(ingresses.rule(ingresses.path("/", to="next")))
    )
    shop.configure(ingress={"class": "local", "http": 8081})
    found = shop.run("explain", "-X", "POST", "-H", "Host: a.test", "http://shop.test:8081/x", "--json").json
    assert found["request"]["method"] == "POST"
    assert (found["rule"], found["match"]) == ("Ingress shop/web, path /", "*/*")
