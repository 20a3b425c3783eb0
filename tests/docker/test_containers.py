"""Proxies in containers of a real Docker, from `up` to `destroy`, with everything that may happen to them between."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.envoy.admin import EnvoyAdmin
from locallb.model.identities import KEY_PREFIX
from locallb.provider import docker_spec, reachable
from locallb.provider.docker_container import DockerLifecycle
from locallb.resources.codec import recall
from locallb.resources.properties import ReachableState
from locallb.resources.resource_type import ProviderError
from locallb.runtimes.docker import facts
from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.facts import drain_container
from locallb.runtimes.planners import PROXY_LABEL
from tests.support.backends import Backend, ask, refused
from tests.support.containers import (
    Harm,
    client,
    configure,
    containers,
    content,
    docker,
    docker_only,
    each_harm,
    goes_on_after,
    identities,
    stream_outlives,
    word,
)
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.waiting import becomes

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


def test_services_are_served_from_containers_and_a_second_up_changes_nothing(shop: Stage) -> None:
    """Low ports, TCP and UDP; the same after a refresh; and gone after destroy."""
    shop.up()
    at = shop.addresses()
    assert ask(at["n/web"], 80) == "web: hello"
    assert ask(at["n/dns"], 53, "UDP") == "dns: hello"
    before = identities(shop)
    assert f"container {containers(shop)['web']['Name'].lstrip('/')}" in shop.run("status", "n/web").out
    content(shop)
    assert shop.run("refresh", "--yes", "--expect-no-changes").code == 0
    content(shop)
    assert identities(shop) == before
    assert shop.run("destroy", "--yes").code == 0
    assert containers(shop) == {}
    assert refused(at["n/web"], 80)
    assert list((shop.state_home / "proxies").glob("*")) == []


def test_a_stack_moves_to_another_state_home_by_command(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containers end, as processes would; the next `up` makes them again there, at the same addresses."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(shop.root / "other"))
        done = shop.run("state", "adopt", "--yes")
        assert done.code == 0, done.err
        assert "2 proxies ended" in done.out
        assert containers(shop) == {}
        assert list((shop.state_home / "proxies").glob("*")) == []
        shop.up()
        assert (shop.addresses(), ask(at["n/web"], 80)) == (at, "web: hello")
        assert not set(identities(shop).values()) & set(before.values())
        assert shop.run("destroy", "--yes").code == 0
    assert containers(shop) == {}


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


def test_stalled_uploads_wait_before_the_kernel_ends_a_small_container(shop: Stage) -> None:
    """What is open goes on; what comes later is accepted once some of it has ended."""
    with ExitStack() as running, _deaf() as (backend, accepted):
        shop.write("web.yaml", service("web", port(80, backend)))
        configure(shop, limits={"memory": 64})
        shop.up()
        place, before = (shop.addresses()["n/web"], 80), containers(shop)["web"]["State"]
        uploads = [running.enter_context(socket.socket()) for _ in range(160)]
        for upload in uploads:
            _send_until_it_stalls(upload, place)
        served, after = _carrying(accepted), containers(shop)["web"]["State"]
        assert (after["Pid"], after["OOMKilled"]) == (before["Pid"], False)
        assert served < len(uploads)
        before_closing = len(accepted)
        for upload in uploads[: served // 2]:
            upload.close()
        becomes(lambda: len(accepted) > before_closing, "those that waited are accepted")


def _carrying(accepted: list[socket.socket]) -> int:
    """Count the connections with bytes that wait: a busy proxy gives attempts up, which carry none."""
    count = 0
    for connection in accepted:
        with suppress(OSError):
            count += bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return count


@contextmanager
def _deaf() -> Iterator[tuple[int, list[socket.socket]]]:
    """Accept connections at a port, and never read from them."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], accepted
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in accepted:
                connection.close()


def _send_until_it_stalls(upload: socket.socket, place: tuple[str, int]) -> None:
    upload.settimeout(0.05)
    with suppress(TimeoutError):
        upload.connect(place)
        while True:
            upload.send(b"x" * 65_536)


