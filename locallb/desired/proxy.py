"""The group of a proxy: certificates, its configuration on disk, what runs it, and routes of its own."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from locallb.model.desired import Group, Ref, Resource, ResourceKey, group_of
from locallb.model.http.serving import AnyCertificate, LocalCertificate
from locallb.model.identities import ContextName, Digest
from locallb.model.naming import address_name, owner_fields
from locallb.model.snapshot import Access
from locallb.model.state_resource import (
    ADDRESS,
    CERTIFICATE,
    CONFIG,
    POD_ROUTES,
    PORTS,
    PROXY,
    REACHABLE,
    SERVED_CERTIFICATE,
)
from locallb.planning.planned import Placement, PlannedProxy
from locallb.planning.runs import DesiredRun, run_planner
from locallb.resources.codec import encode

_NO_CLUSTER = Access("", ContextName(""))


class Claimed(Struct, frozen=True):
    """The load balancer that has a proxy of its own: its addresses are claimed before the proxy may bind them."""

    addresses: tuple[ResourceKey, ...]
    access: Access | None
    """Where its certificates are read."""

    @classmethod
    def by(cls, placement: Placement) -> Claimed:
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


def proxy_group(planned: PlannedProxy, claimed: Claimed | None = None) -> tuple[Group, ServingProxy]:
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
    """Return what a reader of a preview sees of a proxy."""
    shown: dict[str, object] = {"listeners": [listener.name for listener in planned.proxy.every_listener]}
    if planned.proxy.names:
        table = (served for listener in planned.proxy.names for served in listener.table)
        shown["names"] = [f"{each.name} {' '.join(map(str, each.addresses))}" for each in table]
    return shown


def _configuration(planned: PlannedProxy) -> dict[str, object]:
    """Return the inputs of the configuration on disk."""
    versions = planned.rendered.versions
    return {
        **_in_directory(planned),
        "files": dict(planned.rendered.files),
        "versions": {"lds": versions.lds, "cds": versions.cds},
        **_serves(planned),
        **({"released": " ".join(planned.proxy.released)} if planned.proxy.released else {}),
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
    planned: PlannedProxy, certificate: AnyCertificate, claimed: Claimed | None, root: ResourceKey
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
