"""The routes to the Nodes of a cluster that are pods of another one: found, kept, and polled.

Kept routes count while that cluster doesn't answer. Where a poller runs, as in the loop, other readers send no request:
its last result counts, so that a slow server delays nothing. Not here: what pods say (`machine_pods`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from locallb.kubernetes.access.errors import KubeError, UnreachableError
from locallb.kubernetes.access.kubeconfig import kubeconfig_path
from locallb.model.memory import Memo
from locallb.model.network.routes import PodRoute
from locallb.model.pacing import Pace
from locallb.sources.consents import allowed
from locallb.sources.kept_access import put
from locallb.sources.kubernetes.entry import KubernetesSource, MachinesSource
from locallb.sources.kubernetes.last_readings import LAST_READINGS, Pass, Reading
from locallb.sources.kubernetes.machine_pods import INFRA, node_routes, parsed, printed
from locallb.sources.kubernetes.machines import ForeignMachinesApi, MachinesApi
from locallb.sources.polling import PACE, Polls
from locallb.sources.source import Found
from locallb.storage import files

FIRST = 2.0
"""Seconds to wait for the first answer without stored routes, as nothing could be routed before."""
MAX_POD_ROUTES = 1000
"""Limit of routes to the Nodes of one cluster, and of candidate pods; with more of either none is used."""


def find_nodes(finder: MachinesSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the ways to a cluster's Nodes, in `directory` unless configured. Raises ClientError where that fails."""
    path, name = directory / f"{finder.cluster}.routes", _requested(finder, root)
    last = _retained(path, name)
    followed, inspect = LAST_READINGS.find(finder, root, timeout=0.0 if last else FIRST)
    inspect = inspect if followed else _read_nodes(finder, root, Memo())
    if inspect and not inspect.failure:
        if keep:
            put(finder.type, path, f"{name}\n{printed(inspect.pod_paths)}", keep=keep)
        return Found(node_routes={finder.cluster: inspect.pod_paths})
    complaints = (_complaint(finder, inspect.failure, len(last)),) if inspect else ()
    return Found(complaints=complaints, node_routes={finder.cluster: last})


def _complaint(finder: MachinesSource, failure: str, last: int) -> str:
    existing = f"so the {last} ways to them count that were found last" if last else "and no way to them is known"
    return f"source {finder.cluster}: which pods are its Nodes can't be found out: {failure}; {existing}"


def _requested(finder: MachinesSource, root: Path) -> str:
    """Return the identity of a source in one line: routes of another one may differ."""
    kubeconfig = finder.kubeconfig
    with suppress(KubeError):
        kubeconfig = str(kubeconfig_path(kubeconfig, root))
    return json.dumps([kubeconfig, finder.context, finder.namespace])


def _retained(path: Path, name: str) -> tuple[PodRoute, ...]:
    """Return the stored routes of the current source."""
    before, _, pod_paths = (files.read(path) or "").partition("\n")
    return parsed(pod_paths) if before == name else ()


class NodePolls:
    """Calls `changed` where a cluster's Nodes are reached by other ways, and at first, until `stop`."""

    def __init__(self, finder: MachinesSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> None:
        reading = LAST_READINGS.begin(finder, root)
        self._end = partial(LAST_READINGS.end, reading)
        inspect = partial(_noted, reading, Memo())
        self._polls = Polls(finder.cluster, f"{finder.cluster} nodes", inspect, changed, pace)

    def stop(self) -> None:
        """Stop looking."""
        self._polls.stop()
        self._end()


def _noted(reading: Reading, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Look, and publish what was found to all readers. Raises KubeError."""
    inspect = _read_nodes(reading.finder, reading.root, apis)
    LAST_READINGS.note(reading, inspect)
    if inspect.failure:
        raise UnreachableError(inspect.failure)
    return inspect.pod_paths


def _read_nodes(finder: MachinesSource, root: Path, apis: Memo[MachinesApi]) -> Pass:
    try:
        return Pass(_ask(finder, root, apis))
    except KubeError as error:
        return Pass(failure=str(error))


def _ask(finder: MachinesSource, root: Path, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Ask for the ways. Raises KubeError."""
    client = ForeignMachinesApi if finder.kubeconfig else MachinesApi
    api = apis.of(None, client, allowed(finder, root, key="nodes"))
    pods = api.existing_machines(finder.namespace)
    pod_paths = node_routes(pods[: MAX_POD_ROUTES + 1]).get(finder.namespace.removeprefix(INFRA), ())
    if max(len(pods), len(pod_paths)) > MAX_POD_ROUTES:
        sentence = f"{finder.namespace} has {len(pods)} pods with {len(pod_paths)} ways or more to them"
        raise UnreachableError(f"{sentence}; {MAX_POD_ROUTES} are taken over at most")
    return pod_paths
