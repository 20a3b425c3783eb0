"""What users get wrong: one clear sentence with object, value and remedy; everything else still works; no traceback."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask, listening
from tests.support.manifests import node, port, service
from tests.support.stages import Done, Stage

pytestmark = pytest.mark.envoy

Backends = Callable[..., Backend]


@pytest.fixture
def good(play: Stage, backend: Backends) -> Stage:
    """Return a stack with one good Service."""
    play.write("good.yaml", node(), service("good", port(8080, backend("good").port)))
    return play


def assert_good_serves(stage: Stage, done: Done) -> None:
    """Check that the good Service answers, and that nobody saw a traceback."""
    assert ask(stage.addresses()["n/good"], 8080) == "good: hello"
    assert "Traceback" not in done.out + done.err


@pytest.mark.parametrize(
    ("bad", "reason", "terms"),
    [
        (service("bad"), "Malformed", ["n/bad", "port"]),
        (service("bad", port(80800, 30000)), "Malformed", ["n/bad", "80800"]),
        (service("bad", port(8080, 30000, "ICMP")), "Malformed", ["n/bad", "ICMP"]),
        (service("bad", port(8080, 30000), loadBalancerIP="10.1.2.3"), "OutOfPool", ["n/bad", "10.1.2.3"]),
        (service("bad", port(8080, 30000), loadBalancerIP="here"), "Malformed", ["n/bad", "here"]),
        (
            service("bad", port(8080, 30000), annotations={"local-lb.dev/addresses": "fd00::5"}),
            "FamilyMismatch",
            ["n/bad", "fd00::5"],
        ),
        (service("bad", port(8080, 30000), loadBalancerSourceRanges=["10.0.0.0/99"]), "Malformed", ["10.0.0.0/99"]),
        (service("bad", port(9999, 30000, "SCTP")), "ProtocolNotSupported", ["n/bad", "SCTP"]),
    ],
)
def test_a_bad_service_is_rejected_with_a_sentence(
    good: Stage, bad: dict[str, object], reason: str, terms: list[str]
) -> None:
    """Its row has the reason code, its sentence names the Service and the value; the good one serves."""
    good.write("bad.yaml", bad)
    done = good.up()
    row = good.status()["n/bad"]
    assert (row["state"], row["reason"]) == ("rejected", reason)
    assert all(word in row["message"] for word in terms), row["message"]
    assert row["message"] in done.out + done.err
    assert_good_serves(good, done)


def test_an_address_that_another_service_has_is_refused(good: Stage) -> None:
    """A request for a taken address never evicts its owner."""
    good.up()
    claimed = good.addresses()["n/good"]
    good.write("bad.yaml", service("bad", port(8080, 30000), loadBalancerIP=claimed))
    done = good.up()
    row = good.status()["n/bad"]
    assert (row["state"], row["reason"]) == ("rejected", "InUse")
    assert claimed in row["message"]
    assert "n/good" in row["message"]
    assert_good_serves(good, done)


def test_two_services_that_want_one_address_are_settled(good: Stage, backend: Backends) -> None:
    """One gets it, the other is told who has it."""
    wanted = good.at(9)
    good.write(
        "pair.yaml",
        service("a", port(8080, backend("a").port), loadBalancerIP=wanted),
        service("b", port(8080, backend("b").port), loadBalancerIP=wanted),
    )
    done = good.up()
    rows = good.status()
    assert (rows["n/a"]["state"], rows["n/b"]["state"]) == ("serving", "rejected")
    assert rows["n/b"]["reason"] == "InUse"
    assert "n/a" in rows["n/b"]["message"]
    assert ask(wanted, 8080) == "a: hello"
    assert_good_serves(good, done)


@pytest.mark.parametrize(
    ("settings", "terms"),
    [
        ({"pools": [{"name": "p", "addresses": ["127.77.0"]}]}, ["127.77.0"]),
        ({"pools": [{"name": "p", "addresses": ["127.77.0.9-127.77.0.3"]}]}, ["127.77.0.9-127.77.0.3"]),
        (
            {"pools": [{"name": "p", "addresses": ["127.7.0.0/24"]}, {"name": "q", "addresses": ["127.7.0.8/29"]}]},
            ["p", "q", "overlap"],
        ),
        ({"pool": []}, ["pool", "pools"]),
        ({"runtime": "docker"}, ["docker"]),
        ({"sources": [{"manifests": "nowhere", "name": "x"}]}, ["nowhere"]),
    ],
)
def test_a_bad_configuration_stops_before_anything_changes(
    good: Stage, settings: dict[str, object], terms: list[str]
) -> None:
    """The run fails with a sentence; what serves goes on as it was."""
    good.up()
    good.configure(**settings)
    done = good.run("up", "--yes")
    assert done.code == 1
    assert all(word in done.err for word in terms), done.err
    good.configure()
    assert_good_serves(good, done)


def test_broken_yaml_keeps_what_was_read_before(good: Stage, backend: Backends) -> None:
    """A file that can't be parsed is named with its line; its Services stay, others still change."""
    good.up()
    address = good.addresses()["n/good"]
    (good.manifests / "good.yaml").write_text("apiVersion: v1\nkind: [Service\n")
    good.write("more.yaml", service("more", port(8080, backend("more").port)))
    done = good.run("up", "--yes")
    assert done.code == 1
    assert "good.yaml" in done.err
    assert "line" in done.err
    assert ask(address, 8080) == "good: hello"
    assert "Traceback" not in done.out + done.err


