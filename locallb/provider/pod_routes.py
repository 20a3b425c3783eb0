"""PodRoutes and ApiRelay: how proxies get to the pods of a cluster.

Routes are in this host's table or in the network namespace of a container. Our protocol and the stack's metric
distinguish them from all other routes, even without the state. A relay is a process that connects to pods of one
cluster through its API server (`relay`).

Not here: how routes are changed and which ones conflict, and the process (`runtimes.pod_routes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from locallb.model.relays import RIGHTS, RelayedPort, RelayId
from locallb.model.routes import PodRoute
from locallb.model.texts import few, metric_of
from locallb.relay import relay_directory
from locallb.relay.relay_directory import Served
from locallb.resources.codec import is_unknown
from locallb.resources.properties import ApiRelayInputs, ApiRelayState, PodRoutesInputs, PodRoutesState
from locallb.resources.resource_type import ProviderError, ResourceType, grown, id_faults
from locallb.runtimes import pod_routes, processes
from locallb.runtimes.pod_routes import HOST, change_routes, present_routes
from locallb.runtimes.processes import Process


class PodRoutes(ResourceType[PodRoutesInputs, PodRoutesState]):
    """Makes, follows and removes routes."""

    replaced_for = frozenset({"container", "owner"})
    """Replace for another table or owner; routes are added and removed in place."""

    def check(self, new: PodRoutesInputs) -> Iterator[tuple[str, str]]:
        """Accept routes as they are printed."""
        for text in () if is_unknown(new.routes) else new.routes:
            try:
                written = str(PodRoute.parse(text))
            except ValueError as error:
                yield "routes", f"{text!r} isn't like 10.244.1.0/24 via 172.18.0.3: {error}"
            else:
                if written != text:
                    yield "routes", f"write {text!r} as {written!r}"

    def preview_outputs(self, new: PodRoutesInputs, old: PodRoutesState | None) -> Mapping[str, object]:
        """Return the metric, which only the owner decides."""
        del old
        return {} if is_unknown(new.owner) else {"metric": metric_of(new.owner.home)}

    def create(self, new: PodRoutesInputs) -> tuple[str, PodRoutesState]:
        metric = metric_of(new.owner.home)
        _change(new, put=_parsed(new.routes), remove=())
        return f"{new.container or HOST}/{metric}", grown(self.state, new, metric=metric)

    def read(self, state: PodRoutesState) -> PodRoutesState | None:
        """Read which of the routes exist; None if none does."""
        present = present_routes(state.owner.home, state.container)
        remaining = tuple(text for text in state.routes if PodRoute.parse(text) in present)
        return replace(state, routes=remaining) if remaining else None

    def update(self, old: PodRoutesState, new: PodRoutesInputs) -> PodRoutesState:
        """Make what is new, and remove what it no longer has."""
        before, after = _parsed(old.routes), _parsed(new.routes)
        _change(new, put=after, remove=before - after)
        return grown(self.state, new, metric=old.metric)

    def delete(self, state: PodRoutesState) -> None:
        """Remove them, unless they belong to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            _change(state, put=frozenset(), remove=_parsed(state.routes))


def _parsed(texts: Collection[str]) -> frozenset[PodRoute]:
    return frozenset(map(PodRoute.parse, texts))


def _change(given: PodRoutesInputs, *, put: Collection[PodRoute], remove: Collection[PodRoute]) -> None:
    """Raise ProviderError where a route isn't there afterwards."""
    for route in sorted(change_routes(given.owner, put, remove, given.container), key=str):
        where = "its proxy's container doesn't run" if given.container else "look at `ip route show proto 78`"
        raise ProviderError(f"the route {route} can't be made: {where}; run up again")


class ApiRelay(ResourceType[ApiRelayInputs, ApiRelayState]):
    """Starts, adopts, instructs and ends it."""

    replaced_for = frozenset({"relay", "owner"})
    delete_first = True

    def check(self, new: ApiRelayInputs) -> Iterator[tuple[str, str]]:
        """Accept ids that are names of directories, and ports as they are printed."""
        yield from id_faults("relay", new.relay)
        for text in () if is_unknown(new.ports) else new.ports:
            try:
                RelayedPort.parse(text)
            except ValueError as error:
                yield "ports", f"{text!r} isn't like `demo/shop/web:80 shop/web-1:8080`: {error}"

    def preview_outputs(self, new: ApiRelayInputs, old: ApiRelayState | None) -> Mapping[str, object]:
        """Return the process, which an update leaves alone unless its program is another one."""
        return {"pid": old.pid, "started": old.started} if old and old.version == new.version else {}

    def create(self, new: ApiRelayInputs) -> tuple[str, ApiRelayState]:
        """Start it, or adopt the one that runs and have it serve these ports; connections to others go on."""
        _require_right(new)
        directory, version = relay_directory.path_of(RelayId(new.relay)), _digest(new)
        ports = tuple(map(RelayedPort.parse, new.ports))
        relay_directory.write(directory, Served(new.access, ports, version, new.owner))
        process = pod_routes.run_relay(directory, new.version, version)
        return new.relay, grown(self.state, new, pid=process.pid, started=process.started)

    def read(self, state: ApiRelayState) -> ApiRelayState | None:
        """Check that this very process serves these ports."""
        if not processes.is_alive(Process(state.pid, state.started)):
            return None
        answer = relay_directory.ask(relay_directory.path_of(RelayId(state.relay)))
        return state if answer and answer.version == _digest(state) else None

    def leaves_nothing(self, state: ApiRelayState) -> bool:
        """Return True: its directory identifies the process to every run that starts or removes it."""
        del state
        return True

    def delete(self, state: ApiRelayState) -> None:
        """End it, and remove its directory."""
        if self.belongs_to_copied_project(state.owner):
            return
        pod_routes.end_relay(relay_directory.path_of(RelayId(state.relay)))


def _digest(wanted: ApiRelayInputs) -> str:
    """Name what it is to serve."""
    terms = (wanted.access.kubeconfig, wanted.access.context, *wanted.ports)
    return hashlib.sha256("\0".join(terms).encode()).hexdigest()


def _require_right(new: ApiRelayInputs) -> None:
    """Ask the API whether this user may connect to the pods. Raises ProviderError, KubeError."""
    from locallb.kubernetes.api.client import Cluster  # noqa: PLC0415 - no stack without a relay needs it

    cluster = Cluster(new.access)
    if cluster.may_forward():
        return
    namespaces = sorted({RelayedPort.parse(text).namespace for text in new.ports})
    if lacking := [namespace for namespace in namespaces if not cluster.may_forward(namespace)]:
        raise ProviderError(
            f"the user of context {new.access.context} may not connect to pods through the API server (create"
            f" pods/portforward) in {few(lacking)}: give it the right of {RIGHTS}"
        )
