"""The command `fault`: orders that connections of Services fail, ends that, and lists what is ordered."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.orders.effect import bring_about
from locallb.cli.orders.services import chosen_of, served
from locallb.cli.orders.shown import show
from locallb.cli.session import Session
from locallb.model.faults import Fault
from locallb.model.identities import ObjectKey, Protocol
from locallb.model.objects import Service
from locallb.sources.orders import change_orders, read_orders, written


def fault(session: Session, args: Arguments, out: Out) -> int:
    """Order faults, or end them, and show what is in force."""
    known, told = served(session), Exit.OK
    chosen = chosen_of(args.services, known)
    if args.ends:
        every = tuple(key for key, order in read_orders(session.home).by_service.items() if order.fault)
        told = _end(session, chosen or every, args, out)
    elif args.refuse or args.hang or args.reset:
        _require_tcp(known.services[key] for key in chosen)
        until = datetime.now(UTC) + timedelta(seconds=args.seconds)
        ordered = Fault(written(until), args.refuse, args.hang, args.reset)
        change_orders(session.home, chosen, lambda order: replace(order, fault=ordered))
        told = bring_about(session, chosen, args, out)
    now = served(session).services
    show([now[key] for key in sorted(chosen or now) if key in now and now[key].failing], args, out)
    return told


def _require_tcp(services: Iterable[Service]) -> None:
    for service in services:
        if all(port.protocol is not Protocol.TCP for port in service.ports):
            raise Refused(f"{service.key} has no TCP port, and only TCP connections can be made to fail; name another")


def _end(session: Session, keys: Collection[ObjectKey], args: Arguments, out: Out) -> Exit:
    """End what commands ordered; what annotations order ends with them only."""
    change_orders(session.home, keys, lambda order: replace(order, fault=None))
    told = bring_about(session, keys, args, out)
    for key, service in served(session).services.items():
        if key in keys and service.failing:
            out.error(f"{key} has its fault from its annotation local-lb.dev/fault; remove that where it is written")
            told = told or Exit.FAILED
    return told
