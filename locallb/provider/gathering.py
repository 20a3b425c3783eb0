"""New parts of shared proxies that an update is about to bring: claimed, put in and proven together, not one by one.

An Envoy reads all that it has for each change, and the ledger is gone through for each claim. Not here: what waits for
whom (`threads.joined`), and which parts those are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from locallb.ledger.ledger import Ledger
from locallb.model.identities import ProxyId
from locallb.provider import part_reads
from locallb.provider.resources import proxy_fragments
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies
from locallb.threads.joined import Joined


@contextmanager
def gathering(parts: Iterable[ProxyId], claims: int) -> Iterator[None]:
    """Expect a new part in each of these proxies, and so many claims; one that fails is waited for once, briefly."""
    expected: dict[Joined[Any, Any], int] = {Ledger(paths.ledger_directory()).queue: claims}
    for proxy, number in Counter(parts).items():
        directory = Proxies.ours().path(proxy)
        expected |= {proxy_fragments.queue(directory): number, part_reads.checks(directory): number}
    for queue, number in expected.items():
        queue.expect(number)
    try:
        yield
    finally:
        for queue in expected:
            queue.expect(0)
