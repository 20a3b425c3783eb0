"""The command `ca`: this user's own authority for certificates, and the trust of this host in it.

`ca show | create | export` are about the authority, of which only the key is a secret. `ca trust | untrust` list the
changes to this host's trust stores, and make them only with --yes.

Not here: the files of the authority (`certificates.store`), the choice of changes (`certificates.trust_plan`), and the
trust stores (`certificates.trust_stores`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from locallb.certificates import store, trust_stores
from locallb.certificates.local import DOMAINS
from locallb.certificates.store import Authority, find
from locallb.certificates.trust_plan import Believed, TrustPlan, TrustStep, believes, plan_trust, plan_untrust
from locallb.certificates.trust_stores import TrustError
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.model import http_checks
from locallb.model.errors import ClientError
from locallb.model.texts import shown
from locallb.storage import files


def trust(existing: Authority, args: Arguments, out: Out) -> int:
    """Add the authority to this host's trust stores."""
    return _perform(plan_trust(_believed(existing), trust_stores.inspect(), os.getuid()), args, out)


def untrust(existing: Authority | None, args: Arguments, out: Out) -> int:
    """Take out what `ca trust` put in, whatever has become of the authority."""
    plan = plan_untrust(_believed(existing) if existing else None, trust_stores.inspect(), os.getuid())
    return _perform(plan, args, out)


def is_believed() -> bool:
    """Return whether any program of this host trusts this user's authority, or there is none."""
    try:
        existing = find()
        return existing is None or any(
            believes(store, existing.observed.fingerprint) for store in trust_stores.inspect()
        )
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
        trust_stores.change_store(step)
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


_READABLE = 0o644
_NONE = "you have no authority yet: `locallb ca create` makes one, and so does `up` of a stack that needs it"


def ca(args: Arguments, out: Out) -> int:
    """Run the word after `ca`."""
    if args.action in {"trust", "untrust"}:
        return trust(_found(), args, out) if args.action == "trust" else untrust(store.find(), args, out)
    return {"show": _show, "create": _create, "export": _export}[args.action](args, out)


def _show(args: Arguments, out: Out) -> int:
    existing = store.find()
    if args.json:
        out.raw(json.dumps(_authority_document(existing) if existing else None, indent=2))
    elif existing:
        _report(existing, out)
    else:
        out.line(_NONE[0].upper() + _NONE[1:] + ".")
    why = store.fault(existing, store.now()) if existing else ""
    if why:
        out.error(why)
    return Exit.FAILED if why else Exit.OK


def _create(args: Arguments, out: Out) -> int:
    domains = tuple(dict.fromkeys((*DOMAINS, *map(_domain, args.domains))))
    if not args.replaces and store.find():
        raise Refused("you have an authority already; --replace makes another one, which clients don't trust yet")
    made = store.create(domains, store.now(), replace=args.replaces)
    if args.json:
        out.raw(json.dumps(_authority_document(made), indent=2))
    else:
        _report(made, out)
    return Exit.OK


def _export(args: Arguments, out: Out) -> int:
    existing = _found()
    if args.place:
        files.write(args.place, existing.pem, mode=_READABLE)
    if args.json:
        out.raw(json.dumps({**_authority_document(existing), "pem": existing.pem}, indent=2))
    elif args.place is None:
        out.document(existing.pem)
    return Exit.OK


def _found() -> store.Authority:
    existing = store.find()
    if existing is None:
        raise Refused(_NONE)
    return existing


def _domain(text: str) -> str:
    name = text.lower().removeprefix("*.").strip(".")
    try:
        return http_checks.hostname(name, wildcard=False)
    except ValueError:
        raise Refused(f"--domain {shown(text)} is no domain; write one such as shop.example.com") from None


def _report(existing: store.Authority, out: Out) -> None:
    for name, value in _authority_document(existing).items():
        out.line(f"{name}: {value if isinstance(value, str) else ', '.join(value)}")


def _authority_document(existing: store.Authority) -> Mapping[str, str | list[str]]:
    observed = existing.observed
    return {
        "name": observed.name,
        "certificate": str(existing.file),
        "fingerprint": observed.fingerprint,
        "begins": f"{observed.begins:%Y-%m-%dT%H:%M:%SZ}",
        "ends": f"{observed.ends:%Y-%m-%dT%H:%M:%SZ}",
        "domains": list(observed.domains),
    }
