"""The command `fault`: makes connections or requests fail, ends that, and lists ordered faults."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.overrides.effect import bring_about
from locallb.cli.overrides.services import Served, chosen_of, require_backends, served
from locallb.cli.overrides.shown import show
from locallb.cli.session import Session
from locallb.model.faults import Down, Fault, Order
from locallb.model.http.serving import HttpRoutes
from locallb.model.identities import ROUTED, ObjectKey, Protocol
from locallb.sources.overrides import change_overrides, read_overrides, written


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
            out.error(f"{key} has its fault from its annotation local-lb.dev/fault; remove that where it is written")
            exit_code = exit_code or Exit.FAILED
    return exit_code
