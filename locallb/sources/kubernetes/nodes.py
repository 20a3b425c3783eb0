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
from locallb.sources.kubernetes.last_looks import LAST_LOOKS, Look, Looking
from locallb.sources.kubernetes.machine_pods import INFRA, node_routes, parsed, printed
from locallb.sources.kubernetes.machines import ForeignMachinesApi, MachinesApi
from locallb.sources.polling import PACE, Polls
from locallb.sources.source import Found
from locallb.storage import files

FIRST = 2.0
"""Seconds to wait for the first answer without stored routes, as nothing could be routed before."""
MOST_WAYS = 1000
"""Limit of routes to the Nodes of one cluster, and of candidate pods; with more of either none is used."""


def find_nodes(finder: MachinesSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the ways to a cluster's Nodes, in `directory` unless configured. Raises ClientError where that fails."""
    path, name = directory / f"{finder.cluster}.routes", _asked(finder, root)
    last = _kept(path, name)
    followed, look = LAST_LOOKS.find(finder, root, patience=0.0 if last else FIRST)
    look = look if followed else _looked(finder, root, Memo())
    if look and not look.failure:
        if keep:
            put(finder.type, path, f"{name}\n{printed(look.ways)}", keep=keep)
        return Found(node_routes={finder.cluster: look.ways})
    complaints = (_complaint(finder, look.failure, len(last)),) if look else ()
    return Found(complaints=complaints, node_routes={finder.cluster: last})


def _complaint(finder: MachinesSource, failure: str, last: int) -> str:
    known = f"so the {last} ways to them count that were found last" if last else "and no way to them is known"
    return f"source {finder.cluster}: which pods are its Nodes can't be found out: {failure}; {known}"


def _asked(finder: MachinesSource, root: Path) -> str:
    """Return the identity of a source in one line: routes of another one may differ."""
    kubeconfig = finder.kubeconfig
    with suppress(KubeError):
        kubeconfig = str(kubeconfig_path(kubeconfig, root))
    return json.dumps([kubeconfig, finder.context, finder.namespace])


def _kept(path: Path, name: str) -> tuple[PodRoute, ...]:
    """Return the stored routes of the current source."""
    before, _, ways = (files.read(path) or "").partition("\n")
    return parsed(ways) if before == name else ()


class NodePolls:
    """Calls `changed` where a cluster's Nodes are reached by other ways, and at first, until `stop`."""

    def __init__(self, finder: MachinesSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> None:
        looking = LAST_LOOKS.begin(finder, root)
        self._end = partial(LAST_LOOKS.end, looking)
        look = partial(_noted, looking, Memo())
        self._polls = Polls(finder.cluster, f"{finder.cluster} nodes", look, changed, pace)

    def stop(self) -> None:
        """Stop looking."""
        self._polls.stop()
        self._end()


def _noted(looking: Looking, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Look, and publish what was found to all readers. Raises KubeError."""
    look = _looked(looking.finder, looking.root, apis)
    LAST_LOOKS.note(looking, look)
    if look.failure:
        raise UnreachableError(look.failure)
    return look.ways


def _looked(finder: MachinesSource, root: Path, apis: Memo[MachinesApi]) -> Look:
    try:
        return Look(_ask(finder, root, apis))
    except KubeError as error:
        return Look(failure=str(error))


def _ask(finder: MachinesSource, root: Path, apis: Memo[MachinesApi]) -> tuple[PodRoute, ...]:
    """Ask for the ways. Raises KubeError."""
    client = ForeignMachinesApi if finder.kubeconfig else MachinesApi
    api = apis.of(None, client, allowed(finder, root, key="nodes"))
    pods = api.machines_there(finder.namespace)
    ways = node_routes(pods[: MOST_WAYS + 1]).get(finder.namespace.removeprefix(INFRA), ())
    if max(len(pods), len(ways)) > MOST_WAYS:
        sentence = f"{finder.namespace} has {len(pods)} pods with {len(ways)} ways or more to them"
        raise UnreachableError(f"{sentence}; {MOST_WAYS} are taken over at most")
    return ways
