"""The command `drain`: keeps new connections away from backends, brings them back, and lists drained backends."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.orders.effect import bring_about
from locallb.cli.orders.services import Served, chosen_of, require_backends, served, with_those_before
from locallb.cli.session import Session
from locallb.model.faults import ALL, Order
from locallb.model.formatting import clipped, few
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.sources.orders import change_orders, read_orders


def drain(session: Session, args: Arguments, out: Out) -> int:
    """Drain Services or some of their backends, or undo that, and show what is drained."""
    known, exit_code = served(session), Exit.OK
    chosen = chosen_of(args.services, known)
    names = frozenset(args.backends)
    if args.undo:
        every = tuple(key for key, order in read_orders(session.home).by_service.items() if order.drained)
        exit_code = _undo(session, chosen or every, known, args, out)
        known = served(session)
    elif chosen:
        for key in chosen:
            require_backends(known, key, names)
        more = names or frozenset({ALL})
        change_orders(session.home, chosen, lambda order: replace(order, drained=order.drained | more))
        exit_code = bring_about(session, with_those_before(chosen, known), args, out)
        known = served(session)
    services = known.services
    _show([services[key] for key in sorted(chosen or services) if key in services], args, out)
    return exit_code


def _undo(session: Session, keys: Sequence[ObjectKey], known: Served, args: Arguments, out: Out) -> Exit:
    """End the drain of these backends, or of all."""
    names = frozenset(args.backends)
    orders = read_orders(session.home).by_service
    for key in keys:
        if unknown := sorted(names - (orders[key].drained if key in orders else frozenset())):
            raise Refused(f"{key}: {few([*map(clipped, unknown)])} isn't drained; `locallb drain` lists what is")

    def less(order: Order) -> Order:
        return replace(order, drained=order.drained - names if names else frozenset())

    change_orders(session.home, keys, less)
    return bring_about(session, with_those_before(keys, known), args, out)


def _show(services: Sequence[Service], args: Arguments, out: Out) -> None:
    drained = [service for service in services if service.ordered.drained]
    if args.json:
        out.raw(json.dumps([_fields(service) for service in drained], indent=2))
    elif drained:
        out.table(("SERVICE", "DRAINED"), [(str(service.key), _words(service)) for service in drained])
        these = drained if args.services or len(drained) == 1 else ()  # others stay drained
        names = "".join(f"{service.key} " for service in these)
        out.line(f"Until it is undone: `locallb drain {names}--undo`")
    else:
        out.line("Nothing is drained.")


def _fields(service: Service) -> dict[str, object]:
    names = service.ordered.drained
    return {**service.key._asdict(), "all": ALL in names, "backends": sorted(names - {ALL})}


def _words(service: Service) -> str:
    names = service.ordered.drained
    return "all backends" if ALL in names else ", ".join(sorted(names))
