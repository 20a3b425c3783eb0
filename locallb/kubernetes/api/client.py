"""The client of Kubernetes APIs, by kubeconfig and context: lists and reads of objects, patches, events, leases.

Objects are plain JSON, as the parsers of `kubernetes.parsing` take them. The client's types of objects are of
Kubernetes' own kinds, and of kinds with a status that we write, in every version: a cluster serves an object in all
versions of its kind, so the first known version is enough.

Not here: the connection (`connected`), watches (`feed`), and the content of patches (`kubernetes.status`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from threading import Lock
from typing import Any, ClassVar, TypeVar, cast

import httpx2
from lightkube import Client, ConfigError
from lightkube.core.decoders import decode_list
from lightkube.core.exceptions import NotReadyError
from lightkube.core.generic_client import ListIterable
from lightkube.generic_resource import GenericNamespacedResource, create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta, Status
from lightkube.types import PatchType

from locallb.gateway.kinds import ApiKind
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.kubernetes.access.kubeconfig import stamp
from locallb.kubernetes.access.servers import KubeconfigError, KubeError
from locallb.kubernetes.answers import AnswerError, Object, listed
from locallb.kubernetes.api import refusals
from locallb.kubernetes.api.connected import Connected
from locallb.kubernetes.api.limits import Allowance
from locallb.model.fields import JsonObject
from locallb.model.identities import ObjectKind
from locallb.model.snapshot import Access
from locallb.model.texts import cleaned
from locallb.threads import Tally

_Type = TypeVar("_Type", bound=type)


def prepared(kind: _Type) -> _Type:
    """Return a type of objects of which lists are asked for, after one was read.

    The client makes a struct for each, and msgspec looks at its fields when the first list is read. It doesn't mind
    another thread that is about the same: two at once can crash the process.
    """
    decode_list(b'{"items": [], "metadata": {}}', kind)
    return kind


ObjectMeta.from_dict({})
Status.from_dict({})  # likewise structs, which threads use
SERVICE = prepared(create_namespaced_resource("", "v1", "Service", "services"))
SLICE = prepared(create_namespaced_resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"))
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
LEASE = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
NODE = prepared(create_global_resource("", "v1", "Node", "nodes"))
NAMESPACE = prepared(create_global_resource("", "v1", "Namespace", "namespaces"))
SECRET = create_namespaced_resource("", "v1", "Secret", "secrets")
CONFIG_MAP = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
POD = prepared(create_namespaced_resource("", "v1", "Pod", "pods"))


@cache
def written_types(kind: ObjectKind) -> tuple[type[GenericNamespacedResource], ...]:
    """Return the client's types of a kind, the preferred version first.

    The client takes a namespace for those without any, too, and leaves it out.
    """
    if kind is ObjectKind.SERVICE:
        return (SERVICE,)
    existing = _routed(kind)
    create = create_namespaced_resource if existing.namespaced else create_global_resource
    made = tuple(create(existing.group, version, existing.name, existing.plural) for version in existing.versions)
    return cast("tuple[type[GenericNamespacedResource], ...]", made)


def object_name(kind: ObjectKind, namespace: str, name: str) -> str:
    """Return how an object is called in a sentence."""
    shown = "Service" if kind is ObjectKind.SERVICE else _routed(kind).name
    return f"{shown} {namespace}/{name}" if namespace else f"{shown} {name}"


def _routed(kind: ObjectKind) -> ApiKind:
    return next(existing for existing in ROUTED_KINDS.values() if existing.plural == kind.value)


T = TypeVar("T")
_PAUSES = (0.1, 0.3, 1.0)
"""Seconds between attempts."""
_PAGE = 500
_RETAINED = 600.0
"""Seconds without a call after which a connection is let go."""

_LEASES = "coordination.k8s.io/v1"
WRITES = Tally()
"""Requests of this process that write, whatever became of them: `status`, `event` and `config map`."""


class Cluster:
    """One cluster's API, by the current content of its kubeconfig and the files it names. Safe in several threads."""

    rights: ClassVar[str] = refusals.RIGHTS
    """The files with the needed rights, for messages to a user without them."""

    def __init__(self, access: Access, allowance: Allowance | None = None) -> None:
        self.access = access
        self._lock = Lock()
        self._allowance = allowance
        """Cost limits of an API that another user named; with these nothing is retried."""
        self._connected = Connected(access, allowance)

    def _connection(self) -> Connected:
        """Return the connection; another one where another server or credential counts now. Raises KubeError."""
        with self._lock:
            if self._connected.stamp != stamp(self.access, self._connected.files):
                self._connected = Connected(self.access, self._allowance)
            return self._connected

    def objects(self) -> list[Object]:
        """List every Service and Node. Raises KubeError."""
        return [
            *self._list("v1", "Service", lambda client: client.list(SERVICE, namespace="*", chunk_size=_PAGE)),
            *self._list("v1", "Node", lambda client: client.list(NODE, chunk_size=_PAGE)),
        ]

    def slices(self) -> list[Object]:
        """List every EndpointSlice. Raises KubeError."""
        return self._list(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            lambda client: client.list(SLICE, namespace="*", chunk_size=_PAGE),
        )

    def service(self, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> Object | None:
        """Return a Service, or an object of another kind; None if there is none. Raises KubeError."""
        requested = (
            self._get(object_name(kind, namespace, name), written_type, namespace, name)
            for written_type in written_types(kind)
        )
        return next((answer for answer in requested if answer is not None), None)

    def secret(self, namespace: str, name: str) -> Object | None:
        """Return a Secret; None if there is none. Raises KubeError. The caller must keep its content private."""
        return self._get(f"Secret {namespace}/{name}", SECRET, namespace, name)

    def config_map(self, namespace: str, name: str) -> Object | None:
        """Return a ConfigMap; None if there is none. Raises KubeError."""
        return self._get(f"ConfigMap {namespace}/{name}", CONFIG_MAP, namespace, name)

    def patch_config_map(self, namespace: str, name: str, patch: Mapping[str, object]) -> None:
        """Merge `patch` into a ConfigMap. Raises KubeError."""
        WRITES.add("config map")

        def send(client: Client) -> JsonObject:
            return client.patch(CONFIG_MAP, name, dict(patch), namespace=namespace, patch_type=PatchType.MERGE)

        self._call(f"ConfigMap {namespace}/{name}", send)

    def _get(self, what: str, kind: type[GenericNamespacedResource], namespace: str, name: str) -> Object | None:
        document = self._call(what, lambda client: client.get(kind, name, namespace=namespace), absent=True)
        return None if document is None else cleaned(document)

    def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, object], kind: ObjectKind = ObjectKind.SERVICE
    ) -> Object | None:
        """Merge `patch` into a Service, or an object of another kind, by `status`; None if it is gone.

        Raises KubeError.
        """
        WRITES.add("status")
        what = f"the status of {object_name(kind, namespace, name)}"
        done = (self._patch(what, written_type, namespace, name, patch) for written_type in written_types(kind))
        return next((answer for answer in done if answer is not None), None)

    def _patch(
        self, what: str, kind: type[GenericNamespacedResource], namespace: str, name: str, patch: Mapping[str, object]
    ) -> Object | None:
        def send(client: Client) -> Object:
            made = client.patch(kind.Status, name, dict(patch), namespace=namespace, patch_type=PatchType.MERGE)
            if not made["metadata"]["name"]:
                raise AnswerError("an object has no name")
            return cleaned(made)

        return self._call(what, send, absent=True)

    def create_event(self, namespace: str, body: Mapping[str, object]) -> None:
        """Create an event of events.k8s.io/v1, in one attempt that never takes long. Raises KubeError."""
        WRITES.add("event")
        event = EVENT.from_dict(dict(body))
        self._call("an event", lambda client: client.create(event, namespace=namespace), pauses=())

    def lease(self, namespace: str, name: str) -> Object | None:
        """Return a Lease; None if there is none. Raises KubeError."""
        return self._call(
            f"Lease {namespace}/{name}",
            lambda client: listed(client.get(LEASE, name, namespace=namespace), _LEASES, "Lease"),
            absent=True,
        )

    def write_lease(self, namespace: str, body: Mapping[str, object], *, fresh: bool) -> Object:
        """Create or replace a Lease. Raises KubeError (CONFLICT if there is one, or another version of it)."""
        lease: GenericNamespacedResource = LEASE.from_dict(dict(body))

        def send(client: Client) -> Object:
            made = client.create(lease, namespace=namespace) if fresh else client.replace(lease)
            return listed(made, _LEASES, "Lease")

        return self._call("the Lease", send) or {}

    def _list(self, api: str, kind: str, pages: Callable[[Client], ListIterable[Any]]) -> list[Object]:
        """List all pages of a kind; adds the type to items, which lack it."""

        def read(client: Client) -> list[Object]:
            page = pages(client)
            objects = [listed(item, api, kind) for item in page]
            if not page.resourceVersion:  # an answer that is no list must not count as an empty one
                raise AnswerError("the list has no version")
            return objects

        return self._call(f"the list of {kind}s", read) or []

    def _call(
        self, what: str, call: Callable[[Client], T], *, absent: bool = False, pauses: Iterable[float] | None = None
    ) -> T | None:
        """Call, with retries if the API can't answer just now. `absent` makes 404 an answer.

        A write over a resourceVersion may be answered twice: the second answer is then a conflict.
        """
        usual = () if self._allowance else _PAUSES
        for pause in (*(usual if pauses is None else pauses), None):
            connected = self._connection()
            try:
                return call(connected.client)
            except httpx2.HTTPStatusError as error:
                code, message = refusals.stated(error)
                if code == httpx2.codes.NOT_FOUND and absent:
                    return None
                if pause is None or code not in refusals.TRANSIENT:
                    raise self._refused(connected, what, code, message) from None
                time.sleep(refusals.wish(error) or pause)
            except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:  # it was reached, and cut us off
                if pause is None:
                    raise refusals.unreachable(connected.server, error) from None
                time.sleep(pause)
            except httpx2.HTTPError as error:
                raise refusals.unreachable(connected.server, error) from None
            except (ConfigError, httpx2.InvalidURL, OSError) as error:  # credentials by a file
                raise KubeconfigError(f"the context {self.access.context} can't be used: {error}") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, NotReadyError) as error:
                raise refusals.nonsense(connected.server, error) from None
        raise AssertionError(what)

    def _refused(self, connected: Connected, what: str, code: int, message: str) -> KubeError:
        """Return what a refusal means."""
        remedy = f"give the user of context {self.access.context} the rights of {self.rights}"
        return refusals.refused(connected.server, what, code, message, remedy)


class Clusters:
    """Clusters by context, with open connections; unused ones are closed after a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._existing: dict[Access, tuple[float, Cluster]] = {}

    def at(self, access: Access) -> Cluster:
        """Return the cluster of a context. Raises KubeError."""
        now = self._clock()
        with self._lock:
            self._existing = {
                key: retained for key, retained in self._existing.items() if now - retained[0] < _RETAINED
            }
            existing = self._existing.get(access)
            cluster = existing[1] if existing else Cluster(access)
            self._existing[access] = now, cluster
            return cluster
