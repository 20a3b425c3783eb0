"""Runs a Pulumi program in this process: the SDK is set up to talk to objects instead of sockets.

Everything that the SDK keeps lies in context variables, so each run has a context and an event loop of its own, and
many runs in one process don't see each other.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pulumi
from msgspec import Struct
from pulumi.runtime import set_all_config
from pulumi.runtime.settings import ROOT, SETTINGS, Settings, configure
from pulumi.runtime.stack import run_in_stack

from locallb.engine.program.monitor import EngineService, Monitor
from locallb.engine.providers.loops import new_loop
from locallb.engine.state.errors import HostRefused
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


class Failure(Struct, frozen=True):
    """Why a program broke off: a sentence, and for surprises the traceback."""

    message: str
    debug: str = ""


def run_program(program: Program, setting: Setting, monitor: Monitor, service: EngineService) -> Failure | None:
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


def _run_on_loop(program: Program, root: Path, loop: asyncio.AbstractEventLoop) -> Failure | None:
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


def _failure(error: BaseException, root: Path) -> Failure:
    if isinstance(error, pulumi.RunError):
        return Failure(" ".join(str(error).split()))
    if isinstance(error, OSError) and has_remedy(error):
        return Failure(f"the program failed: {HostRefused(error)}", "".join(traceback.format_exception(error)))
    where = _own_frame(error.__traceback__, root)
    return Failure(f"the program failed: {_words_of(error)}{where}", "".join(traceback.format_exception(error)))


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