def test_a_source_that_vanished_is_not_an_empty_source(good: Stage) -> None:
    """The directory is gone: everything stays, the run ends with an error that names it."""
    good.up()
    address = good.addresses()["n/good"]
    good.manifests.rename(good.root / "elsewhere")
    done = good.run("up", "--yes")
    assert done.code == 1
    assert "manifests" in done.err
    assert ask(address, 8080) == "good: hello"
    (good.root / "elsewhere").rename(good.manifests)
    assert good.run("up", "--yes", "--expect-no-changes").code == 0


def test_a_port_that_another_process_holds_everywhere_is_reported(good: Stage, backend: Backends) -> None:
    """A listener on 0.0.0.0 takes the port on every address; the Service's other port still serves."""
    with socket.create_server(("0.0.0.0", 0)) as holder:
        claimed = holder.getsockname()[1]
        good.write("bad.yaml", service("bad", port(claimed, 30000), port(8081, backend("other").port)))
        done = good.up()
        row = good.status()["n/bad"]
    assert (row["state"], row["reason"]) == ("degraded", "PortInUse")
    assert str(claimed) in row["message"]
    assert ask(row["addresses"][0], 8081) == "other: hello"
    assert_good_serves(good, done)


def test_an_address_on_which_another_process_listens_is_not_handed_out(good: Stage) -> None:
    """The planner goes round it; asked for by name it is refused with the holder."""
    with socket.create_server((good.at(9), 8080)):
        good.write("bad.yaml", service("bad", port(8080, 30000), loadBalancerIP=good.at(9)))
        done = good.up()
        row = good.status()["n/bad"]
    assert (row["state"], row["reason"]) == ("rejected", "InUse")
    assert_good_serves(good, done)


def test_a_port_taken_between_plan_and_start_fails_that_service_only(good: Stage, backend: Backends) -> None:
    """Envoy can't bind it: the run names address, port and holder, and repairs it once the port is free."""
    good.write("late.yaml", service("late", port(8080, backend("late").port)))
    planned = good.run("preview", "--json").json
    address = next(s["addresses"][0] for s in planned["services"] if s["name"] == "late")
    good.up()
    os.kill(good.pids()["n/late"], signal.SIGKILL)
    with listening(address, 8080):
        done = good.run("up", "--yes")
        assert "Traceback" not in done.out + done.err
        assert good.status()["n/late"]["state"] != "serving"
        assert ask(good.addresses()["n/good"], 8080) == "good: hello"
    good.up()
    assert good.addresses()["n/late"] == address
    assert ask(address, 8080) == "late: hello"


@pytest.mark.parametrize("terms", [["--stack", "nosuch", "up", "--yes"], ["-C", "/nonexistent", "status"]])
def test_a_stack_or_project_that_does_not_exist_is_one_sentence(good: Stage, terms: list[str]) -> None:
    """The sentence names it; the code is 1."""
    done = good.run(*terms)
    assert done.code == 1
    assert terms[1] in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_up_status_and_doctor_explain_what_is_not_served(play: Stage) -> None:
    """Another class, a pin for nobody, a misspelt kind, a text: up, status and doctor say what was read and why not."""
    play.write("other.yaml", node(), service("other", port(8080, 30000), loadBalancerClass="foo/bar"))
    play.write("odd.yaml", {"apiVersion": "v1", "kind": "service", "metadata": {"name": "odd"}})
    (play.manifests / "text.yaml").write_text("just words\n")
    play.configure(pins={"n/wbe": [play.at(5)]})
    left_out = "1 Service left out: class foo/bar (this stack serves those without a class): "
    read = "3 files with 3 objects (1 Node, 1 Service of type LoadBalancer, 1 service)"
    notices = ('kind is "service"; write Service', "where an object should be; it is passed over", "has n/wbe, but no")
    for command in (("up", "--yes"), ("status",), ("doctor",)):
        done = play.run(*command)
        reported = done.out + done.err
        for terms in (left_out, read, *notices):
            assert reported.count(terms) == 1, (command, terms, reported)
