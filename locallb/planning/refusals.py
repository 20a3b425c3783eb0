"""The sentences for Services that get no address: who asks for what, why not, and what helps.

Only words: whether an address is refused is decided in `allocation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Network

from locallb.planning.model import Family, IPAddress, Service
from locallb.planning.reasons import Problem, Reason
from locallb.planning.settings import Pool


@dataclass(frozen=True, slots=True)
class Asked:
    """An address that a Service shall have and no other: by its own request, or pinned in the configuration."""

    address: IPAddress
    pinned: bool = False

    @property
    def elsewhere(self) -> str:
        """Say how to ask for another one."""
        return "pin another address in local-lb:pins" if self.pinned else "ask for another address"


def _refused(reason: Reason, service: Service, asked: Asked, why: str) -> Problem:
    verb = "is pinned to" if asked.pinned else "asks for"
    return Problem(reason, f"{service.key} {verb} {asked.address}, {why}")


def family_mismatch(service: Service, asked: Asked) -> Problem:
    """Say that the address isn't of a family that the Service wants."""
    family = Family.of(asked.address)
    wanted = " and ".join(service.families)
    why = f"an {family} address, but it wants {wanted}; {asked.elsewhere} or add {family} to spec.ipFamilies"
    return _refused(Reason.FAMILY_MISMATCH, service, asked, why)


def never_given(service: Service, asked: Asked, what: str) -> Problem:
    """Say that the address is of a kind that no pool may hand out."""
    return _refused(Reason.EXCLUDED, service, asked, f"which is never handed out ({what}); {asked.elsewhere}")


def excluded(service: Service, asked: Asked, pool: Pool) -> Problem:
    """Say that the pool of the address excludes it."""
    why = f"which the pool {pool.name} excludes; {asked.elsewhere} or take it out of the pool's `exclude`"
    return _refused(Reason.EXCLUDED, service, asked, why)


def out_of_pool(service: Service, asked: Asked, pools: Sequence[Pool]) -> Problem:
    """Say that no pool has the address."""
    why = f"which is in no pool ({described(pools)}); {asked.elsewhere} or add it to local-lb:pools"
    return _refused(Reason.OUT_OF_POOL, service, asked, why)


def selector_mismatch(service: Service, asked: Asked, pool: Pool) -> Problem:
    """Say that the pool of the address isn't for this Service."""
    why = f"which is in the pool {pool.name}, only for {audience(pool)}; {asked.elsewhere} or let the pool allow it"
    return _refused(Reason.SELECTOR_MISMATCH, service, asked, why)


def in_use(service: Service, asked: Asked, holder: object) -> Problem:
    """Say who else has the address: `holder`, as the rest of a sentence that begins with "which"."""
    return _refused(Reason.IN_USE, service, asked, f"which {holder}; {asked.elsewhere} or release it there")


def not_on_host(service: Service, asked: Asked) -> Problem:
    """Say that the host can't bind the address."""
    why = (
        f"which this host can't bind; as root, `locallb host setup --apply` makes its pool local, or {asked.elsewhere}"
    )
    return _refused(Reason.NOT_ON_HOST, service, asked, why)


def on_link(service: Service, address: IPAddress, network: IPv6Network) -> Problem:
    """Say that no neighbour would ever find the address, because it lies in a network that this host is part of."""
    why = (
        f"{address} lies in {network}, a network that this host is connected to, where neighbours would never find it;"
        " give local-lb:pools an IPv6 prefix outside of it"
    )
    return Problem(Reason.POOL_ON_LINK, f"{service.key} gets no IPv6 address: {why}")


def no_pool(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Say that the Service may use no pool of this family; `pools` are those of the family."""
    if pools:
        audiences = ", ".join(f"{pool.name} is for {audience(pool)}" for pool in pools)
        why = f"no {family} pool is for it ({audiences}); let one allow it or add a pool to local-lb:pools"
    else:
        why = f"there is no {family} pool; add one to local-lb:pools or take {family} out of spec.ipFamilies"
    return Problem(Reason.NO_POOL, f"{service.key} gets no {family} address: {why}")


def exhausted(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Say that every address that the Service may have is taken."""
    why = f"all of {described(pools)} is taken; add addresses to local-lb:pools or delete a Service that has one"
    return Problem(Reason.POOL_EXHAUSTED, f"{service.key} gets no {family} address: {why}")


def none_on_host(service: Service, family: Family, pools: Sequence[Pool], example: IPAddress) -> Problem:
    """Say that what is free and allowed can't be bound on this host, with an example."""
    why = (
        f"this host can't bind what is free in {described(pools)}, such as {example}; "
        f"as root, `locallb host setup --apply` makes its pool local"
    )
    return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {family} address: {why}")


def described(pools: Sequence[Pool]) -> str:
    """Write pools with their ranges."""
    return ", ".join(f"{pool.name} {'+'.join(str(each) for each in pool.ranges)}" for pool in pools) or "there are none"


def audience(pool: Pool) -> str:
    """Say for whom a pool is."""
    namespaces = f"namespace {' or '.join(sorted(pool.namespaces))}" if pool.namespaces else ""
    labels = ",".join(f"{label}={value}" for label, value in sorted(pool.selector.items()))
    parts = [namespaces, f"label {labels}" if labels else ""]
    return " and ".join(part for part in parts if part) or "every Service"
