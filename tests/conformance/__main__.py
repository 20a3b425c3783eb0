"""Gateway API's own conformance suite, against `locallb watch` on a cluster with real kubelets.

    python -m tests.conformance [--only TEST] [--report FILE] [--keep DIRECTORY]

The suite asks the GatewayClass which features are supported, and runs every test of those and of the core of each
profile. Tells what became of each, and why it failed; what failed is repeated once, alone. Fails if any failed twice,
or if the suite itself couldn't run. No test is skipped that the suite wouldn't skip itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from tests.conformance.ready import images, make
from tests.conformance.running import Suite
from tests.support.conformance_cluster import prepare
from tests.support.kubelet_cluster import kubelet_cluster
from tests.support.stages import stage


def arguments(terms: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the one test to run, by its name (default: all)")
    parser.add_argument("--features", default="", help="features, whatever the GatewayClass says; `all` for every one")
    parser.add_argument("--timeout", default="", help="as the suite's --timeout-config-overrides")
    parser.add_argument("--report", default="", help="where the suite writes its report")
    parser.add_argument("--keep", default="", help="a directory that is there, for what the suite and the watch said")
    return parser.parse_args(terms)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    os.environ["TZ"] = "UTC"  # so that the watch tells the time as the suite does
    args = arguments()
    make()
    with kubelet_cluster(images=images()) as cluster, stage() as play:
        prepare(cluster)
        pools = [{"name": "default", "addresses": [f"{play.at(0)}/24"]}]
        play.configure(sources=[cluster.plane.source], pools=pools, podRoutes="host")
        code = Suite(cluster, play, args).judge()
    sys.exit(code)


if __name__ == "__main__":
    main()
