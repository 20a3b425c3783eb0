"""Run a cluster with kubelets until a signal, for trying things by hand: `python -m tests.kubelets`."""

from __future__ import annotations

import signal
import sys

from tests.support.kubelet_cluster import kubelet_cluster
from tests.support.kubelets_ready import make_ready


def main() -> None:
    """Bring it up, say where it is, and wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    make_ready()
    with kubelet_cluster() as cluster:
        sys.stdout.write(
            f"export KUBECONFIG={cluster.plane.root}/owner.kubeconfig  # for local-lb: local-lb.kubeconfig\n"
        )
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
