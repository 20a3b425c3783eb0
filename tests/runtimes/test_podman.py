"""Podman's containers without a Podman: kills at any moment, others and rubbish at its socket, and where kind looks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.model.identities import (
    ClusterName,
    ContainerId,
    Digest,
    Home,
    ImageName,
    ObjectKey,
    Owner,
    ProxyId,
    RunIdentity,
)
from locallb.model.routes import PodRoute
from locallb.resources.properties import PodmanContainerInputs, PodmanContainerState
from locallb.resources.resource_type import ProviderError, grown
from locallb.runtimes.docker.daemon import DOCKER, ContainerEngine, ContainersError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.facts import read_facts
from locallb.runtimes.docker.route_helper import ContainerRoutes, RouteHelperError
from locallb.runtimes.planners import body
from locallb.runtimes.podman import PODMAN, PodmanContainers, PodmanLifecycle
from locallb.runtimes.runtime import UnfitRuntimeError
from locallb.sources import kind as provider

OWNER = Owner(Home("shop", "dev", "/srv/shop"), ObjectKey(ClusterName("c"), "n", "web"))
WANTED = PodmanContainerInputs(
    proxy=ProxyId("0" * 12),
    owner=OWNER,
    bootstrap=Digest("b" * 64),
    name="local-lb-000000000000",
    image=ImageName("local-lb/envoy:1"),
    pull="IfNotPresent",
    command=("--config-path", "x"),
    user="0:0",
    memory=512,
    cpus="",
    network="kind",
    addresses=("10.1.0.5", "fd00::5"),
    ports=("127.77.0.5:80/TCP 80", "[fd00:ff::5]:80/TCP 10000"),
    labels={},
)


class Killed(BaseException):
    """The process ended after an effect."""


class Engine:
    """Containers in memory; the process is killed after so many effects."""

    engine = PODMAN

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.made = 0
        self.remaining = 1_000

    def _effect(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise Killed

    def inspect(self, name: str) -> dict[str, Any] | None:
        return next((each for each in self.containers.values() if name in {each["Id"], each["Name"]}), None)

    def has_image(self, image: str) -> bool:
        return bool(image)

    def create(self, name: str, config: Mapping[str, Any]) -> str:
        assert self.inspect(name) is None
        self.made += 1
        identity = f"{self.made:064x}"
        state = {"Running": False, "Paused": False, "Pid": 0, "StartedAt": ""}
        networks = {key: {"NetworkID": "0" * 64} for key in config["NetworkingConfig"]["EndpointsConfig"]}
        container = {"Id": identity, "Name": name, "Config": config, "State": state}
        self.containers[identity] = {**container, "NetworkSettings": {"Networks": networks, "Ports": {}}}
        self._effect()
        return identity

    def start(self, identity: str) -> None:
        self.containers[identity]["State"] |= {"Running": True}
        self._effect()

    def stop(self, identity: str, seconds: int) -> None:
        assert seconds
        if identity in self.containers:
            self.containers[identity]["State"] |= {"Running": False, "Paused": False}
        self._effect()

    def unpause(self, identity: str) -> None:
        self.containers[identity]["State"] |= {"Paused": False}
        self._effect()

    def remove(self, identity: str, *, volumes: bool) -> None:
        assert volumes
        self.containers.pop(identity, None)
        self._effect()


def until_killed(engine: Engine, effects: int, what: Callable[[PodmanLifecycle], object]) -> None:
    """Do something, and be killed after so many effects, should it have more."""
    engine.remaining = effects
    with suppress(Killed):
        what(PodmanLifecycle(cast("Containers", engine)))
    engine.remaining = 1_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locallb.envoy.admin.comes_to_answer", lambda *_: True)


def state(identity: str) -> PodmanContainerState:
    return grown(PodmanContainerState, WANTED, container=identity)


@given(
    st.lists(st.tuples(st.sampled_from(["create", "other", "delete"]), st.integers(0, 4)), max_size=6),
    st.sampled_from(["", "Paused", "Running"]),
)
def test_killed_at_any_moment_the_next_run_has_one_container_or_none(
    interrupted: list[tuple[str, int]], harm: str
) -> None:
    """Whatever was begun, with which spec; the same one goes on where it is what is wanted, whatever was done to it."""
    engine = Engine()
    other = replace(WANTED, memory=256)
    steps: dict[str, Callable[[PodmanLifecycle], object]] = {
        "create": lambda life: life.create(WANTED),
        "other": lambda life: life.create(other),
        "delete": lambda life: life.delete(state("")),
    }
    for step, effects in interrupted:
        until_killed(engine, effects, steps[step])
        assert len(engine.containers) <= 1
    life = PodmanLifecycle(cast("Containers", engine))
    identity = life.create(WANTED)
    assert list(engine.containers) == [identity]
    assert life.runs(state(identity))
    if harm:
        engine.containers[identity]["State"][harm] = harm == "Paused"
        assert not life.runs(state(identity))
    assert life.create(WANTED) == identity
    assert life.runs(state(identity))
    assert not life.runs(replace(state(identity), cpus="1.5"))
    life.delete(state(identity))
    assert not engine.containers


def test_container_of_another_spec_serves_until_the_image_is_there_and_is_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As made by another version of ours, which a refresh takes for gone."""
    engine, drained = Engine(), list[str]()
    monkeypatch.setattr("locallb.runtimes.podman.drain_container", lambda observed: drained.append(observed["Id"]))
    life = PodmanLifecycle(cast("Containers", engine))
    former = life.create(WANTED)
    other = replace(WANTED, image=ImageName("local-lb/envoy:2"))
    with monkeypatch.context() as absent:
        absent.setattr(engine, "has_image", lambda _: False)
        absent.setattr(engine, "pull", mock.Mock(side_effect=ContainersError("no such image")), raising=False)
        with pytest.raises(ProviderError, match="can't be fetched"):
            life.create(other)
    assert life.runs(state(former))
    assert not drained
    identity = life.create(other)
    assert drained == [former]
    assert list(engine.containers) == [identity] != [former]


