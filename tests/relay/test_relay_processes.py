"""Processes of relays: how they are started, instructed, found and ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import chdir, suppress
from math import inf
from pathlib import Path

import pytest

from locallb.leftovers import Leftover, LeftoverKind, leftovers, remove
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.model.relays import RelayedPort, RelayId
from locallb.model.snapshot import Access
from locallb.relay import relay_directory
from locallb.relay.relay_directory import MARK, Served
from locallb.runtimes import pod_routes, processes
from locallb.runtimes.processes import ProcessError
from locallb.safe_files import open_lock, try_lock
from tests.support.portforward import forwarding_api
from tests.support.waiting import becomes

OWNER = Owner(Home("/srv/project", "dev", "locallb"), ObjectKey(ClusterName(""), "demo", "pod-relay"))
PORT = RelayedPort("web", "shop", "web-1", 80)
OTHER = RelayedPort("web", "shop", "web-2", 80)
PLUGIN = """\
#!/bin/sh
env >"$0.environment"
echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Name the directory of a relay, which ends with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = relay_directory.path_of(RelayId("0123456789ab"))
    yield path
    pod_routes.end_relay(path)


def serve(directory: Path, access: Access, version: str, *ports: RelayedPort) -> processes.Process:
    relay_directory.write(directory, Served(access, ports, version, OWNER))
    return pod_routes.run_relay(directory, "1", version)


def ask(directory: Path, port: RelayedPort) -> None:
    """Send something, and wait for the end."""
    with socket.socket(socket.AF_UNIX) as client, chdir(directory):
        client.settimeout(60)
        client.connect(port.socket)
        client.sendall(b"x")
        with suppress(ConnectionError):
            client.recv(1)


def test_a_port_that_it_cannot_listen_on_is_a_failure(tmp_path: Path, directory: Path) -> None:
    with forwarding_api(tmp_path) as api:
        running = serve(directory, api.access, "1", PORT)
        (directory / OTHER.socket).mkdir()
        with pytest.raises(ProcessError, match=f"can't serve what is wanted: {OTHER.socket}: Is a directory"):
            serve(directory, api.access, "2", PORT, OTHER)
        (directory / OTHER.socket).rmdir()
        assert serve(directory, api.access, "2", PORT, OTHER) == running


def test_a_relay_that_ends_is_not_waited_for(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words are the reason, however long one that starts may take."""
    monkeypatch.setattr(pod_routes, "RELAY_START_TIMEOUT", inf)
    with forwarding_api(tmp_path) as api:
        relay_directory.write(directory, Served(api.access, (PORT,), "1", OWNER))
        with os.fdopen(open_lock(directory / relay_directory.LOCK)) as lock:
            assert try_lock(lock.fileno())
            with pytest.raises(ProcessError, match="ended at once: another process serves this relay already"):
                pod_routes.run_relay(directory, "1", "1")


def test_an_exec_plugin_is_neither_taken_for_a_relay_nor_given_secrets_of_pulumi(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "secret")
    monkeypatch.setenv("OF_THE_PLUGIN", "wanted")
    plugin, seen = tmp_path / "plugin", tmp_path / "plugin.environment"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o700)
    terms = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    with forwarding_api(tmp_path, user={"exec": terms}) as api:
        api.faults["web-1"] = "404"
        process = serve(directory, api.access, "1", PORT)
        ask(directory, PORT)
        becomes(seen.exists)
        assert "OF_THE_PLUGIN=wanted" in seen.read_text()
        assert MARK not in seen.read_text()
        assert "PULUMI" not in seen.read_text()
        assert "PULUMI_CONFIG_PASSPHRASE" not in processes.mark_of(process)


def relays_left(*existing: str) -> list[Leftover]:
    left = leftovers(OWNER.home, (), (), existing_relays=existing, claims=())
    return [each for each in left if each.sort is LeftoverKind.RELAY]


def test_what_a_lost_state_left_is_found_and_removed(tmp_path: Path, directory: Path) -> None:
    with forwarding_api(tmp_path) as api:
        process = serve(directory, api.access, "1", PORT)
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / relay_directory.SERVED).stat().st_mode & 0o077 == 0
        assert relays_left(directory.name) == []
        (found,) = relays_left()
        assert (found.what, found.owner) == (directory.name, OWNER)
        assert remove([found]) == (found,)
        assert not processes.is_alive(process)
        assert not directory.exists()
