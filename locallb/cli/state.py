"""The commands `state check`, whether the state keeps the rules that the Pulumi CLI checks, and `state adopt`."""

from __future__ import annotations

import json
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.commands import confirmed
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.session import Session
from locallb.engine import check_state
from locallb.planning.words import counted
from locallb.provider.moving import leave
from locallb.sources.stack_home import belonging, here, is_elsewhere, refuse_copy, settle


def state(session: Session, args: Arguments, out: Out) -> int:
    """Do what the word after `state` says."""
    return adopt(session, args, out) if args.action == "adopt" else check(session, args, out)


def adopt(session: Session, args: Arguments, out: Out) -> int:
    """Move the stack to this user and state home."""
    known, now = belonging(session.home, session.project.state_file(session.stack)), here(session.home)
    if known is None:
        out.line(f"Stack {session.stack} isn't deployed: it will belong to {now.user} where `up` runs first.")
        return Exit.OK
    refuse_copy(session.home, known)
    question = f"End the proxies under {known.state_home}, so that `up` starts them under {now.state_home}?"
    moves = is_elsewhere(known, now)
    if moves and not args.yes and not confirmed(question, out):
        return Exit.FAILED
    if moves:
        resources = session.engine(lambda _event: None).resources()
        ended = counted(leave(resources, session.home, Path(known.state_home)), "proxy", "proxies")
        out.line(f"{ended} ended under {known.state_home}; `locallb up` starts what is missing.")
    settle(session.home)
    out.line(f"Stack {session.stack} belongs to {now.user}, and its proxies live under {now.state_home}.")
    return Exit.OK


def check(session: Session, args: Arguments, out: Out) -> int:
    """Tell every rule that the stack's state breaks; 1 if there is any."""
    path = session.project.state_file(session.stack)
    complaints = check_state(path)
    if args.json:
        out.raw(json.dumps({"state": str(path), "complaints": list(complaints)}, indent=2))
    elif complaints:
        for complaint in complaints:
            out.error(complaint)
        out.line(f"Restore a backup from {path.parents[2] / 'backups'}, or repair it with `pulumi state repair`.")
    else:
        out.line(f"{path} is sound." if path.exists() else f"There is no state at {path}.")
    return 1 if complaints else 0
