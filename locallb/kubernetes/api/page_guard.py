"""Ends endless lists: a server that names a page again would keep the client going round in circles.

The client underneath follows pages by itself, so each of its requests is checked. Not here: lists of a watch, which
follow their own pages (`feed`).
"""

from __future__ import annotations

from threading import get_ident

import httpx2

from locallb.kubernetes.answers import MalformedAnswerError

MOST_PAGES = 1000


class PageGuard:
    """Looks at the requests of one connection. Safe to use from several threads, each with lists of its own."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, str], set[str]] = {}
        self._last: dict[int, httpx2.Request] = {}
        """Of each thread. The very same comes again where a credential was refused and another one is tried."""

    def look(self, request: httpx2.Request) -> None:
        """Raise OddError if this page of a list was asked for before, or if there are too many."""
        last, self._last[get_ident()] = self._last.get(get_ident()), request
        if last is request or "limit" not in request.url.params:
            return
        page, key = request.url.params.get("continue"), (get_ident(), request.url.path)
        asked = self._asked.setdefault(key, set())
        if page is None:
            asked.clear()
        elif page in asked or len(asked) >= MOST_PAGES:
            raise MalformedAnswerError("the list turns no page" if page in asked else "the list has no end")
        else:
            asked.add(page)
