"""Policies in updates of both engines: what they forbid stops everything before it begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.official_cli import make_runnable, make_stack, needs_cli, pulumi
from tests.support.stages import Stage, envoys

pytestmark = pytest.mark.envoy
SENTENCE = "c/n/web: port 8080/TCP is not among those that local-lb:policies.ports allows (443)"
OWN_PROGRAM = "from locallb.program import serve\n\nmade = serve()\n"


@pytest.mark.parametrize("program", ["", OWN_PROGRAM], ids=["as data", "its own"])
def test_what_a_policy_forbids_is_not_begun(play: Stage, backend: Callable[..., Backend], program: str) -> None:
    """By the sentence and the exit code of the preview; once it is advisory, it is a warning."""
    if program:
        (play.root / "__main__.py").write_text(program)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.configure(policies={"ports": [443]})
    for terms in (["preview"], ["up", "--yes"]):
        done = play.run(*terms)
        assert (done.code, done.err.count(SENTENCE)) == (12, 1), done.out + done.err
    assert envoys(play.root) == []
    play.configure(policies={"ports": [443], "advisory": ["ports"]})
    assert SENTENCE in play.up().err
    assert ask(play.addresses()["n/web"], 8080) == "web: hello"


COMPONENT = """\
from locallb.program import LoadBalancers

sources = [{{"manifests": "manifests", "name": "c"}}]
pools = [{{"name": "own", "addresses": [{pool!r}]}}]
LoadBalancers("all", sources=sources, pools=pools, policies={{"ports": {ports!r}}})
"""


def test_a_component_is_judged_by_its_present_arguments(play: Stage, backend: Callable[..., Backend]) -> None:
    """Refused ones are no arguments of commands; what served before goes on."""

    def allow(*ports: int) -> None:
        (play.root / "__main__.py").write_text(COMPONENT.format(pool=f"{play.at(0)}/27", ports=list(ports)))

    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    allow(443)
    assert play.run("up", "--yes").code == 12
    allow(443, 8080)
    asked = play.run("up")  # nobody answers
    assert (asked.code, SENTENCE in asked.err) == (1, False), asked.out + asked.err
    play.up()
    allow(443)
    for terms in (["up"], ["up", "--yes"], ["up", "--json"]):
        done = play.run(*terms)
        assert (done.code, done.err.count(SENTENCE)) == (12, 1), (terms, done.out + done.err)
    assert "n/web" in play.run("status").out
    assert ask(play.addresses()["n/web"], 8080) == "web: hello"


@pytest.mark.parametrize("program", ["", OWN_PROGRAM], ids=["as data", "its own"])
def test_a_part_of_a_stack_is_updated_whatever_the_policies_of_the_whole(
    play: Stage, backend: Callable[..., Backend], program: str
) -> None:
    """As its preview has it."""
    if program:
        (play.root / "__main__.py").write_text(program)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.configure(policies={"ports": [443]})
    done = play.run("up", "--yes", "--target", "web")
    assert done.code == 0, done.out + done.err


def test_an_address_that_moves_is_refused_before_it_moves(play: Stage, backend: Callable[..., Backend]) -> None:
    """Compared with what is deployed."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.up()
    at = play.addresses()["n/web"]
    play.configure(policies={"addressChanges": "forbidden"}, pins={"n/web": [play.at(9)]})
    done = play.run("up", "--yes")
    assert done.code == 10
    assert f"its address {at} becomes {play.at(9)}, which local-lb:policies.addressChanges forbids" in done.err
    assert ask(at, 8080) == "web: hello"


@pytest.mark.pulumi
@needs_cli
def test_pulumi_says_and_stops_the_same(play: Stage, backend: Callable[..., Backend]) -> None:
    """Its preview fails with the sentence, and so does its update."""
    make_runnable(play.root)
    make_stack(play)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.configure(policies={"ports": [443]})
    for terms in (["preview"], ["up", "--yes"], ["up", "--yes", "--skip-preview"]):
        done = pulumi(play, *terms)
        assert done.code != 0
        assert SENTENCE in done.out + done.err
        assert "Traceback" not in done.out + done.err
    assert envoys(play.root) == []
    play.configure(policies={"ports": [443], "advisory": ["ports"]})
    done = pulumi(play, "up", "--yes", "--skip-preview")
    assert done.code == 0
    assert SENTENCE in done.out + done.err
