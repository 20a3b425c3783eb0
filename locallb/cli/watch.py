"""`locallb watch`: keeps the stack converged until it is told to stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.clients.single import only_one
from locallb.engine import load_config
from locallb.planning.settings import Settings
from locallb.sources.configuration import stack_settings
from locallb.sources.snapshot import readings_directory
from locallb.watch.happenings import Failed, Happening, Planned, Updated
from locallb.watch.loop import Loop


def watch(session: Session, args: Arguments, out: Out) -> int:
    """Watch until a signal says stop; SIGHUP reads everything anew."""
    del args

    def load() -> Settings:
        return stack_settings(load_config(session.project, session.stack))

    configuration = session.project.stack_file(session.stack)
    loop = Loop(session.home, session.engine(lambda _event: None), load, configuration, lambda one: _tell(out, one))
    with only_one(readings_directory(session.home).with_suffix(".watch"), f"watch of stack {session.stack}"):
        thread = threading.Thread(target=loop.run, name="loop")

        def stop(_number: int, _frame: FrameType | None) -> None:
            loop.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, lambda _number, _frame: loop.reload())
        thread.start()
        while thread.is_alive():  # a signal that another thread got is handled when this one wakes
            thread.join(0.2)
    return 0


def _tell(out: Out, one: Happening) -> None:
    """Print what happened, a line each."""
    match one:
        case Planned() if one.differing or one.complaints:
            out.line(f"planned in {one.seconds * 1000:.0f} ms: {one.differing} to do")
            for complaint in one.complaints:
                out.error(complaint)
        case Updated():
            names = ", ".join(map(str, one.services[:3])) + (" ..." if len(one.services) > 3 else "")  # noqa: PLR2004
            out.line(f"updated {names} in {one.seconds * 1000:.0f} ms ({one.latency * 1000:.0f} ms after the change)")
            for key, why in one.failed.items():
                out.error(f"{key}: {why}")
        case Failed():
            out.error(one.sentence)
        case _:
            pass
