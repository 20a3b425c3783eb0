"""Events of a run: collected and counted, passed to the listener one at a time, and made of what the core does."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from time import monotonic
from typing import TypeAlias

from msgspec import Struct, field

from locallb.engine.core.events import (
    Diagnostic,
    DiagnosticEvent,
    Event,
    Listener,
    Op,
    Severity,
    StepDone,
    StepFailed,
    StepPlanned,
    StepRecord,
    StepStarted,
    Subject,
    ignore,
)
from locallb.engine.core.operations import (
    MAKING,
    Adopted,
    Begun,
    Entered,
    Kind,
    News,
    Nothing,
    Operation,
    OperationResult,
    Refused,
)
from locallb.engine.provider_handles import Difference
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.urns import is_default_provider
from locallb.engine.state.values import PropertyChange, changes_between

_COUNTED = frozenset((Op.SAME, Op.CREATE, Op.UPDATE, Op.DELETE, Op.REPLACE))


def subject_of(resource: ResourceState) -> Subject:
    """Name a resource for an event."""
    return Subject(resource.urn, resource.type, resource.name, resource.parent)


class Step(Struct, frozen=True):
    """An operation that was reported to begin."""

    op: Op
    subject: Subject
    changes: tuple[PropertyChange, ...]
    began: float


class Reporter(Struct):
    """The run's book-keeping; `planning` makes every step a planned one."""

    listener: Listener
    planning: bool
    diagnostics: list[Diagnostic] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Root resources in which something failed."""
    is_whole: bool = True
    """Whether the run came to its end: otherwise what isn't among the broken may never have been declared."""
    _counts: Counter[Op] = field(default_factory=Counter)
    _lock: RLock = field(default_factory=RLock)

    def report_to(self, event: Event) -> None:
        """Call the listener; one that raises (a closed terminal) is told no more, and never stops the run."""
        with self._lock:
            try:
                self.listener(event)
            except Exception as error:  # noqa: BLE001 a display may break in any way
                self.listener = ignore
                what = f"the display broke and shows no more: {type(error).__name__}: {error}"
                self.diagnostics.append(Diagnostic(Severity.WARNING, what))

    def log(self, severity: Severity, message: str, urn: str = "", debug: str = "") -> None:
        diagnostic = Diagnostic(severity, message, urn, debug)
        with self._lock:
            self.diagnostics.append(diagnostic)
            self.report_to(DiagnosticEvent(diagnostic))

    def failed(self) -> bool:
        """Return whether there was an error."""
        return any(diagnostic.severity is Severity.ERROR for diagnostic in self.diagnostics)

    def counts(self) -> Mapping[Op, int]:
        """Return the number of resources per operation."""
        return dict(self._counts)

    @contextmanager
    def step(self, op: Op, resource: ResourceState, changes: tuple[PropertyChange, ...] = ()) -> Iterator[None]:
        """Report an operation around its execution; an EngineError inside is reported and passed on."""
        step = self.begin(op, resource, changes)
        try:
            yield
        except EngineError as error:
            self.end(step, error)
            raise
        self.end(step)

    def begin(self, op: Op, resource: ResourceState, changes: tuple[PropertyChange, ...] = ()) -> Step:
        """Report that an operation begins."""
        step = Step(op, subject_of(resource), changes, monotonic())
        if not is_default_provider(resource.urn):
            self.report_to((StepPlanned if self.planning else StepStarted)(op, step.subject, changes))
        return step

    def end(self, step: Step, error: EngineError | None = None) -> None:
        """Report how an operation ended."""
        if is_default_provider(step.subject.urn):
            return
        seconds = 0.0 if self.planning and error is None else monotonic() - step.began
        with self._lock:
            failed = error is not None
            self.steps.append(StepRecord(step.op, step.subject, step.changes, failed=failed, seconds=seconds))
            if error is not None:
                self.report_to(StepFailed(step.op, step.subject, str(error), seconds))
                return
            if step.op in _COUNTED:
                self._counts[step.op] += 1
            if not self.planning:
                self.report_to(StepDone(step.op, step.subject, seconds, step.changes))


