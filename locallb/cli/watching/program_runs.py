"""Runs of a program that says more than `serve()` under `watch`: at the start, and whenever its files change.

Each is a `locallb up` in a process of its own. So modules are imported anew, a program that never ends can be ended,
and `watch` gives way to it as to any command. What the last whole run declared stays until another one has ended whole.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import locallb
from locallb.cli.project import is_standard
from locallb.model.fields import objects_of, text_of
from locallb.model.texts import few
from locallb.programs import Program, ProgramError
from locallb.storage.files import stamp_of
from locallb.threads import SupervisedThread, Task
from locallb.watch.events import LoopEvent, ProgramRan

INSPECT = 1.0
"""Seconds between two looks at the program's files."""
TIMEOUT = 300.0
"""Seconds that a run may take; nothing else of the stack is updated meanwhile."""
STOP_TIMEOUT = 10.0
"""Seconds that a run has to finish what it has begun, once it is to end."""
_MAX_FILES = 1000
_MAX_OUTPUT = 2**24
_MAX_REASONS = 3
_OTHERS = frozenset({"tests", "__pycache__", "node_modules"})
_OWN = Path(locallb.__file__).parent
_PROGRAM = "__main__.py"
Stamps = Mapping[Path, object]


class ProgramRuns:
    """Runs the program of a project again and again, in a thread of its own, until `stop`."""

    def __init__(
        self, terms: Sequence[str], project: Path, listen: Callable[[LoopEvent], None], leads: Callable[[], bool]
    ) -> None:
        """Run `terms`, which is `locallb up --json` for this project, and tell `listen` how it ended."""
        self._terms = terms
        self._project = project
        self._listen = listen
        self._leads = leads
        self._ran: Stamps = {}
        """The files with which it ran last."""
        self._thread = SupervisedThread(Task.PROGRAM, "program", self._follow)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; a run that is under way may finish what it has begun."""
        self._thread.stop()

    def join(self) -> None:
        self._thread.join(STOP_TIMEOUT + 1)

    def _follow(self) -> None:
        observed: Stamps = {}
        while not self._thread.stopped.wait(INSPECT):
            before, observed = observed, files_of(self._project)
            settled = observed == before  # an editor may still be writing
            if settled and observed != self._ran and self._leads():
                self._ran = observed
                if not is_standard(self._project / _PROGRAM):
                    self._listen(self._run())

    def _run(self) -> ProgramRan:
        begun = time.monotonic()
        up = Program(
            tuple(self._terms),
            TIMEOUT,
            maximum=_MAX_OUTPUT,
            directory=self._project,
            heard=False,
            cancelled=self._thread.stopped.is_set,
            stop_timeout=STOP_TIMEOUT,
        )
        changes, fault = dict[str, int](), ""
        try:
            ended = up.run()
            changes, errors = _parsed(ended.output)
            if ended.code:
                fault = few(errors, _MAX_REASONS) or f"it ended with {ended.code}"
        except ProgramError as error:
            fault = f"it {error.why}"
        return ProgramRan(_PROGRAM, time.monotonic() - begun, changes, fault)


def command(project: Path | None, stack: str) -> tuple[str, ...]:
    """Return what begins a command for a stack; of a project that was named on purpose, if one is given."""
    named = ("-C", str(project)) if project else ()
    return (sys.executable, "-m", "locallb", *named, "--stack", stack)


def files_of(project: Path) -> Stamps:
    """Return the files that a program may import from its project, each with its stamp."""
    return {path: stamp_of(path) for path in islice(_modules(project), _MAX_FILES)}


def _modules(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            path = Path(entry.path)
            if entry.is_file() and entry.name.endswith(".py"):
                yield path
            elif entry.is_dir(follow_symlinks=False) and not _is_other(path):
                yield from _modules(path)


def _is_other(directory: Path) -> bool:
    """Return whether a directory has no modules of the program: tests, an environment, this package itself."""
    name = directory.name
    return name.startswith(".") or name in _OTHERS or directory == _OWN or (directory / "pyvenv.cfg").exists()


def _parsed(output: bytes) -> tuple[dict[str, int], list[str]]:
    """Read what `up --json` printed: resources by operation, and the sentences of errors."""
    try:
        document = json.loads(output)
        changes = {str(name): int(number) for name, number in document["changes"].items()}
        diagnostics = objects_of(document["diagnostics"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, []
    errors = (text_of(each.get("message")) for each in diagnostics if each.get("severity") == "error")
    return changes, list(dict.fromkeys(errors))
