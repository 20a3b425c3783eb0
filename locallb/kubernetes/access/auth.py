"""Requests to an API with the token of an exec plugin; one that the API refuses is fetched again, once."""

from __future__ import annotations

from collections.abc import Generator

import httpx2

from locallb.kubernetes.access.exec_plugin import Plugin, refuse, token


class PluginAuth(httpx2.Auth):
    """Asks for the token at each request. Raises KubeError out of the request where there is none."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        used = token(self._plugin)
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            refuse(self._plugin, used)
            if (other := token(self._plugin)) != used:
                request.headers["Authorization"] = f"Bearer {other}"
                yield request
