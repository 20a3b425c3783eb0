"""By which way connections of each running cluster go, and what would be a better one: sentences for users.

Not here: the routes (`pod_routes`), and the choice between pods and NodePorts (`backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName
from locallb.model.objects import BackendChoice, Via
from locallb.model.reasons import Reason
from locallb.model.snapshot import Snapshot
from locallb.model.texts import counted
from locallb.planning.planned import PlannedPort, PlannedRoutes
from locallb.planning.pod_routes import RoutePlan, parts, way

_OWN = "local-lb:podRoutes container, with local-lb:network publish,"
_FAR = "its Nodes are pods of another cluster, to which this host has no routes; {key} makes them"
_SLOW = (
    "connections go by NodePorts, which kube-proxy opens about a second later than pods answer; {key} makes routes"
    " straight to the pods"
)
_NONE = "this host has no route to pods that Gateways or Ingresses lead to; {key} makes routes straight to them"


class BackendPaths(Struct, frozen=True):
    """By which ways the connections of a cluster go, or of those Services of it that one proxy serves."""

    vias: frozenset[Via] = frozenset()
    unreached: bool = False
    """Whether this host has no way to what a port leads to."""

    @classmethod
    def of(cls, ports: Iterable[PlannedPort]) -> BackendPaths:
        ports = tuple(ports)
        unreached = any(port.problem is not None and port.problem.reason is Reason.UNREACHABLE for port in ports)
        return cls(frozenset(port.via for port in ports if port.via), unreached)

    @classmethod
    def together(cls, several: Iterable[tuple[ClusterName, BackendPaths]]) -> Mapping[ClusterName, BackendPaths]:
        """Return those of each cluster."""
        found: dict[ClusterName, BackendPaths] = {}
        for cluster, paths in several:
            other = found.get(cluster, _NOWHERE)
            found[cluster] = cls(paths.vias | other.vias, paths.unreached or other.unreached)
        return found


_NOWHERE = BackendPaths()


def straight(
    paths: Mapping[ClusterName, BackendPaths], routes: Iterable[PlannedRoutes], access: Container[ClusterName]
) -> Iterator[str]:
    """Return a sentence for each running cluster of which connections go straight to pods."""
    made = {planned.cluster: len(planned.routes) for planned in routes}
    for cluster in sorted(paths):
        if cluster in access and Via.API in paths[cluster].vias:
            yield f"{cluster}: connections go to pods through the API server, of TCP only"
        if cluster in access and paths[cluster].vias == {Via.PODS}:
            by = (
                f"by {counted(made[cluster], 'route')} of local-lb's"
                if cluster in made
                else "by this host's own routes"
            )
            yield f"{cluster}: connections go straight to pods, {by}"


def routes_to_gain(
    paths: Mapping[ClusterName, BackendPaths],
    routes: Iterable[PlannedRoutes],
    snapshot: Snapshot,
    settings: Settings,
    find: Callable[[Snapshot, Settings], RoutePlan],
) -> Iterator[str]:
    """Return a sentence for each cluster that would gain from routes which aren't made: how, or what is in the way.

    `find` is `routes_of`, or knows its answers.
    """
    if settings.pod_routes not in {PodRouting.OFF, PodRouting.AUTO} or snapshot.host.addresses is None:
        return
    by_nodes = {cluster for cluster, each in paths.items() if each.vias - {Via.PODS}}
    unreached = {cluster for cluster, each in paths.items() if each.unreached}
    far = by_nodes & snapshot.node_routes.keys()
    if settings.backends is BackendChoice.NODE_PORTS:
        by_nodes = far
    if not by_nodes | unreached:
        return
    word = PodRouting.CONTAINER if settings.publishes else PodRouting.HOST
    could = find(replace(snapshot, host=replace(snapshot.host, may_route=True)), replace(settings, pod_routes=word))
    present = set() if settings.publishes else {way(route) for route in snapshot.host.routes}
    present |= {parts(route) for planned in routes for route in planned.routes}
    foreign = {source.cluster for source in settings.sources if source.nodes and source.nodes.is_foreign}
    for cluster in sorted(by_nodes | unreached):
        wanted = could.routes.get(cluster, ())
        if not present.issuperset(map(parts, wanted)):
            why = _FAR if cluster in far else _SLOW if cluster in by_nodes else _NONE
            key = _OWN if cluster in foreign and not settings.publishes else f"local-lb:podRoutes {word}"
            yield f"{cluster}: {why.format(key=key)} (as root, or through Docker)"
        elif not wanted and settings.pod_routes is PodRouting.AUTO and cluster in snapshot.access:
            yield from (notice for notice in could.notices if notice.startswith(f"{cluster}: "))
