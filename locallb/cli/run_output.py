"""The output of a run: its steps as a tree, live progress, and the end with its exit code.

The tree resembles Pulumi's own: the operation on each resource, and those of its properties that change. At the end of
a run come the tree or the counts, the table of Services and the complaints, or the documented JSON object.

Not here: the run itself (`commands.deployments`), and the table (`service_output`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.service_output import as_reported, print_services, services_json
from locallb.cli.session import Session
from locallb.cli.targets import MAX_NAMES
from locallb.engine.core.events import (
    DiagnosticEvent,
    Event,
    Op,
    Result,
    Severity,
    StepDone,
    StepFailed,
    StepRecord,
    StepStarted,
)
from locallb.engine.state.values import UNKNOWN, PropertyChange
from locallb.model.desired import BALANCER
from locallb.model.texts import few
from locallb.observe import inspect
from locallb.planning.planned import Plan
from locallb.planning.service_rows import NOT_DEPLOYED, Row
from locallb.sources.snapshot import SnapshotResult

if TYPE_CHECKING:
    from rich.status import Status

    from locallb.cli.program import Program


SIGNS = {
    Op.SAME: (" ", ""),
    Op.READ: (" ", ""),
    Op.REFRESH: (" ", ""),
    Op.CREATE: ("+", "green"),
    Op.UPDATE: ("~", "yellow"),
    Op.DELETE: ("-", "red"),
    Op.REPLACE: ("+-", "magenta"),
    Op.CREATE_REPLACEMENT: ("++", "green"),
    Op.DELETE_REPLACED: ("--", "red"),
}
QUIET = frozenset({Op.SAME, Op.READ, Op.REFRESH, Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED})
DONE = {Op.CREATE: "created", Op.UPDATE: "updated", Op.DELETE: "deleted", Op.REPLACE: "replaced"}
DERIVED = frozenset({"digest", "version_info", "versions.cds", "versions.lds"})
"""Ends of the paths of properties that follow from others: shown only where nothing else changes."""
MAX_CHANGES = 12
MAX_CHARACTERS = 160
KNOWN_LATER = "(known after the update)"


def print_steps(out: Out, result: Result, *, planned: bool) -> None:
    """Print the resources that change, with what changes of them, each below its parent, and the count of all."""
    loud = {step.subject.urn: step for step in result.steps if step.op not in QUIET}
    everything = {step.subject.urn: step for step in result.steps}
    print_tree(out, _with_ancestors(loud, everything).values(), details=True)
    print_counts(out, result, planned=planned)


def print_tree(out: Out, steps: Iterable[StepRecord], *, details: bool = False) -> None:
    """Print resources, each below its parent if that is among them; `details` are the properties that change."""
    shown = {step.subject.urn: step for step in steps}
    children: dict[str, list[StepRecord]] = defaultdict(list)
    for step in shown.values():
        children[step.subject.parent if step.subject.parent in shown else ""].append(step)
    for root in children[""]:
        _print_branch(out, root, children, ("", ""), details=details)


def print_counts(out: Out, result: Result, *, planned: bool) -> None:
    """Print in a line how many resources changed, and how long it took."""
    if result.ok and result.unchanged:
        out.line("Nothing to change." if planned else "Nothing changed.")
    parts: list[tuple[tuple[str, str], str]] = []
    for op, word in DONE.items():
        if count := result.changes.get(op, 0):
            parts.append((SIGNS[op], f" {count} {'to ' + op.value if planned else word}"))
    if failed := sum(step.failed for step in result.steps):
        parts.append((("x", "red"), f" {failed} failed"))
    if same := result.changes.get(Op.SAME, 0):
        parts.append((("", ""), f"{same} unchanged"))
    pieces = [piece for number, (sign, text) in enumerate(parts) for piece in (", " if number else " ", sign, text)]
    if pieces:
        out.line(("Resources:", "bold"), *pieces, *([] if planned else [f" in {result.duration:.2f}s"]))


def _with_ancestors(loud: Mapping[str, StepRecord], steps: Mapping[str, StepRecord]) -> Mapping[str, StepRecord]:
    wanted = set(loud)
    for step in loud.values():
        parent = step.subject.parent
        while parent in steps and parent not in wanted:
            wanted.add(parent)
            parent = steps[parent].subject.parent
    return {urn: loud.get(urn, step) for urn, step in steps.items() if urn in wanted}


def _print_branch(
    out: Out,
    step: StepRecord,
    children: Mapping[str, Sequence[StepRecord]],
    margins: tuple[str, str],
    *,
    details: bool,
) -> None:
    """Print a resource and what is below it; margins are before its own line and before the ones below."""
    lead, below = margins
    sign, style = SIGNS[step.op]
    what = f"  {step.op.value}" if step.op not in QUIET else ""
    failed = ("  failed", "bold red") if step.failed else ""
    kind = step.subject.type.rpartition(":")[2]
    out.line((f" {sign:<2} ", style), (lead, "dim"), kind, " ", (step.subject.name, "bold"), (what, style), failed)
    if details and step.op in {Op.UPDATE, Op.REPLACE}:
        _print_changes(out, step.changes, below)
    below_here = sorted(children.get(step.subject.urn, ()), key=lambda s: (s.subject.name, s.subject.type))
    for number, child in enumerate(below_here, 1):
        last = number == len(below_here)
        inner = below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")
        _print_branch(out, child, children, inner, details=details)


def _print_changes(out: Out, changes: Sequence[PropertyChange], below: str) -> None:
    lines = list(_differences(changes))
    lines = [line for line in lines if not line[0].endswith(tuple(DERIVED))] or lines
    for path, old, new in lines[:MAX_CHANGES]:
        out.line("    ", (below, "dim"), f"     {path}: ", (old, "red"), " => ", (new, "green"))
    if len(lines) > MAX_CHANGES:
        out.line("    ", (below, "dim"), f"     and {len(lines) - MAX_CHANGES} more")


def _differences(changes: Sequence[PropertyChange]) -> Iterator[tuple[str, str, str]]:
    """Return the changes as words; text that is JSON is compared as JSON."""
    for change in changes:
        old, new = _parsed(change.old), _parsed(change.new)
        yield from _leaves(change.path, old, new)


def _leaves(path: str, old: object, new: object) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                yield from _leaves(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            if before != after:
                yield from _leaves(f"{path}[{index}]", before, after)
    else:
        yield path, _terms(old), _terms(new)


def _parsed(value: object) -> object:
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _terms(value: object) -> str:
    if value is None:
        return "(none)"
    if value == UNKNOWN:
        return KNOWN_LATER
    text = json.dumps(value, ensure_ascii=False).replace(UNKNOWN, KNOWN_LATER)
    if isinstance(value, dict | list) and len(text) > MAX_CHARACTERS:
        return f"({len(text)} characters)"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


DOING = {
    Op.CREATE: "creating",
    Op.UPDATE: "updating",
    Op.DELETE: "deleting",
    Op.REPLACE: "replacing",
    Op.CREATE_REPLACEMENT: "creating replacement",
    Op.DELETE_REPLACED: "deleting replaced",
}


class Progress:
    """Shows progress: on a terminal one line that moves, and lines for steps that fail or last, or for `every` one.

    Use it as a context manager and pass `listen` to the engine.
    """

    def __init__(self, out: Out, title: str, *, silent: bool = False, every: bool = False) -> None:
        self._out = out
        self._every = every
        self._silent = silent
        self._running: dict[tuple[Op, str], str] = {}
        self._status = _status(out, title) if out.live and not silent else None
        self._title = title

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        elif not self._silent:
            self._out.line((self._title, "bold"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def listen(self, event: Event) -> None:
        if self._silent:
            return
        if isinstance(event, DiagnosticEvent):
            self._report(event)
        elif isinstance(event, StepStarted):
            self._begin(event)
        elif isinstance(event, (StepDone, StepFailed)):
            self._end(event)

    def _report(self, event: DiagnosticEvent) -> None:
        if event.diagnostic.severity is Severity.INFO:
            self._out.line(event.diagnostic.message)

    def _begin(self, event: StepStarted) -> None:
        if event.op in QUIET - {Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED}:
            return
        self._running[event.op, event.subject.urn] = f"{DOING[event.op]} {_named(event)}"
        self._update()

    def _end(self, event: StepDone | StepFailed) -> None:
        self._running.pop((event.op, event.subject.urn), None)
        self._update()
        if event.op not in DOING:
            return
        failed = isinstance(event, StepFailed)
        if not (failed or self._every or event.seconds >= LONG):
            return
        sign, style = SIGNS[event.op]
        seconds = "" if event.seconds < SHORT else f" ({event.seconds:.2f}s)"
        terms = ("  failed", "bold red") if failed else ""
        self._out.line((f" {sign:<2} ", style), _named(event), seconds, terms)

    def _update(self) -> None:
        if self._status:
            first = next(iter(self._running.values()), "")
            more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._status.update(f"{self._title} {first}{more}")


def _status(out: Out, title: str) -> Status:
    """Return the line that moves."""
    from rich.status import Status  # noqa: PLC0415 - only on a terminal

    return Status(title, console=out.console)


SHORT, LONG = 0.1, 2.0
"""Seconds below which a duration is not shown, and from which on a finished step is."""


def _named(event: StepStarted | StepDone | StepFailed) -> str:
    return f"{event.subject.type.rpartition(':')[2]} {event.subject.name}"


def what_was_planned(session: Session, program: Program) -> tuple[SnapshotResult, Plan]:
    """Return what the program read and planned; what can be read now if it broke off before.

    Raises SourceError.
    """
    return program.outcome or program.handed or session.plan()


def report_outcome(  # noqa: PLR0913, PLR0917 - what a run is told by
    session: Session,
    args: Arguments,
    out: Out,
    command: str,
    result: Result,
    plan: Plan,
    *,
    printed: frozenset[str] = frozenset(),
    changes: Callable[[Sequence[Row]], None] | None = None,
) -> int:
    """Print how a run ended, without sentences that were `printed` before or twice; return the exit code.

    A preview shows `changes` instead of resources and the table, if given.
    """
    table = inspect(plan)
    if args.json:
        print_json(out, session, command, result, table)
    else:
        if changes:
            changes(table)
        else:
            if command == "preview":
                print_steps(out, result, planned=True)
                printed |= _to_come(table, result)
            else:
                print_counts(out, result, planned=False)
            out.line("")
            print_services(out, table, printed, (*plan.straight, *plan.left_out))
        complain(out, result, printed.union(*map(as_reported, table)))
    if not result.ok:
        return ending(result)
    if args.expect_no_changes and not result.unchanged:
        out.error("no changes were expected, but there are changes")
        return Exit.CHANGES
    return _served(table, args, out)


def _to_come(table: Sequence[Row], result: Result) -> frozenset[str]:
    """Return the messages of Services that are undeployed because they are new, which the tree above shows."""
    new = {step.subject.name for step in result.steps if step.op is Op.CREATE and step.subject.type == BALANCER}
    return frozenset(row.message for row in table if row.reason == NOT_DEPLOYED and str(row.key) in new)


def _served(table: Sequence[Row], args: Arguments, out: Out) -> int:
    """Complain of Services in a state that `--fail-on` names, and give the exit code."""
    failing = [row for row in table if row.state in args.fail_on]
    if not failing:
        return Exit.OK
    names = few([f"{row.key} is {row.state}" for row in failing], MAX_NAMES)
    out.error(f"--fail-on {' '.join(args.fail_on)}: {names}")
    return Exit.UNSERVED


def ending(result: Result) -> int:
    """Return the exit code for how a run ended."""
    if result.interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if result.ok else Exit.FAILED


def complain(out: Out, result: Result, printed: frozenset[str] = frozenset()) -> None:
    """Print errors and warnings, each once, except those already `printed`."""
    unprinted = [diagnostic for diagnostic in result.diagnostics if diagnostic.message not in printed]
    messages = {diagnostic.message: diagnostic.severity for diagnostic in unprinted}
    for message, severity in messages.items():
        if severity is Severity.ERROR:
            out.error(message)
        elif severity is Severity.WARNING:
            out.warning(message)


def print_json(out: Out, session: Session, command: str, result: Result, table: tuple[Row, ...]) -> None:
    """Print the documented object of a run."""
    document = {
        "command": command,
        "stack": session.stack,
        "ok": result.ok,
        "seconds": round(result.duration, 3),
        "changes": {op.value: count for op, count in sorted(result.changes.items()) if count},
        "steps": [
            {
                "op": step.op.value,
                "type": step.subject.type,
                "name": step.subject.name,
                "urn": step.subject.urn,
                "properties": [change.path for change in step.changes],
                "failed": step.failed,
            }
            for step in result.steps
        ],
        "services": services_json(table),
        "diagnostics": [
            {"severity": diagnostic.severity.value, "message": diagnostic.message, "urn": diagnostic.urn}
            for diagnostic in result.diagnostics
        ],
    }
    out.raw(json.dumps(document, indent=2, ensure_ascii=True))
