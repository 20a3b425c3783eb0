"""Which Docker daemons are refused, and in which words."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from locallb.host.capabilities import is_wsl, shortcoming_of

HERE = "unix:///var/run/docker.sock"
GOOD: Mapping[str, object] = {"OperatingSystem": "Debian GNU/Linux 12", "OSType": "linux", "SecurityOptions": []}


@pytest.mark.parametrize("host", [HERE, "tcp://127.0.0.1:2376", "tcp://[::1]:2376", "tcp://localhost:2375"])
def test_a_daemon_of_this_linux_host_will_do(host: str) -> None:
    """By a socket or over the loopback."""
    assert shortcoming_of("docker", GOOD, host) == ""


@pytest.mark.parametrize(
    ("info", "host", "why"),
    [
        ({"OSType": "windows"}, HERE, "runs containers of windows"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, HERE, "it is rootless"),
        ({}, "tcp://10.0.0.5:2376", "isn't on this host"),
        ({}, "ssh://me@build.example", "isn't on this host"),
    ],
)
def test_unsuitable_docker_daemon_is_refused_with_the_reason(info: Mapping[str, object], host: str, why: str) -> None:
    """The sentence names the daemon, the reason, and what can be used instead."""
    sentence = shortcoming_of("docker", {**GOOD, **info}, host)
    assert sentence.startswith(f"local-lb:runtime docker can't be used with the daemon at {host}: ")
    assert why in sentence
    assert sentence.endswith(
        "use a Docker daemon that runs on this Linux host as root, the runtime podman, or the runtime process"
    )


def test_a_rootless_docker_will_do_for_ports_of_the_loopback_address_alone() -> None:
    """It publishes these, as any other; the refusal says so."""
    rootless = {**GOOD, "SecurityOptions": ["name=rootless"]}
    assert shortcoming_of("docker", rootless, HERE, mapped=True) == ""
    assert "`network: publish` with `portMapping: loopback` does with it" in shortcoming_of("docker", rootless, HERE)


@pytest.mark.parametrize("mapped", [False, True])
def test_docker_desktop_is_refused_with_what_to_use_beside_it(*, mapped: bool) -> None:
    """Neither its network nor the sockets of proxies are this host's; Docker Engine may be installed as well."""
    reported = shortcoming_of("docker", {**GOOD, "OperatingSystem": "Docker Desktop"}, HERE, mapped=mapped)
    assert "in a machine of its own" in reported
    assert (
        "`network: publish` with `portMapping: loopback` doesn't help; use Docker Engine on this Linux host" in reported
    )
    assert "`docker context use default`" in reported


@pytest.mark.parametrize(
    ("release", "is_one"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", True),
        ("6.6.87.2-microsoft-standard-WSL2+", True),
        ("4.4.0-19041-Microsoft", True),
        ("6.1.0-32-amd64", False),
    ],
)
def test_a_linux_in_windows_is_known_by_its_kernel(release: str, *, is_one: bool) -> None:
    """As Microsoft builds it."""
    assert is_wsl(release) is is_one


def test_docker_runtime_is_refused_outside_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of a virtual machine behind it aren't the host's."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "isn't Linux" in shortcoming_of("docker", GOOD, HERE)


@pytest.mark.parametrize("options", [[], ["name=rootless"]])
def test_a_podman_of_this_host_will_do_rootless_or_not(options: list[str]) -> None:
    """By a socket: whoever listens at a port may be in a machine of its own."""
    assert shortcoming_of("podman", {"SecurityOptions": options}, "unix:///run/user/1000/podman/podman.sock") == ""
    for host in ("tcp://127.0.0.1:2375", "ssh://me@127.0.0.1:22/run/podman.sock"):
        sentence = shortcoming_of("podman", {"SecurityOptions": options}, host)
        assert "it isn't on this host; use a Podman that runs on this Linux host" in sentence
