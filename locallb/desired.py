"""All groups of a plan: the desired resources of each proxy, load balancer and cluster.

A proxy's group has certificates, its configuration on disk, its run, and routes of its own; a load balancer's has its
addresses, the proof that they are served, and its published data. Groups of a running cluster are routes to its pods,
zones in its CoreDNS, classes of ours, and objects next to its Gateways. Each group is made again only if its inputs
changed.

Not here: the types of groups and resources (`model.desired`), and the decisions (`planning.plan`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from locallb.kubernetes.status import published_in
from locallb.model.desired import (
    ADDRESS,
    BALANCER,
    CERTIFICATE,
    CLUSTER_CLASS,
    CLUSTER_NODE,
    CLUSTER_RELAY,
    CLUSTER_ROUTES,
    CLUSTER_ZONES,
    CONFIG,
    GATEWAY_OBJECT,
    INITIALIZED_NODE,
    OWN_CLASS,
    POD_ROUTES,
    PORTS,
    PROXY,
    REACHABLE,
    RELAY,
    SERVED_CERTIFICATE,
    SERVICE_CLAIM,
    SERVICE_CONFIG,
    STUB_ZONES,
    Group,
    Ref,
    ResourceKey,
    group_of,
)
from locallb.model.desired import DesiredResource as Resource
from locallb.model.http_serving import AnyCertificate, LocalCertificate
from locallb.model.identities import ContextName, Digest, ObjectKey, ProxyName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Via
from locallb.model.relays import VERSION as RELAY_VERSION
from locallb.model.snapshot import Access
from locallb.model.texts import address_name, owner_fields
from locallb.outputs.events import event_resource
from locallb.outputs.output import OutputContext, published
from locallb.outputs.status import status_resource
from locallb.planning.entrances import clients_allowed, hostnames_claimed, hostnames_of, ports_without_tls, urls_of
from locallb.planning.planned import (
    DesiredRun,
    Placement,
    Plan,
    PlannedClass,
    PlannedNews,
    PlannedNode,
    PlannedPart,
    PlannedProxy,
    PlannedRelay,
    PlannedRoutes,
    PlannedStatus,
    PlannedZones,
    Rejection,
    run_planner,
)
from locallb.resources.codec import encode

_NO_CLUSTER = Access("", ContextName(""))


class OwnProxyUser(Struct, frozen=True):
    """The load balancer that has a proxy of its own: its addresses are claimed before the proxy may bind them."""

    addresses: tuple[ResourceKey, ...]
    access: Access | None
    """Where its certificates are read."""

    @classmethod
    def by(cls, placement: Placement) -> OwnProxyUser:
        """Return what a placement claims."""
        return cls(claims_of(placement), placement.access)


class ServingProxy(Struct, frozen=True):
    """References to a proxy for the load balancers that it serves."""

    config: ResourceKey
    run: ResourceKey
    identity: Ref
    """Another run has another one, and must be proven again."""
    routes: tuple[ResourceKey, ...]
    """Routes of its own to its backends."""
    published: bool
    """Whether the engine of its container publishes its ports."""
    digest: Digest

    @property
    def id(self) -> Ref:
        """Refer to its id, once its directory exists."""
        return Ref(self.config, ("proxy",))


def claims_of(placement: Placement) -> tuple[ResourceKey, ...]:
    """Return the resources by which a load balancer claims its addresses, or ports of shared ones."""
    kind = PORTS if placement.mapped else ADDRESS
    return tuple(ResourceKey(kind, address_name(placement.key, address)) for address in placement.addresses)


def proxy_group(planned: PlannedProxy, claimed: OwnProxyUser | None = None) -> tuple[Group, ServingProxy]:
    """Return the group of a proxy; one of the stack waits for no addresses: it gets them one by one."""
    name = planned.proxy.name
    root, config = ResourceKey(PROXY, name), ResourceKey(CONFIG, name)
    run = run_planner(planned.run.runtime).desired(planned.run, planned.proxy, planned.owner)
    certificates = [_certificate(planned, each, claimed, root) for each in planned.proxy.certificates]
    needs = (*(claimed.addresses if claimed else ()), *(certificate.key for certificate in certificates))
    members = [
        *certificates,
        Resource(config, _configuration(planned), root, needs),
        Resource(run.key, run.inputs, root, (config,)),
        *_routes(planned, run, root),
        *_answers(planned, run, root),
    ]
    shown = Resource(root, _shown(planned), outputs={"process": run.identity})
    group = group_of(shown, members)
    routes = (ResourceKey(POD_ROUTES, name),) if planned.routes else ()
    serving = ServingProxy(config, run.key, run.identity, routes, bool(planned.proxy.published), group.digest)
    return group, serving


def _shown(planned: PlannedProxy) -> dict[str, object]:
    """Return what a reader of a preview sees of a proxy: nothing that its load balancers show."""
    if not planned.proxy.names:
        return {}
    table = (served for listener in planned.proxy.names for served in listener.table)
    return {
        "listeners": [listener.name for listener in planned.proxy.names],
        "names": [f"{each.name} {' '.join(map(str, each.addresses))}" for each in table],
    }


def _configuration(planned: PlannedProxy) -> dict[str, object]:
    """Return the inputs of the configuration on disk."""
    versions = planned.rendered.versions
    return {
        **_in_directory(planned),
        "files": dict(planned.rendered.files),
        "versions": {"lds": versions.lds, "cds": versions.cds},
        **_serves(planned),
        **({"released": " ".join(planned.proxy.unbound)} if planned.proxy.unbound else {}),
    }


def _in_directory(planned: PlannedProxy) -> dict[str, object]:
    """Return the inputs of everything that is written into the proxy's directory."""
    return {
        "proxy": planned.proxy.id,
        "name": planned.proxy.name,
        "owner": owner_fields(planned.owner),
        "shared": planned.run.by_group,
    }


