"""Kills the core and the engine with SIGKILL at random moments, and lets the other one heal: a script for a test.

    python -m tests.engine.core.kill_core FOLDER TIMES SEED

The world is a folder of files, each run a forked child. Prints what it found wrong.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from locallb.engine.backend.store import Store
from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.session import open_core
from tests.engine.core.support import InPlace, groups_of, lane_of
from tests.engine.graphs import Graph, Site
from tests.engine.kill_often import GRAPHS, LONGEST, Folder, heal, in_child, is_healed
from tests.engine.kill_often import run as by_the_engine


def by_the_core(site: Site, graph: Graph) -> bool:
    """Bring a site to a graph with real threads; everything goes for none."""
    project = site.project()
    with open_core(
        Store(project.backend, project.name, "dev"),
        project=project.name,
        stack="dev",
        sources={"books": InPlace(site.books)},
        lane_of=lane_of,
        executor=ThreadExecutor(),
    ) as core:
        if graph:
            core.desire(groups_of(graph))
        else:
            core.desire_nothing()
        core.run(lambda: core.is_settled, 60)
        return core.is_settled


def main() -> int:
    """Kill and heal; gives 1 at the first thing that is wrong."""
    folder, times, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dice = random.Random(seed)
    site = Site(folder / "p")
    site.project()
    site.books.things = Folder(folder / "world")  # type: ignore[assignment]  # it behaves like a dict
    ways: list[tuple[Callable[[Graph], bool], Callable[[Graph], bool]]] = [
        (lambda graph: by_the_core(site, graph), lambda graph: heal(site, graph)),
        (
            lambda graph: by_the_engine(site, graph).ok,
            lambda graph: by_the_core(site, graph) and is_healed(site, graph),
        ),
    ]
    for number in range(times):
        graph = GRAPHS[number // 2 % len(GRAPHS)]
        kill, other = ways[number % 2]
        victim = in_child(lambda kill=kill, graph=graph: kill(graph))  # type: ignore[misc]  # defaults are the loop's
        time.sleep(dice.uniform(0, LONGEST))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        healer = in_child(lambda other=other, graph=graph: other(graph))  # type: ignore[misc]  # likewise
        _pid, status = os.waitpid(healer, 0)
        if status != 0:
            sys.stdout.write(f"run {number} was not healed (status {status})\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
