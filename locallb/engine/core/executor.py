"""Threads in which operations block, and the queue by which they, and other threads, send messages to the core.

A thread that hangs delays no other: another one is started when none is idle, and none keeps the process from ending.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias

from msgspec import Struct

from locallb.engine.core.operations import Operation, OperationResult, attempted

Message: TypeAlias = OperationResult | Callable[[], None]
"""How an operation ended, or what the core's thread is asked to do."""


class Executor(Protocol):
    """What runs operations, and has the time."""

    def now(self) -> float:
        """Return the time, in seconds of a monotonic clock."""

    def start(self, operation: Operation) -> None:
        """Perform an operation; its outcome is received."""

    def receive(self, until: float | None) -> Message | None:
        """Wait for a message; None when there is none until then."""

    def post(self, message: Message) -> None:
        """Send a message, from any thread or a signal's handler."""


_IDLE = 4
"""Threads that wait for work: more of them end."""


class _Done(Struct, frozen=True):
    """What a thread's work came to, or raised."""

    result: Message | BaseException


class ThreadExecutor:
    """Threads of this process; begun by the core's thread alone."""

    def __init__(self, bell: Callable[[], None] = lambda: None) -> None:
        self._bell = bell
        """Called when an operation has ended, in its thread."""
        self._inbox: SimpleQueue[Message | _Done] = SimpleQueue()
        self._work: SimpleQueue[Callable[[], Message] | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def now(self) -> float:
        return time.monotonic()

    def start(self, operation: Operation) -> None:
        """Perform an operation in a thread."""
        self.call(lambda: attempted(operation, operation.perform))

    def call(self, work: Callable[[], Message]) -> None:
        """Call a function in a thread that is idle, or in a new one; what it returns is received."""
        self._busy += 1
        if self._busy > self._threads:
            threading.Thread(target=self._run, name=f"operation-{self._threads}", daemon=True).start()
            self._threads += 1
        self._work.put(work)

    def _run(self) -> None:
        while work := self._work.get():
            try:
                self._inbox.put(_Done(work()))
            except BaseException as error:  # noqa: BLE001 raised again where somebody waits for it
                self._inbox.put(_Done(error))
            self._bell()

    @property
    def has_news(self) -> bool:
        """Whether a message can be received at once."""
        return not self._inbox.empty()

    def receive(self, until: float | None) -> Message | None:
        """Wait for a message. Raises what a provider's mistake raised in its thread."""
        try:
            message = self._inbox.get(timeout=None if until is None else max(0.0, until - self.now()))
        except Empty:
            return None
        if not isinstance(message, _Done):
            return message
        self._busy -= 1
        if self._threads - self._busy > _IDLE:
            self._threads -= 1
            self._work.put(None)
        if isinstance(message.result, BaseException):
            raise message.result
        return message.result

    def post(self, message: Message) -> None:
        self._inbox.put(message)

    def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)


class PreviewExecutor(ThreadExecutor):
    """Foresees what operations would give, at once: nothing is changed, so nothing outside is waited for."""

    def start(self, operation: Operation) -> None:
        self.post(attempted(operation, operation.foresee))
