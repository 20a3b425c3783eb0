"""By which way connections of each running cluster go, and what would be a better one: sentences for users.

Not here: the routes (`pod_routes`), and the choice between pods and NodePorts (`backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName
from locallb.model.objects import BackendChoice
from locallb.model.reasons import Reason
from locallb.model.snapshot import Snapshot
from locallb.model.texts import counted
from locallb.planning.planned import Plan, PlannedPort, Via
from locallb.planning.pod_routes import RoutePlan, parts, way

_OWN = "local-lb:podRoutes container, with local-lb:network publish,"
_FAR = "its Nodes are pods of another cluster, to which this host has no routes; {key} makes them"
_SLOW = (
    "connections go by NodePorts, which kube-proxy opens about a second later than pods answer; {key} makes routes"
    " straight to the pods"
)
_NONE = "this host has no route to pods that Gateways or Ingresses lead to; {key} makes routes straight to them"


def straight(plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    """Return a sentence for each running cluster of which connections go straight to pods."""
    made = {planned.cluster: len(planned.routes) for planned in plan.routes}
    by_cluster: dict[ClusterName, set[Via]] = {}
    for placement in plan.placements:
        if placement.key.cluster in snapshot.access:
            by_cluster.setdefault(placement.key.cluster, set()).update(port.via for port in placement.ports if port.via)
    for cluster, used in sorted(by_cluster.items()):
        if used == {Via.PODS}:
            by = (
                f"by {counted(made[cluster], 'route')} of local-lb's"
                if cluster in made
                else "by this host's own routes"
            )
            yield f"{cluster}: connections go straight to pods, {by}"


def routes_to_gain(
    plan: Plan, snapshot: Snapshot, settings: Settings, find: Callable[[Snapshot, Settings], RoutePlan]
) -> Iterator[str]:
    """Return a sentence for each cluster that would gain from routes which aren't made: how, or what is in the way.

    `find` is `routes_of`, or knows its answers.
    """
    if settings.pod_routes not in {PodRouting.OFF, PodRouting.AUTO} or snapshot.host.addresses is None:
        return
    by_nodes, unreached = _by_nodes(plan, _is_by_node), _by_nodes(plan, _is_unreached)
    far = by_nodes & snapshot.node_routes.keys()
    if settings.backends is BackendChoice.NODE_PORTS:
        by_nodes = far
    if not by_nodes | unreached:
        return
    word = PodRouting.CONTAINER if settings.publishes else PodRouting.HOST
    could = find(replace(snapshot, host=replace(snapshot.host, may_route=True)), replace(settings, pod_routes=word))
    present = set() if settings.publishes else {way(route) for route in snapshot.host.routes}
    present |= {parts(route) for planned in plan.routes for route in planned.routes}
    foreign = {source.cluster for source in settings.sources if source.nodes and source.nodes.is_foreign}
    for cluster in sorted(by_nodes | unreached):
        wanted = could.routes.get(cluster, ())
        if not present.issuperset(map(parts, wanted)):
            why = _FAR if cluster in far else _SLOW if cluster in by_nodes else _NONE
            key = _OWN if cluster in foreign and not settings.publishes else f"local-lb:podRoutes {word}"
            yield f"{cluster}: {why.format(key=key)} (as root, or through Docker)"
        elif not wanted and settings.pod_routes is PodRouting.AUTO and cluster in snapshot.access:
            yield from (notice for notice in could.notices if notice.startswith(f"{cluster}: "))


def _by_nodes(plan: Plan, fits: Callable[[PlannedPort], bool]) -> set[ClusterName]:
    """Return the clusters with such a port."""
    found = set[ClusterName]()
    for placement in plan.placements:  # of a cluster that one is enough of the others aren't asked
        cluster = placement.key.cluster
        if cluster not in found and any(map(fits, placement.ports)):
            found.add(cluster)
    return found


def _is_by_node(port: PlannedPort) -> bool:
    return port.via not in {None, Via.PODS}


def _is_unreached(port: PlannedPort) -> bool:
    return port.problem is not None and port.problem.reason is Reason.UNREACHABLE
