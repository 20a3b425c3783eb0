"""Messages for Services without an address: the request, the reason of the refusal, and the remedy.

Text only: refusals are decided in `allocation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Network

from msgspec import Struct

from locallb.config.addresses import DEFAULT_POOL
from locallb.config.settings import Pool
from locallb.model.identities import Family, IPAddress
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import HostFacts
from locallb.planning.pool_routes import pool_routes


class RequestedAddress(Struct, frozen=True):
    """The only address that a Service may get: by its own request, or pinned in the configuration."""

    address: IPAddress
    pinned: bool = False

    @property
    def elsewhere(self) -> str:
        """Return how to ask for another one."""
        return "pin another address in local-lb:pins" if self.pinned else "ask for another address"


def _refused(reason: Reason, service: Service, requested: RequestedAddress, why: str) -> Problem:
    verb = "is pinned to" if requested.pinned else "asks for"
    return Problem(reason, f"{service.key} {verb} {requested.address}, {why}")


def family_mismatch(service: Service, requested: RequestedAddress) -> Problem:
    """Explain that the address isn't of a family that the Service wants."""
    family = Family.of(requested.address)
    wanted = " and ".join(service.families)
    why = f"an {family} address, but it wants {wanted}; {requested.elsewhere}"
    if service.family_policy is FamilyPolicy.SINGLE:
        why += f" or set spec.ipFamilyPolicy to {FamilyPolicy.PREFER_DUAL}"
    return _refused(Reason.FAMILY_MISMATCH, service, requested, why)


def never_given(service: Service, requested: RequestedAddress, what: str) -> Problem:
    """Explain that the address is of a kind that no pool may hand out."""
    return _refused(Reason.EXCLUDED, service, requested, f"which is never handed out ({what}); {requested.elsewhere}")


def excluded(service: Service, requested: RequestedAddress, pool: Pool) -> Problem:
    """Explain that the pool of the address excludes it."""
    why = f"which the pool {pool.name} excludes; {requested.elsewhere} or take it out of the pool's `exclude`"
    return _refused(Reason.EXCLUDED, service, requested, why)


def out_of_pool(service: Service, requested: RequestedAddress, pools: Sequence[Pool]) -> Problem:
    """Explain that no pool has the address."""
    why = f"which isn't in {described(pools)}; {requested.elsewhere} or add it to local-lb:pools"
    return _refused(Reason.OUT_OF_POOL, service, requested, why)


def selector_mismatch(service: Service, requested: RequestedAddress, pool: Pool) -> Problem:
    """Explain that the pool of the address isn't for this Service."""
    why = f"which is in the pool {pool.name}, only for {audience(pool)}; {requested.elsewhere} or let the pool allow it"
    return _refused(Reason.SELECTOR_MISMATCH, service, requested, why)


def in_use(service: Service, requested: RequestedAddress, holder: object) -> Problem:
    """Return who else has the address: `holder`, as the rest of a sentence that begins with "which"."""
    return _refused(Reason.IN_USE, service, requested, f"which {holder}; {requested.elsewhere} or release it there")


def not_on_host(service: Service, requested: RequestedAddress, host: HostFacts) -> Problem:
    """Return why the address can't be had: it isn't this host's, or faces a network and isn't listed by itself."""
    if device := host.addresses.interface(requested.address) if host.addresses else "":
        why = f"this host's own address on {device}, which never comes out of a range; list it by itself in"
        return _refused(Reason.EXCLUDED, service, requested, f"{why} local-lb:pools, or {requested.elsewhere}")
    if network := _network(requested.address, host):
        return on_link(service, requested.address, network)
    why = "which isn't this host's: no local route has it; as root, `locallb host setup --yes` makes its pool local,"
    return _refused(Reason.NOT_ON_HOST, service, requested, f"{why} or {requested.elsewhere}")


def on_link(service: Service, address: IPAddress, network: IPv6Network) -> Problem:
    """Explain that no neighbour would ever find the address, because this host is part of its network."""
    why = (
        f"{address} lies in {network}, a network that this host is connected to, where neighbours would never find it;"
        " give local-lb:pools an IPv6 prefix outside of it"
    )
    return Problem(Reason.POOL_ON_LINK, f"{service.key} gets no IPv6 address: {why}")


def no_pool(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Explain that the Service may use no pool of this family; `pools` are those of the family."""
    if pools:
        audiences = ", ".join(f"{pool.name} is for {audience(pool)}" for pool in pools)
        why = f"no {family} pool is for it ({audiences}); let one allow it or add a pool to local-lb:pools"
    else:
        why = f"there is no {family} pool; add one to local-lb:pools"
        if family in service.families[1:]:  # the first one can't be changed
            why += f" or set spec.ipFamilyPolicy to {FamilyPolicy.SINGLE}"
    return Problem(Reason.NO_POOL, f"{service.key} gets no {family} address: {why}")


def exhausted(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Explain that every address allowed for the Service is taken."""
    more = "add addresses to local-lb:pools"
    if DEFAULT_POOL in pools:  # naming any pool replaces it, and all its addresses would move
        more = "list this pool and another one in local-lb:pools"
    why = f"all of {described(pools)} is taken; {more} or delete a Service that has one"
    return Problem(Reason.POOL_EXHAUSTED, f"{service.key} gets no {family} address: {why}")


def none_on_host(
    service: Service, family: Family, pools: Sequence[Pool], example: IPAddress, host: HostFacts
) -> Problem:
    """Explain that no free and allowed address is this host's, with an example and the remedy."""
    if network := _network(example, host):
        return on_link(service, example, network)
    if device := host.addresses.interface(example) if host.addresses else "":
        own = f"{example} is this host's own address on {device}, which is only given where it is listed by itself"
        return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {family} address: {own} in local-lb:pools")
    judged = (route for route in pool_routes(pools, host.addresses) if example in route.prefix)
    obstacle = next((part.problem.message for part in judged if part.problem), "")
    remedy = obstacle or "as root, `locallb host setup --yes` makes it local"
    why = f"nothing that is free in {described(pools)} is this host's: no local route has {example}; {remedy}"
    return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {family} address: {why}")


def _network(address: IPAddress, host: HostFacts) -> IPv6Network | None:
    """Find the network of this host that an IPv6 address lies in."""
    return next((network for network in (host.addresses.on_link if host.addresses else ()) if address in network), None)


def described(pools: Sequence[Pool]) -> str:
    """Write pools with their ranges."""
    several = [f"{pool.name} ({', '.join(str(addresses) for addresses in pool.ranges)})" for pool in pools]
    return f"pool{'s' if len(several) > 1 else ''} {', '.join(several)}" if several else "any pool: there is none"


def audience(pool: Pool) -> str:
    """Return for which Services a pool is."""
    namespaces = f"namespace {' or '.join(sorted(pool.namespaces))}" if pool.namespaces else ""
    labels = ",".join(f"{label}={value}" for label, value in sorted(pool.selector.items()))
    clusters = f"cluster {' or '.join(sorted(pool.clusters))}" if pool.clusters else ""
    parts = [clusters, namespaces, f"label {labels}" if labels else ""]
    return " and ".join(part for part in parts if part) or "every Service"
