"""The command `gc`: what a lost state left, listed, and removed on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.config.settings import SettingsError
from locallb.engine.state.errors import EngineError
from locallb.leftovers.host import Leftover, leftovers, remove, routes_in
from locallb.model.identities import ObjectKey
from locallb.sources import SourceError
from locallb.sources.snapshot import find_sources
from locallb.sources.source import reached

if TYPE_CHECKING:
    from locallb.leftovers.services import LeftService

ADDRESS, CONFIG = "locallb:index:LoopbackAddress", "locallb:index:ProxyConfig"
CLAIM = "locallb:index:ServiceClaim"
FINALIZER = "finalizer"


def gc(session: Session, args: Arguments, out: Out) -> int:
    """List leftovers; with --yes remove those of this stack."""
    known = session.resources()
    proxies = {str(resource.id) for resource in known if resource.type == CONFIG}
    addresses = {str(resource.id) for resource in known if resource.type == ADDRESS}
    left = leftovers(session.home, proxies, addresses, routes_in(known))
    services = _services(session, {str(resource.id) for resource in known if resource.type == CLAIM})
    if not left and not services:
        session.require_stack()
    if args.yes:
        for service in services:  # while the ledger still tells whose they are
            service.let_go()
    removed = remove(left) if args.yes else ()
    if args.json:
        listed = [_fields(leftover, removed=leftover in removed) for leftover in left]
        out.raw(json.dumps([*listed, *(_service_fields(service, removed=args.yes) for service in services)], indent=2))
    else:
        _print(out, left, removed, services, asked=args.yes)
    return 0


def _services(session: Session, claimed: set[str]) -> tuple[LeftService, ...]:
    """Find Services with our finalizer that no state knows; none where the configuration can't be read."""
    try:
        settings = session.settings
        if not any(source.live for source in (*settings.sources, *settings.finders)):
            return ()
        from locallb.leftovers.services import left_services  # noqa: PLC0415 - loads a client of Kubernetes

        sources, _ = find_sources(session.home, settings, keep=False)
        clusters = reached(sources, session.project.root)
    except (EngineError, SettingsError, SourceError):
        return ()
    known = [ObjectKey.parse(key) for key in claimed]
    return tuple(left_services(session.home, settings, clusters, known))


def _print(
    out: Out,
    left: tuple[Leftover, ...],
    removed: tuple[Leftover, ...],
    services: tuple[LeftService, ...],
    *,
    asked: bool,
) -> None:
    if not left and not services:
        out.line("Nothing was left behind.")
        return
    out.table(
        ("LEFT", "WHAT", "OWNER", ""),
        [
            *(
                (
                    str(leftover.sort),
                    leftover.what,
                    str(leftover.owner or "unknown"),
                    _fate(leftover, leftover in removed),
                )
                for leftover in left
            ),
            *((FINALIZER, str(service), str(service.owner), "removed" if asked else "") for service in services),
        ],
    )
    if not asked and (services or any(leftover.ours for leftover in left)):
        out.line("")
        out.line("`locallb gc --yes` removes those of this stack.")


def _fate(leftover: Leftover, removed: bool) -> str:  # noqa: FBT001 - private, one caller
    if removed:
        return "removed"
    return "" if leftover.ours else "not this stack's: left alone"


def _service_fields(left: LeftService, *, removed: bool) -> dict[str, object]:
    return {"sort": FINALIZER, "what": str(left), "owner": str(left.owner), "ours": True, "removed": removed}


def _fields(leftover: Leftover, *, removed: bool) -> dict[str, object]:
    return {
        "sort": str(leftover.sort),
        "what": leftover.what,
        "owner": str(leftover.owner or "unknown"),
        "ours": leftover.ours,
        "removed": removed,
    }
