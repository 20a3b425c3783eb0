"""Credentials that requests carry: a bearer token, or a name with a password.

A token of a file or an exec plugin may be another one at any time: it is read for each request. One that the API
refuses is read again, once. Not here: where tokens come from (`kubeconfig_file`, `exec_plugin`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import httpx2

from locallb.kubernetes.access.exec_plugin import refuse, token
from locallb.kubernetes.access.kubeconfig import Connection
from locallb.kubernetes.access.kubeconfig_file import read_token


class BearerAuth(httpx2.Auth):
    """Sends the token that `read` returns. Raises KubeError out of the request where there is none."""

    def __init__(self, read: Callable[[], str], refuse: Callable[[str], object] = lambda _used: None) -> None:
        self._read = read
        self._refuse = refuse

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        used = self._read()
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._refuse(used)
            if (other := self._read()) != used:
                request.headers["Authorization"] = f"Bearer {other}"
                yield request


def auth_of(reached: Connection) -> httpx2.Auth | None:
    """Return the credentials of a connection; None if it has none, or only a client certificate."""
    user, plugin = reached.user, reached.plugin
    if plugin:
        return BearerAuth(partial(token, plugin), partial(refuse, plugin))
    if user.token_file:
        return BearerAuth(partial(read_token, Path(user.token_file), reached.access))
    if inline := user.token:
        return BearerAuth(lambda: inline)
    return httpx2.BasicAuth(user.username, user.password) if user.username and user.password else None
