"""Kills the core and the engine with SIGKILL at random moments, and lets the other one heal: a script for a test.

    python -m tests.engine.core.kill_core FOLDER TIMES SEED

The world is a folder of files, each run a forked child. Prints what it found wrong.
"""

import sys
from functools import partial

from locallb.engine.core.executor import ThreadExecutor
from tests.engine.core.support import core_of, desire
from tests.engine.graphs import Graph, Site
from tests.engine.kill_often import GRAPHS, arguments, begin, heal, heals, is_healed


def by_the_core(site: Site, graph: Graph) -> bool:
    """Bring a site to a graph with real threads; everything goes for none."""
    with core_of(site, ThreadExecutor()) as core:
        desire(core, graph)
        core.run(lambda: core.is_settled, 60)
        return core.is_settled


def heal_by_the_core(site: Site, graph: Graph) -> bool:
    """Run once more and look whether everything is as it should be."""
    return by_the_core(site, graph) and is_healed(site, graph)


def main() -> int:
    """Kill and heal; gives 1 at the first thing that is wrong."""
    site, times, dice = arguments()
    pod_paths = ((by_the_core, heal), (begin, heal_by_the_core))
    for number in range(times):
        graph = GRAPHS[number // 2 % len(GRAPHS)]
        victim, healer = pod_paths[number % 2]
        if not heals(number, partial(victim, site, graph), partial(healer, site, graph), dice):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
