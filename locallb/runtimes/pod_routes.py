"""Routes to pods as they are, and changing them: in this host's table, or where a container has its network.

Who may change routes does it by netlink, who may not by a container that lives for a moment. Routes carry our protocol
and the stack's metric, so nobody else's is ever taken for one of them. Not here: which routes are wanted.
"""

from __future__ import annotations

from collections.abc import Collection

from locallb.host.namespace_routes import pod_routes_of
from locallb.host.netlink import RouteError, put_pod_route, remove_pod_route, routes
from locallb.model.identities import Home, Owner
from locallb.model.naming import metric_of, owner_fields
from locallb.model.routes import POD_PROTOCOL, PodRoute
from locallb.runtimes.docker.containers import LABEL_PREFIX
from locallb.runtimes.docker.engine_api import Containers, ContainersError
from locallb.runtimes.docker.route_helper import HOST, helper_shortcoming, run_helper


def present_routes(home: Home, container: str = "") -> frozenset[PodRoute]:
    """Return the routes of a stack that are there; none in a container that doesn't run.

    Raises RouteError, ContainersError.
    """
    metric = metric_of(home)
    if container:
        pid = _pid(container)
        return pod_routes_of(pid, metric) if pid else frozenset()
    return frozenset(
        PodRoute(one.destination, one.gateway)
        for one in routes()
        if one.gateway is not None and (one.protocol, one.metric) == (POD_PROTOCOL, metric)
    )


def change_routes(
    owner: Owner, put: Collection[PodRoute], remove: Collection[PodRoute], container: str = ""
) -> frozenset[PodRoute]:
    """Make some routes and remove others, as far as that isn't so; return those of `put` that aren't there then.

    Raises RouteError, ContainersError, RouteHelperError.
    """
    there = present_routes(owner.home, container)
    missing = sorted(set(put) - there, key=lambda route: route.order)
    replaced = {route.destination for route in missing}
    surplus = [route for route in remove if route in there and route.destination not in replaced]
    if container and not _pid(container):
        return frozenset(missing)
    if container or not _by_netlink(missing, surplus, metric_of(owner.home)):
        labels = {LABEL_PREFIX + key: value for key, value in owner_fields(owner).items()}
        run_helper(f"container:{container}" if container else HOST, missing, surplus, metric_of(owner.home), labels)
    return frozenset(missing) - present_routes(owner.home, container) if missing else frozenset()


def remove_route(owner: Owner, route: PodRoute) -> None:
    """Remove one from this host's table. Raises what `change_routes` does."""
    change_routes(owner, (), (route,))


def docker_may_route() -> bool:
    """Return whether Docker answers, and may change routes of this host."""
    try:
        return not helper_shortcoming(Containers())
    except ContainersError:
        return False


def _pid(container: str) -> int:
    seen = Containers().inspect(container)
    return int(seen["State"]["Pid"]) if seen else 0


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
