"""Services without addresses of their own (`portMapping: loopback`), from `up` to `destroy`, by real Envoys."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from locallb.ledger.ledger import Ledger
from locallb.planning.port_mapping import COUNT, FIRST
from tests.support.backends import Backend, ask
from tests.support.environment import lent
from tests.support.gateway_clients import answering, get
from tests.support.gateway_clients import service as clustered
from tests.support.ingress_objects import ingress, path, rule
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

pytestmark = pytest.mark.envoy
LOCALHOST = "127.0.0.1"


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a stage whose stack maps ports."""
    with stage() as made:
        made.configure(portMapping="loopback")
        made.write("nodes.yaml", node())
        yield made


@pytest.fixture
def free() -> int:
    """Return a port that nobody has on this host, above what mapping uses: it is only anybody's own."""
    for number in range(61_000 + os.getpid() % 4_000, 65_536):
        with socket.socket() as probe:
            if not probe.connect_ex((LOCALHOST, number)):
                continue
            probe.bind((LOCALHOST, number))
            return number
    raise AssertionError("no port is free")


def mapped(stage: Stage) -> dict[str, list[int]]:
    """Return the numbers of every Service's ports."""
    return {key: [port["mapped"] for port in row["ports"]] for key, row in stage.status().items()}


def test_each_port_is_found_at_127_0_0_1_by_its_own_number_or_another_one_that_stays(
    play: Stage, free: int, backend: Callable[..., Backend]
) -> None:
    """The older of two has the number; when it is gone, the other one keeps what clients know."""
    web, shop = backend("web"), backend("shop")
    play.write("web.yaml", service("a-web", port(free, web.port)))
    play.write("shop.yaml", service("shop", port(free, shop.port), port(free, shop.port, "UDP")))
    done = play.up()
    numbers = mapped(play)
    assert numbers["n/a-web"] == [free]
    other = numbers["n/shop"][0]
    assert FIRST <= other < FIRST + COUNT
    assert numbers["n/shop"] == [other, free]  # of UDP nobody else has it
    assert set(play.addresses().values()) == {LOCALHOST}
    assert f"{free}/TCP={other}" in done.out
    assert (ask(LOCALHOST, free), ask(LOCALHOST, other)) == ("web: hello", "shop: hello")
    assert ask(LOCALHOST, free, "UDP") == "shop: hello"
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert play.run("refresh", "--yes", "--expect-no-changes").code == 0
    (play.manifests / "web.yaml").unlink()
    play.up()
    assert mapped(play) == {"n/shop": [other, free]}
    assert ask(LOCALHOST, other) == "shop: hello"
    assert play.run("destroy", "--yes").code == 0
    assert Ledger(play.state_home / "ledger").claims() == ()


def test_occupied_port_is_mapped_to_another_number(play: Stage, backend: Callable[..., Backend]) -> None:
    """The Service is found elsewhere, and the preview says so before."""
    stranger = backend("stranger")
    web = backend("web")
    play.write("web.yaml", service("web", port(stranger.port, web.port)))
    report = play.run("preview", "--format", "json").json
    (reported,) = report["services"][0]["after"]["ports"]
    play.up()
    (number,) = mapped(play)["n/web"]
    assert reported["mapped"] == number != stranger.port
    assert ask(LOCALHOST, number) == "web: hello"
    assert ask(LOCALHOST, stranger.port) == "stranger: hello"
    retry = play.run("preview", "--format", "json").json
    assert [each["change"] for each in retry["services"]] == ["unchanged"]


def test_mapped_port_of_another_stack_is_not_taken(play: Stage, free: int, backend: Callable[..., Backend]) -> None:
    """The ledger has its owner, even while its proxy is down and the port is closed."""
    web = backend("web")
    play.write("web.yaml", service("web", port(free, web.port)))
    play.up()
    os.kill(play.pids()["n/web"], 9)
    with stage() as other, lent({"LOCALLB_LEDGER": str(play.state_home / "ledger")}):
        other.configure(portMapping="loopback")
        other.write("nodes.yaml", node())
        other.write("web.yaml", service("web", port(free, web.port)))
        other.up()
        assert FIRST <= mapped(other)["n/web"][0] < FIRST + COUNT
        assert other.run("destroy", "--yes").code == 0
    play.up()
    assert mapped(play)["n/web"] == [free]
    assert ask(LOCALHOST, free) == "web: hello"


def test_an_ingress_beside_a_service_has_a_number_of_its_own(
    play: Stage, free: int, backend: Callable[..., Backend]
) -> None:
    """Its hosts are told apart as ever, whatever port clients name."""
    play.configure(portMapping="loopback", ingress={"class": "local", "http": free})
    with answering("shop") as number:
        play.write("web.yaml", service("a-web", port(free, backend("web").port)))
        play.write("shop.yaml", clustered("shop", number), ingress(rule(path("/", "Prefix", "shop"), host="a.test")))
        play.up()
        numbers = {row["kind"]: row["ports"][0]["mapped"] for row in play.run("status", "--json").json}
        assert sorted(number == free for number in numbers.values()) == [False, True]
        at = numbers["ingressclasses"]
        status, reported = get(LOCALHOST, "/", f"a.test:{at}", at)
        assert (status, "shop" in reported) == (200, True)
        assert ask(LOCALHOST, numbers["services"]) == "web: hello"


def test_gc_removes_port_claims_of_a_lost_state(play: Stage, free: int, backend: Callable[..., Backend]) -> None:
    """A claim of ports is told with its Service, though others have claims of the same address."""
    web = backend("web")
    play.write("web.yaml", service("web", port(free, web.port)))
    play.up()
    (claim,) = Ledger(play.state_home / "ledger").claims()
    removed = replace(claim.owner, service=claim.owner.service._replace(name="gone"))
    ports = (claim.ports[0]._replace(number=FIRST),)
    Ledger(play.state_home / "ledger").claim(claim.address, removed, ports=ports)
    listed = play.run("--json", "gc").json
    assert [row["what"] for row in listed] == [f"{LOCALHOST}/{removed.service}"]
    assert play.run("gc", "--yes").code == 0
    assert Ledger(play.state_home / "ledger").claims() == (claim,)