def _serves(planned: PlannedProxy) -> dict[str, str]:
    """Return the additional input of a proxy that one Gateway uses alone."""
    return {"serves": str(planned.serves)} if planned.serves else {}


def _certificate(
    planned: PlannedProxy, certificate: AnyCertificate, claimed: OwnProxyUser | None, root: ResourceKey
) -> Resource:
    """Return a certificate with its key, where the proxy reads them."""
    if isinstance(certificate, LocalCertificate):
        made = {
            **_in_directory(planned),
            "certificate": certificate.name,
            "hosts": list(certificate.hosts),
            "authority": certificate.authority,
            "period": certificate.period,
        }
        return Resource(ResourceKey(CERTIFICATE, f"{planned.proxy.name}/{certificate.name}"), made, root)
    access = claimed.access if claimed else None
    served = {
        **_in_directory(planned),
        "access": encode(_NO_CLUSTER if certificate.file or access is None else access),
        "file": certificate.file,
        "namespace": certificate.namespace,
        "secret": certificate.name,
        "digest": certificate.digest,
        **_serves(planned),
    }
    name = f"{planned.proxy.name}/{certificate.namespace}.{certificate.name}"
    return Resource(ResourceKey(SERVED_CERTIFICATE, name), served, root)


def _routes(planned: PlannedProxy, run: DesiredRun, root: ResourceKey) -> Iterator[Resource]:
    """Return the routes from a container's own network to pods; another container needs them again."""
    if planned.routes:
        inputs = {
            "owner": owner_fields(planned.owner),
            "container": run.container,
            "routes": [str(route) for route in planned.routes],
        }
        yield Resource(ResourceKey(POD_ROUTES, planned.proxy.name), inputs, root)


def _answers(planned: PlannedProxy, run: DesiredRun, root: ResourceKey) -> Iterator[Resource]:
    """Return the proof that questions for names are answered."""
    if planned.proxy.names:
        listeners = [listener.name for listener in planned.proxy.names]
        config, published = ResourceKey(CONFIG, planned.proxy.name), bool(planned.proxy.published)
        inputs = proof_inputs(config, run.identity, listeners, published=published)
        yield Resource(ResourceKey(REACHABLE, planned.proxy.name), inputs, root, (run.key,))


def proof_inputs(config: ResourceKey, identity: Ref, listeners: list[str], *, published: bool) -> dict[str, object]:
    """Return the inputs of the proof that a run serves listeners of its own configuration."""
    return {
        "proxy": Ref(config, ("proxy",)),
        "part": "",
        "process": identity,
        "listeners": listeners,
        "versions": Ref(config, ("versions",)),
        "probes": [],
        "published": published,
    }


