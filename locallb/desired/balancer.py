"""The group of a load balancer: its addresses, the proof that they are served, and its published data."""

from __future__ import annotations

from collections.abc import Iterator

from locallb.desired.cluster import routes_of
from locallb.desired.proxy import ServingProxy, claims_of, proof_inputs
from locallb.kubernetes.frontend import published_in
from locallb.model.desired import Group, Resource, ResourceKey, group_of
from locallb.model.identities import ObjectKey
from locallb.model.naming import owner_fields
from locallb.model.state_resource import BALANCER, CLAIM, REACHABLE, SERVICE
from locallb.outputs.output import Place, published
from locallb.planning.planned import Placement, PlannedPart, Rejection
from locallb.resources.codec import encode


def balancer_group(placement: Placement, proxy: ServingProxy, routes: ObjectKey | None) -> Group:
    """Return the group of a load balancer that `proxy` serves; `routes` is the owner of the routes to its backends."""
    root = ResourceKey(BALANCER, str(placement.key))
    claims = claims_of(placement)
    proof = _proof(placement, proxy, routes)
    members = [
        *_claims(placement, claims, root),
        *([_fragment(placement, placement.part, proxy, claims)] if placement.part else ()),
        proof,
        *published(placement, Place(root, claims if placement.withdrawn else (proof.key,))),
    ]
    addresses = [str(address) for address in placement.addresses]
    shown = {
        "addresses": addresses,
        "ports": [str(port) for port in placement.ports],
        "uid": placement.owner.uid,
        **({"names": [str(name) for name in placement.names]} if placement.names else {}),
    }
    shown_root = Resource(root, shown, outputs={"addresses": addresses})
    return group_of(shown_root, members, (proxy.digest,))


def rejection_group(rejection: Rejection) -> Group:
    """Return a load balancer without a part that serves: its status says why.

    Its root has the type and the name of one that serves, so that its status is the same resource: a Service that is
    rejected after it served loses the addresses in its status before they stop to answer.
    """
    root = ResourceKey(BALANCER, str(rejection.key))
    uid = rejection.owner.uid if rejection.owner else ""
    shown = Resource(root, {"addresses": [], "ports": [], "uid": uid}, outputs={})
    return group_of(shown, tuple(published(rejection, Place(root))))


def _claims(placement: Placement, claims: tuple[ResourceKey, ...], root: ResourceKey) -> Iterator[Resource]:
    """Return the claims of addresses, after that of the Service: it must not vanish before its load balancer."""
    owner, needs = owner_fields(placement.owner), tuple[ResourceKey, ...]()
    if access := published_in(placement):
        needs = (ResourceKey(CLAIM, str(placement.key)),)
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
    return Resource(ResourceKey(SERVICE, key), inputs, ResourceKey(BALANCER, key), (*claims, proxy.run))


def _proof(placement: Placement, proxy: ServingProxy, routes: ObjectKey | None) -> Resource:
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
    fragment = (ResourceKey(SERVICE, key),) if part else ()
    return Resource(
        ResourceKey(REACHABLE, key),
        inputs,
        ResourceKey(BALANCER, key),
        (proxy.run, *fragment, *proxy.routes),
        (routes_of(routes),) if routes else (),
    )
