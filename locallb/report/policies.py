"""What a stack's policies forbid, a sentence with the object, the value and the remedy each, and reports with it.

For previews, by both sides of a comparison, and for updates, by a plan and by what the stack holds. Not here: who stops
for them (`locallb.program`, `locallb.cli`), the comparison (`changes`), and the formats (`report.html`, `markdown`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from locallb.config.settings import Headroom, Policies, PortRange, Settings
from locallb.model.http_serving import ANY
from locallb.model.identities import LOCALHOST, Home, IPAddress, ObjectKey
from locallb.model.snapshot import Claim, Snapshot
from locallb.model.texts import few
from locallb.planning.planned import Plan
from locallb.report.changes import Gate, PoolRoom, Report, ServiceChange, Violation, compare, is_open, rooms
from locallb.report.sides import Balancer, Port, Side, planned_side
from locallb.report.wording import moved

_KEY = "local-lb:policies"
_PERCENT = 100
_ELSEWHERE = Home("", "", "")


def planned_violations(
    snapshot: Snapshot, plan: Plan, settings: Settings, others: Collection[ObjectKey] = ()
) -> tuple[Violation, ...]:
    """Find what a plan violates, before it is applied, whatever of it is deployed already.

    `others` are load balancers of the stack that have another plan, and hold what they have.
    """
    if settings.policies == Policies():
        return ()
    snapshot = replace(snapshot, claims=tuple(_left_to(others, claim) for claim in snapshot.claims))
    new = planned_side("", snapshot, plan)
    return violations(compare(_held(snapshot, plan), new), rooms(new, snapshot, settings), settings.policies)


def _left_to(others: Collection[ObjectKey], claim: Claim) -> Claim:
    """Return the claim of one of these as another stack's, which no plan of this one makes free."""
    return replace(claim, owner=replace(claim.owner, home=_ELSEWHERE)) if claim.owner.service in others else claim


def _held(snapshot: Snapshot, plan: Plan) -> Side:
    """Return the addresses that Services of this stack have by its state and the ledger.

    Where a broken-off update left several of a family, the planned one of them isn't a new one.
    """
    planned = {placement.key: set(placement.addresses) for placement in plan.placements}
    addresses: dict[ObjectKey, set[IPAddress]] = defaultdict(set)
    for claim in (*snapshot.remembered, *snapshot.claims):
        if claim.owner.home == snapshot.home:
            addresses[claim.owner.service].add(claim.address)
    for key, held in addresses.items():
        retained = held & planned.get(key, set())
        families = {address.version for address in retained}
        addresses[key] = retained | {address for address in held if address.version not in families}
    ordered = {key: tuple(sorted(held, key=lambda a: (a.version, int(a)))) for key, held in addresses.items()}
    return Side("", {key: Balancer(key, held, ()) for key, held in ordered.items()})


def violations(
    services: Iterable[ServiceChange], rooms: Iterable[PoolRoom], policies: Policies
) -> tuple[Violation, ...]:
    """Find every violation, in the order of the gates, then of Services and pools.

    Names below `localhost` are for this host alone: no policy is about them.
    """
    listed = tuple(service for service in services if service.key != LOCALHOST)
    violated: list[Violation] = []
    if policies.address_changes_forbidden:
        violated += _address_changes(listed)
    if policies.source_ranges_required:
        violated += _open_ports(listed)
    if policies.ports:
        violated += _forbidden_ports(listed, policies.ports)
    if policies.headroom:
        violated += _full_pools(rooms, policies.headroom)
    if policies.hostnames:
        violated += _forbidden_hostnames(listed, policies.hostnames)
    if policies.tls_required:
        violated += _clear_ports(listed)
    return tuple(replace(each, advisory=each.gate in policies.advisory) for each in violated)


def _address_changes(services: Iterable[ServiceChange]) -> Iterator[Violation]:
    for service in services:
        if service.moved:
            yield Violation(
                Gate.ADDRESS_CHANGES,
                f"{service.key}: {moved(service)}, which {_KEY}.addressChanges forbids; "
                "keep the old one (local-lb:pins can hold it), or allow changes",
            )


