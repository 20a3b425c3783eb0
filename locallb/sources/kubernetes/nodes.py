"""The routes to Nodes of a cluster that are pods of another cluster: requested from its API, kept, and polled.

Kept routes count while that cluster doesn't answer. Where a poller runs, as in the loop, other readers send no request:
its last result counts, so that a slow server delays only the poller. Not here: parsing the pods (`sources.entries`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Condition

from msgspec import Struct

from locallb.kubernetes.answers import Object
from locallb.kubernetes.api.client import NAMESPACE, POD, Cluster
from locallb.kubernetes.api.connected import Connected
from locallb.kubernetes.api.kubeconfig import kubeconfig_path
from locallb.kubernetes.api.limits import Allowance
from locallb.kubernetes.api.servers import (
    ForbiddenError,
    KubeconfigError,
    KubeError,
    NoContextError,
    UnreachableError,
)
from locallb.model.memory import Memo
from locallb.model.pacing import Pace
from locallb.model.routes import PodRoute
from locallb.model.snapshot import Access
from locallb.model.texts import few
from locallb.sources.consents import allowed
from locallb.sources.entries import (
    INFRA,
    MACHINE_LABELS,
    KubernetesSource,
    MachinesFinder,
    node_routes,
    parsed_routes,
    printed_routes,
)
from locallb.sources.kept_access import put
from locallb.sources.source import PACE, Found, Polls
from locallb.storage import files

_PAGE = 100


class MachinesApi(Cluster):
    """An API that is asked for such pods."""

    rights = "deploy/rbac-machines.yaml"

    def machines(self, namespace: str = "") -> list[Object]:
        """List the pods of machines, in one namespace or in all. Raises KubeError."""
        return self._list(POD, namespace, labels=MACHINE_LABELS, page=_PAGE)

    def existing_machines(self, namespace: str) -> list[Object]:
        """List the machines of an existing namespace; a missing one is no proof that there are none. Raises KubeError.

        Without the right to read the namespace, the list counts.
        """
        if machines := self.machines(namespace):
            return machines
        subject = f"Namespace {namespace}"
        try:
            existing = self._existing(subject, NAMESPACE, namespace)
        except ForbiddenError:
            return machines
        if existing is None:
            context = f"the context {self.access.context} of {self.access.kubeconfig}"
            raise NoContextError(f"{context} leads to a cluster without {subject}")
        return machines


class ForeignMachinesApi(MachinesApi):
    """The same by an untrusted kubeconfig: it may name no file, no command and no proxy.

    A pass over its server costs no more than an `Allowance`, and is one attempt. For one thread.
    """

    def __init__(self, access: Access) -> None:
        self._remaining = Allowance()
        super().__init__(access, self._remaining)

    def existing_machines(self, namespace: str) -> list[Object]:
        """List the pods of machines, within what such a look may cost. Raises KubeError."""
        self._remaining.renew()
        return super().existing_machines(namespace)

    def _connection(self) -> Connected:
        connected = super()._connection()
        if connected.beyond:
            sentence = f"{self.access.kubeconfig} has {few(connected.beyond)}; of it certificates and a token are taken"
            raise KubeconfigError(f"{sentence} that stand inside, and nothing else")
        return connected


class Pass(Struct, frozen=True):
    """Result of one poll."""

    routes: tuple[PodRoute, ...] = ()
    failure: str = ""
    """The reason that nothing is known; empty if there is a result."""


class Reading(Struct, eq=False):
    """A poller: its start, its last result, and whether a reader waited for it."""

    finder: MachinesFinder
    root: Path
    since: float
    inspect: Pass | None = None
    is_awaited: bool = False


class LastReadings:
    """By what is looked for, and the project. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = Condition()
        self._existing: dict[tuple[MachinesFinder, Path], Reading] = {}

    def begin(self, finder: MachinesFinder, root: Path) -> Reading:
        """Note that a reader polls from now on, in place of the one before."""
        with self._changed:
            reading = self._existing[finder, root] = Reading(finder, root, self._clock())
            return reading

    def end(self, reading: Reading) -> None:
        """Note that this one doesn't any more."""
        key = reading.finder, reading.root
        with self._changed:
            if self._existing.get(key) is reading:
                del self._existing[key]

    def note(self, reading: Reading, inspect: Pass) -> None:
        """Store a result. Results of a replaced or ended poller are dropped."""
        with self._changed:
            reading.inspect = inspect
            self._changed.notify_all()

    def find(self, finder: MachinesFinder, root: Path, timeout: float) -> tuple[bool, Pass | None]:
        """Return whether a reader polls, and what it found last; None before anything was found.

        Waits for the first look, once, until it has had so many seconds: all that began together have the same ones.
        """
        with self._changed:
            reading = self._existing.get((finder, root))
            if reading and not reading.inspect and not reading.is_awaited:
                reading.is_awaited = timeout > 0
                remaining = reading.since + timeout - self._clock()
                self._changed.wait_for(lambda: reading.inspect is not None, max(0.0, remaining))
            return reading is not None, reading.inspect if reading else None