def test_paused_container_is_resumed_before_it_is_stopped() -> None:
    """Podman leaves it as it is otherwise, and says that it ended; one that isn't paused is ended all the same."""
    containers, client = PodmanContainers(), mock.Mock()
    client.unpause.side_effect = [None, APIError("it isn't paused")]
    with mock.patch.object(containers, "client", return_value=client):
        containers.stop(ContainerId("one"), 5)
        containers.stop(ContainerId("two"), 5)
    both = [(mock.call.unpause(name), mock.call.stop(name, timeout=5)) for name in ("one", "two")]
    assert client.mock_calls == [call for calls in both for call in calls]


def test_a_container_of_another_owner_is_neither_adopted_nor_removed() -> None:
    """Under our name, with another owner in its labels or none."""
    engine = Engine()
    life = PodmanLifecycle(cast("Containers", engine))
    identity = life.create(WANTED)
    stranger = replace(WANTED, owner=replace(OWNER, home=Home("shop", "dev", "/srv/elsewhere")))
    for refused, owned_by in ((stranger, "belongs to c/n/web of shop/dev at /srv/shop"), (WANTED, "somebody else")):
        with pytest.raises(ProviderError, match=owned_by):
            life.create(refused)
        life.delete(grown(PodmanContainerState, stranger, container=identity))
        assert list(engine.containers) == [identity]
        engine.containers[identity]["Config"] = {"Labels": None}


@given(st.sampled_from(["image", "user", "memory", "cpus", "network", "addresses", "ports", "labels", "bootstrap"]))
def test_digest_of_a_podman_container_covers_all_that_it_is_made_of(name: str) -> None:
    """And nothing else: the pull policy makes no other container."""
    changes: dict[str, Any] = {"memory": 1, "cpus": "2", "addresses": (), "ports": (), "labels": {"a": "b"}}
    other = replace(WANTED, **{name: changes.get(name, "x")})
    assert body(other, "/d")["Labels"]["local-lb.dev/spec"] != body(WANTED, "/d")["Labels"]["local-lb.dev/spec"]
    assert body(replace(WANTED, pull="Always"), "/d") == body(WANTED, "/d")
    assert body(WANTED, "/e") != body(WANTED, "/d")


def test_ports_of_either_family_are_published_where_clients_come() -> None:
    """Each at its own address, with the fixed addresses of the container on its network."""
    made = body(WANTED, "/d")
    assert made["HostConfig"]["PortBindings"] == {
        "80/tcp": [{"HostIp": "127.77.0.5", "HostPort": "80"}],
        "10000/tcp": [{"HostIp": "fd00:ff::5", "HostPort": "80"}],
    }
    fixed = {"IPv4Address": "10.1.0.5", "IPv6Address": "fd00::5"}
    assert made["NetworkingConfig"] == {"EndpointsConfig": {"kind": {"IPAMConfig": fixed}}}
    assert body(replace(WANTED, network=""), "/d")["HostConfig"]["NetworkMode"] == "host"


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """Answer everything with this at a socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as client, suppress(OSError):
                        client.recv(9_000)
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (OK + b"Content-Length: 2\r\n\r\nOK", "isn't Podman; correct CONTAINER_HOST"),
        (b"rubbish\r\n\r\n", "Podman doesn't answer at unix://"),
        (b"", "Podman doesn't answer at unix://"),
        (b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "Podman refuses"),
    ],
    ids=["another engine", "rubbish", "nothing", "an error"],
)
def test_unusable_answer_at_the_podman_socket_is_reported_in_a_sentence(
    answer: bytes, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's own daemon has the same API but for a header."""
    path = tmp_path / "p.sock"
    monkeypatch.setenv(PODMAN.variable, f"unix://{path}")
    with (
        answering(path, answer),
        closing(PodmanContainers(5)) as containers,
        pytest.raises(ContainersError, match=reported) as caught,
    ):
        containers.info()
    assert "\n" not in str(caught.value)