def _open_ports(services: Iterable[ServiceChange]) -> Iterator[Violation]:
    for service in services:
        after = service.after
        labels = [port.label for port in after.ports if is_open(port.sources, after.addresses)] if after else []
        if labels:
            yield Violation(
                Gate.SOURCE_RANGES,
                f"{service.key}: {_ports(labels)} open to everybody, which {_KEY}.sourceRanges forbids; "
                "name the clients in spec.loadBalancerSourceRanges",
            )


def _forbidden_ports(services: Iterable[ServiceChange], allowed: tuple[PortRange, ...]) -> Iterator[Violation]:
    listed = ", ".join(str(rule) for rule in allowed)
    for service in services:
        ports = service.after.ports if service.after else ()
        labels = [port.label for port in ports if not any(_allows(rule, port) for rule in allowed)]
        if labels:
            yield Violation(
                Gate.PORTS,
                f"{service.key}: {_ports(labels)} not among those that {_KEY}.ports allows ({listed}); "
                "use one of these, or add it there",
            )


def _allows(allowed: PortRange, port: Port) -> bool:
    return allowed.first <= port.number <= allowed.last and allowed.protocol in {None, port.protocol}


def _full_pools(rooms: Iterable[PoolRoom], headroom: Headroom) -> Iterator[Violation]:
    for room in rooms:
        wanted = -(-room.size * headroom.number // _PERCENT) if headroom.percent else headroom.number
        if room.free < wanted:
            yield Violation(
                Gate.HEADROOM,
                f"pool {room.pool}: {room.free} of its {room.size} {room.family} addresses stay free, less than "
                f"{_KEY}.headroom ({headroom}) asks for; add addresses to local-lb:pools or remove Services",
            )


def _forbidden_hostnames(services: Iterable[ServiceChange], allowed: tuple[str, ...]) -> Iterator[Violation]:
    for service in services:
        claimed = service.after.hostnames if service.after else ()
        forbidden = [name for name in claimed if not any(_has(a, name) for a in allowed)]
        if names := few(["every hostname" if name == ANY else name for name in forbidden]):
            yield Violation(
                Gate.HOSTNAMES,
                f"{service.key}: serves {names}, not among those that {_KEY}.hostnames allows ({few(allowed)}); "
                "use hostnames of these, or add them there",
            )


def _has(allowed: str, name: str) -> bool:
    """Return whether a hostname, or all that a wildcard takes, is allowed."""
    return name == allowed or (allowed.startswith("*.") and name.endswith(allowed[1:]))


def _clear_ports(services: Iterable[ServiceChange]) -> Iterator[Violation]:
    for service in services:
        if labels := service.after.without_tls if service.after else ():
            yield Violation(
                Gate.TLS,
                f"{service.key}: {_ports(labels)} open to requests without TLS, which {_KEY}.tls forbids; "
                "serve HTTPS there, or nothing but redirects to https",
            )


def _ports(labels: Sequence[str]) -> str:
    return f"port {labels[0]} is" if len(labels) == 1 else f"ports {', '.join(labels)} are"


def assembled(
    sides: tuple[Side, Side],
    snapshot: Snapshot,
    settings: Settings,
    *,
    old_settings: Settings | None = None,
    touched: Mapping[ObjectKey, Collection[str]] | None = None,
) -> Report:
    """Compare the old and the new side; `snapshot` and `settings` are those of the new one."""
    old, new = sides
    services = compare(old, new, touched)
    remaining = rooms(new, snapshot, settings)
    violated = violations(services, remaining, settings.policies)
    notices = new.notices
    if old_settings is not None and old_settings.policies != settings.policies:
        notices = (*notices, f"local-lb:policies are others than those of {old.label}, which count as well")
        former = violations(services, remaining, old_settings.policies)
        violated += tuple(_of_old_side(violation, old.label) for violation in former if violation not in violated)
    return Report(
        stack=snapshot.home.stack,
        old=old.label,
        new=new.label,
        services=services,
        rooms=remaining,
        settings=() if old_settings is None else _differing(old_settings, settings),
        notices=notices,
        violations=violated,
    )


def _of_old_side(violation: Violation, label: str) -> Violation:
    """Say that only the former policies forbid it: a change can't allow itself what it does."""
    return replace(violation, message=f"{violation.message} (so {label} has it; change policies by themselves first)")


def _differing(old: Settings, new: Settings) -> tuple[str, ...]:
    return tuple(name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name))
