"""The commands `fault` and `drain`: order overrides for Services, Gateways and Ingresses, end them, and list them.

A fault makes connections or requests fail; a drain keeps new connections away from backends. To apply an override is to
update the affected Services, also during a running `watch`. Both are listed as a table and as JSON.

Not here: the file of overrides (`sources.overrides`), and their types (`model.faults`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.run_output import Progress, complain, ending
from locallb.cli.session import Session
from locallb.cli.targets import scope_of, selected
from locallb.engine.core.events import Result
from locallb.gateway.routes import Bound
from locallb.model.desired import BALANCER
from locallb.model.faults import ALL, FAULT_ANNOTATION, WHOLE, Down, Fault, Order
from locallb.model.http_serving import HttpRoutes
from locallb.model.identities import ROUTED, ObjectKey, Protocol
from locallb.model.objects import Service, Via
from locallb.model.snapshot import Snapshot
from locallb.model.texts import clipped, few
from locallb.planning.endpoints import names_of, names_of_endpoints
from locallb.planning.gateways import gateways_of, with_gateways, with_overrides
from locallb.planning.planned import Placement
from locallb.sources.overrides import change_overrides, read_overrides, seconds_until, written


class Served(NamedTuple):
    """What gets addresses, and what was read and planned with it."""

    services: Mapping[ObjectKey, Service]
    """Gateways and Ingresses among them, as they are planned."""
    gateways: Mapping[ObjectKey, Bound]
    placements: Mapping[ObjectKey, Placement]
    snapshot: Snapshot


def served(session: Session) -> Served:
    """Return what gets addresses, as it is ordered now."""
    reading, plan = session.plan()
    snapshot = reading.snapshot
    bound = gateways_of(snapshot.gateway_api, session.settings, snapshot.authority)
    gateways = with_overrides(bound, snapshot.overrides).bound
    placed = {placement.key: placement for placement in plan.placements}
    every = with_gateways(snapshot, gateways).services
    return Served({service.key: service for service in every if service.key in placed}, gateways, placed, snapshot)


def with_referencing_gateways(keys: Iterable[ObjectKey], existing: Served) -> tuple[ObjectKey, ...]:
    """Return these and the Gateways and Ingresses that lead to them."""
    wanted = dict.fromkeys(keys)
    leading = (
        key for key, bound in existing.gateways.items() if key in existing.placements and wanted.keys() & _behind(bound)
    )
    return tuple(wanted | dict.fromkeys(leading))


def _behind(gateway: Bound) -> frozenset[ObjectKey]:
    return frozenset(target.service for target in gateway.targets.values())


def chosen_of(names: Iterable[str], existing: Served) -> tuple[ObjectKey, ...]:
    """Return the named Services. Raises TargetError if a name matches none or several."""
    keys = {str(key): key for key in existing.services}
    return tuple(keys[name] for name in selected(names, keys))


def require_backends(existing: Served, key: ObjectKey, names: Iterable[str]) -> None:
    """Check that a Service has backends of these names. Raises Refused."""
    nodes = names_of(node for node in existing.snapshot.nodes if node.cluster == key.cluster)
    behind = _behind(existing.gateways[key]) if key in existing.gateways else {key}
    endpoints = names_of_endpoints(slice_ for slice_ in existing.snapshot.slices if slice_.service in behind)
    straight = any(port.via in {Via.PODS, Via.API, Via.BOTH} for port in existing.placements[key].ports)
    for name in names:
        if name in endpoints and name not in nodes and not straight:
            raise Refused(
                f"{key}: {clipped(name)} is behind NodePorts, where Kubernetes chooses the pod; name a Node,"
                " or have pods reached straight (local-lb:backends)"
            )
        if name not in nodes | endpoints:
            choices = few(sorted(nodes | (endpoints if straight else frozenset()))) or "none"
            raise Refused(f"{key} has no backend {clipped(name)}; name a Node, a Pod or an address: {choices}")


_HEAD = ("SERVICE", "REFUSED", "HANGING", "RESET", "DELAYED", "ANSWERED", "DOWN", "LEFT", "UNTIL", "ORDERED BY")
_MAX = 3
"""Backends that are named."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


class _Row(NamedTuple):
    """What ends at one time."""

    service: Service
    until: str
    by: str
    fault: Fault | None = None
    down: tuple[str, ...] = ()


def show(services: Sequence[Service], args: Arguments, out: Out) -> None:
    rows = [row for service in services for row in _rows(service)]
    if args.json:
        out.raw(json.dumps([_fields(row) for row in rows], indent=2))
    elif rows:
        out.table(_HEAD, [_cells(row) for row in rows])
    else:
        out.line("No fault is ordered.")


