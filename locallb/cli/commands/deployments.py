"""The commands that change a stack. Each opens it, asks for confirmation, runs, reports and returns the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locallb.cli.arguments import Arguments
from locallb.cli.commands.others_at_work import forgotten, warn_if_watching, without_watch
from locallb.cli.confirmation import confirmed
from locallb.cli.console import Out
from locallb.cli.display.outcome import complain, ending, print_json, report_outcome, what_was_planned
from locallb.cli.display.progress import Progress
from locallb.cli.display.tree import print_counts, print_steps
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.session import Session
from locallb.cli.targets import scope_of
from locallb.engine.core.events import Result
from locallb.engine.state.errors import EngineError
from locallb.engine.state.urns import name_of
from locallb.model.formatting import counted
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.state_resource import CLAIMS, REACHABLE
from locallb.planning.planned import Plan
from locallb.sources.workspace import Planned

if TYPE_CHECKING:
    from locallb.cli.program import Program

MAX_MOVES = 10
"""Plans of one `up` after the first, because others claimed addresses at the same moment."""


def up(session: Session, args: Arguments, out: Out) -> int:
    """Create, update and remove what the plan says; ask first unless --yes is given."""
    warn_if_watching(session, out)
    session.settings  # noqa: B018 - a mistake in the configuration is told before anything else
    as_of = session.stamp()  # until the stack is locked, others may change it
    scope, plan = scope_of(session, args.targets, keep=args.yes)
    printed: frozenset[str] = frozenset()
    if not args.yes:
        with Progress(out, f"Previewing update ({session.stack})", silent=args.json) as progress:
            program, plan = session.program(plan), None
            planned = program.preview(session.engine(progress.listen), scope)
        if (planned.ok and planned.unchanged) or (args.json and not planned.ok):
            return report_outcome(session, args, out, "up", planned, what_was_planned(session, program)[1])
        printed = _ask_about(out, args, planned)
        if not planned.ok:
            return ending(planned)
        if not confirmed("Perform this update?", out):
            return Exit.FAILED
    program = session.program(plan, lambda: session.stamp() == as_of)
    session.sign_in()
    with Progress(out, f"Updating ({session.stack})", silent=args.json) as progress:
        result = program.update(session.engine(progress.listen), scope)
        while not result.ok and _finds_refusals(session, program, result):
            program = session.program()
            result = program.update(session.engine(progress.listen), scope)
        for _ in range(MAX_MOVES):
            if result.ok or (moved := _moved(session, program, result)) is None:
                break
            program = session.program(moved)
            result = program.update(session.engine(progress.listen), scope)
    return report_outcome(session, args, out, "up", result, what_was_planned(session, program)[1], printed=printed)


def _finds_refusals(session: Session, program: Program, result: Result) -> bool:
    """Return whether Envoy refused objects that weren't known to be: the rest is served without them."""
    if program.outcome is None or result.interrupted or not result.has_failed(REACHABLE):
        return False
    _, plan = program.outcome
    broken = set(map(name_of, result.broken))
    keys = [placement.key for placement in plan.placements if str(placement.key) in broken]
    return session.find_refusals(plan, keys)


def _moved(session: Session, program: Program, result: Result) -> Planned | None:
    """Plan again where others took addresses or ports after the last plan; None where that moves nothing."""
    if program.outcome is None or result.interrupted or not any(map(result.has_failed, (*CLAIMS, REACHABLE))):
        return None
    planned = session.plan()
    return None if _places(planned[1]) == _places(program.outcome[1]) else planned


def _places(plan: Plan) -> dict[ObjectKey, tuple[tuple[IPAddress, ...], tuple[int, ...]]]:
    """Return at which addresses and ports clients find each load balancer."""
    return {
        placement.key: (placement.addresses, tuple(planned.port.number for planned in placement.ports))
        for placement in plan.placements
    }


def refresh(session: Session, args: Arguments, out: Out) -> int:
    """Compare the state with reality and correct the state."""
    warn_if_watching(session, out)
    if not args.yes and not confirmed("Correct the state by what is really there?", out):
        return Exit.FAILED
    session.sign_in()
    with Progress(out, f"Refreshing ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).refresh()
    return report_outcome(session, args, out, "refresh", result, session.plan()[1])


def destroy(session: Session, args: Arguments, out: Out) -> int:
    """Remove all that this stack made."""
    try:
        session.require_stack()
    except EngineError:
        if not forgotten(session):
            raise
    with without_watch(session, stop=args.stop_watch):
        return _destroy(session, args, out)


def _destroy(session: Session, args: Arguments, out: Out) -> int:
    if not args.yes:
        planned = session.engine(lambda _event: None).destroy(preview=True)
        if not (planned.ok and planned.unchanged):
            _ask_about(out, args, planned)
            if not confirmed("Destroy all of this?", out):
                return Exit.FAILED
    session.sign_in()
    with Progress(out, f"Destroying ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).destroy()
    if result.ok:
        session.forget_readings()
    if args.json:
        print_json(out, session, "destroy", result, ())
    else:
        print_counts(out, result, planned=False)
        complain(out, result)
    remaining = forgotten(session) if result.ok else 0
    if remaining:
        out.error(
            f"{counted(remaining, 'thing')} of this stack stayed, of which its state knows nothing: `locallb gc` "
            f"lists them,"
            " `locallb gc --yes` removes them"
        )
    return Exit.FAILED if remaining else ending(result)


def _ask_about(out: Out, args: Arguments, planned: Result) -> frozenset[str]:
    """Show what the next question is about; return the messages that were printed."""
    if args.json:
        raise Refused("--json prints one document and asks nothing; say --yes as well")
    print_steps(out, planned, planned=True)
    complain(out, planned)
    return frozenset(diagnostic.message for diagnostic in planned.diagnostics)
