"""Texts about Gateways for the user: one line for each served route, one sentence for each unserved part.

Not here: statuses, which report the same to the cluster (`gateway.statuses`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain as chained
from itertools import islice

from locallb.gateway.attachment import ParentVerdict
from locallb.gateway.backend_tls import policy_sentences
from locallb.gateway.routes import MISDIRECTED, Backends, BackendTarget, Bound
from locallb.gateway.translation import BoundGateway, our_classes, shared_objects
from locallb.model.faults import annotation_problem
from locallb.model.gateway_objects import CONTROLLER, Gateway, ListenerProtocol, Named, Reference, RouteKind
from locallb.model.gateway_of_cluster import GatewayObjects
from locallb.model.http_routes import DirectResponse, Forward, GrpcMethod, HttpRoute, Match, PathKind, Redirect, Target
from locallb.model.http_serving import Chain, HttpRoutes, VirtualHost
from locallb.model.identities import ClusterName, ObjectKey, UpstreamName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.texts import clipped, counted, few

_EXAMPLES = 3


def route_lines(bound: Bound, memory: Memo[tuple[str, ...]] | None = None) -> tuple[str, ...]:
    """Return the routes in the order in which they are matched: `GET shop.test/api/* → shop/api:8080 90 %`.

    `memory` caches those of each host.
    """
    memory = memory or Memo()
    memory.within(bound.targets)
    every = [(port, chain) for port, chains in sorted(bound.chains.items()) for chain in chains]
    hosts = [host for _, chain in every for host in chain.hosts]
    of_hosts = iter(memory.each(lambda host: tuple(_host(host, bound.targets)), hosts))
    return tuple(
        f"{port}: {line}{_client_requirements(chain)}"
        for port, chain in every
        for line in (_forwarded(chain, bound.targets), *chained.from_iterable(islice(of_hosts, len(chain.hosts))))
        if line
    )


def _forwarded(chain: Chain, targets: Mapping[UpstreamName, BackendTarget]) -> str:
    """Return the line of a chain of bytes; empty for one of requests."""
    if isinstance(chain.serves, HttpRoutes):
        return ""
    return f"{' '.join(chain.names) or '*'} → {_behind(chain.serves.targets, targets)}"


def _client_requirements(chain: Chain) -> str:
    clients = chain.termination.clients if chain.termination else None
    if clients is None:
        return ""
    return ", clients may show a certificate" if clients.optional else ", clients must show a certificate"


def _host(host: VirtualHost, targets: Mapping[UpstreamName, BackendTarget]) -> Iterator[str]:
    for route in host.routes:
        if route.action != MISDIRECTED:  # of all others a user wrote what is matched
            yield f"{requested(route.match, ' '.join(host.domains))} → {_done(route, targets)}"


def requested(match: Match, host: str) -> str:
    """Return what a request must match; further conditions are in brackets."""
    more = [f"{header.name}{'~' if header.regex else ':'} {header.value}" for header in match.headers]
    more += [f"?{parameter.name}={'~' if parameter.regex else ''}{parameter.value}" for parameter in match.query]
    text = f"{match.method} " if match.method else ""
    return clipped(f"{text}{host}{_path(match)}" + (f" [{', '.join(more)}]" if more else ""))


def _path(match: Match) -> str:
    match match.path:
        case None:
            return "/*"
        case GrpcMethod(service, method, _):
            return f"/{service or '*'}/{method or '*'}"
        case path if path.kind is PathKind.PREFIX:
            return f"{path.value.rstrip('/')}/*"
        case path:
            return path.value if path.kind is PathKind.EXACT else f" ~ {path.value}"


def _done(route: HttpRoute, targets: Mapping[UpstreamName, BackendTarget]) -> str:
    match route.action:
        case Redirect(code, scheme, hostname, port, path):
            where = f"{scheme}://{hostname}{f':{port}' if port else ''}{path.value if path else ''}"
            return f"{code} {where.removeprefix('://') or 'elsewhere'}"
        case Forward():
            return _behind(route.action.targets, targets)
        case DirectResponse():
            return " ".join([str(route.action.status), *(value for _, value in route.response.set)])


def _behind(candidates: Iterable[Target], targets: Mapping[UpstreamName, BackendTarget]) -> str:
    """Return the backends, with the share of each where there are several; 500 where there is none."""
    weighted = [target for target in candidates if target.weight]
    total = sum(target.weight for target in weighted)
    shares = []
    for target in weighted:
        behind = targets.get(target.upstream)
        name = f"{behind.service.namespace}/{behind.service.name}:{behind.port.port}" if behind else "500"
        shares.append(name if len(weighted) == 1 else f"{name} {100 * target.weight / total:.3g} %")
    return ", ".join(shares) or "500"


def sentences(objects: GatewayObjects, bound: Collection[BoundGateway], memory: AnyMemo | None = None) -> Iterator[str]:
    """Return sentences about a cluster's refused listeners, routes and policies, and unresolved references, each once.

    `memory` caches the sentences of each Gateway.
    """
    memory = memory or Memo()
    shared, reported = shared_objects(objects, memory), set[Reference]()
    for route, stated in chained.from_iterable(_of_each(shared, bound, memory)):
        if route is None or route not in reported:
            yield from stated
        reported |= {route} if route else set()
    if not shared.policies:
        return
    services = frozenset[Named]().union(*(gateway.services for gateway in bound))
    yield from memory.of(
        (objects.cluster, "policies"),
        lambda existing, used: list(policy_sentences(existing.cluster, Backends(existing).policies, used)),
        shared,
        services,
    )


def refusals(
    objects: GatewayObjects, bound: Collection[BoundGateway], memory: AnyMemo
) -> Mapping[ObjectKey, tuple[str, ...]]:
    """Return sentences about refused parts of each Gateway's listeners and routes, if any."""
    of_gateways = zip(bound, _of_each(shared_objects(objects, memory), bound, memory), strict=True)
    return {
        gateway.key: tuple(chained.from_iterable(stated for _, stated in groups))
        for gateway, groups in of_gateways
        if any(stated for _, stated in groups)
    }