def _rows(service: Service) -> Iterator[_Row]:
    if fault := service.failing:
        by = "command" if service.ordered.fault else "annotation"
        yield _Row(service, fault.until, by, fault)
    if down := service.ordered.down:
        yield _Row(service, down.until, "command", down=tuple(sorted(down.names)))


def _fields(row: _Row) -> dict[str, object]:
    fault = row.fault
    delay, status = (fault.delay, fault.status) if fault else (None, None)
    return {
        **row.service.key._asdict(),
        **{name: _percent(share) for name, share in zip(("refuse", "hang", "reset"), _shares(fault), strict=True)},
        "delay": {"milliseconds": delay.milliseconds, "share": _percent(delay.share)} if delay else None,
        "status": {"code": status.status, "share": _percent(status.share)} if status else None,
        "down": list(row.down),
        "until": row.until,
        "seconds": _remaining(row.until),
        "by": row.by,
    }


def _cells(row: _Row) -> tuple[str, ...]:
    shares = [f"{_percent(share):g}%" if share else "-" for share in _shares(row.fault)]
    shares += [
        part.terms if part else "-" for part in ((row.fault.delay, row.fault.status) if row.fault else (None, None))
    ]
    by = {"command": "locallb fault", "annotation": FAULT_ANNOTATION}[row.by]
    down = few(row.down, _MAX) or "-"
    return str(row.service.key), *shares, down, duration(_remaining(row.until)), row.until, by


def _shares(fault: Fault | None) -> tuple[int, int, int]:
    return (fault.refuse, fault.hang, fault.reset) if fault else (0, 0, 0)


def _percent(share: int) -> float:
    return share * 100 / WHOLE


def _remaining(until: str) -> int:
    return max(0, round(seconds_until(until)))


def duration(seconds: int) -> str:
    """Write seconds in the two largest units that they have: `1h 5m`."""
    parts: list[str] = []
    for size, unit in _UNITS:
        if seconds >= size or parts:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2]) or "0s"


def bring_about(session: Session, keys: Iterable[ObjectKey], args: Arguments, out: Out) -> Exit:
    """Update these now, where they are deployed; give the exit code."""
    deployed = {resource.name for resource in session.resources() if resource.type == BALANCER}
    names = [str(key) for key in keys]
    if missing := [name for name in names if name not in deployed]:
        out.warning(f"not deployed yet: {few(missing)}; `locallb up` serves it as it is ordered then")
    if not (present := [name for name in names if name in deployed]):
        return Exit.OK
    if session.election():
        out.warning(f"the leader of stack {session.stack} applies it; if none is running, run `locallb up`")
        return Exit.OK
    session.require_runtime(planned=True)
    with Progress(out, f"Updating ({session.stack})", silent=args.json) as progress:
        result = session.once_free(lambda: _updated(session, present, progress))
    if not result.ok:
        complain(out, result)
    return Exit(ending(result))


def _updated(session: Session, names: list[str], progress: Progress) -> Result:
    """Update these. Raises LockHeld."""
    as_of = session.stamp()
    scope, plan = scope_of(session, names, keep=True)
    session.sign_in()
    program = session.program(plan, lambda: session.stamp() == as_of)
    return program.update(session.engine(progress.listen), scope)


def drain(session: Session, args: Arguments, out: Out) -> int:
    """Drain Services or some of their backends, or undo that, and show what is drained."""
    existing, exit_code = served(session), Exit.OK
    chosen = chosen_of(args.services, existing)
    names = frozenset(args.backends)
    if args.undo:
        every = tuple(key for key, order in read_overrides(session.home).by_service.items() if order.drained)
        exit_code = _undo(session, chosen or every, existing, args, out)
        existing = served(session)
    elif chosen:
        for key in chosen:
            require_backends(existing, key, names)
        more = names or frozenset({ALL})
        change_overrides(session.home, chosen, lambda order: replace(order, drained=order.drained | more))
        exit_code = bring_about(session, with_referencing_gateways(chosen, existing), args, out)
        existing = served(session)
    services = existing.services
    _show([services[key] for key in sorted(chosen or services) if key in services], args, out)
    return exit_code


def _undo(session: Session, keys: Sequence[ObjectKey], existing: Served, args: Arguments, out: Out) -> Exit:
    """End the drain of these backends, or of all."""
    names = frozenset(args.backends)
    overrides = read_overrides(session.home).by_service
    for key in keys:
        if unknown := sorted(names - (overrides[key].drained if key in overrides else frozenset())):
            raise Refused(f"{key}: {few([*map(clipped, unknown)])} isn't drained; `locallb drain` lists what is")

    def less(order: Order) -> Order:
        return replace(order, drained=order.drained - names if names else frozenset())

    change_overrides(session.home, keys, less)
    return bring_about(session, with_referencing_gateways(keys, existing), args, out)


