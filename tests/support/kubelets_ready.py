"""What a cluster with kubelets needs, made once: Kubernetes' binaries, the Nodes' image, the images of pods.

    python -m tests.support.kubelets_ready [--upstream]

Go builds while the root file system of Nodes is loaded. Not here: what is in them (`images`).
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.support.cluster_build import COREDNS, KUBELETS, UPSTREAM, build, etcd
from tests.support.docker_command import DockerError, docker
from tests.support.kubelet_images import make_node_image, pod_images, upstream_images


def make_ready() -> None:
    """Make what isn't there. Raises FileNotFoundError or DockerError with the reason why that can't be."""
    docker("version")
    etcd()
    with ThreadPoolExecutor(1) as sibling:
        image = sibling.submit(make_node_image)
        for name in KUBELETS:
            build(name)
        image.result()
    pod_images()


def make_ready_for_upstream() -> None:
    """Make what upstream's own tests need besides."""
    make_ready()
    build(UPSTREAM)
    build(COREDNS)
    upstream_images()


def main() -> None:
    """Make it, and complain of what is missing for that."""
    try:
        (make_ready_for_upstream if "--upstream" in sys.argv else make_ready)()
    except (FileNotFoundError, DockerError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
