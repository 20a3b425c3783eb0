"""Leftovers: claims, proxies and routes on this host that no state knows.

They are listed if they are this stack's, without an owner, or of a project with a missing directory, and removed only
if they are this stack's.

Not here: names and Services (`orphans`), which need clients of name servers and of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from locallb.host.netlink import RouteError
from locallb.ledger.ledger import UNKNOWN, Ledger, LedgerError
from locallb.model.desired import ADDRESS_CLAIMS, POD_ROUTES, RELAY, Resource
from locallb.model.errors import ClientError
from locallb.model.fields import object_of
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, ProxyId
from locallb.model.snapshot import Claim
from locallb.model.texts import owner_from
from locallb.relay import relay_directory
from locallb.runtimes.handover import stop_all
from locallb.runtimes.pod_routes import end_relay, present_routes, remove_route
from locallb.runtimes.runtime import HostRun, Runtime, runtimes
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies


class ClaimKey(NamedTuple):
    """A claim, as a state and the ledger both name it, to compare the two.

    The Service's uid is left out: an update may just change it.
    """

    name: str
    home: Home
    service: ObjectKey


class StateClaimError(ClientError):
    """A state lacks the owner of one of its claims: one sentence."""


class NamedResource(Resource, Protocol):
    """A resource of a state, with its id."""

    @property
    def id(self) -> object:
        """The id that its provider gave it."""


def every_claim(ledger: Ledger) -> tuple[Claim, ...]:
    """Return the claims of a ledger, to find unused ones. Raises LedgerError if one can't be read."""
    claims = ledger.claims()
    for claim in claims:
        if claim.unread:
            raise LedgerError(claim.problem)
    return claims


def claim_key(claim: Claim) -> ClaimKey:
    """Name a claim of the ledger."""
    return ClaimKey(claim.name, claim.owner.home, claim.owner.service)


def claim_keys_in(resources: Iterable[NamedResource]) -> frozenset[ClaimKey]:
    """Name the claims of a state. Raises StateClaimError."""
    return frozenset(_held(resource) for resource in resources if resource.type in ADDRESS_CLAIMS)


def _held(resource: NamedResource) -> ClaimKey:
    try:
        owner = owner_from(object_of(resource.inputs.get("owner")))
    except (KeyError, ValueError, TypeError) as error:
        raise StateClaimError(
            f"the state doesn't say whose {resource.id} is: `locallb state restore` goes back to the last good state"
        ) from error
    return ClaimKey(str(resource.id), owner.home, owner.service)


class LeftoverKind(StrEnum):
    """What it is that was left."""

    ADDRESS = "address"
    PROXY = "proxy"
    """A directory, and what runs in it."""
    RELAY = "relay"
    """A directory, and the process that serves it."""
    ROUTE = "route"
    """To pods, in this host's table."""


class Leftover(Struct, frozen=True):
    """One thing that no state knows. `ours` tells whether it may be removed from here."""

    sort: str
    """One of `LeftoverKind`, or what a runtime calls its runs."""
    what: str
    """The address, the proxy's id, the route, or the run as its user knows it."""
    owner: Owner | None
    ours: bool
    place: Path
    claim: Claim | None = None
    run: HostRun | None = None

    def __str__(self) -> str:
        return f"{self.sort} {self.what} of {self.owner or 'somebody unknown'}"


def leftovers(  # noqa: PLR0913, PLR0917 - what a state has, kind by kind
    home: Home,
    existing_proxies: Collection[str],
    existing_claims: Collection[ClaimKey],
    existing_routes: Collection[str] = (),
    existing_relays: Collection[str] = (),
    claims: Iterable[Claim] | None = None,
) -> tuple[Leftover, ...]:
    """List what is left, addresses first. `existing_…` are those in the state of stack `home`.

    `claims` are the ledger's, where they were read a moment ago.
    """
    remaining = (*_addresses(home, existing_claims, claims), *_proxies(home, existing_proxies))
    ours = (*_routes(home, existing_routes), *_relays(home, existing_relays))
    return (*remaining, *_runs(home, existing_proxies, runtimes()), *ours)


def on_this_host(
    home: Home, existing_proxies: Collection[str], existing_claims: Collection[ClaimKey]
) -> tuple[Leftover, ...]:
    """List the same, asking this host only."""
    requested = [runtime for runtime in runtimes() if not runtime.uses_daemon]
    remaining = (*_addresses(home, existing_claims), *_proxies(home, existing_proxies))
    return (*remaining, *_runs(home, existing_proxies, requested))


