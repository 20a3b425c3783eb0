"""`locallb drain`: new connections go elsewhere, open ones stay, and all comes back."""

from __future__ import annotations

import pytest

from tests.e2e.two_nodes import answers, talking, two_nodes
from tests.support.backends import ask
from tests.support.manifests import node, port, service
from tests.support.stages import envoys, stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

TOLD = "c/n/web: a drain is ordered by a command: "


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_a_drained_node_keeps_its_connections_and_gets_no_new_ones(proxies: str) -> None:
    """No process ends; who looks is told; undone it is as before."""
    with two_nodes(proxies) as (play, address):
        pids = envoys(play.root)
        eventually(lambda: answers(address) == {"a", "b"})
        with talking(address) as log:
            mine = log("one")
            other = {"a": "b", "b": "a"}[mine]
            done = play.run("drain", "web", "--backend", mine)
            assert (done.code, done.err) == (0, "")
            assert f"c/n/web   {mine}" in done.out
            assert answers(address) == {other}
            assert log("two") == mine
            reported = f"{TOLD}of its backends not {mine} gets new connections"
            assert reported in play.run("preview").err
            assert "serving   Drained" in play.run("status").out
            assert [notice["reason"] for notice in play.status()["n/web"]["ordered"]] == ["Drained"]
            assert play.run("up", "--yes", "--expect-no-changes").code == 0
            assert play.run("drain", "web", "--undo", "--backend", mine).out.endswith("Nothing is drained.\n")
            eventually(lambda: answers(address) == {"a", "b"})
            assert log("three") == mine
        assert envoys(play.root) == pids


def test_a_whole_service_refuses_new_connections_and_keeps_open_ones() -> None:
    """Its address stays; the reason is told, with the way back."""
    with two_nodes() as (play, address), talking(address) as log:
        mine = log("one")
        done = play.run("drain", "web")
        assert (done.code, "Until it is undone: `" in done.out) == (0, True)
        assert done.out.endswith(" drain c/n/web --undo`\n")
        with pytest.raises(ConnectionRefusedError):
            ask(address, 8080)
        assert log("two") == mine
        row = play.status()["n/web"]
        assert row["addresses"] == [address]
        assert "all its backends are drained; `locallb drain c/n/web --undo` brings them back" in row["message"]
        assert play.run("drain", "--json").json == [
            {"cluster": "c", "namespace": "n", "name": "web", "kind": "services", "all": True, "backends": []}
        ]
        assert play.run("drain", "--undo").code == 0
        eventually(lambda: answers(address) == {"a", "b"})
        assert log("three") == mine


def test_undrain_restores_only_the_named_backends() -> None:
    """Those that were named are named; the list of all tells how all of it is undone."""
    with stage() as play:
        names = ("one", "other", "third")
        play.write("s.yaml", node("a", "127.0.0.1"), *(service(name, port(8080, 30080)) for name in names))
        assert play.run("drain", "third").out.endswith(" drain c/n/third --undo`\n")
        assert play.run("drain", "one", "other").out.endswith(" drain c/n/one c/n/other --undo`\n")
        assert play.run("drain").out.endswith(f" {play.root} drain --undo`\n")


def test_a_loop_drains_and_undoes_it_and_a_fault_stays() -> None:
    """Orders of one Service don't touch each other."""
    with two_nodes() as (play, address), watching(play) as watch:
        play.run("fault", "web", "--hang", "0.01%", "--for", "1h")
        play.run("drain", "web", "--backend", "127.0.0.1")
        eventually(lambda: TOLD in watch.reported(), watch)
        assert answers(address) == {"b"}
        play.run("drain", "web", "--backend", "b")
        eventually(lambda: play.status()["n/web"]["state"] != "serving", watch)
        assert play.run("drain", "web", "--undo").code == 0
        eventually(lambda: answers(address) == {"a", "b"})
        assert [row["hang"] for row in play.run("fault", "--json").json] == [0.01]
        play.run("fault", "--undo")


def test_invalid_drain_is_refused_without_effect() -> None:
    """One sentence each, with the names that there are."""
    with two_nodes() as (play, address):
        before = play.files()
        for terms, code, reported in (
            (["web", "--backend", "c"], 1, "c/n/web has no backend c; name a Node, a Pod or an address: 127.0.0.1,"),
            (["nobody"], 1, "there is no load balancer 'nobody'"),
            (["--backend", "a"], 2, "name the SERVICE"),
            (["web", "--undo", "--backend", "a"], 1, "c/n/web: a isn't drained"),
        ):
            done = play.run("drain", *terms)
            assert (done.code, reported in " ".join(done.err.split())) == (code, True), done.err
        assert play.files() == before
        eventually(lambda: answers(address) == {"a", "b"})
