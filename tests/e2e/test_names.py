"""Names of load balancers, asked at the stack's own server: through up, preview, status, watch, destroy and gc."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask
from tests.support.dns_questions import NOT_IMPLEMENTED, NXDOMAIN, addresses, named, requested
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy
HOSTNAME, TTL, TARGET = (f"external-dns.alpha.kubernetes.io/{word}" for word in ("hostname", "ttl", "target"))


def test_names_come_change_and_go(play: Stage, backend: Callable[..., Backend]) -> None:
    """A, AAAA, wildcards, several owners, unknown names and types; and nothing is left after destroy."""
    to = backend("one").port
    server = named(play, records={"db.test": ["127.0.0.9", "fd00::9"]})
    hosts = {HOSTNAME: "shop.test, *.apps.test", TTL: "5m"}
    web = service("web", port(8080, to), annotations=hosts)
    play.write("all.yaml", node(), web, service("x", port(8080, to), annotations={HOSTNAME: "shop.test"}))
    assert "shop.test, web.n.c.test and 1 more" in play.run("preview").out
    done = play.up()
    assert "c/n/x: the name shop.test is that of c/n/web, which is older" in done.out + done.err
    at = play.addresses()
    assert ask(at["n/web"], 8080) == "one: hello"
    assert addresses(server, "web.n.c.test") == addresses(server, "y.z.apps.test") == [at["n/web"]]
    assert requested(server, "shop.test") == (0, [at["n/web"]], [300])
    assert addresses(server, "x.n.c.test") == [at["n/x"]]
    assert (addresses(server, "db.test"), addresses(server, "db.test", "AAAA")) == (["127.0.0.9"], ["fd00::9"])
    assert [requested(server, name)[0] for name in ("no.test", "apps.test", "example.org")] == [NXDOMAIN] * 3
    assert requested(server, "shop.test", "TXT")[0] == NOT_IMPLEMENTED
    assert play.status()["n/web"]["names"] == ["shop.test", "web.n.c.test", "*.apps.test"]
    assert "shop.test" in play.run("status").out
    asking = [each for each in play.run("doctor", "--json").json["findings"] if each["topic"] == "names"]
    assert [each["level"] for each in asking] == ["warning"]
    assert f", which {server[0]}:5300 knows: it doesn't ask there" in asking[0]["text"]
    pid = play.pids()["/names"]
    assert play.run("preview", "--expect-no-changes").code == 0
    play.write("all.yaml", node(), service("x", port(8080, to), annotations={HOSTNAME: "shop.test"}))
    assert "x.n.c.test" in play.run("preview", "--diff").out
    play.up()
    assert addresses(server, "shop.test") == [at["n/x"]]
    assert requested(server, "web.n.c.test")[0] == NXDOMAIN
    assert play.pids()["/names"] == pid, "a change of names is a push"
    play.configure()
    play.up()
    with pytest.raises(OSError, match=r"refused|timed out"):
        requested(server, "shop.test")
    assert set(play.pids()) == {"n/x"}
    named(play)
    play.up()
    assert play.run("destroy", "--yes").code == 0
    assert not envoys(play.root)


def test_names_of_mapped_ports_lead_to_the_loopback_address(play: Stage, backend: Callable[..., Backend]) -> None:
    """The port that clients add is the one that is told, and nobody answers at the Service's own."""
    stranger, to = backend("stranger"), backend("one").port
    server = named(play)
    zones = [{"zone": "test", "embedded": f"{server[0]}:{server[1]}"}]
    play.configure(portMapping="loopback", dns={"zones": zones})
    play.write("all.yaml", node(), service("web", {**port(stranger.port, to), "appProtocol": "http"}))
    done = play.up()
    (reported,) = play.status()["n/web"]["ports"]
    number = reported["mapped"]
    assert number != reported["port"] == stranger.port
    assert addresses(server, "web.n.c.test") == ["127.0.0.1"]
    assert ask("127.0.0.1", number) == "one: hello"
    assert ask("127.0.0.1", stranger.port) == "stranger: hello"
    for out in (done.out, play.run("status").out):
        assert f"{stranger.port}/TCP={number}" in out
        assert f"Try: curl http://127.0.0.1:{number}/\n" in out
    assert f"{stranger.port}/TCP={number}  serving" in play.run("status", "n/web").out
    stranger.close()
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    with pytest.raises(OSError, match="refused"):
        ask("127.0.0.1", stranger.port)


def test_watch_serves_names_and_brings_them_back(play: Stage, backend: Callable[..., Backend]) -> None:
    """Whatever happens to the server: its Envoy, its files."""
    to = backend("one").port
    server = named(play)
    play.write("all.yaml", node(), service("web", port(8080, to)))
    with watching(play) as watch:
        eventually(lambda: addresses(server, "web.n.c.test") == [play.addresses()["n/web"]], watch)
        play.write("more.yaml", service("late", port(8080, to), annotations={HOSTNAME: "late.test"}))
        eventually(lambda: addresses(server, "late.test") == [play.addresses()["n/late"]], watch)
        pid = play.pids()["/names"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: play.pids().get("/names", pid) != pid and addresses(server, "late.test"), watch)
        (play.manifests / "more.yaml").unlink()
        eventually(lambda: requested(server, "late.test")[0] == NXDOMAIN, watch)
        assert addresses(server, "web.n.c.test")


def test_gc_ends_a_server_that_no_state_knows(play: Stage, backend: Callable[..., Backend]) -> None:
    """As it does with every Envoy of a stack that lost its state."""
    to = backend("one").port
    named(play)
    play.write("all.yaml", node(), service("web", port(8080, to)))
    play.up()
    assert "/names" in play.pids()
    state = play.root / ".state/.pulumi/stacks/local-lb/dev.json"
    lost = json.loads(state.read_text())
    lost["checkpoint"]["latest"]["resources"] = []
    state.write_text(json.dumps(lost))
    for backup in state.parent.glob("*.bak*"):
        backup.unlink()
    assert play.run("gc", "--yes").code == 0
    assert not envoys(play.root)


def test_occupied_dns_address_is_reported_and_services_are_served(play: Stage, backend: Callable[..., Backend]) -> None:
    """In one sentence, and load balancers are served all the same."""
    to = backend("one").port
    server = named(play)
    play.write("all.yaml", node(), service("web", port(8080, to)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(server)
        done = play.run("up", "--yes")
        assert done.code != 0
        assert f"{server[0]}:{server[1]}/UDP isn't served: the port is in use by" in done.out + done.err
        assert ask(play.addresses()["n/web"], 8080) == "one: hello"
    play.up()
    assert addresses(server, "web.n.c.test") == [play.addresses()["n/web"]]
