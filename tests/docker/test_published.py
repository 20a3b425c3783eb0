"""Proxies in containers whose ports Docker publishes, on a network of the test's own, from `up` to `destroy`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.backends import Backend, ask
from tests.support.containers import (
    Harm,
    Network,
    client,
    configure,
    containers,
    content,
    docker,
    docker_only,
    each_harm,
    furnish,
    goes_on_after,
    identities,
    let_go,
    stream_outlives,
    word,
)
from tests.support.log_reading import logs
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage
from tests.support.watching import eventually

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


@pytest.fixture
def shop(image: str, network: Network, backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Return a stack of two Services on a Docker network, not deployed yet."""
    with stage() as play:
        furnish(play, image, backend, network)
        yield play


def test_services_are_served_at_published_ports_and_a_second_up_changes_nothing(shop: Stage, network: Network) -> None:
    """Low ports, TCP and UDP; the same after a refresh; and gone after destroy."""
    shop.up()
    at = shop.addresses()
    assert ask(at["n/web"], 80) == "web: hello"
    assert ask(at["n/dns"], 53) == "dns: hello"
    assert ask(at["n/dns"], 53, "UDP") == "dns: hello"
    observed = containers(shop)["dns"]
    place = [{"HostIp": at["n/dns"], "HostPort": "53"}]
    assert observed["NetworkSettings"]["Ports"] == {"53/tcp": place, "53/udp": place}
    assert list(observed["NetworkSettings"]["Networks"]) == [network.name]
    before = identities(shop)
    content(shop)
    assert shop.run("refresh", "--yes", "--expect-no-changes").code == 0
    content(shop)
    assert identities(shop) == before
    assert {row["state"] for row in shop.status().values()} == {"serving"}
    assert shop.run("destroy", "--yes").code == 0
    assert containers(shop) == {}
    assert list((shop.state_home / "proxies").glob("*")) == []


