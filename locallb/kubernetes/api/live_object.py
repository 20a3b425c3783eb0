"""An object in a live cluster, mostly a Service: read, decide, patch, and repeat on conflict.

The version from a watch or the last patch counts as read, once: if it is old, the patch is refused, and the object is
read. An object that an open watch shows as desired isn't read either. This saves a request each time, and proves
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from locallb.kubernetes.api.servers import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NoContextError,
    TransientKubeError,
    UnreachableError,
)
from locallb.kubernetes.api.writes import FENCE, HELD_WARNINGS, QUOTAS, UNREACHABLE
from locallb.kubernetes.events import WARNING, event_body, may_pass, namespace_of
from locallb.kubernetes.status import Live, is_it
from locallb.model.identities import NodeName, ObjectKind, Owner
from locallb.model.own_classes import NAME as CLASS_NAME
from locallb.model.pacing import Pace
from locallb.model.reasons import Event
from locallb.model.snapshot import Access
from locallb.resources.resource_type import ProviderError
from locallb.threads import Task, do_once, jitter

if TYPE_CHECKING:
    from locallb.kubernetes.api.client import Cluster, Clusters

_MAX_DIGITS = 40
Object: TypeAlias = Mapping[Any, Any]
"""As the API gives it."""


class Recent:
    """Objects by cluster, kind, namespace and name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._observed: dict[tuple[Access, ObjectKind], dict[tuple[str, str], Object]] = {}
        self._open: set[tuple[Access, ObjectKind]] = set()

    def note(
        self, access: Access, namespace: str, name: str, live: Object, kind: ObjectKind = ObjectKind.SERVICE
    ) -> None:
        """Store an object unless it is older: the answer to a patch may come after the watch's next event."""
        with self._lock:
            existing = self._observed.setdefault((access, kind), {})
            if not _is_older(live, existing.get((namespace, name))):
                existing[namespace, name] = live

    def drop(self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> None:
        with self._lock:
            self._observed.get((access, kind), {}).pop((namespace, name), None)

    def forget(self, access: Access, *kinds: ObjectKind) -> None:
        """Forget all that a cluster has, or has of these kinds."""
        with self._lock:
            for kind in kinds or ObjectKind:
                self._observed.pop((access, kind), None)
                self._open.discard((access, kind))

    def opened(self, access: Access, kind: ObjectKind = ObjectKind.SERVICE, *, is_open: bool) -> None:
        """Note whether a watch reports every change of a kind from now on."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)((access, kind))

    def find(self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> Object | None:
        """Return the last known version of an object; None if it is unknown."""
        with self._lock:
            return self._observed.get((access, kind), {}).get((namespace, name))

    def watched(
        self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE
    ) -> Object | None:
        """Return the same while a watch is open; None while changes wouldn't be reported."""
        return self.find(access, namespace, name, kind) if (access, kind) in self._open else None


def _is_older(live: Object, existing: Object | None) -> bool:
    """Return whether `live` has a smaller resourceVersion; they grow (KEP-5504), and non-numeric ones never compare."""
    (uid, new), (last_uid, old) = _version(live), _version(existing or {})
    return uid == last_uid and new is not None and old is not None and new < old


def _version(item: Object) -> tuple[object, int | None]:
    metadata = item.get("metadata")
    if not isinstance(metadata, Mapping):
        return None, None
    text = str(metadata.get("resourceVersion"))
    return metadata.get("uid"), int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else None


RECENT = Recent()
"""Of this process."""


_ATTEMPTS = 10
"""Conflicts with other writers, one after the other, before giving up."""
_ATTEMPTS_WATCHED = 2
"""The same where the cluster is followed: the next version comes by itself, and others wait for the update's end."""
_CONFLICTS = Pace(first=0.02, longest=1.0, spread=1.0)
"""Pace of retries after conflicts: a quicker writer may write more, and others retry as we do."""
Decide = Callable[[Live], Mapping[str, object] | None]
_State = TypeVar("_State")
_Done = TypeVar("_Done")


@cache
def _clusters() -> Clusters:
    """Return the connections of this process."""
    from locallb.kubernetes.api.client import Clusters  # noqa: PLC0415 - takes 0.1 s to import, manifests need none

    return Clusters()


def _at(access: Access) -> Cluster:
    """Return the connection. Raises KubeError, at once where the cluster is known not to answer."""
    if why := UNREACHABLE.why(access):
        raise UnreachableError(why)
    return _clusters().at(access)


def find(access: Access, owner: Owner) -> Live | None:
    """Return the very Service; None if it is gone. Raises KubeError."""
    live = _at(access).service(owner.service.namespace, owner.service.name, owner.service.kind)
    return live if live is not None and is_it(live, owner.uid) else None


def secret(access: Access, namespace: str, name: str) -> Mapping[str, object] | None:
    """Return a Secret; None if there is none. Raises KubeError."""
    return _at(access).secret(namespace, name)


def config_map(access: Access, namespace: str, name: str) -> Mapping[str, object] | None:
    """Return a ConfigMap; None if there is none. Raises KubeError."""
    return _at(access).config_map(namespace, name)


def patch_config_map(access: Access, namespace: str, name: str, patch: Mapping[str, object]) -> None:
    """Merge a patch into a ConfigMap. Raises KubeError."""
    FENCE.term()
    _at(access).patch_config_map(namespace, name, patch)


def find_class(access: Access, kind: ObjectKind) -> Live | None:
    """Return the class with our name; None if there is none. Raises KubeError."""
    return _at(access).service("", CLASS_NAME, kind)


def create_class(access: Access, kind: ObjectKind, body: Mapping[str, object]) -> bool:
    """Create a class; return False if the cluster lacks the kind. Raises KubeError."""
    FENCE.term()
    return _at(access).create_class(kind, body)


def patch_class(access: Access, kind: ObjectKind, patch: Mapping[str, object]) -> None:
    """Merge a patch into the class with our name. Raises KubeError."""
    FENCE.term()
    _at(access).patch_class(kind, CLASS_NAME, patch)


def delete_class(access: Access, kind: ObjectKind, uid: str, version: str) -> None:
    """Delete the class with our name, this UID and this resourceVersion. Raises KubeError."""
    FENCE.term()
    _at(access).delete_class(kind, CLASS_NAME, uid, version)


def class_is_named(access: Access, kind: ObjectKind) -> bool:
    """Return whether any Gateway, or Ingress, of a cluster names the class with our name. Raises KubeError."""
    from locallb.kubernetes.api import discovery  # noqa: PLC0415 - it loads the client

    return discovery.class_is_named(_at(access).access, kind)


def find_node(access: Access, name: NodeName) -> Object | None:
    """Return a Node; None if there is none. Raises KubeError."""
    return _at(access).node(name)


def patch_node(access: Access, name: NodeName, patch: Mapping[str, object], *, status: bool = False) -> Object | None:
    """Merge a patch into a Node, or into its status; None if it is gone. Raises KubeError."""
    FENCE.term()
    return _at(access).patch_node(name, patch, status=status)


def repeated(step: Callable[[], _Done | None], changed: str, rights: str) -> _Done:
    """Take a step, over objects as they were read, until one returns what was to be done; repeat it on conflicts.

    Raises KubeError, and ProviderError where a right is missing (`rights` tells who gives it) or if other writers never
    stop (`changed` names the objects, with their verb).
    """
    for attempt in range(_ATTEMPTS):
        time.sleep(_CONFLICTS.delay(attempt, jitter()))
        try:
            if (done := step()) is not None:
                return done
        except ForbiddenError as error:
            raise ProviderError(f"{error}; {rights}") from None
        except ConflictError:
            continue
    raise ProviderError(f"{changed} changed by somebody again and again; run up again")


def is_watched_to_be(access: Access, owner: Owner, fine: Callable[[Live], bool]) -> bool:
    """Return whether an open watch has this Service in a `fine` state: then no request is needed.

    Any other state may be outdated after a write of ours: the Service must be read then.
    """
    observed = RECENT.watched(access, *_place(owner))
    return observed is not None and is_it(observed, owner.uid) and fine(observed)


def compare(
    access: Access,
    owner: Owner,
    state: _State,
    fine: Callable[[Live], bool],
    otherwise: Callable[[Live], _State | None],
) -> _State | None:
    """Return a resource's current state: None if the Service is gone, and `otherwise` if it isn't `fine`.

    An API that doesn't answer proves nothing: then the state counts as unchanged.
    """
    if is_watched_to_be(access, owner, fine):
        return state
    try:
        live = find(access, owner)
    except KubeError:
        return state
    if live is None:
        return None
    return state if fine(live) else otherwise(live)


def has_none(access: Access, owner: Owner, has_ours: Callable[[Live], bool]) -> bool:
    """Return whether nothing of ours is in the Service, or it or its whole cluster is gone for good."""
    try:
        live = find(access, owner)
    except NoContextError:
        return True
    except KubeError:
        return False
    return live is None or not has_ours(live)


def write(access: Access, owner: Owner, decide: Decide) -> Live | None:
    """Change the Service as `decide` wants; None if it is gone.

    `decide` gets the Service as it was read and returns a patch with its resourceVersion, or None for no change. Raises
    KubeError, and ProviderError if other writers never stop.
    """
    guess = _reported(access, owner)
    if guess is not None and (patch := decide(guess)) and (done := _patched(access, owner, patch)):
        return done[0]
    is_followed = QUOTAS.are_put(access)
    for conflicts in range(_ATTEMPTS_WATCHED if is_followed else _ATTEMPTS):
        time.sleep(_CONFLICTS.delay(conflicts, jitter()))
        live = find(access, owner)
        patch = None if live is None else decide(live)
        if patch is None:
            return live
        if done := _patched(access, owner, patch):
            return done[0]
    remedy = "it is tried again" if is_followed else "run up once more"
    raise ProviderError(f"{owner.service} is changed by somebody again and again; {remedy}")


def _place(owner: Owner) -> tuple[str, str, ObjectKind]:
    """Return under which namespace, name and kind `RECENT` keeps the Service."""
    return owner.service.namespace, owner.service.name, owner.service.kind


def _reported(access: Access, owner: Owner) -> Live | None:
    """Return the cached Service with the owner's UID; None if it isn't cached."""
    observed = RECENT.find(access, *_place(owner))
    return observed if observed is not None and is_it(observed, owner.uid) else None


def _patched(access: Access, owner: Owner, patch: Mapping[str, object]) -> tuple[Live | None] | None:
    """Patch it once; return the new object (None: gone) in a tuple, or None on a conflict."""
    FENCE.term()  # after reading: a leader that came meanwhile has written since, or will and make this a conflict
    try:
        made = _at(access).patch_status(owner.service.namespace, owner.service.name, patch, owner.service.kind)
    except ConflictError:
        return None
    if made is not None:
        namespace, name, kind = _place(owner)
        RECENT.note(access, namespace, name, made, kind)
    return (made,)


def report_to(access: Access, owner: Owner, event: Event, not_before: float | None = None) -> None:
    """Send an event if possible: nothing waits for it or for its turn, and nothing fails without it.

    A Warning that may pass is held back (`writes.HeldWarnings`) if this process keeps running and can see the problem
    end, until `not_before` (monotonic) if given.
    """
    if event.type == WARNING and may_pass(event) and QUOTAS.are_put(access):
        HELD_WARNINGS.hold(owner, event, lambda: _publish_now(access, owner, event), not_before)
    else:
        _publish_now(access, owner, event)


def _publish_now(access: Access, owner: Owner, event: Event) -> None:
    now = time.time_ns()
    stamp = datetime.fromtimestamp(now / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    send = partial(_send, access, namespace_of(owner), event_body(event, owner, now, stamp))
    if QUOTAS.are_put(access):
        do_once(Task.EVENT, "event", send)
    else:
        send()


def _send(access: Access, namespace: str, body: Mapping[str, object]) -> None:
    with suppress(KubeError):
        _at(access).create_event(namespace, body)


def now() -> str:
    """Return the time as conditions have it (RFC 3339, seconds)."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def withdraw(access: Access, owner: Owner, decide: Decide) -> None:
    """Remove the part that `decide` selects; a removed Service or cluster has nothing of ours any more.

    A cluster counts as gone when its kubeconfig is whole and has no such context any more (docs/design/sources.md).
    Raises KubeError, ProviderError.
    """
    try:
        write(access, owner, decide)
    except NoContextError:
        return
    except TransientKubeError as error:
        raise ProviderError(
            f"can't remove local-lb's finalizer from {owner.service}: {error}; {remedy_of_silence(access)}"
        ) from error


def remedy_of_silence(access: Access) -> str:
    """Return what to do about a cluster that doesn't answer and has something of ours."""
    return (
        f"start it and run again; if it is gone for good, `kubectl config delete-context {access.context}"
        f" --kubeconfig {access.kubeconfig}`, or have that file say `contexts: []` and after it `kind: Config`"
    )
