"""What host setup does only if its caller names it: changes for another user, public names, public addresses. Pure.

A project's configuration and state decide which routes, zones and names root would make. Those of private networks and
of domains that are reserved for local use hide nothing of the internet; any other may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_network

from msgspec import Struct
from msgspec.structs import replace

from locallb.certificates.local import DOMAINS
from locallb.dns.names import is_within
from locallb.host.setup.resolver_plan import resolver_steps, takes_zones
from locallb.host.setup.steps import ObservedHost
from locallb.model.formatting import few
from locallb.model.identities import IPNetwork
from locallb.model.network.host_addresses import is_public
from locallb.model.network.ranges import AddressRange
from locallb.model.network.routes import inside
from locallb.model.reasons import Problem, Reason


class Consent(Struct, frozen=True):
    """What the caller named by options."""

    zones: frozenset[str] = frozenset()
    networks: tuple[IPNetwork, ...] = ()
    users: frozenset[str] = frozenset()
    """Other users that are permitted as beneficiaries, by name or number."""


def unnamed(observed: ObservedHost, consent: Consent) -> Iterator[Problem]:
    """Return what would be changed and isn't named."""
    yield from _zones(observed, consent)
    new = [(route.pool, route.prefix) for route in observed.routes if not route.local and not route.problem]
    new += [(alias.pool, ip_network(alias.address)) for alias in observed.aliases if not alias.present]
    for pool, prefix in new:
        if not _may_be_ours(prefix, consent):
            yield Problem(
                Reason.NOT_NAMED,
                f"pool {pool}: {prefix} is public, and this host would no longer reach what the internet has there;"
                f" choose a private prefix in local-lb:pools, or name it: `--allow-network {prefix}`",
            )


def on_behalf(owner: str, names: Iterable[str], consent: Consent) -> Iterator[Problem]:
    """Return the problem of changes for another user; `names` has what the caller may call that one."""
    if not consent.users.intersection(names):
        yield Problem(
            Reason.NOT_NAMED,
            f"the project belongs to {owner}, who would decide what root does here: if you trust that user with this"
            f" host, name the user: `--on-behalf-of {next(iter(names))}`",
        )


def _zones(observed: ObservedHost, consent: Consent) -> Iterator[Problem]:
    for zone in observed.zones:
        if all(step.done for step in resolver_steps(replace(observed, zones=(zone,)))):
            continue
        if not any(is_within(zone.name, domain) for domain in (*DOMAINS, *consent.zones)):
            yield Problem(
                Reason.NOT_NAMED,
                f"zone {zone.name} isn't below {', '.join(DOMAINS)}, so this host would no longer find others' names"
                f" below it; choose another zone, or name it: `--allow-zone {zone.name}`",
            )
        if not takes_zones(observed.texts):
            yield from _names(observed, zone.name, consent)


def _names(observed: ObservedHost, zone: str, consent: Consent) -> Iterator[Problem]:
    """Check the names that the state has, which are written to a file of the host."""
    public = {
        address: name
        for name, addresses in observed.names.items()
        if is_within(name, zone)
        for address in addresses
        if not _may_be_ours(ip_network(address), consent)
    }
    if public:
        shown = few([f"{name} to {address}" for address, name in public.items()])
        options = " ".join(f"--allow-network {ip_network(address)}" for address in public)
        yield Problem(Reason.NOT_NAMED, f"the state leads {shown}, which is public; name that: `{options}`")


def _may_be_ours(network: IPNetwork, consent: Consent) -> bool:
    return any(inside(network, named) for named in consent.networks) or not is_public(
        AddressRange(network[0], network[-1])
    )
