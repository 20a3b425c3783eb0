"""Events of the engine during and after an update: frozen data for a display or a log.

Events come from several threads, one at a time. They never influence the update.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from locallb.engine.state.values import PropertyChange, Value


class Op(StrEnum):
    """What happens to a resource, in Pulumi's words."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    CREATE_REPLACEMENT = "create-replacement"
    DELETE_REPLACED = "delete-replaced"
    REFRESH = "refresh"
    READ = "read"


class Severity(StrEnum):
    """How serious a diagnostic is; an error makes the result not ok."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Diagnostic(Struct, frozen=True):
    """A sentence for the user; `urn` is empty when it concerns the whole stack, `debug` holds a full traceback."""

    severity: Severity
    message: str
    urn: str = ""
    debug: str = ""


class Subject(Struct, frozen=True):
    """The resource that an event is about."""

    urn: str
    type: str
    name: str
    parent: str


class StepRecord(Struct, frozen=True):
    """One operation, planned (in previews) or done; `seconds` is the time it took, 0 in previews."""

    op: Op
    subject: Subject
    changes: tuple[PropertyChange, ...] = ()
    failed: bool = False
    seconds: float = 0.0


class StepPlanned(Struct, frozen=True):
    """In a preview: this would happen."""

    op: Op
    subject: Subject
    changes: tuple[PropertyChange, ...] = ()


class StepStarted(Struct, frozen=True):
    """An operation begins."""

    op: Op
    subject: Subject
    changes: tuple[PropertyChange, ...] = ()


class StepDone(Struct, frozen=True):
    """An operation succeeded."""

    op: Op
    subject: Subject
    seconds: float
    changes: tuple[PropertyChange, ...] = ()


class StepFailed(Struct, frozen=True):
    """An operation failed; the resource's dependents are skipped."""

    op: Op
    subject: Subject
    message: str
    seconds: float


class DiagnosticEvent(Struct, frozen=True):
    """A sentence for the user, as soon as it is known."""

    diagnostic: Diagnostic


Event: TypeAlias = StepPlanned | StepStarted | StepDone | StepFailed | DiagnosticEvent
Listener: TypeAlias = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Listen to nothing."""


class Result(Struct, frozen=True):
    """How a run ended.

    `changes` counts resources per operation as Pulumi does: default providers don't count, a replacement counts once
    as `replace`. `outputs` are the stack's outputs afterwards; in a preview, unknown values are left out. `broken` are
    the URNs of the root resources in which something failed or was skipped.
    """

    ok: bool
    changes: Mapping[Op, int] = field(default_factory=dict)
    outputs: Mapping[str, Value] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    duration: float = 0.0
    interrupted: bool = False
    broken: frozenset[str] = frozenset()
    is_whole: bool = True
    """Whether the run came to its end."""

    @property
    def failed_types(self) -> frozenset[str]:
        """The types of resources that failed."""
        return frozenset(step.subject.type for step in self.steps if step.failed)

    @property
    def unchanged(self) -> bool:
        """Whether nothing was, or would be, changed."""
        return not any(count for op, count in self.changes.items() if op not in {Op.SAME, Op.READ})
