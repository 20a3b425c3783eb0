"""Signals to a run that is making a resource, which goes on when they were heard: whatever else the machine does."""

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.engine.core.interrupts import Stop
from locallb.engine.state.checkpoint import timestamp
from tests.support.engine import Bench

SECONDS = 60
"""Until something hangs."""


def interrupt(number: int = signal.SIGINT) -> None:
    """Send a signal, and return when the run under way has heard of it.

    It comes to this thread, which isn't the main one: so nothing that the main thread waits for is broken off by it.
    """
    heard, ask = threading.Event(), Stop.ask

    def ask_and_tell(stop: Stop) -> None:
        ask(stop)
        heard.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stop, "ask", ask_and_tell)
        signal.pthread_kill(threading.get_ident(), number)
        assert heard.wait(SECONDS)


def interrupt_twice(bench: Bench, program: Callable[[], object], party: str = "ProxyConfig::alpha") -> None:
    """Break an update off in the middle of a creation, which ends after the update."""
    over = threading.Event()

    def twice() -> None:
        interrupt()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        over.wait(SECONDS)

    bench.world.control = {"meanwhile": {party: twice}}
    with pytest.raises(KeyboardInterrupt):
        bench.engine().up(program)
    bench.world.control = {}
    over.set()


def lock(bench: Bench, pid: int, host: str = "", when: str = "") -> Path:
    folder = bench.project.backend / ".pulumi" / "locks" / "organization" / "local-lb" / "dev"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "c92609d7-c13d-42ef-aef4-9e4215a8f14a.json"
    content = {"pid": pid, "username": "me", "hostname": host or socket.gethostname(), "timestamp": when or timestamp()}
    path.write_text(json.dumps(content))
    return path
