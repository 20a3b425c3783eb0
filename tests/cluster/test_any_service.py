"""Services of a real cluster by the names that they have there, from curl and from a real Chromium."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import chromium
from tests.support.client_kinds import SERVICE, SLICE
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.gateway_clients import answering
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
_RESOLVED_BY = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


def pod_address() -> str:
    """Return an address of this host that isn't loopback, which an EndpointSlice may have; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("192.0.2.1", 9))
        return str(client.getsockname()[0])


@contextlib.contextmanager
def served(cluster: Objects, name: str, ports: Sequence[str], *, namespace: str = "n", **spec: Any) -> Iterator[None]:  # noqa: ANN401 - fields of the API
    """Create a Service with a pod of the hostname `NAME-0`, which answers on each port by its name."""
    with contextlib.ExitStack() as stack:
        numbers = [stack.enter_context(answering(f"{name}-{port}", address=pod_address())) for port in ports]
        document = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"name": port, "port": 8080 + at} for at, port in enumerate(ports)], **spec},
        }
        cluster.client.create(SERVICE.from_dict(document), namespace=namespace)
        stack.callback(cluster.client.delete, SERVICE, name, namespace=namespace)
        endpoints: Document = {
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [pod_address()], "hostname": f"{name}-0", "conditions": {"ready": True}}],
            "ports": [{"name": port, "port": number} for port, number in zip(ports, numbers, strict=True)],
        }
        cluster.client.create(SLICE.from_dict(endpoints), namespace=namespace)
        stack.callback(cluster.client.delete, SLICE, f"{name}-1", namespace=namespace)
        yield


def by_resolver(server: str, root: Path, *command: str) -> str:
    """Run a program for which the stack's server is the only one, and return what it prints."""
    resolver = root / "resolv.conf"
    resolver.write_text(f"nameserver {server}\n")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _RESOLVED_BY, str(resolver), *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


def shown(server: str, root: Path, url: str) -> str:
    """Return what a browser shows there."""
    with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}")
        return by_resolver(server, root, chromium(), *flags, "--dump-dom", url)


def _says(server: str, root: Path, place: str, name: str) -> bool:
    return name in by_resolver(server, root, "curl", "-s", f"http://{place}/")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("curl"), reason="needs root for a resolver, and curl")
def test_services_are_called_as_in_their_cluster(plane: ControlPlane, cluster: Objects, play: Stage) -> None:
    """One with two ports, a headless one, its pod, one of another namespace; nothing is written about them."""
    server = play.at(200)
    zones = [{"zone": "cluster.local", "embedded": f"{server}:53"}]
    play.configure(
        sources=[plane.source],
        backends="pods",
        services={"namespaces": ["n", "default"], "types": ["ClusterIP"]},
        dns={"zones": zones, "template": False, "shortNames": "n"},
    )
    with (
        served(cluster, "web", ("http", "admin")),
        served(cluster, "db", ("http",), clusterIP="None"),
        served(cluster, "other", ("http",), namespace="default"),
        watching(play) as watch,
    ):
        before = cluster.read("web")
        by_url = {
            "web.n.svc.cluster.local:8080": "web-http",
            "web.n.svc.cluster.local:8081": "web-admin",
            "db.n.svc.cluster.local:8080": "db-http",
            "db-0.db.n.svc.cluster.local:8080": "db-http",
            "other.default.svc.cluster.local:8080": "other-http",
            "other.default:8080": "other-http",
            "web:8081": "web-admin",
        }
        for place, name in by_url.items():
            eventually(partial(_says, server, play.root, place, name), watch)
        for place in list(by_url)[1:5]:
            assert by_url[place] in shown(server, play.root, f"http://{place}/")
        assert cluster.read("web") == before
        assert cluster.events("web") == []
