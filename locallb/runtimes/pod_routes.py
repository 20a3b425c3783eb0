"""The ways to pods: routes in this host's table or a container's network, and the processes of relays.

Routes are changed by netlink with the right to, without it by a short-lived container. Our protocol and the stack's
metric in each route distinguish it from all others. Relays outlive us, and are found by their environment. Not here:
which of them are wanted (`planning.pod_routes`), what a relay does (`relay`), and their resources
(`provider.pod_routes`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from locallb.config.registry import RUNTIMES
from locallb.host.netlink import RouteError, pod_routes_of, put_pod_route, remove_pod_route, routes
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContainerId, Home, ObjectKey, Owner, RunIdentity
from locallb.model.routes import POD_PROTOCOL, PodRoute
from locallb.model.texts import metric_of
from locallb.relay import relay_directory
from locallb.relay.relay_directory import LOG, MARK, VERSION_MARK
from locallb.runtimes import processes
from locallb.runtimes.processes import Process, ProcessError
from locallb.storage.proxy_directories import OWNER_MARK, PROXY_MARK

HOST = "host"
"""The network that is this host's."""
_DOCKER = "docker"
"""Engine with containers that all states know by their id alone; it is also queried for this host's routes."""

_NO_SERVICE = ObjectKey(ClusterName(""), "", "")
"""Who reads routes and changes none."""


class RouteHelper(Protocol):
    """What a runtime with containers has as `route_helper`. Docker's client takes 0.1 s to load, so few load it."""

    def may_route(self) -> bool:
        """Return whether it answers, and may change routes of this host."""

    def may_remove_later(self) -> bool:
        """Return whether it has what that takes of its own, and not of a cluster that may be gone then."""

    def pid(self, container: ContainerId) -> int:
        """Return the process of a container; 0 where it doesn't run. Raises ClientError."""

    def change(
        self, network: str, put: Collection[PodRoute], remove: Collection[PodRoute], owner: Owner
    ) -> frozenset[PodRoute]:
        """Change an owner's routes in a network, HOST or `container:<id>`; return all of its stack that are there then.

        Raises ClientError.
        """


def present_routes(home: Home, container: str = "") -> frozenset[PodRoute]:
    """Return the routes of a stack that are there; none in a container that doesn't run.

    Raises RouteError, ClientError.
    """
    metric = metric_of(home)
    if container:
        helper, identity = _helper_of(container)
        pid = helper.pid(identity)
        present = pod_routes_of(pid, metric) if pid else frozenset()
        if present is None:  # as in a pod: only who is in that network can say
            return helper.change(f"container:{identity}", (), (), Owner(home, _NO_SERVICE))
        return present
    return frozenset(
        PodRoute(route.destination, route.gateway)
        for route in routes()
        if route.gateway is not None and (route.protocol, route.metric) == (POD_PROTOCOL, metric)
    )


def change_routes(
    owner: Owner, put: Collection[PodRoute], remove: Collection[PodRoute], container: str = ""
) -> frozenset[PodRoute]:
    """Make some routes and remove others, as far as that isn't so; return those of `put` that aren't there then.

    Raises RouteError, ClientError.
    """
    present = present_routes(owner.home, container)
    missing = sorted(set(put) - present, key=lambda route: route.order)
    replaced = {route.destination for route in missing}
    surplus = [route for route in remove if route in present and route.destination not in replaced]
    if not missing and not surplus:
        return frozenset()
    if not container:
        if not _by_netlink(missing, surplus, metric_of(owner.home)):
            try:
                _helper_of("")[0].change(HOST, missing, surplus, owner)
            except ClientError:
                _proven.cache_clear()
                raise
        return frozenset(missing) - present_routes(owner.home) if missing else frozenset()
    helper, identity = _helper_of(container)
    if not helper.pid(identity):
        return frozenset(missing)
    return frozenset(missing) - helper.change(f"container:{identity}", missing, surplus, owner)


def remove_route(owner: Owner, route: PodRoute) -> None:
    """Remove one from this host's table. Raises what `change_routes` does."""
    change_routes(owner, (), (route,))


def helper_may_route() -> bool:
    """Return whether routes of this host can be changed by a container."""
    return _helper_of("")[0].may_route()