def balancer_group(placement: Placement, proxy: ServingProxy, paths: tuple[ResourceKey, ...]) -> Group:
    """Return the group of a load balancer that `proxy` serves; `paths` lead to its backends: routes or a relay."""
    root = ResourceKey(BALANCER, str(placement.key))
    claims = claims_of(placement)
    proof = _proof(placement, proxy, paths)
    members = [
        *_claims(placement, claims, root),
        *([_fragment(placement, placement.part, proxy, claims)] if placement.part else ()),
        proof,
        *published(placement, OutputContext(root, claims if placement.withdrawn else (proof.key,))),
    ]
    outputs = {"addresses": [str(address) for address in placement.addresses]}
    return group_of(Resource(root, _shown_balancer(placement), outputs=outputs), members, (proxy.digest,))


def _shown_balancer(placement: Placement) -> Mapping[str, object]:
    """Return what readers of a preview and policies see of a load balancer.

    Each is a text, as engines show of one only what changes in it, of several lines the changed ones; of a list all.
    A last line without its end would count as changed once another one follows.
    """
    optional = {
        "routes": "".join(f"{route}\n" for route in placement.routes),
        "hostnames": ", ".join(hostnames_claimed(placement)),
        "withoutTls": ", ".join(ports_without_tls(placement)),
        "sourceRanges": ", ".join(map(str, clients_allowed(placement))),
        "names": "\n".join(map(str, placement.names)),
    }
    return {
        "addresses": ", ".join(map(str, placement.addresses)),
        "ports": ", ".join(map(str, placement.ports)),
        "uid": placement.owner.uid,
        **{name: text for name, text in optional.items() if text},
    }


def rejection_group(rejection: Rejection) -> Group:
    """Return a load balancer without a part that serves: its status says why.

    Its root has the type and the name of one that serves, so that its status is the same resource: a Service that is
    rejected after it served loses the addresses in its status before they stop to answer.
    """
    root = ResourceKey(BALANCER, str(rejection.key))
    uid = rejection.owner.uid if rejection.owner else ""
    shown = Resource(root, {"addresses": "", "ports": "", "uid": uid}, outputs={})
    return group_of(shown, tuple(published(rejection, OutputContext(root))))


def _claims(placement: Placement, claims: tuple[ResourceKey, ...], root: ResourceKey) -> Iterator[Resource]:
    """Return the claims of addresses, after that of the Service: it must not vanish before its load balancer."""
    owner, needs = owner_fields(placement.owner), tuple[ResourceKey, ...]()
    if access := published_in(placement):
        needs = (ResourceKey(SERVICE_CLAIM, str(placement.key)),)
        yield Resource(needs[0], {"access": encode(access), "owner": owner}, root)
    mapped = [str(port) for port in placement.mapped]
    for key, address in zip(claims, placement.addresses, strict=True):
        more: dict[str, object] = {"ports": mapped} if mapped else {"sharing": placement.sharing}
        yield Resource(key, {"address": str(address), "owner": owner, **more}, root, needs)


def _fragment(
    placement: Placement, part: PlannedPart, proxy: ServingProxy, claims: tuple[ResourceKey, ...]
) -> Resource:
    """Return the load balancer's fragment in a proxy that others may use too."""
    key = str(placement.key)
    inputs = {
        "proxy": proxy.id,
        "part": part.part.id,
        "owner": owner_fields(placement.owner),
        "listeners": dict(part.rendered.listeners),
        "clusters": dict(part.rendered.clusters),
    }
    return Resource(ResourceKey(SERVICE_CONFIG, key), inputs, ResourceKey(BALANCER, key), (*claims, proxy.run))


def _proof(placement: Placement, proxy: ServingProxy, paths: tuple[ResourceKey, ...]) -> Resource:
    """Return the proof that its listeners are served."""
    key, part = str(placement.key), placement.part
    listeners = [listener.name for port in placement.ports for listener in port.listeners]
    inputs = proof_inputs(proxy.config, proxy.identity, listeners, published=proxy.published)
    inputs["probes"] = [probe.place for probe in placement.probes]
    if part:
        versions = {"lds": part.rendered.listeners_version, "cds": part.rendered.clusters_version}
        inputs |= {"part": part.part.id, "versions": versions}
    if published_in(placement):
        inputs["upstreams"] = [
            " ".join((name, *port.tried.get(name, ()))) for port in placement.ports for name in port.silence
        ]
    fragment = (ResourceKey(SERVICE_CONFIG, key),) if part else ()
    return Resource(
        ResourceKey(REACHABLE, key),
        inputs,
        ResourceKey(BALANCER, key),
        (proxy.run, *fragment, *proxy.routes),
        paths,
    )


_OfCluster = PlannedRoutes | PlannedRelay | PlannedZones | PlannedClass | PlannedNode


