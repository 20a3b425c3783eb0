"""Which Docker daemons are refused, and in which words."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from locallb.host.capabilities import docker_shortcoming

HERE = "unix:///var/run/docker.sock"
GOOD: Mapping[str, object] = {"OperatingSystem": "Debian GNU/Linux 12", "OSType": "linux", "SecurityOptions": []}


@pytest.mark.parametrize("host", [HERE, "tcp://127.0.0.1:2376", "tcp://[::1]:2376", "tcp://localhost:2375"])
def test_a_daemon_of_this_linux_host_will_do(host: str) -> None:
    """By a socket or over the loopback."""
    assert docker_shortcoming(GOOD, host) == ""


@pytest.mark.parametrize(
    ("info", "host", "why"),
    [
        ({"OperatingSystem": "Docker Desktop"}, HERE, "in a machine of its own"),
        ({"OSType": "windows"}, HERE, "runs containers of windows"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, HERE, "it is rootless"),
        ({}, "tcp://10.0.0.5:2376", "isn't on this host"),
        ({}, "ssh://me@build.example", "isn't on this host"),
    ],
)
def test_another_daemon_is_refused_with_a_sentence(info: Mapping[str, object], host: str, why: str) -> None:
    """Which daemon, why, and what will do."""
    sentence = docker_shortcoming({**GOOD, **info}, host)
    assert sentence.startswith(f"local-lb:runtime docker can't be used with the daemon at {host}: ")
    assert why in sentence
    assert sentence.endswith("use a Docker daemon that runs on this Linux host as root, or the runtime process")


def test_another_system_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of a machine behind it aren't the host's."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "isn't Linux" in docker_shortcoming(GOOD, HERE)
