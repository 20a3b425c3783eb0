"""One kind of a cluster's objects as they come: a list, then its changes, with bookmarks.

The API server sends a bookmark about once a minute, so a watch that says nothing for longer is broken, whatever the
connection looks like. Not here: what to do when a feed ends, and what the objects mean.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from lightkube import ConfigError
from lightkube.config import client_adapter

from locallb.clients.kube import Object
from locallb.clients.kube_auth import PluginAuth
from locallb.clients.kube_errors import Fault, KubeError
from locallb.clients.kubeconfig import connection
from locallb.planning.snapshot import Access

PATHS: Mapping[str, tuple[str, str]] = {
    "Service": ("v1", "/api/v1/services"),
    "Node": ("v1", "/api/v1/nodes"),
    "EndpointSlice": ("discovery.k8s.io/v1", "/apis/discovery.k8s.io/v1/endpointslices"),
}
"""The kinds that are read: apiVersion, and where all of them are listed."""
OPENED = "OPENED"
SILENCE = 100.0
"""Seconds without a word after which a watch counts as broken."""
_LIFE = 300
"""Seconds after which the server shall end a watch; it goes on where it was."""
_PAGE = 500
_TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
_GONE = 410
_ERROR = 400


class ExpiredError(Exception):
    """The server no longer knows what happened since: list again."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object: ADDED, MODIFIED, DELETED; BOOKMARK and OPENED only tell a version.

    OPENED is ours: the server accepted the watch.
    """

    type: str
    object: Object
    version: str


class Feed:
    """Objects of one kind of one cluster. For one thread; `close` may be called from any."""

    def __init__(self, access: Access, kind: str) -> None:
        self.kind = kind
        self._api, self._path = PATHS[kind]
        found = connection(access)
        self._server = found.server
        try:
            parameters = client_adapter.ConnectionParams(_TIMEOUT, trust_env=found.trust_env, proxy=found.proxy)
            self._client = client_adapter.Client(found.config, parameters)
            if found.plugin:
                self._client.auth = PluginAuth(found.plugin)
        except (OSError, ssl.SSLError, ConfigError, ValueError, TypeError) as error:
            told = f"the context {access.context} of {access.kubeconfig} can't be used: {error}"
            raise KubeError(Fault.KUBECONFIG, told) from None

    def close(self) -> None:
        """Let the connections go."""
        self._client.close()

    def list(self) -> tuple[list[Object], str]:
        """Give every object, and the version from which a watch goes on. Raises KubeError."""
        found: list[Object] = []
        page: dict[str, str] = {"limit": str(_PAGE)}
        while True:
            with self._telling():
                answer = self._client.get(self._path, params=page)
                self._refuse(answer)
                document = answer.json()
            found.extend({**one, "apiVersion": self._api, "kind": self.kind} for one in document.get("items") or ())
            metadata = document["metadata"]
            if not (more := metadata.get("continue")):
                return found, str(metadata["resourceVersion"])
            page["continue"] = str(more)

    def watch(self, version: str) -> Iterator[Event]:
        """Give what happens after `version`, until the server ends it. Raises KubeError, ExpiredError."""
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_LIFE),
        }
        timeout = httpx2.Timeout(10.0, connect=3.0, read=SILENCE)
        with self._telling(), self._client.stream("GET", self._path, params=parameters, timeout=timeout) as answer:
            if answer.status_code >= _ERROR:
                answer.read()
                self._refuse(answer)
            yield Event(OPENED, {}, version)
            for line in answer.iter_lines():
                yield self._event(json.loads(line))

    def _event(self, raw: Mapping[str, Any]) -> Event:
        found: Object = raw["object"]
        if raw["type"] == "ERROR":
            if found.get("code") == _GONE:
                raise ExpiredError
            raise KubeError(Fault.UNREACHABLE, f"{self._server} ended a watch: {found.get('message', '')!s:.200}")
        version = str(found["metadata"]["resourceVersion"])
        return Event(str(raw["type"]), {**found, "apiVersion": self._api, "kind": self.kind}, version)

    def _refuse(self, answer: httpx2.Response) -> None:
        if answer.status_code == _GONE:
            raise ExpiredError
        if answer.status_code >= _ERROR:
            told = f"{self._server} doesn't give its {self.kind}s ({answer.status_code}: {answer.text[:200]})"
            denied = answer.status_code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}
            raise KubeError(Fault.REFUSED if denied else Fault.UNREACHABLE, told)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell in a sentence what goes wrong with the connection."""
        try:
            yield
        except (httpx2.HTTPError, ssl.SSLError, OSError) as error:
            told = f"{self._server} doesn't answer ({error!s:.200})"
            raise KubeError(Fault.UNREACHABLE, told) from None
        except (ConfigError, httpx2.InvalidURL) as error:
            raise KubeError(Fault.KUBECONFIG, f"{self._server} can't be asked: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            told = f"{self._server} answers with something that isn't a Kubernetes API's ({error!s:.200})"
            raise KubeError(Fault.UNREACHABLE, told) from None
