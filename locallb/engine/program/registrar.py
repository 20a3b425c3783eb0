"""Passes what a program registers to the core, and answers each registration once its resource has settled.

The program's threads wait here; all else is done in the core's thread.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from msgspec import Struct, field

from locallb.engine.core.core import Core
from locallb.engine.core.declared import Goal
from locallb.engine.core.desired_index import Goals
from locallb.engine.state.errors import Cancelled, EngineError, StateUnwritable
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.values import Properties, Value, has_unknown, without_unknown


class Reply(Struct, frozen=True):
    """What the program is answered; there are no outputs of what failed, or needs something that failed."""

    urn: str
    failed: bool = False
    id: str = ""
    outputs: Properties = field(default_factory=dict)


class Registrar:
    """Of one run of a program; `post` has a function called in the core's thread."""

    def __init__(
        self, project: str, stack: str, core: Core, goals: Goals, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self.project = project
        self.stack = stack
        self._core = core
        self._goals = goals
        self._post = post
        self._stack_outputs: Properties | None = None
        self._waiting: dict[Future[Reply], str] = {}
        """Registrations without an answer, each with its URN once the core has it."""
        self._is_closed = False
        self._lock = Lock()

    @property
    def outputs(self) -> Properties:
        """The Stack's, as far as they are registered and known."""
        return without_unknown(self._stack_outputs or {})

    @property
    def is_preview(self) -> bool:
        """Whether nothing is made, so that outputs may be unknown."""
        return self._goals.is_preview

    # The program's threads

    def register(self, goal: Goal) -> Reply:
        """Wait until a resource is as registered, or can't be. Raises EngineError when the program can't go on."""
        return self._ask(lambda: self._add(goal))

    def register_outputs(self, urn: str, outputs: Properties) -> None:
        """Set the outputs of a component, or the Stack. Raises EngineError when the program can't go on."""
        self._ask(lambda: self._set_outputs(urn, outputs))

    def _ask(self, begin: Callable[[], str]) -> Reply:
        answer: Future[Reply] = Future()
        with self._lock:
            if self._is_closed:
                raise Cancelled
            self._waiting[answer] = ""
        self._post(lambda: self._begin(answer, begin))
        return answer.result()

    # The core's thread

    def _begin(self, answer: Future[Reply], begin: Callable[[], str]) -> None:
        try:
            self._waiting[answer] = begin()
        except StateUnwritable:
            raise
        except EngineError as error:
            self._waiting.pop(answer)
            answer.set_exception(error)

    def _add(self, goal: Goal) -> str:
        if self._core.is_stopping:
            raise Cancelled
        if goal.is_stack:
            self._core.enter_stack()
            return self._goals.root
        urn = self._goals.add(goal)
        self._core.include(urn)
        return urn

    def _set_outputs(self, urn: str, outputs: Properties) -> str:
        if urn == self._goals.root:
            self._stack_outputs = outputs
        elif self._core.is_as_desired(urn):
            self._goals.set_outputs(urn, without_unknown(outputs))
            self._core.include(urn)
        return urn

    def enter_outputs(self, *, is_whole: bool) -> None:
        """Let the state have the Stack's outputs; of a program that broke off it keeps the others."""
        if self._stack_outputs is not None:
            stack = self._core.snapshot.live[self._goals.root]
            former = {} if is_whole else stack.outputs
            self._core.enter_stack({**former, **_resolved_outputs(stack, self._stack_outputs)})

    def answer(self) -> None:
        """Answer what has settled, or can't for now."""
        with self._lock:
            waiting = [*self._waiting.items()]
        for answer, urn in waiting:
            try:
                reply = self._reply(urn) if urn else None
            except Cancelled as error:
                self._waiting.pop(answer)
                answer.set_exception(error)
            else:
                if reply:
                    self._waiting.pop(answer)
                    answer.set_result(reply)

    def _reply(self, urn: str) -> Reply | None:
        if urn == self._goals.root:
            return Reply(urn)
        if self._core.is_as_desired(urn):
            resource = self._core.snapshot.live[urn]
            return Reply(urn, id=resource.id, outputs=resource.outputs) if resource.custom else Reply(urn)
        if self._core.is_under_way(urn):
            return None
        if self._core.is_stopping:
            raise Cancelled
        return Reply(urn, failed=True)

    def close(self) -> None:
        """Refuse what waits, and all that comes."""
        with self._lock:
            self._is_closed = True
        while self._waiting:
            self._waiting.popitem()[0].set_exception(Cancelled())


def _resolved_outputs(stack: ResourceState, outputs: Properties) -> dict[str, Value]:
    """Keep the former value of an output that something failed or left out makes unknown."""
    former = {key: stack.outputs[key] for key, value in outputs.items() if has_unknown(value) and key in stack.outputs}
    return {**without_unknown(outputs), **former}
