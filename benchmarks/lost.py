"""Requests while pods end: how many failed, and how many of those no pod had accepted, by what the proxy's log says.

What a pod had accepted when it ended is lost behind any proxy that doesn't know the protocol; nobody else should fail.
Of an implementation that isn't ours there is no log: it is only counted what failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.requests import Load, Request, ask, until
from benchmarks.watch import IDLE, Figures
from tests.support.log_reading import Reader, reading, was_accepted

Place = tuple[str, int]
FindProxy = Callable[[str, int], Path]
"""Finds the directory of the proxy that serves an address and a port."""


@contextmanager
def requested(figures: Figures, what: str, place: Place, rate: int, find: FindProxy | None) -> Iterator[None]:
    """Ask at a constant rate while the block runs and for a moment after it, and count what failed."""
    with ExitStack() as stack:
        reader = stack.enter_context(reading(find(*place))) if find else None
        if reader:
            until(lambda: ask(*place) and reader.lines, "the log")
        with Load(*place, rate) as load:
            yield
            time.sleep(1 + IDLE)
        failed = load.failed
        began = [request.began for request in failed]
        figures.add(f"{what}: first to last failed request", max(began) - min(began) if began else 0.0)
        figures.count(f"{what}: requests", len(load.requests))
        figures.count(f"{what}: failed", len(failed))
        if reader:
            figures.count(f"{what}: failed, accepted by no pod", len(failed) - _accepted(reader, failed))


def _accepted(reader: Reader, failed: Sequence[Request]) -> int:
    clients = {request.client for request in failed if request.client}
    until(lambda: clients <= {line.client for line in reader.lines if not line.sent}, "the log of what failed")
    return len(clients & {line.client for line in reader.lines if not line.sent and was_accepted(line)})
