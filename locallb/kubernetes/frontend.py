"""The interface of a frontend: a table of pure functions for one kind of object that gets addresses.

Whatever its kind, an object is planned as a `model.objects.Service`: its key names the kind, its ports are the
listeners that it wants. Not here: which objects are ours (`planning.status`), and requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from msgspec import Struct

from locallb.config.registry import FRONTENDS
from locallb.kubernetes.status import ObservedStatus, Published
from locallb.model.identities import ClusterName, IPAddress, ObjectKind
from locallb.model.objects import MalformedService, Service
from locallb.model.snapshot import Access
from locallb.planning.planned import Placement, Rejection

Document = Mapping[Any, Any]
_SILENT = ObservedStatus()


class FrontendRead(Struct, frozen=True):
    """Parse result of one object. Neither `wanted` nor `malformed`: it gets nothing, which is no error."""

    wanted: Service | None = None
    malformed: MalformedService | None = None
    observed_status: ObservedStatus = _SILENT
    """Its status, as far as it is ours to write."""
    notices: tuple[str, ...] = ()
    external_ips: frozenset[IPAddress] = frozenset()
    """Addresses of other hosts that it claims for itself."""
    left_out: str = ""
    """The reason that it is ignored, if its user must be notified."""


class Frontend(Struct, frozen=True):
    """One kind of object."""

    kind: ObjectKind
    api_version: str
    name: str
    """The API's `kind`."""
    plural: str
    """Its name in paths."""
    read: Callable[[ClusterName, Document], FrontendRead]
    """Reads one object. Never raises."""
    refused: Callable[[ClusterName, Document, str], MalformedService]
    """Makes a rejected object, which gets nothing, with a reason to publish."""
    publication: Callable[[Placement | Rejection], Published]
    """Returns our complete part of the desired status."""
    observed_status: Callable[[Document], ObservedStatus]
    published: Callable[..., Published]
    publishing: Callable[..., Mapping[str, object] | None]
    """As the functions of these names in `status_patch`."""

    @property
    def path(self) -> str:
        """The path of the API that lists all of them."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/{self.plural}"


@cache
def frontend(kind: ObjectKind) -> Frontend:
    """Return the frontend of a kind."""
    return cast("Frontend", FRONTENDS.load(kind.value, "frontend"))


def published_in(planned: Placement | Rejection) -> Access | None:
    """Return the cluster in which a frontend publishes what an object gets; None where nothing or another does."""
    return planned.access if planned.key.kind.value in FRONTENDS else None


@cache
def frontends() -> Mapping[str, Frontend]:
    """Return all of them by the API's `kind`."""
    return {table.name: table for table in map(frontend, map(ObjectKind, FRONTENDS))}
