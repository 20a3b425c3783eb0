"""What one changed HTTPRoute costs the whole loop with few Gateways or routes and with many: from event to new routes.

    python -m benchmarks.gateway_events [--sizes 5,50] [--routes 10] [--runs 40]
    python -m benchmarks.gateway_events --sizes 1 --routes 10,1000,3000

Manifests are the source, with a file per HTTPRoute, and a proxy per Gateway serves. All stacks live in this process and
change in turns, without the loop's threads: measured is a look of the loop, from the mark to the end of the update. A
table goes to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import gc
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product

from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.gateways import Document, cluster, route
from benchmarks.scale import SOURCE, Driven
from locallb.model.texts import counted
from locallb.watch import loop as gc_tuning
from locallb.watch.events import Cause, Mark
from tests.support.environment import lent
from tests.support.manifests import node
from tests.support.stages import Stage, stage

SIZES, ROUTES = "5,50", "10"
WALL, CPU = "one HTTPRoute changes", "one HTTPRoute changes, CPU"
FIRST_EVENTS = 3
"""Events of each stack that aren't counted: they fill caches."""


@dataclass
class Served:
    """A stack of so many Gateways and its loop, with what each event cost in milliseconds."""

    name: str
    play: Stage
    driven: Driven
    costs: dict[str, list[float]] = field(default_factory=lambda: {WALL: [], CPU: []})

    def change(self, number: int, *, counted: bool) -> None:
        """Give one route a hostname of that number, and look."""
        self.play.write("route.yaml", route(0, 0, f"v{number}.test"))
        with lent(self.play.homes):
            clock = self.driven.inspect(SOURCE)
        if self.driven.updates() != 1:
            raise SystemExit(f"a changed route led to {self.driven.updates()} updates instead of one")
        if counted:
            self.costs[WALL].append(clock.passed)
            self.costs[CPU].append(clock.cpu)


def write_all(play: Stage, documents: list[Document]) -> None:
    """Write the manifests: one route per file, so that a change rewrites nothing else."""
    changed, *others = documents
    play.write("route.yaml", changed)
    for number, document in enumerate(others):
        play.write(f"d{number}.yaml", document)
    play.write("nodes.yaml", node())


@contextmanager
def serving(gateways: int, routes: int) -> Iterator[Served]:
    """Bring a stack of so many Gateways up, each with so many routes, and look once more, as a started loop does."""
    with stage() as play:
        pools = [{"name": "own", "addresses": [f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}.0/24"]}]
        play.configure(pools=pools)
        write_all(play, cluster(gateways, routes))
        driven = Driven(play)
        try:
            driven.inspect(Mark(Cause.START))
            gc_tuning.set_aside()
            yield Served(f"{counted(gateways, 'Gateway')} of {counted(routes, 'route')}", play, driven)
        finally:
            driven.close()


def measure(sizes: Iterable[tuple[int, int]], runs: int) -> list[Served]:
    """Change one route of each stack in turns; sizes are numbers of Gateways, and of routes of each."""
    with ExitStack() as stacks:
        served = [stacks.enter_context(serving(*size)) for size in sizes]
        gc.collect()
        for run in range(runs + FIRST_EVENTS):
            for stand in served:
                stand.change(run, counted=run >= FIRST_EVENTS)
        return served


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default=SIZES, help=f"numbers of Gateways, separated by commas ({SIZES})")
    parser.add_argument("--routes", default=ROUTES, help=f"numbers of routes of each, separated by commas ({ROUTES})")
    parser.add_argument("--runs", type=int, default=40, help="events per stack (40)")
    requested = parser.parse_args()
    gateways, routes = (map(int, listed.split(",")) for listed in (requested.sizes, requested.routes))
    served = measure(product(gateways, routes), requested.runs)
    columns: dict[str, dict[str, Spread]] = {stand.name: spreads(stand.costs) for stand in served}
    report_to(table(columns))
    few, many = served[0], served[-1]
    for name in (WALL, CPU):
        ratio = spreads(many.costs)[name]["p50"] / spreads(few.costs)[name]["p50"]
        report_to(f"{name}: {ratio:.2f} times with {many.name} of what it is with {few.name}")
    result("gateway_events", milliseconds=columns)


if __name__ == "__main__":
    main()
