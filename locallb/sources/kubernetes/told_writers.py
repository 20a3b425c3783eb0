"""What those who follow a cluster's Services tell those who write to them: what each is now, how fast they may ask.

Not here: following (`followed_cluster`), and what writers make of it (`kubernetes.api.recent`, `kubernetes.api.quota`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from locallb.kubernetes.api.quota import QUOTAS
from locallb.kubernetes.api.recent import RECENT
from locallb.kubernetes.parsing import Document, Identity, Parsed
from locallb.model.snapshot import Access


def hold_back(access: Access) -> None:
    """Let requests to a cluster wait for their turn from now on: it will be followed."""
    QUOTAS.put(access, 0)


class ToldWriters:
    """Those of one cluster."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._most = 0
        self._is_over = False
        hold_back(access)

    def end(self) -> None:
        """Tell nothing any more, and take back what was told."""
        self._is_over = True
        RECENT.forget(self._access)
        QUOTAS.drop(self._access)

    def listed(self, objects: Mapping[Identity, Document], parsed: Iterable[Parsed]) -> None:
        """Tell of all that there are."""
        if self._is_over:
            return
        RECENT.forget(self._access)
        for identity, one in objects.items():
            self.changed(identity, one)
        self._most = 0
        self.grown(parsed)

    def grown(self, parsed: Iterable[Parsed]) -> None:
        """Let so many requests go at once as befit the most load balancers that there were since the last list."""
        self._most = max(self._most, sum(bool(one.services) for one in parsed))
        if not self._is_over:
            QUOTAS.put(self._access, self._most)

    def changed(self, identity: Identity, one: Document | None) -> None:
        """Tell what a Service is now; None: it is gone."""
        if self._is_over:
            return
        if one is None:
            RECENT.drop(self._access, identity.namespace, identity.name)
        else:
            RECENT.note(self._access, identity.namespace, identity.name, one)

    def opened(self) -> None:
        """Tell that every change is told from now on."""
        if not self._is_over:
            RECENT.opened(self._access, is_open=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let them ask the API again once nothing tells of changes any more."""
        try:
            yield
        finally:
            RECENT.opened(self._access, is_open=False)
