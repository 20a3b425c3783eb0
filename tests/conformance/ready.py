"""What the tier of conformance is made of, made once: Gateway API's own suite, and what it sends requests to.

All of it is built from the Go module of the suite, which go/go.mod pins, and kept in .cache. Not here: the
CRDs, which local-lb carries, a cluster, and running anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.cluster_build import CHECKOUT, COREDNS, TESTS, build, compile_to, kubernetes, missing, pinned
from tests.support.docker_command import DockerError
from tests.support.kubelet_images import PAUSE, pack
from tests.support.kubelets_ready import make_ready

MODULE = Path(__file__).with_name("go")
API = "sigs.k8s.io/gateway-api"
SUITE = f"{API}/conformance"
_REGISTRY = "registry.k8s.io"
ECHO = tuple(f"{_REGISTRY}/gateway-api/echo-basic:{tag}" for tag in ("v1.5.1", "v1.6.0-dev.2", "v1.6.0-dev.3"))
"""As the suite's manifests name one and the same program; nothing is pulled, as the Nodes have it already."""
NAMES = f"{_REGISTRY}/coredns/coredns:v1.12.2"
"""What answers the suite's datagrams."""


def place() -> Path:
    """Return the directory of all that is made of one version of the suite."""
    return CHECKOUT / ".cache" / "conformance" / pinned(MODULE, SUITE)


def suite() -> Path:
    """Return the program that is the suite."""
    return place() / "conformance.test"


def images() -> Path:
    """Return the directory with archives of the images that Nodes need."""
    return place() / "images"


def make() -> None:
    """Make what isn't there. Raises FileNotFoundError or DockerError with the reason why that can't be."""
    make_ready()
    build(COREDNS)
    compile_to(suite(), MODULE, SUITE, *TESTS)
    _make_images()


def _make_images() -> None:
    echo = place() / "echo-basic"
    compile_to(echo, MODULE, f"{SUITE}/echo-basic", "build")
    images().mkdir(exist_ok=True)
    programs = {"pause": (PAUSE,), "echo": ECHO, "names": (NAMES,)}
    places = {"pause": kubernetes("agnhost"), "echo": echo, "names": kubernetes(COREDNS)}
    for name, names in programs.items():
        archive, program = images() / f"{name}.tar", places[name]
        with missing(archive) as wanted:
            if wanted:
                pack(archive.with_suffix(".new"), program, *names)
                archive.with_suffix(".new").rename(archive)


def main() -> None:
    """Make it, and complain of what is missing for that."""
    try:
        make()
    except (FileNotFoundError, DockerError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