@each_harm
def test_a_harmed_container_is_repaired_by_one_up_at_the_same_address(shop: Stage, harm: Harm) -> None:
    """Killed, stopped, paused, removed: seen by the refresh of `up`; the neighbour isn't touched."""
    shop.up()
    assert goes_on_after(shop, harm, shop.up) is harm.goes_on
    content(shop)


def test_a_paused_envoy_is_resumed_before_anything_is_asked_of_it(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket takes the question and answers nothing: that the container is paused is known from the engine."""
    shop.up()
    identity, ask_envoy, paused = identities(shop)["web"], EnvoyAdmin._ask, []

    def asking(admin: EnvoyAdmin, *terms: Any, **more: Any) -> str:  # noqa: ANN401 - passed on
        observed = client().inspect(identity)
        if observed and observed["State"]["Paused"] and identity_of(admin.directory) == identity:
            paused.append(terms)
        return ask_envoy(admin, *terms, **more)

    def identity_of(directory: Path) -> str:
        (container,) = client().labelled(f"{PROXY_LABEL}={directory.name}")
        return str(container["Id"])

    docker("pause", identity)
    monkeypatch.setattr(EnvoyAdmin, "_ask", asking)
    shop.up()
    assert paused == []
    assert ask(shop.addresses()["n/web"], 80) == "web: hello"


def test_the_proof_tells_how_a_paused_container_goes_on(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """For runs of the official CLI, whose plugin takes it for one that runs."""
    shop.up()
    identity = identities(shop)["web"]
    state = json.loads((shop.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text())
    outputs = [
        resource["outputs"]
        for resource in state["checkpoint"]["latest"]["resources"]
        if resource["type"].endswith(":Reachable")
    ]
    (proof,) = (recall(ReachableState, output) for output in outputs if output["process"] == f"{word()}:{identity}")
    docker("pause", identity)
    monkeypatch.setattr(facts, "START_SECONDS", 0.0)
    with pytest.raises(ProviderError, match=f"container {identity[:12]} is paused: `{word()} unpause {identity[:12]}`"):
        reachable.Reachable(None).create(proof)


def test_an_envoy_that_dies_is_started_again_by_docker(shop: Stage) -> None:
    """The restart policy does it, without us."""
    shop.up()
    at = shop.addresses()
    pid = containers(shop)["web"]["State"]["Pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    deadline = time.monotonic() + 120
    while containers(shop)["web"]["State"]["Pid"] in {0, pid}:
        assert time.monotonic() < deadline, "Docker didn't start it again"
        time.sleep(0.05)
    shop.up()
    assert ask(at["n/web"], 80) == "web: hello"


def test_a_running_proxy_has_no_right_but_to_bind_low_ports(shop: Stage) -> None:
    """Effective capabilities, user, mounts, root file system, log, of the process itself; the socket is closed."""
    shop.up()
    observed = containers(shop)["web"]
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{observed['State']['Pid']}/status").read_text().splitlines()
    )
    assert int(status["CapEff"].strip(), 16) == 1 << 10
    assert int(status["CapBnd"].strip(), 16) == 1 << 10
    assert status["NoNewPrivs"].strip() == "1"
    host = observed["HostConfig"]
    assert (host["Privileged"], host["ReadonlyRootfs"], host["NetworkMode"]) == (False, True, "host")
    if word() == "docker":  # Podman doesn't tell its own
        assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "2", "max-size": "1m"}}
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    if word() == "docker":  # Podman has its own default
        assert host["PidsLimit"] == 2_048
    assert host["Memory"] == host["MemorySwap"] == 512 << 20
    (mount,) = observed["Mounts"]
    directory = Path(mount["Source"])
    assert directory.parent == shop.state_home / "proxies"
    assert directory.stat().st_mode & 0o777 == 0o770
    assert directory.parent.stat().st_mode & 0o777 == 0o700
    assert (directory / "admin.sock").stat().st_mode & 0o777 == 0o660
    assert (directory / "lds.json").stat().st_mode & 0o777 == 0o640


def test_containers_of_a_lost_state_are_listed_by_gc_and_adopted_by_up(shop: Stage) -> None:
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


def test_a_container_of_another_owner_under_our_name_is_left_alone(shop: Stage, image: str) -> None:
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


def test_an_image_that_is_missing_is_reported_with_the_remedy(shop: Stage) -> None:
    """Docker's own words, and how to make one; no container is left."""
    configure(shop, image="127.0.0.1:1/nowhere/envoy:1")
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "127.0.0.1:1/nowhere/envoy:1" in done.err
    assert f"`locallb -C {shop.root} image" in done.err
    assert containers(shop) == {}


def test_what_serves_goes_on_where_its_replacement_cannot_be_made(shop: Stage) -> None:
    """An image that can't be fetched: the containers that serve are removed only once there is another one."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    configure(shop, image="127.0.0.1:1/nowhere/envoy:1")
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "can't be fetched" in done.err
    assert ask(at["n/web"], 80) == "web: hello"
    assert identities(shop) == before


def test_without_its_engine_every_command_says_so_and_nothing_is_lost(
    shop: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence; the state stays; when it is back there is nothing to do."""
    shop.up()
    before = shop.files()
    with monkeypatch.context() as patched:
        patched.setenv(client().engine.variable, f"unix://{shop.root}/no.sock")
        for terms in (("up", "--yes"), ("preview",), ("refresh", "--yes"), ("destroy", "--yes")):
            done = shop.run(*terms)
            assert done.code == 1
            assert done.err.count(f"{client().engine.name} doesn't answer") == 1, done.err
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


def test_a_container_that_an_interrupted_run_was_stopping_is_repaired(shop: Stage) -> None:
    """It runs and answers, but listens no longer: the same container is started again."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    drain_container(containers(shop)["web"])
    becomes(lambda: refused(at["n/web"], 80), "Envoy, which answers first, has closed its listener")
    shop.up()
    assert ask(at["n/web"], 80) == "web: hello"
    assert (shop.addresses(), identities(shop)) == (at, before)
    content(shop)


def test_limits_change_in_place_or_with_another_container_and_a_preview_says_which(shop: Stage) -> None:
    """Docker's memory in place; CPUs, as the official plugin decides, with another container at the same address."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    configure(shop, limits={"memory": 256})
    document = shop.run("preview", "--format", "json").json
    (web,) = [service for service in document["services"] if service["name"] == "web"]
    (reported,) = [difference for difference in web["differences"] if difference["what"] == "container"]
    assert (reported["before"], reported["after"]) == (["memory 512 MiB"], ["memory 256 MiB"])
    shop.up()
    assert (identities(shop) == before) is (word() == "docker")
    assert {container["HostConfig"]["Memory"] for container in containers(shop).values()} == {256 << 20}
    configure(shop, limits={"memory": 256, "cpus": 0.5})
    shop.up()
    assert {container["HostConfig"]["NanoCpus"] for container in containers(shop).values()} == {500_000_000}
    assert identities(shop)["web"] != before["web"]
    assert (shop.addresses(), ask(at["n/web"], 80)) == (at, "web: hello")
    content(shop)


def test_an_image_can_be_named_by_its_digest(shop: Stage, image: str) -> None:
    """The id of an image is one, too: it settles, and a preview tells it."""
    shop.up()
    digest = docker("image", "inspect", "--format", "{{.Id}}", image)
    configure(shop, image={"name": digest, "pullPolicy": "Never"})
    assert f"image {digest}" in shop.run("preview", "--format", "markdown").out
    shop.up()
    assert {container["Image"] for container in containers(shop).values()} == {digest}
    content(shop)


def test_an_image_that_must_always_be_fetched_is_not_taken_from_here(shop: Stage, image: str) -> None:
    """PullPolicy Always asks the registry for every new container, IfNotPresent only for what is missing."""
    here = "127.0.0.1:1/here/envoy:1"
    docker("tag", image, here)
    try:
        configure(shop, image={"name": here, "pullPolicy": "Always"})
        done = shop.run("up", "--yes")
        assert done.code == 1
        assert f"the image {here} for the container" in done.err
        assert "can't be fetched" in done.err
        configure(shop, image={"name": here})
        shop.up()
        assert ask(shop.addresses()["n/web"], 80) == "web: hello"
        assert shop.run("destroy", "--yes").code == 0
    finally:
        docker("rmi", here)


def test_an_image_that_must_not_be_fetched_is_reported_before_anything_begins(shop: Stage) -> None:
    """PullPolicy Never: no registry is asked, no address claimed."""
    configure(shop, image={"name": "127.0.0.1:1/nowhere/envoy:1", "pullPolicy": "Never"})
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "127.0.0.1:1/nowhere/envoy:1 isn't there, and pullPolicy Never forbids to fetch it" in done.err
    assert list((shop.state_home / "proxies").glob("*")) == []


def test_a_mirror_stands_for_the_registry(shop: Stage) -> None:
    """Of the official image, too."""
    configure(shop, image={"mirror": "127.0.0.1:1/mirror"})
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert "127.0.0.1:1/mirror/envoyproxy/envoy:distroless-v" in done.err


@pytest.fixture
def strange(image: str) -> Iterator[Callable[[str], str]]:
    """Return a maker of images that start something else than a proxy."""
    made: list[str] = []

    def make(entry: str) -> str:
        made.append(f"local-lb/strange:{secrets.token_hex(4)}")
        text = f"FROM {image}\nENTRYPOINT {entry}\n"
        subprocess.run(
            ["docker", "-H", client().host, "build", "-q", "-t", made[-1], "-"],
            input=text,
            text=True,
            check=True,
            timeout=60,
        )
        return made[-1]

    yield make
    for strange_image in made:
        docker("rmi", "-f", strange_image)


@pytest.mark.parametrize(
    ("entry", "terms"),
    [
        ('["/bin/nothing"]', "no such file or directory"),
        ('["/usr/local/bin/envoy", "--version"]', "{engine} logs"),
    ],
    ids=["no-such-program", "ends-at-once"],
)
def test_an_image_of_another_kind_is_reported_in_dockers_words(
    shop: Stage, strange: Callable[[str], str], entry: str, terms: str
) -> None:
    """One sentence; with a right image the next `up` repairs it."""
    (shop.manifests / "dns.yaml").unlink()
    good = yaml.safe_load((shop.root / "stacks/Pulumi.dev.yaml").read_text())["config"]["local-lb:image"]
    configure(shop, image=strange(entry))
    done = shop.run("up", "--yes")
    assert done.code == 1
    assert terms.format(engine=word()) in done.err
    assert "Traceback" not in done.err
    configure(shop, image=good)
    shop.up()
    assert ask(shop.addresses()["n/web"], 80) == "web: hello"


@docker_only
def test_a_port_that_was_taken_meanwhile_is_reported_in_dockers_words(image: str) -> None:
    """Between the plan and the start; no container is left."""
    address, name = "127.253.1.2", f"llb-test-{secrets.token_hex(4)}"
    ports = [{"internal": 80, "external": 80, "ip": address, "protocol": "tcp"}]
    owner = [{"label": f"{KEY_PREFIX}{key}", "value": "x"} for key in OWNER]
    wanted = docker_spec.checked({"name": name, "image": image, "ports": ports, "labels": owner})
    with socket.create_server((address, 80)), pytest.raises(ContainersError, match="address already in use"):
        DockerLifecycle(Containers(), None).create(wanted)
    assert docker("ps", "-aq", "--filter", f"name={name}") == ""


OWNER = ("project", "stack", "root", "cluster", "namespace", "name", "uid")


def test_a_stream_outlives_changes_of_nodes_backends_and_ports(shop: Stage, backend: Callable[..., Backend]) -> None:
    """On the host's network: one connection through all of them, in one container."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    other = backend("other", "127.0.0.2")
    with socket.create_connection((at["n/web"], 80)) as stream, stream.makefile("rb") as answers:

        def goes_on() -> bool:
            stream.sendall(b"more\n")
            return answers.readline() == b"web: more\n"

        assert goes_on()
        shop.write("web.yaml", service("web", port(80, other.port)))
        shop.up()
        assert goes_on()
        shop.write("nodes.yaml", node("node-b", "127.0.0.2"))
        shop.up()
        assert ask(at["n/web"], 80) == "other: hello"
        assert goes_on()
        shop.write("web.yaml", service("web", port(80, other.port), port(81, other.port)))
        shop.up()
        assert goes_on()
        shop.write("web.yaml", service("web", port(81, other.port)))
        shop.up()
        assert refused(at["n/web"], 80)
        assert goes_on()
    assert (shop.addresses(), identities(shop)) == (at, before)
