"""Kubernetes APIs, by kubeconfig and context: lists of what is read, and patches of a Service's status.

The only module that talks to an API server. Objects are plain JSON, as `planning.parsing` takes them; what they mean
and what is written is decided elsewhere. Credentials stay where the kubeconfig says.
"""

from __future__ import annotations

import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import httpx2
from lightkube import ApiError, Client, ConfigError
from lightkube.generic_resource import GenericNamespacedResource, create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from locallb.clients.kube_auth import PluginAuth
from locallb.clients.kube_errors import Fault, KubeError
from locallb.clients.kubeconfig import Stamp, connection, stamp
from locallb.clients.tally import Tally
from locallb.planning.snapshot import Access

Object: TypeAlias = dict[str, Any]
T = TypeVar("T")
TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
EVENT_TIMEOUT = httpx2.Timeout(1.0)
"""Seconds for anything about an event: what nobody misses holds nobody up."""
_PAUSES = (0.1, 0.3, 1.0)
"""Seconds between attempts."""
_LONGEST = 5.0
_PAGE = 500
_TRANSIENT = frozenset({408, 410, 429, 500, 502, 503, 504})
"""Answers that another attempt may change; 410 is a list that took too long to turn its pages."""
_MANAGER = "local-lb"

SERVICE = create_namespaced_resource("", "v1", "Service", "services")
SLICE = create_namespaced_resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
LEASE = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
NODE = create_global_resource("", "v1", "Node", "nodes")


WRITES = Tally()
"""Requests of this process that write, whatever became of them: `status` and `event`."""


class Cluster:
    """One cluster's API. Safe to use from several threads."""

    def __init__(self, access: Access) -> None:
        self.access = access
        found = connection(access)
        self._server = found.server
        try:
            self._client = Client(
                found.config,
                timeout=TIMEOUT,
                field_manager=_MANAGER,
                trust_env=found.trust_env,
                proxy=found.proxy,
            )
        except (OSError, ssl.SSLError, ConfigError, ValueError, TypeError) as error:
            told = f"the context {access.context} of {access.kubeconfig} can't be used: {error}"
            raise KubeError(Fault.KUBECONFIG, told) from None
        if found.plugin:
            self._client._client._client.auth = PluginAuth(found.plugin)  # noqa: SLF001 - no other way to its requests
        self._client._client._client.event_hooks = {"request": [_hurry_event]}  # noqa: SLF001 - likewise
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
        """Create an event of events.k8s.io/v1, in one attempt that never takes long. Raises KubeError."""
        WRITES.add("event")
        event = EVENT.from_dict(dict(body))
        self._call("an event", lambda: self._client.create(event, namespace=namespace), pauses=())

    def lease(self, namespace: str, name: str) -> Object | None:
        """Give a Lease; None if there is none. Raises KubeError."""
        found = self._call(
            f"Lease {namespace}/{name}", lambda: self._client.get(LEASE, name, namespace=namespace), absent=True
        )
        return None if found is None else dict(found)

    def write_lease(self, namespace: str, body: Mapping[str, object], *, fresh: bool) -> Object:
        """Create or replace a Lease. Raises KubeError (CONFLICT if there is one, or another version of it)."""
        lease: GenericNamespacedResource = LEASE.from_dict(dict(body))

        def send() -> Mapping[str, Any]:
            if fresh:
                return self._client.create(lease, namespace=namespace)
            return self._client.replace(lease)

        return dict(self._call("the Lease", send) or {})

    def _list(self, version: str, kind: str, pages: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Object]:
        """List a kind, all pages; items of a list don't say what they are, so that is added."""
        listed = self._call(f"the list of {kind}s", lambda: list(pages()))
        return [{**one, "apiVersion": version, "kind": kind} for one in listed or ()]

    def _call(
        self, what: str, call: Callable[[], T], *, absent: bool = False, pauses: Iterable[float] = _PAUSES
    ) -> T | None:
        """Call, with patience for an API that can't answer just now. `absent` makes 404 an answer.

        Whoever writes over a resourceVersion may be answered twice: the second answer is then a conflict.
        """
        for pause in (*pauses, None):
            try:
                return call()
            except httpx2.HTTPStatusError as error:
                code, message = _said(error)
                if code == httpx2.codes.NOT_FOUND and absent:
                    return None
                if pause is None or code not in _TRANSIENT:
                    raise self._refused(what, code, message) from None
                time.sleep(_wish(error) or pause)
            except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:  # it was reached, and cut us off
                if pause is None:
                    raise self._unreachable(error) from None
                time.sleep(pause)
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from None
            except (ConfigError, httpx2.InvalidURL, OSError) as error:  # credentials by a file
                raise KubeError(Fault.KUBECONFIG, f"the context {self.access.context} can't be used: {error}") from None
            except (ValueError, KeyError, TypeError) as error:
                raise self._nonsense(error) from None
        raise AssertionError(what)

    def _nonsense(self, error: Exception) -> KubeError:
        told = f"{self._server} answers with something that isn't a Kubernetes API's ({error!r:.200})"
        return KubeError(Fault.UNREACHABLE, told)

    def _unreachable(self, error: httpx2.HTTPError) -> KubeError:
        return KubeError(
            Fault.UNREACHABLE, f"{self._server} doesn't answer ({str(error) or type(error).__name__:.200})"
        )

    def _refused(self, what: str, code: int, message: str) -> KubeError:
        if code == httpx2.codes.CONFLICT:
            return KubeError(Fault.CONFLICT, f"{what} was changed by somebody else: {message}")
        if code >= httpx2.codes.INTERNAL_SERVER_ERROR or code in _TRANSIENT:
            return KubeError(Fault.UNREACHABLE, f"{self._server} can't serve {what} now ({code}: {message})")
        remedy = ""
        if code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            remedy = f"; give the user of context {self.access.context} the rights of deploy/rbac.yaml"
        return KubeError(Fault.REFUSED, f"{self._server} refuses {what} ({code}: {message}){remedy}")


def _hurry_event(request: httpx2.Request) -> None:
    """Don't wait for events as for other requests."""
    if request.method == "POST" and request.url.path.endswith("/events"):
        request.extensions["timeout"] = EVENT_TIMEOUT.as_dict()


def _said(error: httpx2.HTTPStatusError) -> tuple[int, str]:
    """Read an answer that is a refusal, the API's own or that of something between."""
    if isinstance(error, ApiError):
        return error.status.code or error.response.status_code, error.status.message or ""
    return error.response.status_code, error.response.text[:200]


def _wish(error: httpx2.HTTPStatusError) -> float:
    """Read how many seconds the API wants us to wait; 0 if it doesn't say, and never long."""
    text = error.response.headers.get("Retry-After", "")
    return min(float(text), _LONGEST) if text.isdecimal() else 0.0


class Clusters:
    """Connections that are kept, one a context, as long as its kubeconfig and the files that it names stay the same."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Access, tuple[tuple[str, ...], Stamp, Cluster]] = {}

    def at(self, access: Access) -> Cluster:
        """Give the cluster of a context. Raises KubeError."""
        with self._lock:
            known = self._known.get(access)
            if known is None or known[1] != stamp(access, known[0]):
                named = connection(access).files
                seen = stamp(access, named)  # before they are read: what changes now is seen next time
                known = self._known[access] = (named, seen, Cluster(access))
            return known[2]
