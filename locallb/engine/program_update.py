"""Runs a Pulumi program in this process: the SDK is set up to talk to objects instead of sockets.

Everything that the SDK keeps is in context variables, so each run has a context, a thread and an event loop of its own,
and many runs in one process don't see each other. The core works in the thread of the caller (`Update`).
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from types import TracebackType

import pulumi
from msgspec import Struct
from pulumi.runtime import set_all_config
from pulumi.runtime.settings import ROOT, SETTINGS, Settings, configure
from pulumi.runtime.stack import run_in_stack

from locallb.engine.core.core import Core
from locallb.engine.core.desired_index import Goals
from locallb.engine.core.events import Severity
from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.reporting import Reporter
from locallb.engine.core.session import LAST_WAIT
from locallb.engine.monitor import EngineService, Monitor, Registrar
from locallb.engine.protocol_providers import new_loop
from locallb.engine.state.errors import Cancelled, HostRefused
from locallb.engine.state.values import Properties
from locallb.model.errors import has_remedy

Program = Callable[[], object]
_REGISTRATIONS = 256
"""Registrations that may wait for an answer at a time, each in a thread: those that wait mustn't hold up others."""


class Setting(Struct, frozen=True):
    """What a program can ask about its surroundings."""

    project: str
    stack: str
    root: Path
    config: Mapping[str, str]
    preview: bool


class ProgramFailure(Struct, frozen=True):
    """Why a program broke off: a sentence, and for surprises the traceback."""

    message: str
    debug: str = ""


def run_program(program: Program, setting: Setting, monitor: Monitor, service: EngineService) -> ProgramFailure | None:
    """Run a program to its end, in a context of its own; give its failure, if any."""
    set_all_config(dict(setting.config), [])
    ROOT.set(None)
    configure(
        Settings(
            setting.project,
            setting.stack,
            monitor=monitor,
            engine=service,
            dry_run=setting.preview,
            organization="organization",
            root_directory=str(setting.root),
        )
    )
    with _new_loop() as loop:
        return _run_on_loop(program, setting.root, loop)


def _run_on_loop(program: Program, root: Path, loop: asyncio.AbstractEventLoop) -> ProgramFailure | None:
    threads = ThreadPoolExecutor(_REGISTRATIONS, "register")
    loop.set_default_executor(threads)
    loop.set_exception_handler(lambda _loop, _context: None)  # what matters reaches us as an exception
    try:
        loop.run_until_complete(run_in_stack(lambda: _finish(program)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 a program may raise anything
        return _failure(error, root)
    else:
        return None
    finally:
        threads.shutdown(cancel_futures=True)


async def _finish(program: Program) -> None:
    """Run a program and wait for what it began; failures are left to the SDK, which looks at each of them afterwards.

    The SDK waits as well, but again for everything whenever one thing is done: minutes for some thousand resources.
    """
    program()
    while waiting := [*SETTINGS.rpc_manager.rpcs, *SETTINGS.outputs]:
        if any(_failed(task) for task in waiting) or all(task.done() for task in waiting):
            return
        await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)


def _failed(task: asyncio.Future[object]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


@contextmanager
def _new_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop()
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _failure(error: BaseException, root: Path) -> ProgramFailure:
    if isinstance(error, pulumi.RunError):
        return ProgramFailure(" ".join(str(error).split()))
    if isinstance(error, OSError) and has_remedy(error):
        return ProgramFailure(f"the program failed: {HostRefused(error)}", "".join(traceback.format_exception(error)))
    where = _own_frame(error.__traceback__, root)
    return ProgramFailure(f"the program failed: {_words_of(error)}{where}", "".join(traceback.format_exception(error)))


def _words_of(error: BaseException) -> str:
    """Return an error's words in one sentence: the SDK wraps them in several lines about what it was doing."""
    before, wrapped, terms = str(error).rpartition(" has risen: ")
    if wrapped:
        doing, _, kinds = before.partition("\n")
        kind = kinds.rpartition("\n")[2]
        return f"{kind}: {terms}, {doing[:1].lower()}{doing[1:]}"
    return f"{type(error).__name__}: {terms}" if terms else type(error).__name__


def _own_frame(trace: TracebackType | None, root: Path) -> str:
    """Name the last place in the project's own files, not in its libraries."""
    for frame in reversed(traceback.extract_tb(trace)):
        path = Path(frame.filename)
        if path.is_relative_to(root) and "site-packages" not in path.parts:
            return f" ({path.relative_to(root)}:{frame.lineno})"
    return ""


class Update:
    """Registers what a program declares."""

    def __init__(self, program: Program, setting: Setting, reporter: Reporter) -> None:
        self._program = program
        self._setting = setting
        self._reporter = reporter
        self.outputs: Properties = {}
        """The Stack's, as far as they are known."""

    def register(self, core: Core, goals: Goals, executor: ThreadExecutor) -> bool:
        """Let the core work until the program has ended; report its failures, and return whether there are none.

        Raises Cancelled.
        """
        registrar = Registrar(self._setting.project, self._setting.stack, core, goals, executor.post)
        monitor = Monitor(registrar)
        ended: Future[ProgramFailure | None] = Future()

        def run() -> None:
            try:
                service = EngineService(self._reporter)
                ended.set_result(run_program(self._program, self._setting, monitor, service))
            except BaseException as error:  # noqa: BLE001 raised again in the core's thread
                ended.set_exception(error)
            executor.post(lambda: None)

        def is_over() -> bool:
            if executor.has_news:
                return False
            registrar.answer()
            return ended.done() and core.is_at_rest

        thread = Thread(target=copy_context().run, args=(run,), name="program", daemon=True)
        thread.start()
        try:
            core.run(is_over)
        except Exception:
            registrar.close()
            thread.join(LAST_WAIT)
            raise
        finally:
            registrar.close()
            self.outputs = registrar.outputs
        is_whole = self._report(ended.result(), monitor)
        registrar.enter_outputs(is_whole=is_whole)
        return is_whole

    def _report(self, failure: ProgramFailure | None, monitor: Monitor) -> bool:
        for error in monitor.errors:
            if isinstance(error, Cancelled):
                raise error
        for message in dict.fromkeys(str(error) for error in monitor.errors):
            self._reporter.log(Severity.ERROR, message)
        if failure and not monitor.errors:
            self._reporter.log(Severity.ERROR, failure.message, debug=failure.debug)
        return failure is None and not monitor.errors