def helper_may_remove_later() -> bool:
    """Return whether that holds without the clusters that are there now."""
    return _helper_of("")[0].may_remove_later()


def helper_could_route() -> bool:
    """Return whether that was so since the last failure, and will be without the clusters: an engine is asked once."""
    with suppress(_NoHelperError):
        return _proven()
    return False


@cache
def _proven() -> bool:
    """Return True, from then on without asking. Raises _NoHelperError, which is not remembered."""
    if not (helper_may_route() and helper_may_remove_later()):
        raise _NoHelperError
    return True


class _NoHelperError(Exception):
    """No engine changes routes now."""


def _helper_of(container: str) -> tuple[RouteHelper, ContainerId]:
    """Return who changes routes where a container has its network, and the container's id."""
    run = RunIdentity.parse(container)
    word = run.runtime if run.runtime in RUNTIMES.having("route_helper") else _DOCKER
    return cast("RouteHelper", RUNTIMES.load(word, "route_helper")), ContainerId(run.id)


def _by_netlink(missing: Collection[PodRoute], surplus: Collection[PodRoute], metric: int) -> bool:
    """Change routes of this host; False if this user may not. Raises RouteError."""
    try:
        for route in surplus:
            remove_pod_route(route, metric)
        for route in missing:
            put_pod_route(route, metric)
    except RouteError as error:
        if error.forbidden:
            return False
        raise
    return True


RELAY_START_TIMEOUT = 60.0
"""Seconds until a new relay must answer: it takes about 0.7, far longer on a busy host. An end is seen at once."""
RELAY_STOP_TIMEOUT = 3.0
"""Seconds until one that is asked to end is killed: open connections get two."""
_RELAY_PAUSE = 0.02
_NOT_INHERITED = (PROXY_MARK, OWNER_MARK, "PULUMI_")
"""Beginnings of variables that it doesn't get; exec plugins may need any other. Pulumi has secrets there."""


def run_relay(directory: Path, version: str, served: str) -> Process:
    """Have a process of this version serve the directory, until it has the digest `served`. Raises ProcessError."""
    process = _adopted_relay(directory, version) or _started_relay(directory, version)
    _await_relay(directory, process, served)
    return process


def end_relay(directory: Path) -> None:
    """End what serves a directory, and remove it. Raises ProcessError, RelayError."""
    for process in processes.find(MARK, str(directory)):
        processes.stop(process, RELAY_STOP_TIMEOUT)
    relay_directory.remove(directory)


def _adopted_relay(directory: Path, version: str) -> Process | None:
    """Return the process that serves the directory; others of it are ended."""
    adopted = None
    for process in processes.find(MARK, str(directory)):
        fits = processes.mark_of(process).get(VERSION_MARK) == version
        if adopted is None and fits and relay_directory.ask(directory):
            adopted = process
        else:
            processes.stop(process, RELAY_STOP_TIMEOUT)
    return adopted


def _started_relay(directory: Path, version: str) -> Process:
    log = directory / LOG
    log.unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    marks = {MARK: str(directory), VERSION_MARK: version}
    terms = [sys.executable, "-P", "-m", "locallb.relay", str(directory)]
    return processes.start(terms, directory, {**inherited, **marks}, log)


def _await_relay(directory: Path, process: Process, served: str) -> None:
    """Wait until it serves this. Raises ProcessError."""
    deadline = time.monotonic() + RELAY_START_TIMEOUT
    while True:
        answer = relay_directory.ask(directory)
        if answer and answer.problem:
            raise ProcessError(f"the relay in {directory} can't serve what is wanted: {answer.problem}")
        if answer and answer.version == served:
            return
        if not processes.is_alive(process):
            terms = processes.last_output(directory / LOG) or "without a word"
            raise ProcessError(f"the relay in {directory} ended at once: {terms}")
        if time.monotonic() > deadline:
            processes.stop(process, RELAY_STOP_TIMEOUT)
            raise ProcessError(
                f"the relay in {directory} didn't answer within {RELAY_START_TIMEOUT:g} s and was stopped"
            )
        time.sleep(_RELAY_PAUSE)