def cluster_group(planned: _OfCluster) -> Group:
    """Return what the stack has for a cluster: ways to its pods, zones in its CoreDNS, a class of ours, a Node.

    What is served by pods is proven after the routes or the relay to them exist; nothing waits for the others.
    """
    inputs: dict[str, object] = {"owner": owner_fields(planned.owner)}
    match planned:
        case PlannedRoutes():
            group, kind = CLUSTER_ROUTES, POD_ROUTES
            inputs |= {"container": "", "routes": [str(route) for route in planned.routes]}
        case PlannedRelay():
            group, kind = CLUSTER_RELAY, RELAY
            inputs |= {"relay": planned.id, "access": encode(planned.access), "version": RELAY_VERSION}
            inputs["ports"] = [str(port) for port in planned.ports]
        case PlannedZones():
            group, kind = CLUSTER_ZONES, STUB_ZONES
            inputs |= {"access": encode(planned.access), "zones": list(planned.zones)}
        case PlannedClass(wanted=wanted):
            group, kind = CLUSTER_CLASS, OWN_CLASS
            inputs |= {
                "access": encode(planned.access),
                "cluster": planned.cluster,
                "kind": wanted.kind.value,
                "label": wanted.owner,
                "controller": wanted.controller,
                "default": wanted.is_default,
                "used": wanted.is_used,
            }
        case PlannedNode(wanted=node):
            group, kind = CLUSTER_NODE, INITIALIZED_NODE
            inputs |= {
                "access": encode(planned.access),
                "cluster": planned.cluster,
                "node": node.name,
                "uid": node.uid,
                "provider": node.provider,
                "addresses": [str(address) for address in node.addresses],
                "hostname": node.hostname,
            }
    name = str(planned.key)
    root = Resource(ResourceKey(group, name), {"cluster": planned.cluster}, outputs={})
    return group_of(root, [Resource(ResourceKey(kind, name), inputs, root.key)])


def object_group(planned: PlannedStatus | PlannedNews) -> Group:
    """Return the status of an object next to its Gateways, after the proof of the one it waits for; or its events."""
    root = Resource(ResourceKey(GATEWAY_OBJECT, str(planned.key)), {"uid": planned.owner.uid}, outputs={})
    if isinstance(planned, PlannedNews):
        return group_of(root, [event_resource(planned, OutputContext(root.key))])
    ready = (ResourceKey(REACHABLE, str(planned.gateway)),) if planned.gateway else ()
    return group_of(root, [status_resource(planned, OutputContext(root.key, ready))])


class Desired(Struct, frozen=True):
    """The desired state of a stack."""

    by_owner: Mapping[ObjectKey, tuple[Group, ...]]
    """The groups of each load balancer, rejected Service and object, and of each that the stack has for itself."""
    digests: Mapping[ObjectKey, Digest]
    """Digests of each owner's groups, stack proxies before the load balancers that need them."""

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple(chain.from_iterable(self.by_owner.values()))

    @property
    def by_root(self) -> Mapping[ResourceKey, Group]:
        return {group.members[0].key: group for group in self.groups}


class _Paths(Struct, frozen=True):
    """The resources that lead to the backends of a cluster."""

    routes: tuple[ResourceKey, ...]
    relays: tuple[ResourceKey, ...]
    """For ports that are reached through the API server."""


_KEY = attrgetter("owner.service")
"""Returns the key of a placement."""


class _Served(Struct, frozen=True):
    """Groups of a load balancer, including its own proxy if it has one."""

    groups: tuple[Group, ...]
    digest: Digest


