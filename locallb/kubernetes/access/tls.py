"""TLS contexts of connections, cached by their inputs: loading the system's authorities takes 60 ms.

A cluster that can't be followed is retried again and again, each time by another client. Not here: trust settings of
a kubeconfig (`kubeconfig`), and clients.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User

from locallb.storage.files import stamp_of

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

    def of(self, config: SingleConfig, files: Iterable[str], *, trust_env: bool) -> ssl.SSLContext:
        """Return the TLS context for a kubeconfig that names `files`. Raises OSError, SSLError, ValueError."""
        key = _key(config, files, trust_env=trust_env)  # before files are read: what changes now is seen next time
        with self._lock:
            made, now = self._made.pop(key, None), self._clock()
            if made is None or now >= made[0] + _FRESH:
                user = config.user or User()
                made = now, verify_cluster(config.cluster, user, config.abs_file, trust_env=trust_env)
            self._made[key] = made
            while len(self._made) > _MAX:
                del self._made[next(iter(self._made))]
            return made[1]


def _key(config: SingleConfig, files: Iterable[str], *, trust_env: bool) -> _Key:
    cluster, user = config.cluster, config.user or User()
    given = (cluster.certificate_auth, cluster.certificate_auth_data, cluster.insecure)
    shown = (user.client_cert, user.client_cert_data, user.client_key, user.client_key_data)
    read = tuple((file, stamp_of(Path(file))) for file in files)  # one that isn't there: using it tells what is wrong
    return (*given, *shown, trust_env, *map(os.environ.get, _ENVIRONMENT), *read)


TLS = TlsContexts()
"""Of this process."""
