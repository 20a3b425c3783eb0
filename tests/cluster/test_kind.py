"""The source `kind` with a real Docker: a container labelled as kind labels its own leads to the real API server."""

from __future__ import annotations

import base64
import io
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
import yaml

from locallb.clients.containers import Containers, ContainersError
from tests.cluster.controlplane import ControlPlane, Objects
from tests.cluster.test_life import address, finalizers, made
from tests.e2e.support import Backend, Stage, ask, envoys

pytestmark = [pytest.mark.cluster, pytest.mark.envoy, pytest.mark.docker]

Backends = Callable[..., Backend]


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[tuple[str, Callable[[], None]]]:
    """Make a running container with the administrator's kubeconfig in it; give the cluster's name and its removal."""
    try:
        Containers().ping()
    except ContainersError as error:
        if os.environ.get("CI") or os.environ.get("LOCALLB_TEST_DOCKER"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    name = f"llb-{secrets.token_hex(4)}"
    client = docker.from_env()
    client.api.import_image_from_data(_archive({"pause": _PAUSE}), repository=name, changes=["CMD /pause"])
    labels = {"io.x-k8s.kind.cluster": name, "io.x-k8s.kind.role": "control-plane"}
    container = client.containers.create(
        name,
        "/pause",
        name=f"{name}-control-plane",
        hostname=f"{name}-control-plane",
        labels=labels,
        network_mode="none",
    )
    document = yaml.safe_load(plane.kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    container.put_archive("/", _archive({"etc/kubernetes/admin.conf": yaml.safe_dump(document).encode()}))
    container.start()
    gone: list[bool] = []

    def remove() -> None:
        if not gone:
            gone.append(True)
            container.remove(force=True)

    try:
        yield name, remove
    finally:
        remove()
        client.images.remove(name, force=True)
        client.close()


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _elf() -> bytes:
    """Assemble the smallest program for x86-64 that only waits: pause(2), again and again."""
    code = bytes.fromhex("b8220000000f05ebf7")  # mov eax, 34; syscall; jmp back
    base, head = 0x400000, 64 + 56
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (62).to_bytes(2, "little")
    header += (1).to_bytes(4, "little") + (base + head).to_bytes(8, "little") + (64).to_bytes(8, "little") + bytes(8)
    header += bytes(4) + b"\x40\0\x38\0\x01\0" + bytes(6)
    size = (head + len(code)).to_bytes(8, "little")
    segment = (1).to_bytes(4, "little") + (5).to_bytes(4, "little") + bytes(8) + base.to_bytes(8, "little") * 2
    return header + segment + size * 2 + (0x1000).to_bytes(8, "little") + code


_PAUSE = _elf()


def test_a_cluster_of_kind_is_found_served_and_forgotten(
    cluster: Objects, play: Stage, backend: Backends, node: tuple[str, Callable[[], None]]
) -> None:
    """Named by its container's label; with the container gone its load balancers go, and nobody waits for its API."""
    name, remove = node
    play.configure(sources=[{"kind": [name]}])
    made(cluster, backend, "web")
    play.up()
    assert play.status()["n/web"]["cluster"] == name
    assert ask(address(cluster, "web"), 8080) == "web: hello"
    (kept,) = (play.root / ".state/locallb/dev/kind").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    remove()
    done = play.run("up", "--yes")
    assert done.code == 0, done.out + done.err
    assert envoys(play.root) == []
    assert len(finalizers(cluster, "web")) == 1
