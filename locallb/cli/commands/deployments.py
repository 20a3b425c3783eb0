"""The commands that change a stack: `up`, `refresh` and `destroy`.

Each asks for confirmation unless --yes is given, runs, reports, and returns the exit code. Other processes at work on
the stack, or their leftovers, are reported, refused or ended before a command continues.

Not here: the preview (`cli.commands.preview`), and the command `watch` (`cli.commands.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import confirmed
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused, gate_code, refuse
from locallb.cli.run_output import (
    Progress,
    complain,
    ending,
    print_counts,
    print_json,
    print_steps,
    report_outcome,
    what_was_planned,
)
from locallb.cli.service_output import as_reported
from locallb.cli.session import TIMEOUT as UPDATE_TIMEOUT
from locallb.cli.session import Session
from locallb.cli.targets import scope_of
from locallb.engine.core.events import Result
from locallb.engine.state.errors import EngineError
from locallb.engine.state.urns import name_of
from locallb.model.desired import ADDRESS_CLAIMS, REACHABLE
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.texts import counted
from locallb.observe import inspect
from locallb.planning.planned import Plan
from locallb.runtimes import processes
from locallb.runtimes.processes import Process
from locallb.runtimes.single_instance import AlreadyRunningError, holder, only_one
from locallb.sources import program_arguments
from locallb.sources.snapshot import ReadingAndPlan

if TYPE_CHECKING:
    from locallb.cli.program import Program


TIMEOUT = 30.0
"""Seconds from SIGTERM to SIGKILL: a `watch` finishes the operations that it has begun."""


def warn_if_watching(session: Session, out: Out) -> None:
    """Report that a `watch` keeps the stack as it is configured, whatever this command does."""
    if process := holder(session.watch_lock):
        out.warning(f"`watch` (pid {process.pid}) keeps stack {session.stack} converged, too; this is done beside it")


def _next_to_watch(session: Session, attempt: Callable[[], Result]) -> Result:
    """Return the result of an update; a `watch` may end what it has begun first. Raises LockHeld."""
    return session.once_free(attempt, UPDATE_TIMEOUT if holder(session.watch_lock) else 0.0)


@contextmanager
def without_watch(session: Session, *, stop: bool) -> Iterator[None]:
    """Keep every `watch` of the stack away; one that runs is ended if `stop`.

    Raises AlreadyRunningError, ProcessError.
    """
    if process := holder(session.watch_lock):
        if not stop:
            raise AlreadyRunningError(_refusal(session, process))
        if not processes.has_open(process, session.watch_lock):  # that pid is another process's here
            raise AlreadyRunningError(
                f"`watch` of stack {session.stack} runs elsewhere, as in a container: end it there first"
            )
        processes.stop(process, TIMEOUT)
    with only_one(session.watch_lock, f"watch of stack {session.stack}"):
        yield


def forgotten(session: Session) -> int:
    """Count what this stack has on this host although its state knows of nothing. Raises ClientError."""
    from locallb.leftovers import on_this_host  # noqa: PLC0415 - only a destroy needs it

    return sum(leftover.ours for leftover in on_this_host(session.home, (), ()))


def _refusal(session: Session, process: Process) -> str:
    return (
        f"`watch` of stack {session.stack} runs (pid {process.pid}) and would make again what `destroy` removes: end it"
        " first, or run `locallb destroy --stop-watch`"
    )


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
        refused = Exit.OK if args.targets else refuse(program.violations(), out)
        if (planned.ok and planned.unchanged) or (args.json and not planned.ok):
            return report_outcome(session, args, out, "up", planned, what_was_planned(session, program)[1]) or refused
        printed = _ask_about(out, args, planned, None if args.diff or args.targets else _changes(session, program))
        if not planned.ok:
            return ending(planned)
        if refused:
            return refused
        if not confirmed("Perform this update?", out):
            return Exit.FAILED
    program = session.program(plan, lambda: session.stamp() == as_of)
    session.sign_in()
    with Progress(out, f"Updating ({session.stack})", silent=args.json, every=args.diff) as progress:

        def update(program: Program) -> Result:
            return _next_to_watch(session, lambda: program.update(session.engine(progress.listen), scope))

        result = update(program)
        while not result.ok and _finds_refusals(session, program, result):
            program = session.program()
            result = update(program)
        for _ in range(MAX_MOVES):
            if result.ok or (moved := _moved(session, program, result)) is None:
                break
            program = session.program(moved)
            result = update(program)
    _forget_removed(session, result, is_whole=not args.targets)
    intended = what_was_planned(session, program)
    code = report_outcome(session, args, out, "up", result, intended[1], printed=printed)
    # Policies of the whole stack keep an update from changing anything.
    return code if code != Exit.FAILED or args.targets else gate_code(program.violations()) or code


def _forget_removed(session: Session, result: Result, *, is_whole: bool) -> None:
    """Forget what components said that the program doesn't have any more."""
    if result.ok and is_whole:
        program_arguments.forget_former(session.home)


def _finds_refusals(session: Session, program: Program, result: Result) -> bool:
    """Return whether Envoy refused objects that weren't known to be: the rest is served without them."""
    if program.outcome is None or result.interrupted or REACHABLE not in result.failed_types:
        return False
    _, plan = program.outcome
    broken = set(map(name_of, result.broken))
    keys = [placement.key for placement in plan.placements if str(placement.key) in broken]
    return session.find_refusals(plan, keys)


def _moved(session: Session, program: Program, result: Result) -> ReadingAndPlan | None:
    """Plan again where others took addresses or ports after the last plan; None where that moves nothing."""
    if program.outcome is None or result.interrupted or result.failed_types.isdisjoint({*ADDRESS_CLAIMS, REACHABLE}):
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
        result = _next_to_watch(session, session.engine(progress.listen).refresh)
    return report_outcome(session, args, out, "refresh", result, session.plan()[1])


def destroy(session: Session, args: Arguments, out: Out) -> int:
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
        program_arguments.forget(session.home)
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


def _changes(session: Session, program: Program) -> Callable[[Out, Result], frozenset[str]]:
    """Return what prints the changes of load balancers, and returns the messages among them."""
    from locallb.cli.commands.preview import print_changes, report_live  # noqa: PLC0415 - where something is asked

    def show(out: Out, planned: Result) -> frozenset[str]:
        result, plan = what_was_planned(session, program)
        table = inspect(plan)
        print_changes(out, report_live(session, planned, result, plan), planned.steps, table)
        return frozenset().union(*map(as_reported, table))

    return show


def _ask_about(
    out: Out, args: Arguments, planned: Result, show: Callable[[Out, Result], frozenset[str]] | None = None
) -> frozenset[str]:
    """Show what the next question is about; return the messages that were printed."""
    if args.json:
        raise Refused("--json prints one document and asks nothing; say --yes as well")
    printed: frozenset[str] = frozenset()
    if show and planned.ok:
        printed = show(out, planned)
    else:
        print_steps(out, planned, planned=True)
    complain(out, planned, printed)
    return printed.union(diagnostic.message for diagnostic in planned.diagnostics)
