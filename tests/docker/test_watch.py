"""`locallb watch` over containers: what others do to a container is undone by itself."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.support.containers import HARMS, Harm, containers, docker, identities
from tests.support.stages import Stage
from tests.support.watching import answers, eventually, watching

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


def test_a_container_that_is_harmed_serves_again_under_its_address(shop: Stage) -> None:
    """Killed, paused, stopped, removed: each time by itself, and the neighbour's container stays."""
    with watching(shop) as watch:
        eventually(lambda: answers(shop.addresses()["n/web"], 80, "web"), watch)
        eventually(lambda: answers(shop.addresses()["n/dns"], 53, "dns"), watch)
        address, neighbour = shop.addresses()["n/web"], identities(shop)["dns"]
        for harm in HARMS:
            do(harm, shop)
            eventually(lambda: answers(address, 80, "web"), watch)
        assert shop.addresses()["n/web"] == address
        assert identities(shop)["dns"] == neighbour


def test_a_container_whose_envoy_hangs_serves_again_under_its_address(shop: Stage) -> None:
    """The same container with another process; its neighbour goes on."""
    with watching(shop) as watch:
        eventually(lambda: answers(shop.addresses()["n/web"], 80, "web"), watch)
        eventually(lambda: answers(shop.addresses()["n/dns"], 53, "dns"), watch)
        address, (identity, process), neighbour = shop.addresses()["n/web"], running(shop), identities(shop)["dns"]
        os.kill(process, signal.SIGSTOP)
        eventually(lambda: answers(address, 80, "web"), watch)
        eventually(lambda: "no longer: c/n/web: its Envoy runs and answers nothing" in watch.reported(), watch)
        retry = running(shop)
        assert retry[0] == identity
        assert retry[1] != process
        assert shop.addresses()["n/web"] == address
        assert identities(shop)["dns"] == neighbour


def do(harm: Harm, shop: Stage) -> None:
    """Harm the container of `web`.

    Podman's `stop` fails where the container runs again before it looks; the process that it ended is gone by then.
    """
    identity, process = running(shop)
    try:
        docker(*harm.terms, identity)
    except subprocess.CalledProcessError:
        assert running(shop) != (identity, process)


def running(shop: Stage) -> tuple[str, int]:
    """Return the container of `web` and its process; none while there is no such container."""
    container = containers(shop).get("web", {"Id": "", "State": {"Pid": 0}})
    return container["Id"], container["State"]["Pid"]