def test_an_image_that_fails_while_it_is_fetched_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman answers first that it goes well, and then that it doesn't."""
    text = b'{"status": "pulling"}\n{"error": "no such host"}\n'
    path = tmp_path / "p.sock"
    monkeypatch.setenv(PODMAN.variable, f"unix://{path}")
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(text) + text
    with (
        answering(path, answer),
        closing(PodmanContainers(5)) as containers,
        pytest.raises(ContainersError, match="Podman refuses: no such host"),
    ):
        containers.pull(ImageName("registry.example/envoy:1"))


@pytest.mark.parametrize(
    ("reported", "sockets", "name"),
    [
        ("", {"docker"}, "Docker"),
        ("", {"docker", "podman"}, "Docker"),
        ("", {"podman"}, "Podman"),
        ("", set(), "Docker"),
        ("podman", {"docker"}, "Podman"),
        ("docker", {"podman"}, "Docker"),
    ],
)
def test_clusters_of_kind_are_where_kind_makes_them(
    reported: str, sockets: set[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its variable says; otherwise in Docker, but where only a Podman answers."""
    for variable in ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(provider.PROVIDER, reported)
    monkeypatch.setattr(
        provider, "state", lambda path: "usable" if any(f"{word}.sock" in path for word in sockets) else ""
    )
    assert (provider.engine().name, provider.client().engine.name) == (name, name)


def test_a_docker_that_is_named_elsewhere_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that isn't there yet doesn't make Podman the one."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    monkeypatch.delenv(provider.PROVIDER, raising=False)
    monkeypatch.setattr(provider, "state", lambda path: "usable" if "podman" in path else "")
    assert provider.engine().name == "Docker"


@pytest.mark.parametrize(
    ("run", "reported"), [(RunIdentity("ab12", "docker"), "ab12"), (RunIdentity("ab12", "podman"), "podman:ab12")]
)
def test_states_name_a_container_with_routes_as_they_always_did(run: RunIdentity, reported: str) -> None:
    """Docker's by its id alone, as all versions wrote it; Podman's are told from them."""
    assert run.container == reported


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_routes_in_containers_are_for_published_ports_of_either_engine(engine: str) -> None:
    """On the host's network there is no other table."""
    given = {"sources": [{"manifests": "m"}], "podRoutes": "container", "runtime": engine}
    parse_settings({**given, "network": "publish"})
    with pytest.raises(SettingsError, match="podRoutes: container is for proxies with runtime docker or podman and"):
        parse_settings(given)


@pytest.mark.parametrize(
    ("engine", "options", "routing", "why"),
    [
        (PODMAN, [], "container", ""),
        (PODMAN, ["name=rootless"], "host", ""),
        (PODMAN, ["name=rootless"], "container", "the Podman at unix:///run/e.sock is rootless and makes no routes"),
        (DOCKER, ["name=rootless"], "container", "the Docker at unix:///run/e.sock is rootless and makes no routes"),
    ],
)
def test_a_preview_refuses_routes_in_containers_of_a_rootless_engine(
    engine: ContainerEngine, options: list[str], routing: str, why: str
) -> None:
    """By what it reads of this host, as `up` does before it does anything."""
    given = {"runtime": engine.name.lower(), "network": "publish", "portMapping": "loopback", "podRoutes": routing}
    reported = mock.Mock(engine=engine, host="unix:///run/e.sock")
    reported.labelled.return_value, reported.network.return_value = [], {}
    reported.info.return_value = {"SecurityOptions": options}
    settings = parse_settings({**given, "sources": [{"manifests": "m"}]})
    with pytest.raises(UnfitRuntimeError, match=f"local-lb:podRoutes container: {why}") if why else nullcontext():
        read_facts(OWNER.home, settings, (), cast("Containers", reported))


def test_a_rootless_podman_makes_no_routes() -> None:
    """It says so, in the networks of its own proxies as well."""
    route = PodRoute.parse("10.244.1.0/24 via 172.18.0.3")
    rootless = mock.Mock(engine=PODMAN, host="unix:///run/user/9/podman/podman.sock")
    rootless.inspect.return_value = {"State": {"Pid": 0}}
    rootless.info.return_value = {"SecurityOptions": ["name=rootless"]}
    helper = ContainerRoutes(lambda: cast("Containers", rootless))
    assert not helper.may_route()
    with pytest.raises(RouteHelperError, match=r"the Podman at unix:.*sock is rootless, so it can't make routes here"):
        helper.change("container:ab12", [route], [], OWNER)
    rootless.create.assert_not_called()


def test_one_that_is_removed_while_it_starts_again_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end may be the begin of a removal, which goes on after the start."""
    engine = Engine()
    life = PodmanLifecycle(cast("Containers", engine))
    former = life.create(WANTED)
    engine.containers[former]["State"]["Running"] = False

    def answers(*_: object) -> bool:
        engine.containers.pop(former, None)
        return True

    monkeypatch.setattr("locallb.envoy.admin.comes_to_answer", answers)
    identity = life.create(WANTED)
    assert list(engine.containers) == [identity] != [former]
    assert life.runs(state(identity))
