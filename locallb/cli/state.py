"""The command `state check`: whether the state keeps the rules that the Pulumi CLI checks."""

from __future__ import annotations

import json

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.engine import check_state


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
