"""Tells as events of a run what the core does; each resource that stays as it is, and each sentence, once."""

from locallb.engine.core.news import Adopted, Begun, Entered, News, Refused
from locallb.engine.core.operations import Kind, Nothing, Operation, Outcome
from locallb.engine.deploy.events import Op, Severity
from locallb.engine.deploy.reporter import Reporter, Step
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import Pending

_OPS = {
    Kind.CREATE: Op.CREATE,
    Kind.UPDATE: Op.UPDATE,
    Kind.DELETE: Op.DELETE,
    Kind.DELETE_FIRST: Op.DELETE_REPLACED,
    Kind.DELETE_OLD: Op.DELETE_REPLACED,
    Kind.LOOK: Op.REFRESH,
}
_CREATING = Kind.CREATE.value


class Teller:
    """What a core of one run is to tell."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._steps: dict[int, Step] = {}
        """Operations under way that have been told of."""

    def __call__(self, news: News) -> None:
        """Tell it."""
        match news:
            case Begun(operation):
                self._begin(operation)
            case Outcome(operation, answer, error):
                self._end(operation, answer, error)
            case Entered(op, resource, changes):
                self._reporter.end(self._reporter.begin(op, resource, changes))
            case Adopted(left):
                if left.kind != _CREATING:
                    self._looked_at(left)
            case Refused(urn, error, left):
                self._fail(urn, error, left)

    def _begin(self, operation: Operation) -> None:
        if op := _OPS.get(operation.kind):
            self._steps[id(operation)] = self._reporter.begin(op, operation.subject)

    def _end(self, operation: Operation, answer: object, error: EngineError | None) -> None:
        if step := self._steps.pop(id(operation), None):
            self._reporter.end(step, error)
        urn = operation.urn
        if error is not None:
            self._fail(urn, error, operation.pending if operation.kind is Kind.FINISH else None)
        elif isinstance(answer, Nothing):
            self._say(urn, f"nothing is left of the interrupted creation of {urn} ({answer.error})")
        elif operation.kind is Kind.FINISH:
            self._say(urn, f"finished the interrupted creation of {urn}")
        elif operation.kind is Kind.LOOK and operation.pending:
            self._looked_at(operation.pending)

    def _looked_at(self, left: Pending) -> None:
        urn = left.resource.urn
        self._say(urn, f"looked at {urn}, whose {left.kind} was interrupted")

    def _fail(self, urn: str, error: EngineError, left: Pending | None) -> None:
        text = str(error)
        if left and left.kind == _CREATING:
            text = f"the interrupted creation of {urn} can't be finished ({error}); the next run tries again"
        self._reporter.say(Severity.ERROR, text, urn)

    def _say(self, urn: str, text: str) -> None:
        self._reporter.say(Severity.INFO, text, urn)