LAST_READINGS = LastReadings()
"""Of this process."""


FIRST = 2.0
"""Seconds to wait for the first answer without stored routes, as nothing could be routed before."""
MAX_POD_ROUTES = 1000
"""Limit of routes to the Nodes of one cluster, and of candidate pods; with more of either none is used."""


def find_nodes(finder: MachinesFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the ways to a cluster's Nodes, in `directory` unless configured. Raises ClientError where that fails."""
    path, name = directory / f"{finder.cluster}.routes", _requested(finder, root)
    last = _retained(path, name)
    followed, inspect = LAST_READINGS.find(finder, root, timeout=0.0 if last else FIRST)
    inspect = inspect if followed else _read_nodes(finder, root, Memo())
    if inspect and not inspect.failure:
        if keep:
            put(finder.type, path, f"{name}\n{printed_routes(inspect.routes)}", keep=keep)
        return Found(node_routes={finder.cluster: inspect.routes})
    complaints = (_complaint(finder, inspect.failure, len(last)),) if inspect else ()
    return Found(complaints=complaints, node_routes={finder.cluster: last})


def _complaint(finder: MachinesFinder, failure: str, last: int) -> str:
    existing = f"so the {last} ways to them count that were found last" if last else "and no way to them is known"
    return f"source {finder.cluster}: which pods are its Nodes can't be found out: {failure}; {existing}"


def _requested(finder: MachinesFinder, root: Path) -> str:
    """Return the identity of a source in one line: routes of another one may differ."""
    kubeconfig = finder.kubeconfig
    with suppress(KubeError):
        kubeconfig = str(kubeconfig_path(kubeconfig, root))
    return json.dumps([kubeconfig, finder.context, finder.namespace])


def _retained(path: Path, name: str) -> tuple[PodRoute, ...]:
    """Return the stored routes of the current source."""
    before, _, routes = (files.read(path) or "").partition("\n")
    return parsed_routes(routes) if before == name else ()


class NodePolls:
    """Calls `changed` where a cluster's Nodes are reached by other ways, and at first, until `stop`."""

    def __init__(self, finder: MachinesFinder, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> None:
        reading = LAST_READINGS.begin(finder, root)
        self._end = partial(LAST_READINGS.end, reading)
        inspect = partial(_noted, reading, Memo())
        self._polls = Polls(finder.cluster, f"{finder.cluster} nodes", inspect, changed, pace)

    def stop(self) -> None:
        self._polls.stop()
        self._end()


def _noted(reading: Reading, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Look, and publish what was found to all readers. Raises KubeError."""
    inspect = _read_nodes(reading.finder, reading.root, apis)
    LAST_READINGS.note(reading, inspect)
    if inspect.failure:
        raise UnreachableError(inspect.failure)
    return inspect.routes


def _read_nodes(finder: MachinesFinder, root: Path, apis: Memo[MachinesApi]) -> Pass:
    try:
        return Pass(_ask(finder, root, apis))
    except KubeError as error:
        return Pass(failure=str(error))


def _ask(finder: MachinesFinder, root: Path, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Ask for the ways. Raises KubeError."""
    client = ForeignMachinesApi if finder.kubeconfig else MachinesApi
    api = apis.of(None, client, allowed(finder, root, key="nodes"))
    pods = api.existing_machines(finder.namespace)
    routes = node_routes(pods[: MAX_POD_ROUTES + 1]).get(finder.namespace.removeprefix(INFRA), ())
    if max(len(pods), len(routes)) > MAX_POD_ROUTES:
        sentence = f"{finder.namespace} has {len(pods)} pods with {len(routes)} ways or more to them"
        raise UnreachableError(f"{sentence}; {MAX_POD_ROUTES} are taken over at most")
    return routes
