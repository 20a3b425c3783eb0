"""What Nodes and pods are made of: an image of Debian's packages for Nodes, and the images that pods run.

Both are made here, as no registry is asked, and kept in .cache: a root file system by mmdebstrap from the sources of
packages that this machine uses itself, and an archive of images around agnhost. Not here: starting anything.

`python3 -m tests.support.kubelet_images` makes the root file systems that aren't there, and needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster_build import CHECKOUT, COREDNS, kubernetes, missing, version
from tests.support.docker_command import DockerError, docker

CACHE = CHECKOUT / ".cache" / "kubelets"
PACKAGES = (
    *("tini", "containerd", "runc", "containernetworking-plugins", "iptables", "nftables", "iproute2", "conntrack"),
    *("procps", "socat", "kmod", "ca-certificates", "util-linux", "mount", "curl", "netcat-openbsd", "wget"),
)

PYTHON = ("python3", "ca-certificates")
"""What an image of local-lb is built on."""


def _tag(packages: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]


NODE_IMAGE = f"local-lb/test-node:{_tag(PACKAGES)}"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.59"
"""As upstream's tests name it; nothing is pulled, as the Nodes have it already."""
COREDNS_IMAGE = "local-lb/coredns:test"
WEB = "docker.io/library/nginx:1.27"
"""What an example runs: here agnhost, which serves the same port."""
PAUSE = "registry.k8s.io/pause:3.10.1"
SECONDS = 1800
"""For what is fetched and unpacked while tests have the processors."""
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_node_image() -> None:
    """Make the image of Nodes where Docker doesn't have it. Raises FileNotFoundError with the remedy."""
    try:
        docker("image", "inspect", NODE_IMAGE)
    except DockerError:
        terms = ("-c", f"ENV {_PATH}", "-c", 'ENTRYPOINT ["/usr/bin/tini", "--"]')
        docker("import", *terms, str(make_root_file_system()), NODE_IMAGE, seconds=300)


def make_root_file_system() -> Path:
    """Make the root file system of Nodes, where it isn't cached. Raises FileNotFoundError with the remedy."""
    return root_file_system(PACKAGES)


def root_file_system(packages: Sequence[str]) -> Path:
    """Make a root file system of these packages, where it isn't cached. Raises FileNotFoundError with the remedy."""
    made = CACHE / f"rootfs-{_tag(packages)}.tar"
    with missing(made) as wanted:
        if wanted and not shutil.which("mmdebstrap"):
            raise FileNotFoundError("mmdebstrap isn't installed (Debian: apt install mmdebstrap)")
        if wanted:
            fresh = made.with_name(f".new-{made.name}")  # mmdebstrap goes by the ending
            terms = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", "", str(fresh)]
            subprocess.run([*terms, *_package_sources()], check=True, timeout=SECONDS)
            fresh.rename(made)
    return made


def _package_sources() -> list[str]:
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    return [str(path) for path in places if path.suffix in {".list", ".sources"} and path.exists()]


def pod_images() -> Path:
    """Return a directory with archives of the images of pods: agnhost, also as what holds a pod and as a web server."""
    directory = CACHE / f"images-{version()}"
    archive = directory / "agnhost.tar"
    with missing(archive) as wanted:
        if wanted:
            fresh = archive.with_suffix(".new")
            pack(fresh, kubernetes("agnhost"), PAUSE, AGNHOST)
            fresh.rename(archive)
    web = directory / "web.tar"
    with missing(web) as wanted:
        if wanted:
            fresh = web.with_suffix(".new")
            pack(fresh, kubernetes("agnhost"), WEB, command=("netexec", "--http-port=80"))
            fresh.rename(web)
    return directory


def upstream_images() -> Path:
    """Return a directory with what upstream's tests want: agnhost with a shell and clients, and CoreDNS."""
    directory = CACHE / f"upstream-images-{version()}"
    archive = directory / "agnhost.tar"
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        context = directory / "context"
        context.mkdir(exist_ok=True)
        shutil.copy(kubernetes("agnhost"), context / "agnhost")
        build = f'FROM {NODE_IMAGE}\nCOPY agnhost /agnhost\nENTRYPOINT ["/agnhost"]\nCMD ["pause"]\n'
        (context / "Dockerfile").write_text(build)
        docker("build", "--quiet", "--tag", AGNHOST, str(context), seconds=300)
        try:
            docker("save", "--output", str(archive), AGNHOST, seconds=300)
        finally:
            docker("image", "rm", AGNHOST)
            shutil.rmtree(context)
        pack(directory / "pause.tar", kubernetes("agnhost"), PAUSE)
    if not (directory / "coredns.tar").exists():
        pack(directory / "coredns.tar", kubernetes(COREDNS), COREDNS_IMAGE)
    return directory


def pack(archive: Path, program: Path, *names: str, command: Sequence[str] = ("pause",)) -> None:
    """Write images with one layer, a program, in the format of `docker save`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as packed:
        packed.add(program, program.name, filter=_of_root)
    configuration = json.dumps(_configuration([f"/{program.name}"], command, layer.getvalue())).encode()
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer.getvalue(),
        "config.json": configuration,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(archive, "w") as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def _configuration(entrypoint: Sequence[str], command: Sequence[str], layer: bytes) -> dict[str, object]:
    return {
        "architecture": _ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = "root"
    return entry


if __name__ == "__main__":
    for each in (PYTHON, PACKAGES):
        root_file_system(each)