def desired(plan: Plan, memo: AnyMemo | None = None) -> Desired:
    """Return what a plan wants; `memo` of earlier plans saves the work for what hasn't changed."""
    memo = memo or Memo()
    names = {placement.proxy for placement in plan.placements if placement.part is None}
    own = {planned.proxy.name: planned for planned in plan.proxies if planned.proxy.name in names}
    of_stack = [planned for planned in plan.proxies if planned.proxy.name not in names]
    by_owner, digests = dict[ObjectKey, tuple[Group, ...]](), dict[ObjectKey, Digest]()
    for each in (*plan.routes, *plan.relays, *plan.zones, *plan.classes, *plan.nodes):
        group = memo.of(each.key, cluster_group, each)
        by_owner[each.key], digests[each.key] = (group,), group.digest
    serving: dict[ProxyName, ServingProxy] = {}
    for planned in of_stack:
        group, serving[planned.proxy.name] = memo.of(("proxy", planned.proxy.name), proxy_group, planned)
        by_owner[planned.root] = (group,)
        if not planned.root.cluster:
            digests[planned.key] = group.digest
    for rejection in plan.rejections:
        if rejection.access:
            group = memo.of(rejection.key, rejection_group, rejection)
            by_owner[rejection.key], digests[rejection.key] = (group,), group.digest
    routes = {planned.cluster: (ResourceKey(POD_ROUTES, str(planned.key)),) for planned in plan.routes}
    relays = {planned.cluster: (ResourceKey(RELAY, str(planned.key)),) for planned in plan.relays}
    keys = [*map(_KEY, plan.placements)]
    clusters = [key.cluster for key in keys]
    paths = {each: memo.of(("paths", each), _Paths, routes.get(each, ()), relays.get(each, ())) for each in {*clusters}}
    proxies = {**serving, **own}
    served: Sequence[_Served] = memo.rows("served").each(
        _served,
        plan.placements,
        [proxies[placement.proxy] for placement in plan.placements],
        map(paths.__getitem__, clusters),
    )
    balancers = dict(zip(keys, (each_served.groups for each_served in served), strict=True))
    for key in by_owner.keys() & balancers.keys():
        balancers[key] = (*by_owner[key], *balancers[key])
    by_owner |= balancers
    digests |= zip(keys, (each_served.digest for each_served in served), strict=True)
    objects: tuple[PlannedStatus | PlannedNews, ...] = (*plan.statuses, *plan.unserved)
    for item in objects:
        group = memo.of(item.key, object_group, item)
        by_owner[item.key], digests[item.key] = (group,), group.digest
    memo.evict_unused()
    return Desired(by_owner, digests)


def _served(placement: Placement, proxy: PlannedProxy | ServingProxy, paths: _Paths) -> _Served:
    """Make the groups of a load balancer: with a proxy of its own, or by one of the stack's."""
    is_relayed = any(port.via in {Via.API, Via.BOTH} for port in placement.ports)
    used = (*paths.routes, *(paths.relays if is_relayed else ()))
    if isinstance(proxy, ServingProxy):
        group = balancer_group(placement, proxy, used)
        return _Served((group,), group.digest)
    running, serving = proxy_group(proxy, OwnProxyUser.by(placement))
    group = balancer_group(placement, serving, used)
    return _Served((running, group), group.digest)


OUR_PACKAGE = "locallb"
"""The package with a provider that has no version of its own."""


def exports(plan: Plan) -> Mapping[str, object]:
    """Return the stack's outputs: the addresses of every Service. Of two plans they differ only where those do."""
    return {
        "services": {
            str(placement.key): [str(address) for address in placement.addresses] for placement in plan.placements
        }
    }


class Shown(Struct, frozen=True):
    """What programs get of each load balancer, by `namespace/name`."""

    addresses: Mapping[str, Sequence[str]]
    urls: Mapping[str, Sequence[str]]
    """Of ports that speak HTTP."""
    hostnames: Mapping[str, Sequence[str]]
    """In the stack's zones."""
    ports: Mapping[str, Sequence[str]]
    """Served ones, as `80/TCP`, by the number that clients use."""


def shown(plan: Plan) -> Shown:
    """Return what programs get of a plan."""
    served = {name: placement for placement, name in zip(plan.placements, short_names(plan), strict=True)}
    return Shown(
        addresses={name: [str(address) for address in each.addresses] for name, each in served.items()},
        urls={name: list(urls_of(each)) for name, each in served.items()},
        hostnames={name: hostnames_of(each) for name, each in served.items()},
        ports={
            name: [f"{port.port.number}/{port.port.protocol}" for port in each.ports if port.listeners]
            for name, each in served.items()
        },
    )


def short_names(plan: Plan) -> list[str]:
    """Name each placement by its key without the cluster, unless another cluster has that as well."""
    keys = [str(placement.key) for placement in plan.placements]
    short = [key.partition("/")[2] for key in keys]
    counts = Counter(short)
    return [name if counts[name] == 1 else key for name, key in zip(short, keys, strict=True)]


@cache
def provider_version(package: str) -> str | None:
    """Return the version of the provider that a package's types ask for: that of the package's installed SDK.

    Asked of the metadata, as the package's SDK does: to import that takes a third of a second.
    """
    if package == OUR_PACKAGE:
        return None
    from importlib.metadata import version  # noqa: PLC0415 - few stacks have resources of another package

    return version(f"pulumi_{package}")
