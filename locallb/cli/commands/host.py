"""The commands `host setup | teardown | status`: what would be done to this host and why; with --yes it is done."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace

from locallb import safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.project import PROJECT_FILE
from locallb.cli.session import Session
from locallb.dns.zones import DnsSettings, Embedded, with_servers
from locallb.host import setup_changes
from locallb.host.resolvers import Table, read_names
from locallb.host.setup_plan import LEDGER, SetupConsent, on_behalf, plan_setup, plan_teardown, unnamed
from locallb.host.setup_steps import ObservedHost, Setup, SetupStep
from locallb.ledger.ledger import Ledger
from locallb.model.desired import shown_items
from locallb.sources.held import held_by


def host(session: Session, args: Arguments, out: Out) -> int:
    """Run `host setup` or `host status`."""
    plan = _setup_plan(session, args)
    return _status(plan, args, out) if args.action == "status" else _perform(plan, args, out, undo=False)


def teardown(args: Arguments, out: Out) -> int:
    """Run `host teardown`, which needs no stack."""
    return _perform(_teardown_plan(), args, out, undo=True)


def _setup_plan(session: Session, args: Arguments) -> Setup:
    group = setup_changes.group_id(args.group) if args.group else setup_changes.group_of(session.project.root)
    dns = _zones(session)
    observed = setup_changes.inspect(
        session.settings.pools, group, dns.zones if dns else (), _names(session) if dns else {}
    )
    plan = plan_setup(observed, persist=args.persist, status=args.action == "status")
    return plan if args.action == "status" else _with_consent(plan, observed, session, args)


def _with_consent(plan: Setup, observed: ObservedHost, session: Session, args: Arguments) -> Setup:
    """Return the plan with the problem of each change that its caller has to name and didn't."""
    zones = frozenset(zone.lower().rstrip(".") for zone in args.allow_zone)
    consent = SetupConsent(zones, args.allow_network, frozenset(args.on_behalf_of))
    problems = [*unnamed(observed, consent)]
    if owner := safe_files.another_owner((session.project.root / PROJECT_FILE, session.project.root)):
        problems += on_behalf(
            safe_files.shown(owner), [name for name in (safe_files.name(owner), str(owner)) if name], consent
        )
    return replace(plan, problems=(*plan.problems, *problems))


def _zones(session: Session) -> DnsSettings | None:
    """Return the zones with the addresses at which the state has their server, or will have it."""
    dns = session.settings.dns
    if dns is None:
        return None
    existing = held_by(session.resources()).name_servers
    return with_servers(dns, session.home, tuple(Embedded(*socket) for socket in existing))


def _names(session: Session) -> Table:
    """Read which names there are, as the state shows them: of load balancers, and of what answers for zones."""
    listed = (resource.inputs.get("names") or resource.outputs.get("names") for resource in session.resources())
    return read_names(shown for names in listed for shown in shown_items(names, "\n"))


def _teardown_plan() -> Setup:
    setup_changes.require_record_of_root()
    record = setup_changes.read_record()
    return plan_teardown(record, setup_changes.present(record), len(Ledger(Path(LEDGER)).claims()))


def _status(plan: Setup, args: Arguments, out: Out) -> int:
    if args.json:
        out.raw(json.dumps(_document(plan, applied=False), indent=2))
        return Exit.OK
    rows = [(_state(step), str(step.sort), step.what, _value(step)) for step in plan.steps]
    out.table(("STATE", "WHAT", "NAME", "VALUE"), rows)
    _report_rest(plan, out)
    return Exit.OK


def _perform(plan: Setup, args: Arguments, out: Out, *, undo: bool) -> int:
    """Print the steps; with --yes carry each out as it is printed, unless something forbids it."""
    steps = [step for step in plan.steps if undo or not step.done]
    applying = args.apply and not plan.problems
    if applying and steps and os.geteuid() != 0:
        out.error("--yes changes this host: run it as root, for example with sudo")
        return Exit.FAILED
    for step in steps:
        if not args.json:
            out.line(("  # ", "dim"), step.why)
            out.line(f"  {step.command}")
        if applying:
            (setup_changes.undo if undo else setup_changes.apply)(step)
    if args.json:
        out.raw(json.dumps(_document(plan, applied=applying), indent=2))
    else:
        _report_end(plan, steps, out, applied=applying)
    return Exit.FAILED if plan.problems else Exit.OK


def _report_end(plan: Setup, steps: list[SetupStep], out: Out, *, applied: bool) -> None:
    if not steps:
        out.line("Nothing to do.")
    elif applied:
        out.line(f"{len(steps)} changes made; `locallb host teardown --yes` brings back what was there.")
    elif not plan.problems:
        out.line("")
        out.line("Nothing was changed. As root, --yes does exactly this.")
    _report_rest(plan, out)


def _report_rest(plan: Setup, out: Out) -> None:
    for note in plan.notes:
        out.warning(note)
    for problem in plan.problems:
        out.error(str(problem))


def _state(step: SetupStep) -> tuple[str, str]:
    if step.done:
        return "done", "green"
    return ("optional", "") if step.optional else ("missing", "yellow")


def _value(step: SetupStep) -> str:
    if step.done:
        return "" if "\n" in step.now else step.now
    command = "setup --persist" if step.optional else "setup"
    if "\n" in step.now + step.wanted:
        return f"{'another text' if step.now else 'absent'}, {command} writes it"
    return f"{step.now or 'absent'}, {command} makes it {step.wanted}"


def _document(plan: Setup, *, applied: bool) -> dict[str, object]:
    return {
        "applied": applied,
        "steps": [
            {
                "sort": str(step.sort),
                "what": step.what,
                "now": step.now,
                "wanted": step.wanted,
                "done": step.done,
                "optional": step.optional,
                "why": step.why,
                "command": step.command,
            }
            for step in plan.steps
        ],
        "problems": [{"reason": problem.reason, "message": problem.message} for problem in plan.problems],
        "notes": list(plan.notes),
    }
