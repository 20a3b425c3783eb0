"""How long commands take from the start of their process to its end, where they have nothing to do.

    python -m benchmarks.commands [--runs 20] [--services 3]

A stack of manifests that is up, with a proxy for each Service. The same interpreter with an empty program is measured
in turns with the commands: what it takes nobody can save. A table goes to standard error, one JSON object to standard
output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import report_to, result, spreads, table
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

COMMANDS = (("status",), ("up", "--yes"), ("preview",))
AIMS = "aims: 250 ms for status, 500 ms for up and preview"
LOCALLB = str(Path(sys.executable).with_name("locallb"))


@contextmanager
def settled(services: int) -> Iterator[Stage]:
    """Make a stack, and bring it up; afterwards it is destroyed."""
    with stage() as play:
        for number in range(services):
            play.write(f"web{number}.yaml", node(), service(f"web{number}", port(8080, 30_000 + number)))
        play.up()
        yield play


def seconds(terms: Sequence[str]) -> float:
    """Run a program to its end, and return how long it took."""
    begun = time.perf_counter()
    subprocess.run(terms, check=True, capture_output=True)
    return time.perf_counter() - begun


def measure(play: Stage, runs: int) -> dict[str, list[float]]:
    """Run each command in turns, the first time uncounted; in milliseconds."""
    programs = {"an empty program": [sys.executable, "-c", ""]}
    programs |= {" ".join(terms): [LOCALLB, "-C", str(play.root), *terms] for terms in COMMANDS}
    figures: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(-1, runs):
        for name, terms in programs.items():
            took = seconds(terms)
            if number >= 0:
                figures[name].append(took * 1000)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--services", type=int, default=3)
    args = parser.parse_args()
    with settled(args.services) as play:
        figures = {f"{args.services} Services": spreads(measure(play, args.runs))}
    report_to(table(figures))
    result("commands", [AIMS], milliseconds=figures)


if __name__ == "__main__":
    main()
