"""The HTTP client for one Kubernetes API, and the configuration it was made from.

Every request passes here: the quota is kept, answers are limited in size and time, and an API that another user named
keeps to its allowance. Watches are of the same client, without these limits (`feed`). Not here: which requests, and
retries.
"""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct, json

from locallb.kubernetes.access.auth import auth_of
from locallb.kubernetes.access.kubeconfig import Connection, Stamp, connection, stamp
from locallb.kubernetes.access.servers import KubeconfigError, KubeError
from locallb.kubernetes.access.tls import TLS
from locallb.kubernetes.answers import Object
from locallb.kubernetes.api.limits import PLAIN, Allowance, limit, limit_to, read_whole, refuse_compressed
from locallb.kubernetes.api.refusals import FailedAnswerError, refuse_redirect
from locallb.kubernetes.api.writes import QUOTAS
from locallb.model.snapshot import Access

TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
"""Kinds of patches."""
_MANAGER = "local-lb"


class ServedKind(Struct, frozen=True):
    """A kind that an API serves, in one version."""

    api: str
    """Its `apiVersion`."""
    name: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return where all are listed, or those of a namespace, or where one is."""
        parts = (*(("namespaces", namespace) if namespace else ()), self.plural, *((name,) if name else ()))
        root = "apis" if "/" in self.api else "api"
        return "/".join(("", root, self.api, *(quote(part, safe="") for part in parts)))

    def typed(self, document: Mapping[str, object]) -> Mapping[str, object]:
        return {"apiVersion": self.api, "kind": self.name, **document}


def open_client(
    reached: Connection,
    checks: Iterable[Callable[[httpx2.Response], None]] = (),
    headers: Mapping[str, str] | None = None,
) -> httpx2.Client:
    """Open a client of the API; `checks` see each answer before its reader. Raises KubeconfigError."""
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [reached.name_server, partial(QUOTAS.hold, reached.access)],
        "response": list(checks),
    }
    try:
        return httpx2.Client(
            base_url=reached.url,
            verify=TLS.of(reached),
            auth=auth_of(reached),
            timeout=TIMEOUT,
            trust_env=reached.trust_env,
            proxy=reached.proxy,
            event_hooks=hooks,
            headers=headers,
        )
    except (OSError, ssl.SSLError, ValueError, TypeError, ImportError, httpx2.InvalidURL) as error:
        why = "a SOCKS proxy needs the package socksio; install it, or name an HTTP proxy"
        why = why if isinstance(error, ImportError) else str(error)
        sentence = f"the context {reached.access.context} of {reached.access.kubeconfig} can't be used: {why}"
        raise KubeconfigError(sentence) from None


class Connected:
    """A connection; closed once it is unused. Safe to use from several threads."""

    def __init__(self, access: Access, allowance: Allowance | None = None) -> None:
        named = connection(access).files
        self.stamp: Stamp | None = None
        with suppress(KubeError):  # using them tells what is wrong
            self.stamp = stamp(access, named)  # before they are read: what changes now is seen next time
        reached = connection(access)
        self.files = reached.files
        self.server = reached.server
        self.beyond = reached.beyond
        checks = (refuse_redirect, *((refuse_compressed,) if allowance else ()), read_whole)
        self._client = open_client(reached, checks, PLAIN if allowance else None)
        limit_to(allowance, self._client) if allowance else limit(self._client)
        weakref.finalize(self, self._client.close)

    def request(self, method: str, path: str, **given: Any) -> bytes:  # noqa: ANN401 - as httpx2 has it
        """Return the whole answer to a request. Raises FailedAnswerError, AnswerError, HTTPError."""
        answer = self._client.request(method, path, **given)
        if not answer.is_success:
            raise FailedAnswerError(answer)
        return answer.content

    def get(self, path: str) -> Object:
        """Return the object at a path. Raises what `request` does, and DecodeError or TypeError."""
        return _object(self.request("GET", path))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object],
        content: str = "application/json",
        *,
        parameters: Mapping[str, str] | None = None,
        **given: Any,  # noqa: ANN401 - as httpx2 has it
    ) -> Object:
        """Return the object that a write made. Raises what `get` does."""
        named, headers = {"fieldManager": _MANAGER, **(parameters or {})}, {"Content-Type": content}
        return _object(self.request(method, path, params=named, content=json.encode(body), headers=headers, **given))

    def delete(self, path: str, preconditions: Mapping[str, str]) -> bytes:
        """Delete the object at a path if it fulfils the preconditions. Raises what `request` does."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        return self.request("DELETE", path, json=options)


def _object(text: bytes) -> Object:
    document = json.decode(text)
    if not isinstance(document, dict):
        raise TypeError
    return document