def routes_in(resources: Iterable[Resource]) -> set[str]:
    """Return the routes in this host's table that the resources of a state have."""
    listed = (
        resource.outputs.get("routes")
        for resource in resources
        if resource.type == POD_ROUTES and not resource.outputs["container"]
    )
    return {str(route) for routes in listed if isinstance(routes, list | tuple) for route in routes}


def relays_in(resources: Iterable[Resource]) -> set[str]:
    """Return the ids of the relays that the resources of a state have."""
    return {str(resource.outputs.get("relay")) for resource in resources if resource.type == RELAY}


def remove(leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Remove our leftovers; return the removed ones. Raises ClientError."""
    removed = tuple(leftover for leftover in leftovers if leftover.ours)
    for leftover in sorted(removed, key=_turn):
        _remove(leftover)
    return removed


def _turn(leftover: Leftover) -> int:
    """Return what is removed first: addresses when nothing serves any more."""
    return 0 if leftover.run else 1 if leftover.sort == LeftoverKind.PROXY else 2


def _remove(leftover: Leftover) -> None:
    if leftover.run:
        leftover.run.end()
    elif claim := leftover.claim:
        Ledger(leftover.place).release(claim.address, claim.owner, mapped=bool(claim.ports))
    else:
        stop_all(leftover.place)
        Proxies(leftover.place.parent).remove(ProxyId(leftover.what))


def _addresses(home: Home, existing: Collection[ClaimKey], claims: Iterable[Claim] | None = None) -> Iterator[Leftover]:
    directory = paths.ledger_directory()
    for claim in every_claim(Ledger(directory)) if claims is None else claims:
        address, owner = claim.name, None if claim.owner == UNKNOWN else claim.owner
        if claim_key(claim) not in existing and not claim.unread and _shown(owner, home):
            yield Leftover(LeftoverKind.ADDRESS, address, owner, _ours(owner, home), directory, claim=claim)


def _proxies(home: Home, existing: Collection[str]) -> Iterator[Leftover]:
    for directory in Proxies.ours().list():
        if directory.id not in existing and _shown(directory.owner, home):
            yield Leftover(
                LeftoverKind.PROXY, directory.id, directory.owner, _ours(directory.owner, home), directory.path
            )


def _runs(home: Home, existing: Collection[str], requested: Sequence[Runtime]) -> Iterator[Leftover]:
    """Find runs that no directory leads to, and this stack's under another state home than its own."""
    root = paths.proxies_root()
    for run in (run for runtime in reversed(requested) for run in runtime.runs()):
        lost = run.directory.name not in existing and (run.apart or not _exists(run.directory))
        ours = _ours(run.owner, home)
        elsewhere = ours and paths.is_another_directory(str(run.directory.parent), str(root))
        if (lost or elsewhere) and _shown(run.owner, home):
            yield Leftover(run.sort, run.what, run.owner, ours, run.directory, run=run)


def _routes(home: Home, existing: Collection[str]) -> Iterator[Leftover]:
    """Find routes to pods with this stack's metric; none where routes can't be read."""
    try:
        present = present_routes(home)
    except RouteError:
        return
    owner = Owner(home, ObjectKey(ClusterName(""), "", str(LeftoverKind.ROUTE)))
    for route in sorted(present, key=lambda route: route.order):
        if str(route) not in existing:
            end = partial(remove_route, owner, route)
            run = HostRun(LeftoverKind.ROUTE, str(route), owner, Path(), apart=True, end=end)
            yield Leftover(LeftoverKind.ROUTE, str(route), owner, ours=True, place=Path(), run=run)


def _relays(home: Home, existing: Collection[str]) -> Iterator[Leftover]:
    """Find the relays of this host that no state has."""
    for path, owner in relay_directory.listed():
        if path.name not in existing and _shown(owner, home):
            run = HostRun(LeftoverKind.RELAY, path.name, owner, path, apart=True, end=partial(end_relay, path))
            yield Leftover(LeftoverKind.RELAY, path.name, owner, _ours(owner, home), path, run=run)


def _ours(owner: Owner | None, home: Home) -> bool:
    """Return whether this very stack made it: another project may have the same names, and be away for a while only."""
    return owner is not None and owner.home == home


def _shown(owner: Owner | None, home: Home) -> bool:
    """Check whether a thing is a leftover: this stack's, without owner, or of a removed project.

    Others may be in use.
    """
    return owner is None or _ours(owner, home) or not _exists(Path(owner.home.root))


def _exists(directory: Path) -> bool:
    """Check whether something is there; what may not be looked at exists."""
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