Changes: TypeAlias = tuple[PropertyChange, ...]
_OPS = {
    Kind.CREATE: Op.CREATE,
    Kind.UPDATE: Op.UPDATE,
    Kind.DELETE: Op.DELETE,
    Kind.DELETE_FIRST: Op.DELETE_REPLACED,
    Kind.DELETE_OLD: Op.DELETE_REPLACED,
    Kind.INSPECT: Op.REFRESH,
}
_AS_DESIRED = frozenset((Op.SAME, Op.CREATE, Op.UPDATE, Op.REPLACE))
_CREATING = Kind.CREATE.value


def _changes(operation: Operation) -> Changes:
    """Return the properties that an operation changes."""
    if operation.kind not in MAKING:
        return ()
    if operation.old and operation.difference:
        return _shown_changes(operation.old, operation.subject, operation.difference)
    return changes_between(operation.old.inputs if operation.old else {}, operation.subject.inputs)


class Teller:
    """What a core of one run is to tell."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._steps: dict[int, Step] = {}
        """Reported operations that are under way."""
        self._reported: set[str] = set()
        """Resources that are as desired, or become so: no further reports."""

    def __call__(self, news: News) -> None:
        match news:
            case Begun(operation):
                self._begin(operation)
            case OperationResult(operation, answer, error):
                self._end(operation, answer, error)
            case Entered(op, resource, changes):
                self._enter(op, resource, changes)
            case Adopted(remaining):
                if remaining.kind != _CREATING:
                    self._inspected(remaining)
            case Refused(urn, error, remaining):
                self._fail(urn, error, remaining)

    def _enter(self, op: Op, resource: ResourceState, changes: Changes) -> None:
        if op is Op.SAME and resource.urn in self._reported:
            return
        self._report(op, resource, changes)

    def _report(self, op: Op, resource: ResourceState, changes: Changes) -> None:
        if op in _AS_DESIRED:
            self._reported.add(resource.urn)
        self._reporter.end(self._reporter.begin(op, resource, changes))

    def _begin(self, operation: Operation) -> None:
        op, changes = _OPS.get(operation.kind), _changes(operation)
        if operation.kind is Kind.CREATE and operation.old:
            op = Op.CREATE_REPLACEMENT
            if operation.old.pending_replacement:
                self._report(Op.REPLACE, operation.subject, changes)
        if operation.kind in MAKING:
            self._reported.add(operation.urn)
        if op:
            self._steps[id(operation)] = self._reporter.begin(op, operation.subject, changes)

    def _end(self, operation: Operation, answer: object, error: EngineError | None) -> None:
        if step := self._steps.pop(id(operation), None):
            self._reporter.end(step, error)
            is_replaced = operation.old is not None and not operation.old.pending_replacement
            if error is None and step.op is Op.CREATE_REPLACEMENT and is_replaced:
                self._report(Op.REPLACE, operation.subject, step.changes)
        urn = operation.urn
        if error is not None:
            self._fail(urn, error, operation.pending if operation.kind is Kind.FINISH else None)
        elif isinstance(answer, Nothing):
            self._log(urn, f"nothing is left of the interrupted creation of {urn} ({answer.error})")
        elif operation.kind is Kind.FINISH:
            self._log(urn, f"finished the interrupted creation of {urn}")
        elif operation.kind is Kind.INSPECT and operation.pending:
            self._inspected(operation.pending)

    def _inspected(self, remaining: Pending) -> None:
        urn = remaining.resource.urn
        self._log(urn, f"looked at {urn}, whose {remaining.kind} was interrupted")

    def _fail(self, urn: str, error: EngineError, remaining: Pending | None) -> None:
        text = str(error)
        if remaining and remaining.kind == _CREATING:
            text = f"the interrupted creation of {urn} can't be finished ({error}); the next run tries again"
        self._reporter.log(Severity.ERROR, text, urn)

    def _log(self, urn: str, text: str) -> None:
        self._reporter.log(Severity.INFO, text, urn)


def _shown_changes(old: ResourceState, new: ResourceState, difference: Difference) -> Changes:
    """Return the properties that change: those of the inputs, and those that the provider found drifted."""
    changes = changes_between(old.inputs, new.inputs, difference.replaces)
    covered = {change.path.split(".")[0].split("[")[0] for change in changes}
    keys = {key.split(".")[0].split("[")[0] for key in difference.keys} - covered - {"provider"}
    drifted = {key: old.outputs[key] for key in keys if key in old.outputs}
    wanted = {key: new.inputs[key] for key in keys if key in new.inputs}
    return changes + changes_between(drifted, wanted, difference.replaces)
