"""Kills updates and destroys with SIGKILL at random moments, and lets the next run heal each: a script for a test.

    python -m tests.engine.kill_often FOLDER TIMES SEED

The world is a folder of files. Each run is a forked child, so that Pulumi is imported once. Prints what it found wrong.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from locallb.engine.core.events import Result
from locallb.engine.sdk_wire import from_property_values, to_property_values
from tests.engine.graphs import Graph, Node, Site, declare

GRAPHS: tuple[Graph, ...] = (
    (Node(0, 0), Node(1, 0, uses=(0,), first=True), Node(2, 1, uses=(1,)), Node(3, 1, waits=(2,)), Node(4, 2)),
    (
        Node(0, 0, key=1),
        Node(1, 0, uses=(0,), first=True, key=1),
        Node(2, 1, uses=(1,), value=1),
        Node(5, 2, uses=(0,)),
    ),
    (),
)
LONGEST = 0.06  # seconds until a kill


class Folder(MutableMapping[str, Any]):
    """Things as files; each operation takes a moment, so that a kill can fall into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 the properties of a thing
        try:
            return to_property_values(json.loads((self.folder / key).read_text()))
        except FileNotFoundError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401 likewise
        time.sleep(0.001)
        sibling = self.folder.parent / f"{key}.new"
        sibling.write_text(json.dumps(from_property_values(value, key)))
        sibling.replace(self.folder / key)
        time.sleep(0.001)

    def __delitem__(self, key: str) -> None:
        time.sleep(0.001)
        try:
            (self.folder / key).unlink()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in self.folder.iterdir())

    def __len__(self) -> int:
        return len(list(self.folder.iterdir()))


def in_child(action: Callable[[], bool]) -> int:
    """Do something in a forked child, which ends with 0 if it gave True."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            code = 0 if action() else 1
        except BaseException:  # noqa: BLE001 told, and never let into the parent's stack
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def run(site: Site, graph: Graph) -> Result:
    """Update to a graph; destroy for none."""
    engine = site.engine()
    return engine.up(lambda: declare(graph)) if graph else engine.destroy()


def heal(site: Site, graph: Graph) -> bool:
    """Run once more and look whether everything is as it should be."""
    result = run(site, graph)
    if not result.ok:
        sys.stdout.write(f"{result.diagnostics}\n")
    return is_healed(site, graph) and result.ok


def is_healed(site: Site, graph: Graph) -> bool:
    """Look whether everything is as it should be."""
    wanted = {f"n{node.number}#{float(node.key)}" for node in graph}
    found = set(site.books.things)
    resources = site.state()
    locks = list((site.folder / ".state" / ".pulumi" / "locks").rglob("*.json"))
    good = found == wanted and not locks and len(resources) >= len(graph)
    if not good:
        sys.stdout.write(f"{sorted(found)} {sorted(wanted)} {sorted(resources)} {locks}\n")
        sys.stdout.flush()
    return good


def begin(site: Site, graph: Graph) -> bool:
    return run(site, graph).ok


def heals(number: int, victim: Callable[[], bool], healer: Callable[[], bool], dice: random.Random) -> bool:
    """Kill one run in its midst and look whether another one heals what it left."""
    killed = in_child(victim)
    time.sleep(dice.uniform(0, LONGEST))
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    _pid, status = os.waitpid(in_child(healer), 0)
    if status != 0:
        sys.stdout.write(f"run {number} was not healed (status {status})\n")
    return status == 0


def arguments() -> tuple[Site, int, random.Random]:
    """Read the command line: a site in the folder, whose world is files; how often; what chance begins with."""
    folder = Path(sys.argv[1])
    site = Site(folder / "p")
    site.project()
    site.books.things = Folder(folder / "world")  # type: ignore[assignment]  # it behaves like a dict
    return site, int(sys.argv[2]), random.Random(int(sys.argv[3]))


def main() -> int:
    """Kill and heal; gives 1 at the first thing that is wrong."""
    site, times, dice = arguments()
    for number in range(times):
        graph = GRAPHS[number % len(GRAPHS)]
        if not heals(number, partial(begin, site, graph), partial(heal, site, graph), dice):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
