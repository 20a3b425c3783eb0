"""How long after a Service's address is told its name can be resolved, at the stack's own name server.

    python -m benchmarks.names [--runs 20] [--modes process,spares,shared]

A test cluster (see tests/cluster) with `locallb watch` in each mode and a zone of its own. A question for the name is
asked every millisecond from before the Service is made; the address is told by a watch of the API. What is negative was
resolvable before. A table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.figures import report_to, result, spreads, table
from benchmarks.nodes import FIRST, served
from benchmarks.requests import until
from benchmarks.services import PREFIX, Services
from benchmarks.targets import target
from tests.support.control_plane import control_plane
from tests.support.dns_questions import requested

NODE, PORT = "127.0.0.21", 8080
NAMESPACE, CLUSTER = "n", "real"
AIM = 20
"""Milliseconds."""
PAUSE = 0.001


class Question:
    """One name, asked again and again until it has an address."""

    def __init__(self, server: tuple[str, int], name: str) -> None:
        self._server, self._name = server, name
        self._over = threading.Event()
        self.answered: tuple[float, list[str]] | None = None
        self._thread = threading.Thread(target=self._ask)

    @contextmanager
    def asking(self) -> Iterator[Question]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()

    def _ask(self) -> None:
        while not self._over.wait(PAUSE):
            try:
                _, addresses, _ = requested(self._server, self._name)
            except OSError:
                continue
            if addresses:
                self.answered = time.perf_counter(), addresses
                return


def run_once(services: Services, server: tuple[str, int], number: int) -> tuple[float, float]:
    """Return the milliseconds until the address is told, and from then on until the name has it."""
    name = f"web{number}"
    began = time.perf_counter()
    with Question(server, f"{PREFIX}{name}.{NAMESPACE}.{CLUSTER}.test").asking() as question:
        services.create(name, (PORT, FIRST + number))
        address = services.address(name)
        reported = time.perf_counter()
        until(lambda: question.answered is not None, "an answer")
        assert question.answered
        at, addresses = question.answered
    assert addresses == [address]
    services.delete(name)
    services.removed(name)
    return (reported - began) * 1000, (at - reported) * 1000


def measure(mode: str, root: Path, runs: int) -> dict[str, list[float]]:
    """Measure one mode; its first run isn't counted."""
    server = f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}.200", 5300
    dns = {"zones": [{"zone": "test", "embedded": f"{server[0]}:{server[1]}"}]}
    reported, named = list[float](), list[float]()
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(CLUSTER, root / mode))
        services = Services(plane.root / "owner.kubeconfig", NAMESPACE, {})
        services.add_node("node-a", NODE)
        stack.enter_context(target(mode, plane, dns=dns))
        for number in range(-1, runs):
            first, after = run_once(services, server, number + 1)
            if number >= 0:
                reported.append(first)
                named.append(after)
    return {"address told": reported, "name resolvable after that": named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--modes", default="process,spares,shared")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        with served(NODE):
            figures = {mode: spreads(measure(mode, root, args.runs)) for mode in args.modes.split(",")}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report_to(table(figures))
    result("names", [f"aim: {AIM} ms after the address"], milliseconds=figures)


if __name__ == "__main__":
    main()