def test_ports_come_and_go_with_another_container_at_the_same_address(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """The old container ends first, the address stays, the neighbour isn't touched, and then there is nothing to do."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    web, extra = backend("web", network.gateway), backend("extra", network.gateway)
    shop.write("web.yaml", service("web", port(80, web.port), port(81, extra.port)))
    shop.up()
    assert (ask(at["n/web"], 80), ask(at["n/web"], 81)) == ("web: hello", "extra: hello")
    content(shop)
    shop.write("web.yaml", service("web", port(81, extra.port)))
    shop.up()
    assert ask(at["n/web"], 81) == "extra: hello"
    assert shop.addresses() == at
    assert identities(shop)["dns"] == before["dns"]
    content(shop)


def test_a_stream_goes_on_until_it_ends_while_its_container_is_replaced(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """Another port takes another container; the old one first listens no longer, then waits for open connections."""
    shop.up()
    web = backend("web", network.gateway)
    shop.write("web.yaml", service("web", port(80, web.port), port(81, web.port)))
    done = stream_outlives(shop.addresses()["n/web"], 80, lambda: shop.spawn("up", "--yes"))
    assert done.code == 0, done.out + done.err
    assert ask(shop.addresses()["n/web"], 81) == "web: hello"


def test_backends_change_and_vanish_without_another_container(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """A stream goes on through a change; without backends clients are let go at once; they come back."""
    shop.up()
    at, before, other = shop.addresses(), identities(shop), backend("other", network.gateway)
    with socket.create_connection((at["n/web"], 80)) as stream, stream.makefile("rb") as answers:
        stream.sendall(b"one\n")
        assert answers.readline() == b"web: one\n"
        shop.write("web.yaml", service("web", port(80, other.port)))
        shop.up()
        assert ask(at["n/web"], 80) == "other: hello"
        stream.sendall(b"two\n")
        assert answers.readline() == b"web: two\n"
    (shop.manifests / "nodes.yaml").unlink()
    shop.up()
    assert shop.status()["n/web"]["reason"] == "NoBackends"
    assert let_go(at["n/web"], 80)
    shop.write("nodes.yaml", node(address=network.gateway))
    shop.up()
    assert ask(at["n/web"], 80) == "other: hello"
    assert (shop.addresses(), identities(shop)) == (at, before)


@each_harm
def test_a_harmed_container_is_repaired_by_one_up_at_the_same_address(shop: Stage, harm: Harm) -> None:
    """Of one that ended, the engine publishes the ports again."""
    shop.up()
    assert goes_on_after(shop, harm, shop.up) is harm.goes_on
    content(shop)


@docker_only
def test_a_port_that_docker_serves_no_longer_is_reported_and_repaired(shop: Stage) -> None:
    """Docker's own proxy died: the container runs, Envoy listens, and yet nothing is served. It is started again."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    os.kill(docker_proxy(at["n/web"]), signal.SIGKILL)
    (reported,) = shop.status()["n/web"]["ports"]
    assert reported["reason"] == "NotBound"
    assert "nothing on this host publishes it any more" in reported["message"]
    shop.up()
    assert identities(shop) == before
    assert ask(at["n/web"], 80) == "web: hello"
    content(shop)


def test_the_address_of_another_container_is_left_to_it_on_the_network(
    shop: Stage, network: Network, image: str
) -> None:
    """The engine chooses one, which stays when the other container is gone: nothing is replaced for that."""
    configure(shop, pools=[{"name": "high", "addresses": [f"{shop.at(240)}/29"]}])
    shop.up()
    last = shop.addresses()["n/web"].rpartition(".")[2]
    wanted = f"{network.gateway.rpartition('.')[0]}.{last}"
    assert inner_address(shop, network) == wanted
    assert shop.run("destroy", "--yes").code == 0
    endpoint = {network.name: {"IPAMConfig": {"IPv4Address": wanted}}}
    config = {"Image": image, "Cmd": ["--config-yaml", "{}"], "HostConfig": {"NetworkMode": network.name}}
    other = client().create("", {**config, "NetworkingConfig": {"EndpointsConfig": endpoint}})
    try:
        client().start(other)
        shop.up()
        assert shop.addresses()["n/web"].rpartition(".")[2] == last
        assert ask(shop.addresses()["n/web"], 80) == "web: hello"
        assert inner_address(shop, network) != wanted
        before = identities(shop)
    finally:
        client().remove(other, volumes=True)
    content(shop)
    assert identities(shop) == before


def inner_address(shop: Stage, network: Network) -> str:
    """Return the address of `web` on the network."""
    return str(containers(shop)["web"]["NetworkSettings"]["Networks"][network.name]["IPAddress"])


def docker_proxy(address: str) -> int:
    """Find Docker's own proxy of an address."""
    done = subprocess.run(
        ["pgrep", "-f", f"docker-proxy.*-host-ip {address} "], capture_output=True, text=True, check=True
    )
    (pid,) = done.stdout.split()
    return int(pid)


def test_a_running_proxy_has_no_right_but_to_bind_low_ports(shop: Stage) -> None:
    """Effective capabilities, user, mounts and root file system of the process itself, as on the host's network."""
    shop.up()
    observed = containers(shop)["web"]
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{observed['State']['Pid']}/status").read_text().splitlines()
    )
    assert int(status["CapEff"].strip(), 16) == 1 << 10
    assert status["NoNewPrivs"].strip() == "1"
    host = observed["HostConfig"]
    assert (host["Privileged"], host["ReadonlyRootfs"], host["RestartPolicy"]["Name"]) == (
        False,
        True,
        "unless-stopped",
    )
    (mount,) = observed["Mounts"]
    directory = Path(mount["Source"])
    assert (directory / "admin.sock").stat().st_mode & 0o777 == 0o660
    assert directory.parent.stat().st_mode & 0o777 == 0o700
    namespace = Path(f"/proc/{observed['State']['Pid']}/ns/net").readlink()
    assert namespace != Path("/proc/self/ns/net").readlink()


