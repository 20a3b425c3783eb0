"""Kubernetes' own end-to-end tests of LoadBalancer Services, against `locallb watch` on a cluster with real kubelets.

    python -m tests.kubelets.upstream [--focus REGEX] [--skip REGEX] [--settings YAML]

Tells what became of each test, with upstream's reason where it skipped one, and fails if any failed. All of them take
about half an hour: two rolling updates with five rounds each are most of it. Addresses are of a range that pods reach
by way of the host, as they do where addresses are outside of loopback; the stack makes routes to pods, as one of
the tests is about a Service without NodePorts.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, parse

import yaml
from lightkube.codecs import load_all_yaml

from tests.kubelets.deployments import Deployments
from tests.support.cluster_build import UPSTREAM, kubernetes
from tests.support.kubelet_cluster import Cluster, kubelet_cluster, on_host
from tests.support.kubelet_images import COREDNS_IMAGE, upstream_images
from tests.support.kubelets_ready import make_ready_for_upstream
from tests.support.stages import stage
from tests.support.watching import watching

FOCUS = r"\[Feature:LoadBalancer\]"
MINUTES = 60
"""How long all of it may take."""
_STATES = {"passed": "passed", "skipped": "skipped", "failed": "FAILED", "timedout": "FAILED", "panicked": "FAILED"}


def arguments(terms: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--focus", default=FOCUS, help="which of upstream's tests (default: %(default)s)")
    parser.add_argument("--skip", default="", help="which of these not, likewise (default: none)")
    parser.add_argument("--settings", default="{}", help="of the stack, as a mapping (default: %(default)s)")
    parser.add_argument("--keep", default="", help="a directory that is there, for what upstream and the watch said")
    return parser.parse_args(terms)


def run(cluster: Cluster, args: argparse.Namespace, directory: Path) -> list[Element]:
    """Run the tests, and return those that were wanted from the report."""
    report = directory / "report.xml"
    command = [
        str(kubernetes(UPSTREAM)),
        *("--provider=skeleton", "--num-nodes=2", "--dump-logs-on-failure=false"),
        f"--kubeconfig={cluster.plane.root}/owner.kubeconfig",
        *(f"--ginkgo.focus={args.focus}", *([f"--ginkgo.skip={args.skip}"] if args.skip else [])),
        *(f"--ginkgo.timeout={MINUTES}m", f"--ginkgo.junit-report={report}"),
        *("--ginkgo.no-color", "--ginkgo.succinct"),
    ]
    with (directory / "upstream.log").open("wb") as log:
        subprocess.run(command, check=False, stdout=log, stderr=log, timeout=60 * (MINUTES + 5))
    return [element for element in parse(report).iter("testcase") if wanted(element)]  # noqa: S314 - our own program wrote it


def wanted(test: Element) -> bool:
    """Return whether a test ran or skipped itself; the rest of upstream's is listed as skipped without a reason."""
    skipped = test.find("skipped")
    return test.get("name", "").startswith("[It]") and (skipped is None or skipped.get("message") != "skipped")


def line(test: Element) -> str:
    """Say in a line what became of a test."""
    state = _STATES.get(test.get("status", ""), "FAILED")
    skipped = test.find("skipped")
    reason = "" if skipped is None else f"\n{'':17}{skipped.get('message', '').removeprefix('skipped - ')}"
    return f"{state:<8}{float(test.get('time', 0)):>7.1f} s {test.get('name', '').removeprefix('[It] ')}{reason}"


def resolve_names(cluster: Cluster) -> None:
    """Let pods reach Services by their names."""
    with cluster.plane.client() as client:
        for document in load_all_yaml(Path(__file__).with_name("cluster_dns.yaml").read_text()):
            client.create(document)
        Deployments(client, "kube-system", COREDNS_IMAGE).wait("coredns")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    args = arguments()
    make_ready_for_upstream()
    with kubelet_cluster(images=upstream_images()) as cluster, stage() as play:
        resolve_names(cluster)
        places = cluster.plane.ranges.host
        on_host("; ".join(f"ip route add local {place} dev lo" for place in places))
        try:
            pools = [{"name": "reached", "addresses": list(places)}]
            settings = {"podRoutes": "host", **yaml.safe_load(args.settings)}
            play.configure(sources=[cluster.plane.source], pools=pools, **settings)
            directory = Path(args.keep) if args.keep else play.root
            with watching(play, "--plain") as watch:
                tests = run(cluster, args, directory)
            if args.keep:
                (directory / "watch.log").write_text(watch.reported())
        finally:
            on_host("; ".join(f"ip route del local {place} dev lo" for place in places))
    sys.stdout.write("".join(f"{line(element)}\n" for element in sorted(tests, key=line)))
    sys.exit(not tests or any(line(element).startswith("FAILED") for element in tests))


if __name__ == "__main__":
    main()
