"""The stack's program, run in this process as the Pulumi CLI would. Not here: what runs it (`engine`)."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import extend_path

from msgspec import Struct
from pulumi import RunError

import components as ours
from locallb.sources.workspace import Planned, handing


class Program(Struct):
    """`__main__.py`, run as the Pulumi CLI would; keeps what it read and planned.

    What a command prints afterwards is of that plan: if it read again, the world might have changed.
    """

    path: Path
    handed: Planned | None = None
    """What was read and planned for it already."""
    is_current: Callable[[], bool] = lambda: True
    """Whether that still counts, by the time it is run and nobody else changes the stack."""
    outcome: Planned | None = None
    """None as long as it didn't get as far as a plan."""

    def __call__(self) -> None:
        """Run it once. Raises RunError where it isn't there."""
        if not self.path.is_file():
            raise RunError(
                f"{self.path} doesn't exist, and it is the program; bring it back: `git checkout {self.path}`"
            )
        with handing(self.handed if self.is_current() else None), _importable(self.path.parent):
            names = runpy.run_path(str(self.path), run_name="__main__")
        self.outcome = names["reading"], names["plan"]


@contextmanager
def _importable(project: Path) -> Iterator[None]:
    """Let the program import what lies beside it, as Python does, `components` of its own among that."""
    sys.path.insert(0, str(project))
    ours.__path__ = extend_path(ours.__path__, ours.__name__)
    try:
        yield
    finally:
        sys.path.remove(str(project))
