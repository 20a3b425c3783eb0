"""Collects the events of a run and passes them to the listener, one at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from time import monotonic

from msgspec import Struct, field

from locallb.engine.deploy.events import (
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
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import is_default_provider
from locallb.engine.state.values import PropertyChange

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
        """Add a diagnostic."""
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
