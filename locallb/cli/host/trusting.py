"""The commands `ca trust | untrust`: list how this host would trust your own authority; --yes does it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from locallb.certificates.store import Authority, find
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.model.errors import ClientError
from locallb.trust import stores
from locallb.trust.plan import Believed, TrustPlan, TrustStep, believes, plan_trust, plan_untrust
from locallb.trust.tools import TrustError


def trust(existing: Authority, args: Arguments, out: Out) -> int:
    """Add the authority to this host's trust stores."""
    return _perform(plan_trust(_believed(existing), stores.inspect(), os.getuid()), args, out)


def untrust(existing: Authority | None, args: Arguments, out: Out) -> int:
    """Take out what `ca trust` put in, whatever has become of the authority."""
    plan = plan_untrust(_believed(existing) if existing else None, stores.inspect(), os.getuid())
    return _perform(plan, args, out)


def is_believed() -> bool:
    """Return whether any program of this host trusts this user's authority, or there is none."""
    try:
        existing = find()
        return existing is None or any(believes(store, existing.observed.fingerprint) for store in stores.inspect())
    except ClientError:
        return True


def _perform(plan: TrustPlan, args: Arguments, out: Out) -> int:
    """Print the steps; with --yes carry each out that this user may."""
    steps = [step for step in plan.steps if not step.done]
    failures: list[str] = []
    for step in steps:
        if not args.json:
            out.line(("  # ", "dim"), step.why)
            for line in step.lines:
                out.line(f"  {line}")
        if args.apply and not step.store.lacks:
            failures += _tried(step)
    remaining = [step for step in steps if step.store.lacks]
    if args.json:
        out.raw(json.dumps(_document(plan, applied=args.apply and not remaining and not failures), indent=2))
    else:
        _report_end(plan, len(steps), len(steps) - len(remaining) - len(failures), args, out)
    for failure in failures:
        out.error(failure)
    return Exit.FAILED if failures or (args.apply and remaining) else Exit.OK


def _tried(step: TrustStep) -> Iterator[str]:
    try:
        stores.change(step)
    except TrustError as error:
        yield f"{step.store.place} isn't changed: {error}"


def _report_end(plan: TrustPlan, steps: int, changed: int, args: Arguments, out: Out) -> None:
    if not steps:
        out.line("Nothing to do.")
    elif args.apply:
        undo = "; `locallb ca untrust --yes` takes them back" if args.action == "trust" else ""
        out.line(f"{changed} of {steps} changes made{undo}. A browser that runs sees them after its next start.")
    else:
        out.line("")
        out.line("Nothing was changed. --yes does exactly this.")
    for note in plan.notes:
        out.warning(note)


def _believed(existing: Authority) -> Believed:
    return Believed(existing.observed.fingerprint, str(existing.file))


def _document(plan: TrustPlan, *, applied: bool) -> dict[str, object]:
    return {
        "applied": applied,
        "steps": [
            {
                "kind": str(step.store.kind),
                "place": step.store.place,
                "asks": step.store.requires,
                "adds": step.adds,
                "name": step.name,
                "fingerprint": step.fingerprint,
                "done": step.done,
                "lacks": step.store.lacks,
                "commands": [list(terms) for terms in step.commands],
            }
            for step in plan.steps
        ],
        "notes": list(plan.notes),
    }