def _show(services: Sequence[Service], args: Arguments, out: Out) -> None:
    drained = [service for service in services if service.ordered.drained]
    if args.json:
        out.raw(json.dumps([_fields_drain(service) for service in drained], indent=2))
    elif drained:
        out.table(("SERVICE", "DRAINED"), [(str(service.key), _terms(service)) for service in drained])
        these = drained if args.services or len(drained) == 1 else ()  # others stay drained
        names = "".join(f"{service.key} " for service in these)
        out.line(f"Until it is undone: `locallb drain {names}--undo`")
    else:
        out.line("Nothing is drained.")


def _fields_drain(service: Service) -> dict[str, object]:
    names = service.ordered.drained
    return {**service.key._asdict(), "all": ALL in names, "backends": sorted(names - {ALL})}


def _terms(service: Service) -> str:
    names = service.ordered.drained
    return "all backends" if ALL in names else ", ".join(sorted(names))


def fault(session: Session, args: Arguments, out: Out) -> int:
    """Order faults, or end them, and show what is in force."""
    existing, exit_code = served(session), Exit.OK
    chosen = chosen_of(args.services, existing)
    if args.ends:
        every = tuple(
            key for key, order in read_overrides(session.home).by_service.items() if order.fault or order.down
        )
        exit_code = _end(session, chosen or every, args, out)
    elif args.down or _has_shares(args):
        for key in chosen:
            _require_what_fails(existing, key, args)
            require_backends(existing, key, args.backends)
        change_overrides(session.home, chosen, partial(_with, args=args))
        exit_code = bring_about(session, chosen, args, out)
    services = (served(session) if args.ends or args.down or _has_shares(args) else existing).services
    show([services[key] for key in sorted(chosen or services) if key in services and services[key].ends], args, out)
    return exit_code


def _has_shares(args: Arguments) -> bool:
    return bool(args.refuse or args.hang or args.reset or args.delay or args.status)


def _with(order: Order, args: Arguments) -> Order:
    """Return an override with these faults: more backends are down, shares replace the earlier ones."""
    until = written(datetime.now(UTC) + timedelta(seconds=args.seconds))
    if args.down:
        names = order.down.names if order.down else frozenset()
        order = replace(order, down=Down(names.union(args.backends), until))
    if _has_shares(args):
        order = replace(order, fault=Fault(until, args.refuse, args.hang, args.reset, args.delay, args.status))
    return order


def _without(order: Order, args: Arguments) -> Order:
    """Return an order without faults, or without some backends that are down."""
    if not args.backends:
        return replace(order, fault=None, down=None)
    remaining = order.down.names.difference(args.backends) if order.down else None
    return replace(order, down=Down(remaining, order.down.until) if order.down and remaining else None)


def _require_what_fails(existing: Served, key: ObjectKey, args: Arguments) -> None:
    """Check that a Service has TCP connections, or a Gateway requests, to which that can happen. Raises Refused."""
    of_connections = args.refuse or args.hang or args.reset or args.down
    if key.kind in ROUTED:
        if of_connections:
            why = "only requests can be made to fail, by --delay and --status; the others are for Services"
            raise Refused(f"{key} serves by routes, where {why}")
        if not any(
            isinstance(chain.serves, HttpRoutes)
            for chains in existing.gateways[key].chains.values()
            for chain in chains
        ):
            raise Refused(f"{key} has no listener for HTTP, and only requests can be delayed or answered; name another")
        return
    if args.delay or args.status:
        why = "only connections can be made to fail, by --refuse, --hang and --reset"
        raise Refused(f"{key} is a Service, of which {why}; --delay and --status are for Gateways and Ingresses")
    if all(port.protocol is not Protocol.TCP for port in existing.services[key].ports):
        raise Refused(f"{key} has no TCP port, and only TCP connections can be made to fail; name another")


def _end(session: Session, keys: Collection[ObjectKey], args: Arguments, out: Out) -> Exit:
    """End what commands ordered; what annotations order ends with them only."""
    change_overrides(session.home, keys, partial(_without, args=args))
    exit_code = bring_about(session, keys, args, out)
    for key, service in served(session).services.items():
        if key in keys and service.failing and not service.ordered.fault:
            out.error(f"{key} has its fault from its annotation {FAULT_ANNOTATION}; remove that where it is written")
            exit_code = exit_code or Exit.FAILED
    return exit_code