def test_a_network_that_is_missing_is_reported_with_the_remedy(shop: Stage) -> None:
    """By name, before anything begins."""
    configure(shop, network={"publish": "llb-nowhere"})
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert f"{client().engine.name} has no network llb-nowhere" in done.err
    assert f"{word()} network create" in done.err
    assert "Traceback" not in done.err


def test_a_port_of_another_owner_is_reported_and_the_others_are_served(shop: Stage) -> None:
    """A process of the host has the address and port: Docker isn't asked for it, everything else is published."""
    shop.up()
    at = shop.addresses()
    docker("rm", "-f", identities(shop)["dns"])
    with socket.create_server((at["n/dns"], 53)):
        shop.up()
        row = shop.status()["n/dns"]
        assert [(port["protocol"], port["reason"]) for port in row["ports"]] == [("TCP", "PortInUse"), ("UDP", "")]
        assert ask(at["n/dns"], 53, "UDP") == "dns: hello"
    shop.up()
    assert ask(at["n/dns"], 53) == "dns: hello"
    assert shop.addresses() == at


def test_other_networks_of_a_deployed_stack_take_another_container(shop: Stage) -> None:
    """From published ports to the host's network and back: the same addresses."""
    shop.up()
    at = shop.addresses()
    configure(shop, network=None)
    shop.up()
    assert ask(at["n/web"], 80) == "web: hello"
    assert {container["HostConfig"]["NetworkMode"] for container in containers(shop).values()} == {"host"}
    assert shop.addresses() == at
    content(shop)


def test_an_address_that_this_host_does_not_have_is_reported(shop: Stage) -> None:
    """Before Docker is asked to publish anything there, with the remedy."""
    configure(shop, pools=[{"name": "away", "addresses": ["198.51.100.0/28"]}])
    shop.up()
    rows = shop.status()
    assert {row["reason"] for row in rows.values()} == {"NotOnHost"}
    assert "host setup --yes" in rows["n/web"]["message"]
    assert containers(shop) == {}


def test_a_log_of_a_container_is_read_beside_open_connections(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """Its socket is this user's, in the directory that both have; neither needs another container."""
    web = backend("web", network.gateway)
    shop.write("web.yaml", service("web", port(80, web.port)))
    configure(shop)
    shop.up()
    address, before = shop.addresses()["n/web"], identities(shop)
    with socket.create_connection((address, 80), 10) as retained, retained.makefile("rb") as answers:
        configure(shop, accessLogs=True)
        shop.up()
        with logs(shop, "--json") as running:
            eventually(lambda: ask(address, 80) == "web: hello" and running.lines())
            line = running.lines()[-1]
            assert (line["name"], line["listener"], line["bytesIn"]) == ("web", f"{address}:80/TCP", len("hello\n"))
        retained.sendall(b"hello\n")
        assert answers.readline() == b"web: hello\n"
    assert identities(shop) == before


def test_traffic_is_counted_and_a_fault_is_met_at_published_ports(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """In the same container: neither needs another one."""
    web = backend("web", network.gateway)
    shop.write("web.yaml", service("web", port(80, web.port)))
    configure(shop, trafficDetails=True)
    shop.up()
    address, before = shop.addresses()["n/web"], identities(shop)

    def reported() -> int:
        (row,) = shop.run("top", "--once", "--json", "n/web").json["services"]
        return int(row["bytesIn"])

    assert reported() == 0
    assert [ask(address, 80) for _ in range(3)] == ["web: hello"] * 3
    assert reported() == 3 * len("hello\n")
    fault = {"local-lb.dev/fault": "refuse=100%,until=2999-01-01T00:00:00Z"}
    shop.write("web.yaml", service("web", port(80, web.port), annotations=fault))
    shop.up()
    assert let_go(address, 80)
    shop.write("web.yaml", service("web", port(80, web.port)))
    shop.up()
    assert ask(address, 80) == "web: hello"
    assert identities(shop) == before
