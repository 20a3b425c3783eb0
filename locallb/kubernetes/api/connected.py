"""The HTTP client for one Kubernetes API, and the configuration it was made from.

Every request passes here: pages are checked, answers are limited in size, the quota is kept, events get a short
timeout, and an API that another user named keeps to its allowance. Not here: which requests, and retries.
"""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident

import httpx2
from lightkube import Client, ConfigError

from locallb.kubernetes.access.auth import PluginAuth
from locallb.kubernetes.access.kubeconfig import Stamp, connection, stamp
from locallb.kubernetes.access.servers import KubeconfigError, KubeError
from locallb.kubernetes.answers import AnswerError
from locallb.kubernetes.api.limits import PAGES, Allowance, ask_plainly, limit, limit_to, read_whole, refuse_compressed
from locallb.kubernetes.api.refusals import refuse_redirect
from locallb.kubernetes.api.writes import QUOTAS
from locallb.model.snapshot import Access

TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
EVENT_TIMEOUT = httpx2.Timeout(1.0)
"""Seconds for any request about an event: a lost event is harmless, so it delays nothing."""
_MANAGER = "local-lb"
_MAX_PAGES = 1000


class Connected:
    """A connection; closed once it is unused."""

    def __init__(self, access: Access, allowance: Allowance | None = None) -> None:
        named = connection(access).files
        self.stamp: Stamp | None = None
        with suppress(KubeError):  # using them tells what is wrong
            self.stamp = stamp(access, named)  # before they are read: what changes now is seen next time
        reached = connection(access)
        self.files = reached.files
        self.server = reached.server
        self.beyond = reached.beyond
        try:
            self.client = Client(
                reached.config,
                timeout=TIMEOUT,
                field_manager=_MANAGER,
                trust_env=reached.trust_env,
                proxy=reached.proxy,
            )
        except (OSError, ssl.SSLError, ConfigError, ValueError, TypeError) as error:
            sentence = f"the context {access.context} of {access.kubeconfig} can't be used: {error}"
            raise KubeconfigError(sentence) from None
        if reached.plugin:
            self.client._client._client.auth = PluginAuth(reached.plugin)  # noqa: SLF001 - no other way to its requests
        hooks: list[Callable[[httpx2.Request], None]] = [
            reached.name_server,
            _hurry_event,
            PageGuard(PAGES if allowance else _MAX_PAGES).inspect,
            partial(QUOTAS.hold, access),
            *([ask_plainly] if allowance else ()),
        ]
        answered = [refuse_redirect, *([refuse_compressed] if allowance else ()), read_whole]
        client = self.client._client._client  # noqa: SLF001 - likewise
        client.event_hooks = {"request": hooks, "response": answered}
        limit_to(allowance, client) if allowance else limit(client)
        weakref.finalize(self, self.client.close)


def _hurry_event(request: httpx2.Request) -> None:
    """Don't wait for events as for other requests."""
    if request.method == "POST" and request.url.path.endswith("/events"):
        request.extensions["timeout"] = EVENT_TIMEOUT.as_dict()


class PageGuard:
    """Ends endless lists of one connection: a server that names a page again would keep the client going round.

    Safe to use from several threads, each with lists of its own. Lists of watches follow their own pages (`feed`).
    """

    def __init__(self, maximum: int = _MAX_PAGES) -> None:
        self._most = maximum
        self._requested: dict[tuple[int, str], set[str]] = {}
        self._last: dict[int, httpx2.Request] = {}
        """Last request of each thread. An identical one follows if a credential was refused and another is tried."""

    def inspect(self, request: httpx2.Request) -> None:
        """Raise AnswerError if this page of a list was asked for before, or if there are too many."""
        last, self._last[get_ident()] = self._last.get(get_ident()), request
        if last is request or "limit" not in request.url.params:
            return
        page, key = request.url.params.get("continue"), (get_ident(), request.url.path)
        requested = self._requested.setdefault(key, set())
        if page is None:
            requested.clear()
        elif page in requested or len(requested) + 1 >= self._most:
            raise AnswerError(
                "the list turns no page" if page in requested else f"the list has over {self._most} pages"
            )
        else:
            requested.add(page)
