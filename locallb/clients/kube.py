"""Kubernetes APIs, by kubeconfig and context: lists of what is read, and patches of a Service's status.

The only module that talks to an API server. Objects are plain JSON, as `planning.parsing` takes them; what they mean
and what is written is decided elsewhere. Credentials stay where the kubeconfig says.
"""

from __future__ import annotations

import os
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import httpx2
import yaml
from lightkube import ApiError, Client, ConfigError, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from locallb.clients import ClientError
from locallb.clients.tally import Tally
from locallb.planning.model import Access

Object: TypeAlias = dict[str, Any]
T = TypeVar("T")
TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
_ATTEMPTS = 5
_PAGE = 500
_TOO_MANY = 429
_MANAGER = "local-lb"

SERVICE = create_namespaced_resource("", "v1", "Service", "services")
SLICE = create_namespaced_resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
NODE = create_global_resource("", "v1", "Node", "nodes")


WRITES = Tally()
"""Requests of this process that write, whatever became of them: `status` and `event`."""


class Fault(StrEnum):
    """What sort of thing went wrong."""

    KUBECONFIG = "kubeconfig"
    """It can't be read or used."""
    NO_CONTEXT = "no context"
    """It has no such context: whoever made the cluster took it away."""
    UNREACHABLE = "unreachable"
    """The API didn't answer, or not now; what it has is unknown."""
    REFUSED = "refused"
    """The API said no."""
    CONFLICT = "conflict"
    """Somebody wrote since it was read."""


class KubeError(ClientError):
    """An API can't be used as asked: one sentence."""

    def __init__(self, fault: Fault, sentence: str) -> None:
        super().__init__(sentence)
        self.fault = fault


def resolve(kubeconfig: str, context: str, root: Path) -> Access:
    """Tell which context of which file is meant; empty words stand for kubectl's defaults.

    Raises KubeError (KUBECONFIG, NO_CONTEXT).
    """
    path = kubeconfig_path(kubeconfig, root)
    loaded = _load(path)
    name = context or loaded.current_context
    if not name:
        raise KubeError(Fault.NO_CONTEXT, f"{path} has no current context; name one in `context`")
    if name not in loaded.contexts:
        raise KubeError(Fault.NO_CONTEXT, f"{path} has no context {name}")
    return Access(str(path), name)


def kubeconfig_path(kubeconfig: str, root: Path) -> Path:
    """Find the file; the first of `$KUBECONFIG` where none is named."""
    given = kubeconfig or os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or "~/.kube/config"
    return Path(os.path.normpath(root / Path(given).expanduser()))


