"""Starts commands in an instant: a process that has loaded everything forks one child for each.

A line of JSON says what to run; the answers are the child's process id and, once it has ended, its exit code. Signals
wait in the child until the command has its handlers, as they do under a parent that blocks them for the start.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
WAITING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def no_bytecode() -> dict[str, str]:
    """Return an environment in which Python caches no bytecode: starved of file sizes, it leaves a part of a file."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Order:
    """What to run: the streams are paths, `limits` those of setrlimit; that of memory counts from what is in use."""

    terms: Sequence[str]
    place: str
    out: str
    err: str
    limits: Mapping[str, int] = field(default_factory=dict)

    def take_place(self) -> None:
        """Make this process one that runs it: streams, directory, limits."""
        for number, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, self.out, os.O_WRONLY),
            (2, self.err, os.O_WRONLY),
        ):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(self.place)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        for name, value in self.limits.items():
            maximum = value + used if name == "RLIMIT_AS" else value
            resource.setrlimit(getattr(resource, name), (maximum, maximum))


class Prepared:
    """The process that forks, seen from the test."""

    def __init__(self) -> None:
        code = "from tests.e2e.prepared import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=CHECKOUT,
            env=no_bytecode(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def start(self, order: Order) -> int:
        """Start a command and return its process id."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(vars(order)) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def ended(self) -> int:
        """Wait for its end and return the code, negative for a signal that killed it."""
        return int(self._answer())

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


def serve() -> None:
    """Fork a child for each line of the standard input."""
    _load_everything()
    assert threading.active_count() == 1
    print("ready", flush=True)  # noqa: T201 - the answer
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITING)
        ready, placed = os.pipe()
        child = os.fork()
        if child == 0:
            _run(Order(**json.loads(line)), placed)
        os.close(placed)
        os.read(ready, 1)  # its end: the child has opened its streams, whose reader may go now
        os.close(ready)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITING)
        print(child, flush=True)  # noqa: T201 - the answer
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201 - the answer


def _load_everything() -> None:
    from locallb.cli import run, session  # noqa: PLC0415, F401 - the test that imports this module needs none of it

    for place in (*run.COMMANDS.values(), *run.WITHOUT_STACK.values(), *run.OFFLINE.values()):
        importlib.import_module(f"locallb.cli.{place.partition(':')[0]}")


def _run(order: Order, placed: int) -> None:
    from locallb.cli import main  # noqa: PLC0415 - the test that imports this module needs none of it

    code = 99
    try:
        sys.argv = ["locallb", *order.terms]
        order.take_place()
        os.close(placed)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        code = main()
    except BaseException:  # noqa: BLE001 - nothing may get this far: the test sees it
        traceback.print_exc()
    finally:
        os._exit(code)
