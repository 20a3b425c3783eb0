"""Containers, measured against `docker run` alone: from a Service to its first byte, on either network.

`docker run` starts the same image with the least files that serve the same port: on the host's network, or with the
port published on a Docker network. `up, kept` is local-lb as a whole with the runtime docker, from renamed manifests to
traffic, in a process that stays. All take turns within one run on one machine, after one run each that isn't counted. A
table goes to standard error, one JSON object to standard output. Needs root, or the group of Docker.

    python -m benchmarks.docker [--runs 20]
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol as Shape

from benchmarks.contestants import Locallb, by_hand
from benchmarks.figures import report_to, result, spreads, table
from benchmarks.traffic import ADDRESS, PORT, backend, until
from locallb.envoy import ARGUMENTS
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image

BACKEND_PORT = 18080


class Contestant(Shape):
    """Something that serves ADDRESS from a container."""

    name: str

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        """Serve."""

    def stop(self) -> None:
        """Serve no more."""


@dataclass
class DockerRun:
    """`docker run` with files written by hand; `network` is a Docker network, or `host`."""

    name: str
    image: str
    network: str
    directory: Path = field(init=False)

    def start(self, ports: list[int], backend: tuple[str, int]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="locallb-bench-"))
        published = self.network != "host"
        for name, text in by_hand(ports, backend).items():
            inside = text.replace(f'"{ADDRESS}"', '"0.0.0.0"') if published else text
            (self.directory / name).write_text(inside)
        ports_ = [f"--publish={ADDRESS}:{port}:{port}" for port in ports if published]
        mount = ("--volume", f"{self.directory}:/run/proxy", "--workdir", "/run/proxy")
        docker("run", "--detach", "--name", self._container, "--network", self.network, *ports_, *mount, self.image,
               *ARGUMENTS)  # fmt: skip

    def stop(self) -> None:
        docker("rm", "--force", self._container)
        shutil.rmtree(self.directory)

    @property
    def _container(self) -> str:
        return self.directory.name


def docker(*terms: str) -> str:
    return subprocess.run(["docker", *terms], check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def network() -> Iterator[tuple[str, str]]:
    """Make a Docker network, and give its name and the host's address on it."""
    name, third = f"llb-bench-{secrets.token_hex(4)}", secrets.randbelow(250)
    gateway = f"10.232.{third}.1"
    docker("network", "create", "--subnet", f"10.232.{third}.0/24", "--gateway", gateway, name)
    try:
        yield name, gateway
    finally:
        docker("network", "rm", name)


def measure(contestants: list[Contestant], where: tuple[str, int], runs: int) -> Mapping[str, list[float]]:
    """Let the contestants take turns; gives milliseconds from the beginning to the first byte."""
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(-1, runs):
        for contestant in contestants:
            began = time.perf_counter()
            contestant.start([PORT], where)
            try:
                claimed = (until(where[0], PORT) - began) * 1000
            finally:
                contestant.stop()
            if number >= 0:
                times[contestant.name].append(claimed)
    return times


def ratios(times: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """Compare medians with `docker run` on the same network."""
    median = {name: statistics.median(values) for name, values in times.items()}
    pairs = {f"up, kept, {which}": f"docker run, {which}" for which in ("host", "publish")}
    return {
        ours: {"median, of that of docker run": round(median[ours] / median[alone], 2)} for ours, alone in pairs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (default: %(default)s)")
    runs: int = parser.parse_args().runs
    image = make_image(Containers())
    with network() as (name, gateway):
        where = (gateway, BACKEND_PORT)
        process = multiprocessing.Process(target=backend, args=(where,), daemon=True)
        process.start()
        common = {"runtime": "docker", "image": image}
        ours = [
            Locallb("up, kept, host", retained=True, settings=common),
            Locallb("up, kept, publish", retained=True, settings={**common, "network": {"publish": name}}),
        ]
        alone = [DockerRun("docker run, host", image, "host"), DockerRun("docker run, publish", image, name)]
        try:
            times = measure([*alone, *ours], where, runs)
        finally:
            for run in ours:
                run.close()
            process.terminate()
    spread = {name: spreads({"Service created: first byte": values}) for name, values in times.items()}
    report_to(table(spread), *(f"{name:<34}{ratio}" for name, ratio in ratios(times).items()))
    result("docker", runs=runs, milliseconds=spread, ratios=ratios(times))


if __name__ == "__main__":
    main()
