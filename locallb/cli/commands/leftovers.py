"""The command `gc`: what a lost state left, listed, and removed on request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.config.settings import SettingsError
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import ResourceState
from locallb.leftovers import Leftover, claim_keys_in, leftovers, relays_in, remove, routes_in
from locallb.model.desired import CONFIG, DNS_NAME, SERVICE_CLAIM
from locallb.model.identities import ObjectKey
from locallb.sources import SourceError
from locallb.sources.found import find_sources
from locallb.sources.source import reached

if TYPE_CHECKING:
    from locallb.orphans import OrphanedName, OrphanedService

FINALIZER = "finalizer"
_Row: TypeAlias = tuple[str, str, str]
"""Kind, name and owner of a leftover."""


def gc(session: Session, args: Arguments, out: Out) -> int:
    """List leftovers; with --yes remove those of this stack."""
    elsewhere = _search_elsewhere(session)  # before the lock: a cluster may hang
    findings = _inspect(session, elsewhere)
    removed: tuple[Leftover, ...] = ()
    if not findings.is_ours:
        session.require_stack()  # the name may be misspelt, whatever others left here
    elif args.yes:
        with session.alone(out.warning):
            findings = _inspect(session, elsewhere)  # an update may have made it meanwhile
            removed = _removed(findings)
    others = [*((FINALIZER, str(service), str(service.owner)) for service in findings.services)]
    others += [("name", name.name, str(session.home)) for name in findings.names]
    if args.json:
        listed = [_fields(leftover, removed=leftover in removed) for leftover in findings.remaining]
        out.raw(json.dumps([*listed, *(_row_fields(row, removed=args.yes) for row in others)], indent=2))
    else:
        _print(out, findings.remaining, removed, others, requested=args.yes)
    return 0


class _Found(NamedTuple):
    remaining: tuple[Leftover, ...]
    services: tuple[OrphanedService, ...]
    names: tuple[OrphanedName, ...]

    @property
    def is_ours(self) -> bool:
        return bool(self.services or self.names) or any(leftover.ours for leftover in self.remaining)


class _Elsewhere(NamedTuple):
    """What clusters and name servers had that the state didn't know when they were asked."""

    services: tuple[OrphanedService, ...]
    names: tuple[OrphanedName, ...]


def _search_elsewhere(session: Session) -> _Elsewhere:
    existing = session.resources()
    return _Elsewhere(_services(session, _claimed(existing)), _names(session, _named(existing)))


def _inspect(session: Session, elsewhere: _Elsewhere) -> _Found:
    """Find leftovers on this host; of those found elsewhere, keep only what the state doesn't have yet."""
    existing, under_way = session.resources_and_under_way()
    proxies = {str(resource.id) for resource in existing if resource.type == CONFIG}
    claimed, named = _claimed(existing), _named(existing)
    return _Found(
        leftovers(
            session.home, proxies, claim_keys_in((*existing, *under_way)), routes_in(existing), relays_in(existing)
        ),
        tuple(service for service in elsewhere.services if str(service) not in claimed),
        tuple(remaining for remaining in elsewhere.names if remaining.name not in named),
    )


def _claimed(existing: Iterable[ResourceState]) -> set[str]:
    return {str(resource.id) for resource in existing if resource.type == SERVICE_CLAIM}


def _named(existing: Iterable[ResourceState]) -> set[str]:
    return {str(resource.inputs.get("name")) for resource in existing if resource.type == DNS_NAME}


def _removed(findings: _Found) -> tuple[Leftover, ...]:
    for service in findings.services:  # while the ledger still names their owners
        service.let_go()
    for name in findings.names:
        name.let_go()
    return remove(findings.remaining)


def _services(session: Session, claimed: set[str]) -> tuple[OrphanedService, ...]:
    """Find Services with our finalizer that no state knows; none where the configuration can't be read."""
    try:
        settings = session.settings
        if not any(source.live for source in (*settings.sources, *settings.finders)):
            return ()
        from locallb.orphans import orphaned_services  # noqa: PLC0415 - loads a client of Kubernetes

        sources, _ = find_sources(session.home, settings, keep=False)
        clusters = reached(sources, session.project.root)
    except (EngineError, SettingsError, SourceError):
        return ()
    existing = [ObjectKey.parse(key) for key in claimed]
    return tuple(orphaned_services(session.home, settings, clusters, existing))


def _names(session: Session, existing: set[str]) -> tuple[OrphanedName, ...]:
    """Find names with marks of this stack that no state knows; none where the configuration can't be read."""
    try:
        settings = session.settings
    except (EngineError, SettingsError, SourceError):
        return ()
    if settings.dns is None or not any(zone.updated for zone in settings.dns.zones):
        return ()
    from locallb.orphans import orphaned_names  # noqa: PLC0415 - loads a client of name servers

    return tuple(orphaned_names(session.home, settings, session.project.root, existing))


def _print(
    out: Out,
    remaining: tuple[Leftover, ...],
    removed: tuple[Leftover, ...],
    others: list[_Row],
    *,
    requested: bool,
) -> None:
    if not remaining and not others:
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
                for leftover in remaining
            ),
            *((*row, "removed" if requested else "") for row in others),
        ],
    )
    if not requested and (others or any(leftover.ours for leftover in remaining)):
        out.line("")
        out.line("`locallb gc --yes` removes those of this stack.")


def _fate(leftover: Leftover, removed: bool) -> str:  # noqa: FBT001 - private, one caller
    if removed:
        return "removed"
    return "" if leftover.ours else "not this stack's: left alone"


def _row_fields(row: _Row, *, removed: bool) -> dict[str, object]:
    sort, what, owner = row
    return {"sort": sort, "what": what, "owner": owner, "ours": True, "removed": removed}


def _fields(leftover: Leftover, *, removed: bool) -> dict[str, object]:
    return {
        "sort": str(leftover.sort),
        "what": leftover.what,
        "owner": str(leftover.owner or "unknown"),
        "ours": leftover.ours,
        "removed": removed,
    }
