"""Containers that look like kind's control planes: a label, and in one of them the way to an API server elsewhere.

No image is pulled: one is made of the smallest program that waits. Not here: what local-lb makes of them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import secrets
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import yaml
from docker.models.containers import Container

from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.engine_api import Containers
from tests.support.control_plane import ControlPlane


@dataclass
class KindNode:
    """A control plane's container, which isn't there yet."""

    client: docker.DockerClient
    name: str
    """The cluster's."""

    @property
    def container(self) -> Container:
        return self.client.containers.get(f"{self.name}-control-plane")

    def create(self) -> None:
        """Make the container; it doesn't run yet."""
        self.client.containers.create(
            self.name,
            "/pause",
            name=f"{self.name}-control-plane",
            hostname=f"{self.name}-control-plane",
            labels={"io.x-k8s.kind.cluster": self.name, "io.x-k8s.kind.role": "control-plane"},
            network_mode="none",
        )

    def make_ready(self, plane: ControlPlane) -> None:
        """Put the administrator's kubeconfig where kubeadm does."""
        document = yaml.safe_load(plane.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        authority = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        text = yaml.safe_dump(document).encode()
        self.container.put_archive("/", _archive({"etc/kubernetes/admin.conf": text}))

    def remove(self) -> None:
        """Do what `kind delete cluster` does; gone is fine."""
        with contextlib.suppress(docker.errors.NotFound):
            self.container.remove(force=True)


@contextlib.contextmanager
def kind_node() -> Iterator[KindNode]:
    """Make one; skip where there is no Docker."""
    try:
        Containers().ping()
    except ContainersError as error:
        if os.environ.get("CI") or os.environ.get("LOCALLB_TEST_DOCKER"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    name = f"llb-{secrets.token_hex(4)}"
    client = docker.from_env()
    client.api.import_image_from_data(_archive({"pause": _PAUSE}), repository=name, changes=["CMD /pause"])
    made = KindNode(client, name)
    try:
        yield made
    finally:
        made.remove()
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
