"""Gateway API's own conformance suite, against `locallb watch` on a cluster with real kubelets.

    python -m tests.conformance [--only TEST] [--report FILE] [--keep DIRECTORY]

The suite asks the GatewayClass which features are supported, and runs every test of those and of the core of each
profile. Tells what became of each, and fails if any failed. No test is skipped that the suite wouldn't skip itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from locallb import __version__
from tests.conformance.cluster import CLASS, prepare, until_accepted
from tests.conformance.ready import images, make, suite
from tests.conformance.results import Result, lines, results
from tests.e2e.support import Stage, stage
from tests.e2e.watching import watching
from tests.kubelets.cluster import Cluster, kubelet_cluster

PROFILES = ("GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-UDP")
MINUTES = 60
"""How long all of it may take."""
_OF_US = {
    "organization": "local-lb",
    "project": "local-lb",
    "url": "https://local-lb.dev",
    "version": f"v{__version__}",
    "contact": "https://local-lb.dev",
}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the one test to run, by its name (default: all)")
    parser.add_argument("--features", default="", help="features, whatever the GatewayClass says; `all` for every one")
    parser.add_argument("--patience", default="", help="as the suite's --timeout-config-overrides")
    parser.add_argument("--report", default="", help="where the suite writes its report")
    parser.add_argument("--keep", default="", help="a directory that is there, for what the suite and the watch said")
    return parser.parse_args(words)


def command(args: argparse.Namespace, play: Stage) -> list[str]:
    """Return how the suite is run."""
    chosen = {
        "gateway-class": CLASS,
        "conformance-profiles": ",".join(PROFILES),
        "usable-address": play.at(200),
        "unusable-address": "192.0.2.1",
        **_OF_US,
        "run-test": args.only,
        "report-output": args.report,
        "timeout-config-overrides": args.patience,
        "supported-features": args.features if args.features != "all" else "",
    }
    flags = [f"--{name}={value}" for name, value in chosen.items() if value]
    flags += ["--all-features"] if args.features == "all" else []
    return [
        str(suite()),
        "-test.v",
        "-test.parallel=6",
        f"-test.timeout={MINUTES}m",
        "-test.run=^TestConformance$",
        *flags,
    ]


def run(cluster: Cluster, play: Stage, args: argparse.Namespace) -> tuple[int, list[Result]]:
    """Run the suite, and return its exit code and what became of its tests."""
    directory = Path(args.keep) if args.keep else play.root
    environment = {**os.environ, "KUBECONFIG": f"{cluster.plane.root}/owner.kubeconfig"}
    with watching(play, "--plain") as watch, (directory / "suite.log").open("wb") as log:
        try:
            until_accepted(cluster)
            words, seconds = command(args, play), 60 * (MINUTES + 5)
            done = subprocess.run(words, check=False, env=environment, stdout=log, stderr=log, timeout=seconds)
        finally:
            if args.keep:
                (directory / "watch.log").write_text(watch.told())
    return done.returncode, list(results((directory / "suite.log").read_text(errors="replace")))


def main() -> None:
    """Run what was asked for."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    args = arguments()
    make()
    with kubelet_cluster(images=images()) as cluster, stage() as play:
        prepare(cluster)
        pools = [{"name": "default", "addresses": [f"{play.at(0)}/24"]}]
        play.configure(sources=[cluster.plane.source], pools=pools, podRoutes="host")
        code, tests = run(cluster, play, args)
    sys.stdout.write("".join(f"{line}\n" for line in lines(tests)))
    sys.exit(code or not tests)


if __name__ == "__main__":
    main()
