"""The command `gc`: what a lost state left, listed, and removed on request."""

from __future__ import annotations

import json

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.provider.leftovers import Leftover, leftovers, remove

ADDRESS, CONFIG = "locallb:index:LoopbackAddress", "locallb:index:ProxyConfig"


def gc(session: Session, args: Arguments, out: Out) -> int:
    """List leftovers; with --yes remove those of this stack."""
    known = session.engine(lambda _event: None).resources()
    proxies = {str(each.id) for each in known if each.type == CONFIG}
    addresses = {str(each.id) for each in known if each.type == ADDRESS}
    found = leftovers(session.home, proxies, addresses)
    removed = remove(found) if args.yes else ()
    if args.json:
        out.raw(json.dumps([_fields(each, removed=each in removed) for each in found], indent=2))
    else:
        _print(out, found, removed, asked=args.yes)
    return 0


def _print(out: Out, found: tuple[Leftover, ...], removed: tuple[Leftover, ...], *, asked: bool) -> None:
    if not found:
        out.line("Nothing was left behind.")
        return
    out.table(
        ("LEFT", "WHAT", "OWNER", ""),
        [(str(each.sort), each.what, str(each.owner or "unknown"), _fate(each, each in removed)) for each in found],
    )
    if not asked and any(each.ours for each in found):
        out.line("")
        out.line("`locallb gc --yes` removes those of this stack.")


def _fate(leftover: Leftover, removed: bool) -> str:  # noqa: FBT001 - private, one caller
    if removed:
        return "removed"
    return "" if leftover.ours else "not this stack's: left alone"


def _fields(leftover: Leftover, *, removed: bool) -> dict[str, object]:
    return {
        "sort": str(leftover.sort),
        "what": leftover.what,
        "owner": str(leftover.owner or "unknown"),
        "ours": leftover.ours,
        "removed": removed,
    }
