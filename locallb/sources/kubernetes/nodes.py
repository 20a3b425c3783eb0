"""The ways to the Nodes of a cluster that are pods of another one: found, kept, and looked at again and again.

What is kept counts while that cluster doesn't say. Not here: what pods say (`machine_pods`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.access.kubeconfig import resolve
from locallb.model.memory import Memory
from locallb.model.network.routes import PodRoute
from locallb.model.pacing import Pace
from locallb.sources.kept_access import put
from locallb.sources.kubernetes.entry import KubernetesSource, MachinesSource
from locallb.sources.kubernetes.machine_pods import INFRA, node_routes, parsed, printed
from locallb.sources.kubernetes.machines import ForeignMachinesApi, MachinesApi
from locallb.sources.polling import PACE, Polls
from locallb.sources.source import Found
from locallb.storage import files


def find_nodes(finder: MachinesSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the ways to a cluster's Nodes, in `directory` where nobody says. Raises ClientError where that fails."""
    kept = directory / f"{finder.cluster}.routes"
    try:
        ways = _look(finder, root, Memory())
    except KubeError as error:
        last = parsed(files.read(kept) or "")
        told = f"source {finder.cluster}: which pods are its Nodes can't be found out: {error}"
        known = f"so the {len(last)} ways to them count that were found last" if last else "and no way to them is known"
        return Found(complaints=(f"{told}; {known}",), node_routes={finder.cluster: last})
    if keep:
        put(finder.type, kept, printed(ways), keep=keep)
    return Found(node_routes={finder.cluster: ways})


def poll_nodes(finder: MachinesSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> Polls:
    """Call `changed` where they are others, and at first."""
    look = partial(_look, finder, root, Memory())
    return Polls(finder.cluster, f"{finder.cluster} nodes", look, changed, pace)


def _look(finder: MachinesSource, root: Path, apis: Memory[MachinesApi]) -> tuple[PodRoute, ...]:
    """Ask. Raises KubeError."""
    client = ForeignMachinesApi if finder.kubeconfig else MachinesApi
    api = apis.of(None, client, resolve(finder.kubeconfig, finder.context, root))
    by_shoot = node_routes(api.machines_there(finder.namespace))
    return by_shoot.get(finder.namespace.removeprefix(INFRA), ())
