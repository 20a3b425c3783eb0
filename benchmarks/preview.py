"""What a preview of 1,000 Services against another directory costs, as a user runs it: a process of its own.

    python -m benchmarks.preview

Two directories of manifests are made, in which a tenth of the Services differ; every format is run a few times. Prints
medians in seconds and the size of the output.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

SERVICES, RUNS = 1000, 5
AIM = 2.0
"""Seconds."""
FORMATS = ("tree", "markdown", "json", "html")
PROJECT = "name: local-lb\nruntime: python\nstackConfigDir: stacks\nbackend: {url: 'file://./.state'}\n"
STACK = {
    "config": {
        "local-lb:sources": [{"manifests": "new", "name": "c"}],
        "local-lb:pools": [{"name": "p", "addresses": ["127.77.0.0/20"]}],
    }
}


def write(directory: Path, *, edited: bool) -> None:
    """Write the manifests of one side, a file for each Service."""
    directory.mkdir()
    for number in range(SERVICES):
        ports = [{"name": "http", "port": 8080, "nodePort": 30000 + number}]
        if edited and number % 10 == 0:
            ports.append({"name": "more", "port": 9000, "nodePort": 31000 + number})
        spec = {"type": "LoadBalancer", "ports": ports}
        metadata = {"name": f"s{number}", "namespace": "n"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        (directory / f"s{number}.yaml").write_text(yaml.safe_dump(service))
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"addresses": addresses}}
    (directory / "nodes.yaml").write_text(yaml.safe_dump(node))


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        (root / "stacks").mkdir()
        (root / "Pulumi.yaml").write_text(PROJECT)
        (root / "stacks/Pulumi.dev.yaml").write_text(yaml.safe_dump(STACK))
        write(root / "old", edited=False)
        write(root / "new", edited=True)
        print(f"{SERVICES} Services, a tenth of them edited; aim: {AIM} s; load {os.getloadavg()[0]:.1f}")
        for form in FORMATS:
            seconds, size = [], 0
            for _ in range(RUNS):
                command = [str(Path(sys.executable).parent / "locallb"), "-C", made, "preview", "--against"]
                start = time.perf_counter()
                done = subprocess.run([*command, str(root / "old"), "--format", form], check=True, capture_output=True)
                seconds.append(time.perf_counter() - start)
                size = len(done.stdout)
            print(f"{form:9} {statistics.median(seconds):.2f} s (best {min(seconds):.2f})  {size / 1024:7.0f} KiB")


if __name__ == "__main__":
    main()
