"""The client of Kubernetes APIs, by kubeconfig and context: lists and reads of objects, patches, events, leases.

Objects are plain JSON, as `kubernetes.object_parsing` takes them. A kind with a status that we write is written in
every version: a cluster serves an object in all versions of its kind, so the first known version is enough.

Not here: the connection (`connected`), watches (`feed`), and the content of patches (`kubernetes.status`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from threading import Lock
from typing import Any, ClassVar, TypeVar

import httpx2
from msgspec import Struct, field, json

from locallb.gateway.kinds import ApiKind
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.kubernetes.answers import AnswerError, Object, listed
from locallb.kubernetes.api.connected import (
    MERGE,
    RIGHTS,
    TRANSIENT,
    Connected,
    FailedAnswerError,
    ServedKind,
    nonsense,
    refused,
    unreachable,
)
from locallb.kubernetes.api.kubeconfig import stamp
from locallb.kubernetes.api.limits import PAGES, Allowance
from locallb.kubernetes.api.servers import KubeconfigError, KubeError
from locallb.model.identities import ObjectKind
from locallb.model.snapshot import Access
from locallb.model.texts import cleaned
from locallb.threads import Tally

SERVICE = ServedKind("v1", "Service", "services")
SLICE = ServedKind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
EVENT = ServedKind("events.k8s.io/v1", "Event", "events")
LEASE = ServedKind("coordination.k8s.io/v1", "Lease", "leases")
NODE = ServedKind("v1", "Node", "nodes")
NAMESPACE = ServedKind("v1", "Namespace", "namespaces")
SECRET = ServedKind("v1", "Secret", "secrets")
CONFIG_MAP = ServedKind("v1", "ConfigMap", "configmaps")
POD = ServedKind("v1", "Pod", "pods")
REVIEW = ServedKind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")


@cache
def written_kinds(kind: ObjectKind) -> tuple[ServedKind, ...]:
    """Return a kind in each of its versions, the preferred one first."""
    if kind is ObjectKind.SERVICE:
        return (SERVICE,)
    existing = _routed(kind)
    return tuple(
        ServedKind(f"{existing.group}/{version}", existing.name, existing.plural) for version in existing.versions
    )


def object_name(kind: ObjectKind, namespace: str, name: str) -> str:
    """Return how an object is called in a sentence."""
    shown = "Service" if kind is ObjectKind.SERVICE else _routed(kind).name
    return f"{shown} {namespace}/{name}" if namespace else f"{shown} {name}"


def _routed(kind: ObjectKind) -> ApiKind:
    return next(existing for existing in ROUTED_KINDS.values() if existing.plural == kind.value)


class _ListMetadata(Struct):
    version: str | None = field(name="resourceVersion", default=None)
    more: str | None = field(name="continue", default=None)


class _Page(Struct):
    """A page of a list; its items are checked one by one."""

    items: list[Any] | None
    metadata: _ListMetadata | None = None


_PAGES = json.Decoder(_Page)
T = TypeVar("T")
_PAUSES = (0.1, 0.3, 1.0)
"""Seconds between attempts."""
_PAGE = 500
_RETAINED = 600.0
"""Seconds without a call after which a connection is let go."""

EVENT_TIMEOUT = httpx2.Timeout(1.0)
"""Seconds for any request about an event: a lost event is harmless, so it delays nothing."""
_MAX_PAGES = 1000
WRITES = Tally()
"""Requests of this process that write, whatever became of them: `status`, `event`, `config map`, `class` and `node`."""


class Cluster:
    """One cluster's API, by the current content of its kubeconfig and the files it names. Safe in several threads."""

    rights: ClassVar[str] = RIGHTS
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
        return [*self._list(SERVICE), *self._list(NODE)]

    def slices(self) -> list[Object]:
        """List every EndpointSlice. Raises KubeError."""
        return self._list(SLICE)

    def service(self, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> Object | None:
        """Return a Service, or an object of another kind; None if there is none. Raises KubeError."""
        requested = (
            self._get(object_name(kind, namespace, name), written, namespace, name) for written in written_kinds(kind)
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
        path = CONFIG_MAP.path(namespace, name)
        self._call(f"ConfigMap {namespace}/{name}", lambda api: api.send("PATCH", path, patch, MERGE))

    def node(self, name: str) -> Object | None:
        """Return a Node; None if there is none. Raises KubeError."""
        return self._get(f"Node {name}", NODE, "", name)

    def patch_node(self, name: str, patch: Mapping[str, object], *, status: bool) -> Object | None:
        """Merge `patch` into a Node or its status; None if it is gone. Raises KubeError."""
        WRITES.add("node")
        path = NODE.path("", name)
        return self._patch(f"Node {name}", f"{path}/status" if status else path, patch)

    def _get(self, what: str, kind: ServedKind, namespace: str, name: str) -> Object | None:
        return self._call(what, lambda api: cleaned(api.get(kind.path(namespace, name))), absent=True)

    def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, object], kind: ObjectKind = ObjectKind.SERVICE
    ) -> Object | None:
        """Merge `patch` into a Service, or an object of another kind, by `status`; None if it is gone.

        Raises KubeError.
        """
        WRITES.add("status")
        what = f"the status of {object_name(kind, namespace, name)}"
        done = (self._patch(what, f"{written.path(namespace, name)}/status", patch) for written in written_kinds(kind))
        return next((answer for answer in done if answer is not None), None)

    def _patch(self, what: str, path: str, patch: Mapping[str, object]) -> Object | None:
        def send(api: Connected) -> Object:
            made = api.send("PATCH", path, patch, MERGE)
            if not made["metadata"]["name"]:
                raise AnswerError("an object has no name")
            return cleaned(made)

        return self._call(what, send, absent=True)

    def create_class(self, kind: ObjectKind, body: Mapping[str, object]) -> bool:
        """Create a class; return False if the cluster lacks the kind. Raises KubeError (CONFLICT if it exists)."""
        WRITES.add("class")
        what = f"a {_routed(kind).name}"

        def create(written: ServedKind) -> object:
            return self._call(what, lambda api: api.send("POST", written.path(), written.typed(body)), absent=True)

        return any(create(written) is not None for written in written_kinds(kind))

    def patch_class(self, kind: ObjectKind, name: str, patch: Mapping[str, object]) -> None:
        """Merge `patch` into a class, if it exists. Raises KubeError."""
        WRITES.add("class")
        what = object_name(kind, "", name)

        def send(written: ServedKind) -> object:
            return self._call(what, lambda api: api.send("PATCH", written.path("", name), patch, MERGE), absent=True)

        any(send(written) is not None for written in written_kinds(kind))

    def delete_class(self, kind: ObjectKind, name: str, uid: str, version: str) -> None:
        """Delete the class with this UID and resourceVersion, if it exists.

        Raises KubeError (CONFLICT if another one has its name, or it was changed).
        """
        WRITES.add("class")
        what = object_name(kind, "", name)
        unchanged = {"uid": uid, "resourceVersion": version}

        def delete(written: ServedKind) -> object:
            return self._call(what, lambda api: api.delete(written.path("", name), unchanged), absent=True)

        any(delete(written) is not None for written in written_kinds(kind))

    def create_event(self, namespace: str, body: Mapping[str, object]) -> None:
        """Create an event of events.k8s.io/v1, in one attempt that never takes long. Raises KubeError."""
        WRITES.add("event")
        event, path = EVENT.typed(body), EVENT.path(namespace)
        self._call("an event", lambda api: api.send("POST", path, event, timeout=EVENT_TIMEOUT), pauses=())

    def lease(self, namespace: str, name: str) -> Object | None:
        """Return a Lease; None if there is none. Raises KubeError."""
        return self._existing(f"Lease {namespace}/{name}", LEASE, name, namespace)

    def _existing(self, what: str, kind: ServedKind, name: str, namespace: str = "") -> Object | None:
        """Return an object whose kind and name are checked; None if there is none."""
        return self._call(
            what, lambda api: listed(api.get(kind.path(namespace, name)), kind.api, kind.name), absent=True
        )

    def write_lease(self, namespace: str, body: Mapping[str, Any], *, fresh: bool) -> Object:
        """Create or replace a Lease. Raises KubeError (CONFLICT if there is one, or another version of it)."""
        lease, path = LEASE.typed(body), LEASE.path(namespace, "" if fresh else body["metadata"]["name"])

        def send(api: Connected) -> Object:
            return listed(api.send("POST" if fresh else "PUT", path, lease), LEASE.api, LEASE.name)

        return self._call("the Lease", send) or {}

    def may_forward(self, namespace: str = "") -> bool:
        """Return whether this user may connect to pods, of a namespace or of all. Raises KubeError."""
        wanted = {"verb": "create", "resource": "pods", "subresource": "portforward"}
        attributes = {**wanted, **({"namespace": namespace} if namespace else {})}
        body = REVIEW.typed({"spec": {"resourceAttributes": attributes}})
        answer = self._call("a SelfSubjectAccessReview", lambda api: api.send("POST", REVIEW.path(), body)) or {}
        status = answer.get("status")
        return isinstance(status, Mapping) and status.get("allowed") is True

    def _list(
        self, kind: ServedKind, namespace: str = "", *, labels: Mapping[str, str] | None = None, page: int = 0
    ) -> list[Object]:
        """List all pages of a kind, in one namespace or all; adds the type to items, which lack it."""
        given = {"limit": str(page or _PAGE)}
        if labels:
            given["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        return self._call(f"the list of {kind.name}s", lambda api: self._pages(api, kind, namespace, given)) or []

    def _pages(self, api: Connected, kind: ServedKind, namespace: str, parameters: Mapping[str, str]) -> list[Object]:
        objects, requested, path = list[Object](), [""], kind.path(namespace)
        maximum = PAGES if self._allowance else _MAX_PAGES
        while len(requested) <= maximum:
            more = {"continue": requested[-1]} if requested[-1] else {}
            page = _PAGES.decode(api.request("GET", path, params={**parameters, **more}))
            objects += [listed(item, kind.api, kind.name) for item in page.items or ()]
            metadata = page.metadata or _ListMetadata()
            if not metadata.more:
                if not metadata.version:  # an answer that is no list must not count as an empty one
                    raise AnswerError("the list has no version")
                return objects
            if metadata.more in requested:
                raise AnswerError("the list turns no page")
            requested.append(metadata.more)
        raise AnswerError(f"the list has over {maximum} pages")

    def _call(
        self, what: str, call: Callable[[Connected], T], *, absent: bool = False, pauses: Iterable[float] | None = None
    ) -> T | None:
        """Call, with retries if the API can't answer just now. `absent` makes 404 an answer.

        A write over a resourceVersion may be answered twice: the second answer is then a conflict.
        """
        usual = () if self._allowance else _PAUSES
        for pause in (*(usual if pauses is None else pauses), None):
            connected = self._connection()
            try:
                return call(connected)
            except FailedAnswerError as error:
                if error.code == httpx2.codes.NOT_FOUND and absent:
                    return None
                if pause is None or error.code not in TRANSIENT:
                    raise self._refused(connected, what, error.code, error.message) from None
                time.sleep(error.wish or pause)
            except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:  # it was reached, and cut us off
                if pause is None:
                    raise unreachable(connected.server, error) from None
                time.sleep(pause)
            except httpx2.HTTPError as error:
                raise unreachable(connected.server, error) from None
            except (httpx2.InvalidURL, OSError) as error:
                raise KubeconfigError(f"the context {self.access.context} can't be used: {error}") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise nonsense(connected.server, error) from None
        raise AssertionError(what)

    def _refused(self, connected: Connected, what: str, code: int, message: str) -> KubeError:
        """Return what a refusal means."""
        remedy = f"give the user of context {self.access.context} the rights of {self.rights}"
        return refused(connected.server, what, code, message, remedy)


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