def _of_each(
    shared: GatewayObjects, bound: Collection[BoundGateway], memory: AnyMemo
) -> Sequence[list[tuple[Reference | None, list[str]]]]:
    """Return the sentences about each Gateway; `memory` has those from before."""
    existing: Memo[list[tuple[Reference | None, list[str]]]] = memory.of((shared.cluster, "sentences"), Memo)
    existing.within(shared)
    backends = cache(partial(Backends, shared))  # often nothing has to be made again
    routes = {gateway.key: memory.of((gateway.key, "sentences of routes"), Memo) for gateway in bound}

    def stated(gateway: BoundGateway) -> list[tuple[Reference | None, list[str]]]:
        of_routes: Memo[tuple[Reference | None, list[str]]] = routes[gateway.key]
        of_routes.within(shared)
        each = of_routes.each(lambda verdict: _of_route(gateway.key, verdict, backends()), gateway.attachment.verdicts)
        return [(None, _of_listeners(gateway)), *(of_route for of_route in each if of_route[1])]

    return existing.each(stated, bound)


def _of_listeners(gateway: BoundGateway) -> list[str]:
    """Return the sentences about one Gateway, but those about its routes."""
    of_listeners = [f"{gateway.key} {refusal}" for listener in gateway.listeners if (refusal := listener.refusal)]
    if problem := annotation_problem(gateway.gateway.meta.annotations, routed=True):
        of_listeners.append(f"{gateway.key}: {problem}")
    if why := gateway.resolved:
        of_listeners.append(f"{gateway.key}: {why.reason}: {why.message}")
    of_listeners += _unmet_requirements(gateway)
    return [*of_listeners, *(f"{gateway.key}: {why}" for why in gateway.without_room)]


def _unmet_requirements(gateway: BoundGateway) -> Iterator[str]:
    """Explain the ports without client certificate validation although the Gateway configures it."""
    spoken = {
        listener.listener.port for listener in gateway.listeners if listener.listener.protocol == ListenerProtocol.HTTPS
    }
    for port, requested in gateway.gateway.validations.items():
        if port and requested and port not in spoken:
            why = (
                f"spec.tls.frontend.perPort asks clients at port {port} for certificates, and no listener speaks HTTPS"
            )
            yield f"{gateway.key}: {why} there: nobody is asked; correct the port"


def _of_route(gateway: ObjectKey, verdict: ParentVerdict, backends: Backends) -> tuple[Reference | None, list[str]]:
    """Return the sentences about a route, with its reference if other Gateways have the same ones."""
    route, why = verdict.route, verdict.accepted
    name = f"{gateway.cluster}: {route.kind} {route.meta.key}"
    if why:
        return None, [f"{name} at {gateway}: {why.reason}: {why.message}"]
    route_sentences = [f"{name}: {rule.problem}" for rule in route.rules if rule.problem]
    if problem := annotation_problem(route.meta.annotations, routed=True):
        route_sentences.append(f"{name}: {problem}")
    route_sentences += [f"{name}: {failure.reason}: {failure.message}" for failure in backends.own_failures(route)]
    if route.kind is RouteKind.TCP or (route.kind is RouteKind.TLS and not verdict.ends_tls):
        route_sentences += [f"{name}: {why}: nothing comes of it" for why in backends.unused_policies(route)]
    return route.reference, route_sentences


def left_out(objects: GatewayObjects, names: frozenset[str] | None) -> Iterator[str]:
    """Return which Gateways are of classes that are there and aren't served."""
    ours = {gateway_class.meta.key.name for gateway_class in our_classes(objects, names)}
    existing = {gateway_class.meta.key.name for gateway_class in objects.classes}
    others = [gateway for gateway in objects.gateways if gateway.class_name in existing - ours]
    if others:
        examples = few(
            [f"{objects.cluster}/gateways/{clipped(str(gateway.meta.key))}" for gateway in others], _EXAMPLES
        )
        which = f"served are GatewayClasses with controllerName {CONTROLLER}"
        which += " that local-lb:gatewayClasses names" if names is not None else ""
        yield f"{counted(len(others), 'Gateway')} left out: of another class ({which}): {examples}"


def of_missing_classes(objects: GatewayObjects) -> Iterator[Gateway]:
    """Return the Gateways of which the cluster hasn't the class, whoever would serve it."""
    existing = {gateway_class.meta.key.name for gateway_class in objects.classes}
    return (gateway for gateway in objects.gateways if gateway.class_name not in existing and not gateway.meta.deleting)


def missing_classes(clusters: Mapping[ClusterName, GatewayObjects], names: frozenset[str] | None) -> Iterator[str]:
    """Return which classes the stack names that no cluster has."""
    present = chained.from_iterable(our_classes(objects, names) for objects in clusters.values())
    existing = {gateway_class.meta.key.name for gateway_class in present}
    for name in sorted((names or frozenset()) - existing):
        yield (
            f"local-lb:gatewayClasses has {clipped(name)}, but no source has a GatewayClass of that name with"
            f" controllerName {CONTROLLER}; make it, or correct the name"
        )
