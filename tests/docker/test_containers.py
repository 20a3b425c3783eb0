"""Proxies in containers of a real Docker, from `up` to `destroy`, with everything that may happen to them between."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.provider.stopping import drain_container
from tests.docker.support import configure, containers, content, docker, identities, stream_outlives
from tests.e2e.support import Backend, Stage, ask, port, refused, service

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


def test_services_are_served_from_containers_and_a_second_up_changes_nothing(shop: Stage) -> None:
    """Low ports, TCP and UDP; the same after a refresh; and gone after destroy."""
    shop.up()
    at = shop.addresses()
    assert ask(at["n/web"], 80) == "web: hello"
    assert ask(at["n/dns"], 5353, "UDP") == "dns: hello"
    before = identities(shop)
    content(shop)
    assert shop.run("refresh", "--yes", "--expect-no-changes").code == 0
    content(shop)
    assert identities(shop) == before
    assert shop.run("destroy", "--yes").code == 0
    assert containers(shop) == {}
    assert refused(at["n/web"], 80)
    assert list((shop.state_home / "proxies").glob("*")) == []


def test_a_port_more_needs_no_other_container_and_cuts_no_stream(shop: Stage, backend: Callable[..., Backend]) -> None:
    """Envoy takes it from its files; a stream on another port goes on."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    web, extra = backend("web"), backend("extra")
    with socket.create_connection((at["n/web"], 80)) as stream, stream.makefile("rb") as answers:
        stream.sendall(b"one\n")
        assert answers.readline() == b"web: one\n"
        shop.write("web.yaml", service("web", port(80, web.port), port(81, extra.port)))
        shop.up()
        stream.sendall(b"two\n")
        assert answers.readline() == b"web: two\n"
    assert ask(at["n/web"], 81) == "extra: hello"
    assert (shop.addresses(), identities(shop)) == (at, before)


@pytest.mark.parametrize("harm", [("kill",), ("stop", "-t", "1"), ("pause",), ("rm", "-f")], ids=lambda harm: harm[0])
def test_a_harmed_container_is_mended_by_one_up_at_the_same_address(shop: Stage, harm: tuple[str, ...]) -> None:
    """Killed, stopped, paused, removed: seen by the refresh of `up`; the neighbour isn't touched."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    docker(*harm, before["web"])
    shop.up()
    assert shop.addresses() == at
    assert ask(at["n/web"], 80) == "web: hello"
    after = identities(shop)
    assert after["dns"] == before["dns"]
    assert (after["web"] == before["web"]) is (harm[0] != "rm")
    content(shop)


def test_an_envoy_that_dies_is_started_again_by_docker(shop: Stage) -> None:
    """The restart policy does it, without us."""
    shop.up()
    at = shop.addresses()
    pid = containers(shop)["web"]["State"]["Pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    deadline = time.monotonic() + 10
    while containers(shop)["web"]["State"]["Pid"] in {0, pid}:
        assert time.monotonic() < deadline, "Docker didn't start it again"
        time.sleep(0.05)
    shop.up()
    assert ask(at["n/web"], 80) == "web: hello"


def test_a_running_proxy_has_no_right_but_to_bind_low_ports(shop: Stage) -> None:
    """Effective capabilities, user, mounts, root file system, log, of the process itself; the socket is closed."""
    shop.up()
    seen = containers(shop)["web"]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{seen['State']['Pid']}/status").read_text().splitlines())
    assert int(status["CapEff"].strip(), 16) == 1 << 10
    assert int(status["CapBnd"].strip(), 16) == 1 << 10
    assert status["NoNewPrivs"].strip() == "1"
    host = seen["HostConfig"]
    assert (host["Privileged"], host["ReadonlyRootfs"], host["NetworkMode"]) == (False, True, "host")
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "2", "max-size": "1m"}}
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["Memory"] == host["MemorySwap"] == 512 << 20
    (mount,) = seen["Mounts"]
    directory = Path(mount["Source"])
    assert directory.parent == shop.state_home / "proxies"
    assert directory.stat().st_mode & 0o777 == 0o770
    assert directory.parent.stat().st_mode & 0o777 == 0o700
    assert (directory / "admin.sock").stat().st_mode & 0o777 == 0o660
    assert (directory / "lds.json").stat().st_mode & 0o777 == 0o640


def test_what_a_lost_state_left_is_found_and_adopted(shop: Stage) -> None:
    """`gc` lists it; `up` takes it over as it is: same container, same address."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    (shop.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()
    listed = {(row["sort"], row["ours"]) for row in shop.run("gc", "--json").json}
    assert ("container", True) in listed
    shop.up()
    assert (shop.addresses(), identities(shop)) == (at, before)
    content(shop)
    (shop.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()
    assert shop.run("gc", "--yes").code == 0
    assert containers(shop) == {}


def test_a_container_of_somebody_else_under_our_name_is_left_alone(shop: Stage, image: str) -> None:
    """One sentence names it; removed, the next `up` goes on."""
    shop.up()
    name = containers(shop)["web"]["Name"].lstrip("/")
    docker("rm", "-f", name)
    docker("create", "--name", name, image, "--version")
    try:
        done = shop.run("up", "--yes")
        assert done.code == 1
        assert f"the container {name} exists already" in done.err
        assert "Traceback" not in done.err
    finally:
        docker("rm", "-f", name)
    shop.up()
    content(shop)


def test_an_image_that_is_missing_is_told_with_the_remedy(shop: Stage) -> None:
    """Docker's own words, and how to make one; no container is left."""
    configure(shop, image="127.0.0.1:1/nowhere/envoy:1")
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "127.0.0.1:1/nowhere/envoy:1" in done.err
    assert "locallb image" in done.err
    assert containers(shop) == {}


def test_without_docker_every_command_says_so_and_nothing_is_lost(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence; the state stays; when Docker is back there is nothing to do."""
    shop.up()
    before = shop.files()
    with monkeypatch.context() as patched:
        patched.setenv("DOCKER_HOST", f"unix://{shop.root}/no.sock")
        for words in (("up", "--yes"), ("preview",), ("refresh", "--yes"), ("destroy", "--yes")):
            done = shop.run(*words)
            assert done.code == 1
            assert done.err.count("Docker doesn't answer") == 1, done.err
    assert shop.files() == before
    content(shop)


def test_the_runtime_of_a_deployed_stack_is_not_changed_in_place(shop: Stage) -> None:
    """Two Envoys would want the same addresses: destroy comes first."""
    shop.up()
    configure(shop, runtime="process", image=None)
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "destroy the stack first" in done.err
    assert set(identities(shop)) == {"web", "dns"}


def test_a_stream_goes_on_until_it_ends_while_its_container_is_taken_away(shop: Stage) -> None:
    """`destroy` first has Envoy listen no longer, then waits for open connections, then ends it."""
    shop.up()
    done = stream_outlives(shop.addresses()["n/web"], 80, lambda: shop.spawn("destroy", "--yes"))
    assert done.code == 0, done.out + done.err
    assert containers(shop) == {}


def test_a_container_that_an_interrupted_run_told_to_stop_is_mended(shop: Stage) -> None:
    """It runs and answers, but listens no longer: the same container is started again."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    drain_container(containers(shop)["web"])
    assert refused(at["n/web"], 80)
    shop.up()
    assert ask(at["n/web"], 80) == "web: hello"
    assert (shop.addresses(), identities(shop)) == (at, before)
    content(shop)
