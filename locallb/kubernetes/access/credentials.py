"""What a connection to an API shows and trusts: TLS contexts, bearer tokens, names with passwords.

TLS contexts are cached by their inputs: loading the system's authorities takes 60 ms, and a cluster that can't be
followed is retried again and again, each time by another client. A token of a file or an exec plugin may be another one
at any time: it is read for each request. One that the API refuses is read again, once. Not here: trust settings of a
kubeconfig (`kubeconfig`), where tokens come from (`kubeconfig_file`, `exec_plugin`), and clients.
"""

from __future__ import annotations

import base64
import os
import ssl
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import httpx2
from msgspec.structs import replace

from locallb.kubernetes.access.exec_plugin import refuse, token
from locallb.kubernetes.access.kubeconfig import Connection
from locallb.kubernetes.access.kubeconfig_file import read_token
from locallb.storage.files import stamp_of
from locallb.storage.key_pairs import in_memory

_MAX = 16
"""Contexts that are kept."""
_FRESH = 600.0
"""Seconds after which the same inputs are read again: the system's authorities may be others."""
_ENVIRONMENT = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_Key: TypeAlias = tuple[object, ...]


class TlsContexts:
    """The contexts of this process, by their inputs. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._made: dict[_Key, tuple[float, ssl.SSLContext]] = {}

    def of(self, reached: Connection) -> ssl.SSLContext:
        """Return the TLS context of a connection. Raises OSError, SSLError, ValueError."""
        # files are stamped before they are read: what changes now is seen next time; using an absent one tells why
        stamps = tuple((file, stamp_of(Path(file))) for file in reached.files)
        user = replace(reached.user, token=None, token_file=None, username=None, password=None)
        key = (reached.trust, user, reached.trust_env, *map(os.environ.get, _ENVIRONMENT), *stamps)
        with self._lock:
            made, now = self._made.pop(key, None), self._clock()
            if made is None or now >= made[0] + _FRESH:
                made = now, load(reached)
            self._made[key] = made
            while len(self._made) > _MAX:
                del self._made[next(iter(self._made))]
            return made[1]


def load(reached: Connection) -> ssl.SSLContext:
    """Read what a connection trusts and shows; data go before files. Raises OSError, SSLError, ValueError."""
    trust, user = reached.trust, reached.user
    with ExitStack() as stack:

        def file(data: str | None, path: str | None) -> str | None:
            return stack.enter_context(in_memory(base64.b64decode(data))) if data else path or None

        if authority := file(trust.certificate_authority_data, trust.certificate_authority):
            context = ssl.create_default_context(cafile=authority)
        else:
            context = httpx2.create_ssl_context(verify=not trust.insecure_skip_tls_verify, trust_env=reached.trust_env)
        if certificate := file(user.client_certificate_data, user.client_certificate):
            if not (key := file(user.client_key_data, user.client_key)):
                raise ValueError(
                    "its user has a client-certificate without a client-key; write the key that belongs to it"
                )
            context.load_cert_chain(certificate, key, password=_no_password)
        return context


def _no_password() -> str:
    """Refuse a key that Python would ask the terminal for, in the midst of a watch."""
    raise ValueError("its client-key has a password; write it without one")


TLS = TlsContexts()
"""Of this process."""


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