class Cluster:
    """One cluster's API. Safe to use from several threads."""

    def __init__(self, access: Access) -> None:
        self.access = access
        config = single_config(access)
        self._server = config.cluster.server
        try:
            self._client = Client(config, timeout=TIMEOUT, field_manager=_MANAGER, trust_env=not is_local(self._server))
        except (OSError, ssl.SSLError, ConfigError, ValueError, TypeError) as error:
            told = f"the context {access.context} of {access.kubeconfig} can't be used: {error}"
            raise KubeError(Fault.KUBECONFIG, told) from None
        weakref.finalize(self, self._client.close)

    def objects(self) -> list[Object]:
        """List every Service, Node and EndpointSlice. Raises KubeError."""
        return [
            *self._list("v1", "Service", lambda: self._client.list(SERVICE, namespace="*", chunk_size=_PAGE)),
            *self._list("v1", "Node", lambda: self._client.list(NODE, chunk_size=_PAGE)),
            *self._list(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                lambda: self._client.list(SLICE, namespace="*", chunk_size=_PAGE),
            ),
        ]

    def service(self, namespace: str, name: str) -> Object | None:
        """Give a Service; None if there is none. Raises KubeError."""
        found = self._call(
            f"Service {namespace}/{name}", lambda: self._client.get(SERVICE, name, namespace=namespace), absent=True
        )
        return None if found is None else dict(found)

    def patch_status(self, namespace: str, name: str, patch: Mapping[str, object]) -> Object | None:
        """Merge `patch` into a Service by its `status` subresource; None if it is gone. Raises KubeError."""
        WRITES.add("status")
        done = self._call(
            f"the status of Service {namespace}/{name}",
            lambda: self._client.patch(
                SERVICE.Status, name, dict(patch), namespace=namespace, patch_type=PatchType.MERGE
            ),
            absent=True,
        )
        return None if done is None else dict(done)

    def create_event(self, namespace: str, body: Mapping[str, object]) -> None:
        """Create an event of events.k8s.io/v1. Raises KubeError."""
        WRITES.add("event")
        self._call("an event", lambda: self._client.create(EVENT.from_dict(dict(body)), namespace=namespace))

    def _list(self, version: str, kind: str, pages: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Object]:
        """List a kind, all pages; items of a list don't say what they are, so that is added."""
        listed = self._call(f"the list of {kind}s", lambda: list(pages()))
        return [{**one, "apiVersion": version, "kind": kind} for one in listed or ()]

    def _call(self, what: str, call: Callable[[], T], *, absent: bool = False) -> T | None:
        """Call, with patience for an API that is busy. `absent` makes 404 an answer."""
        for attempt in range(_ATTEMPTS):
            try:
                return call()
            except ApiError as error:
                status = error.status
                if status.code == _TOO_MANY and attempt + 1 < _ATTEMPTS:
                    time.sleep(min(float((status.details and status.details.retryAfterSeconds) or 1), 5.0))
                elif status.code == httpx2.codes.NOT_FOUND and absent:
                    return None
                else:
                    raise self._refused(what, status.code or 0, status.message or "") from None
            except httpx2.HTTPStatusError as error:
                raise self._refused(what, error.response.status_code, error.response.text[:200]) from None
            except (httpx2.HTTPError, ssl.SSLError, OSError) as error:
                raise KubeError(Fault.UNREACHABLE, f"{self._server} doesn't answer ({error!s:.200})") from None
            except (ConfigError, httpx2.InvalidURL) as error:
                raise KubeError(Fault.KUBECONFIG, f"the context {self.access.context} can't be used: {error}") from None
        raise AssertionError(what)

    def _refused(self, what: str, code: int, message: str) -> KubeError:
        if code == httpx2.codes.CONFLICT:
            return KubeError(Fault.CONFLICT, f"{what} was changed by somebody else: {message}")
        if code >= httpx2.codes.INTERNAL_SERVER_ERROR or code == _TOO_MANY:
            return KubeError(Fault.UNREACHABLE, f"{self._server} can't serve {what} now ({code}: {message})")
        remedy = ""
        if code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            remedy = f"; give the user of context {self.access.context} the rights of deploy/rbac.yaml"
        return KubeError(Fault.REFUSED, f"{self._server} refuses {what} ({code}: {message}){remedy}")


class Clusters:
    """Connections that are kept, one a context, as long as its kubeconfig stays the same."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Access, tuple[tuple[int, int], Cluster]] = {}

    def at(self, access: Access) -> Cluster:
        """Give the cluster of a context. Raises KubeError."""
        with self._lock:
            stamp = _stamp(Path(access.kubeconfig))
            known = self._known.get(access)
            if known is None or known[0] != stamp:
                known = self._known[access] = (stamp, Cluster(access))
            return known[1]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError as error:
        raise KubeError(Fault.KUBECONFIG, f"the kubeconfig {path} can't be read: {error.strerror}") from None
    return seen.st_mtime_ns, seen.st_ino


def _load(path: Path) -> KubeConfig:
    try:
        content = yaml.safe_load(path.read_bytes()) or {}
        return KubeConfig.from_dict({"clusters": [], "contexts": [], "users": [], **_lists(content)}, path)
    except OSError as error:
        raise KubeError(Fault.KUBECONFIG, f"the kubeconfig {path} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        raise KubeError(Fault.KUBECONFIG, f"{path} isn't a kubeconfig") from None


def _lists(content: Mapping[str, object]) -> Mapping[str, object]:
    """Leave out lists that are null, as `kind delete cluster` leaves them."""
    return {key: value for key, value in content.items() if value is not None}


def single_config(access: Access) -> SingleConfig:
    """Read what a context says. Raises KubeError (KUBECONFIG, NO_CONTEXT)."""
    config = _load(Path(access.kubeconfig))
    context = config.contexts.get(access.context)
    where = f"{access.kubeconfig} has"
    if context is None:
        raise KubeError(Fault.NO_CONTEXT, f"{where} no context {access.context}")
    for kind, name, known in (("cluster", context.cluster, config.clusters), ("user", context.user, config.users)):
        if name not in known:
            raise KubeError(Fault.KUBECONFIG, f"{where} no {kind} {name}, which its context {access.context} names")
    single: SingleConfig | None = config.get(access.context)
    if single is None:
        raise AssertionError(access)
    return single


def is_local(server: str) -> bool:
    """Tell whether the API is on this host: then no proxy of the environment is asked, as kubectl does it."""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
