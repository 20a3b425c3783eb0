"""The command `drain`: keeps new connections away from backends, brings them back, and lists drained backends."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.overrides.effect import bring_about
from locallb.cli.overrides.services import Served, chosen_of, require_backends, served, with_referencing_gateways
from locallb.cli.session import Session
from locallb.model.faults import ALL, Order
from locallb.model.formatting import clipped, few
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.sources.overrides import change_overrides, read_overrides


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
        out.raw(json.dumps([_fields(service) for service in drained], indent=2))
    elif drained:
        out.table(("SERVICE", "DRAINED"), [(str(service.key), _terms(service)) for service in drained])
        these = drained if args.services or len(drained) == 1 else ()  # others stay drained
        names = "".join(f"{service.key} " for service in these)
        out.line(f"Until it is undone: `locallb drain {names}--undo`")
    else:
        out.line("Nothing is drained.")


def _fields(service: Service) -> dict[str, object]:
    names = service.ordered.drained
    return {**service.key._asdict(), "all": ALL in names, "backends": sorted(names - {ALL})}


def _terms(service: Service) -> str:
    names = service.ordered.drained
    return "all backends" if ALL in names else ", ".join(sorted(names))
