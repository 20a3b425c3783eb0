"""The command `fault`: orders that connections of Services fail, ends that, and lists what is ordered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from locallb.cli.arguments import Arguments
from locallb.cli.commands.targets import matching
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.orders.effect import bring_about
from locallb.cli.orders.shown import show
from locallb.cli.session import Session
from locallb.model.faults import Fault
from locallb.model.identities import ObjectKey, Protocol
from locallb.model.objects import Service
from locallb.sources.orders import change_orders, read_orders, written

Services = Mapping[ObjectKey, Service]


def fault(session: Session, args: Arguments, out: Out) -> int:
    """Order faults, or end them, and show what is in force."""
    services, told = _served(session), Exit.OK
    chosen = _chosen(args.services, services)
    if args.ends:
        told = _end(session, chosen or read_orders(session.home).by_service.keys(), args, out)
    elif args.refuse or args.hang or args.reset:
        _require_tcp(services[key] for key in chosen)
        until = datetime.now(UTC) + timedelta(seconds=args.seconds)
        ordered = Fault(written(until), args.refuse, args.hang, args.reset)
        change_orders(session.home, chosen, lambda order: replace(order, fault=ordered))
        told = bring_about(session, chosen, args, out)
    now = _served(session)
    show([now[key] for key in sorted(chosen or now) if key in now and now[key].failing], args, out)
    return told


def _served(session: Session) -> Services:
    """Return the Services that get addresses, as they are ordered now."""
    reading, plan = session.plan()
    placed = {placement.key for placement in plan.placements}
    return {service.key: service for service in reading.snapshot.services if service.key in placed}


def _chosen(names: Iterable[str], services: Services) -> tuple[ObjectKey, ...]:
    """Return which Services are named. Raises TargetError if a name is nobody's, or not only one's."""
    known = {str(key): key for key in services}
    return tuple(dict.fromkeys(known[matching(name, known)] for name in names))


def _require_tcp(services: Iterable[Service]) -> None:
    for service in services:
        if all(port.protocol is not Protocol.TCP for port in service.ports):
            raise Refused(f"{service.key} has no TCP port, and only TCP connections can be made to fail; name another")


def _end(session: Session, keys: Collection[ObjectKey], args: Arguments, out: Out) -> Exit:
    """End what commands ordered; what annotations order ends with them only."""
    change_orders(session.home, keys, lambda order: replace(order, fault=None))
    told = bring_about(session, keys, args, out)
    for key, service in _served(session).items():
        if key in keys and service.failing:
            out.error(f"{key} has its fault from its annotation local-lb.dev/fault; remove that where it is written")
            told = told or Exit.FAILED
    return told
