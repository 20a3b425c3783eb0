"""The commands `state check`, whether the state can be used, `state restore`, the way back, and `state adopt`."""

from __future__ import annotations

import json
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import confirmed
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.session import Session
from locallb.model.texts import counted
from locallb.provider.reachable import leave
from locallb.runtimes.process.processes import ProcessError
from locallb.runtimes.process.runtime import living
from locallb.sources.stack_home import belonging, here, is_elsewhere, refuse_copy, settle


def state(session: Session, args: Arguments, out: Out) -> int:
    """Run the subcommand of `state`."""
    actions = {"adopt": adopt, "check": check, "restore": restore}
    return actions[args.action](session, args, out)


def adopt(session: Session, args: Arguments, out: Out) -> int:
    """Move the stack to this user and state home."""
    existing, current = belonging(session.home, session.project.state_file(session.stack)), here(session.home)
    if existing is None:
        out.line(f"Stack {session.stack} isn't deployed: it will belong to {current.user} where `up` runs first.")
        return Exit.OK
    refuse_copy(session.home, existing)
    question = f"End the proxies under {existing.state_home}, so that `up` starts them under {current.state_home}?"
    moves = is_elsewhere(existing, current)
    if moves and not args.yes and not confirmed(question, out):
        return Exit.FAILED
    if moves:
        resources = session.resources()
        try:
            ended = counted(leave(resources, session.home, Path(existing.state_home)), "proxy", "proxies")
        except ProcessError as error:
            remaining = " ".join(str(process.pid) for _, process in living(resources))
            raise Refused(
                f"{error}: the proxies are those of {existing.user}, and {current.user} may not end them; root may, "
                f"with"
                f" `kill {remaining}`, and then run `locallb state adopt` again"
            ) from None
        out.line(f"{ended} ended under {existing.state_home}; `locallb up` starts what is missing.")
    settle(session.home)
    out.line(f"Stack {session.stack} belongs to {current.user}, and its proxies live under {current.state_home}.")
    return Exit.OK


def check(session: Session, args: Arguments, out: Out) -> int:
    """Print every rule that the stack's state breaks; 1 if there is any."""
    path = session.project.state_file(session.stack)
    complaints = session.store.complaints()
    if args.json:
        out.raw(json.dumps({"state": str(path), "complaints": list(complaints)}, indent=2))
    elif complaints:
        for complaint in complaints:
            out.error(complaint)
        out.line("`locallb state restore` goes back to the last good state.")
    else:
        out.line(f"{path} is sound." if path.exists() else f"There is no state at {path}.")
    return 1 if complaints else 0


def restore(session: Session, args: Arguments, out: Out) -> int:
    """Go back to the newest backup that can be used, where the state can't; asks first."""
    store = session.store
    messages: list[str] = []
    if problems := store.unusable():
        if not args.yes:
            for problem in problems:
                out.error(problem)
            if not confirmed("Put it aside and go back to the last good state?", out):
                return Exit.FAILED
        store.restore(messages.append)
    if args.json:
        path = session.project.state_file(session.stack)
        out.raw(json.dumps({"state": str(path), "problems": list(problems), "done": messages}, indent=2))
        return Exit.OK
    for text in messages or ["The state can be used; there is nothing to restore."]:
        out.line(text)
    if messages:
        out.line("Now run `locallb up`: it adopts what was made since.")
    return Exit.OK
