"""The stack's program, run in this process as the Pulumi CLI would. Not here: what runs it (`engine`)."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from pkgutil import extend_path
from types import ModuleType

from msgspec import Struct
from pulumi import RunError

import components as ours
from locallb.guarded.owners import distrust
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
        _require_trusted(self.path, self.path.parent)
        with handing(self.handed if self.is_current() else None), _importable(self.path.parent):
            names = runpy.run_path(str(self.path), run_name="__main__")
        self.outcome = names["reading"], names["plan"]


@contextmanager
def _importable(project: Path) -> Iterator[None]:
    """Let the program import what lies beside it, as Python does, `components` of its own among that."""
    finder = _TrustedModules(project)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(project))
    ours.__path__ = extend_path(ours.__path__, ours.__name__)
    try:
        yield
    finally:
        sys.path.remove(str(project))
        sys.meta_path.remove(finder)


class _TrustedModules(MetaPathFinder):
    """Finds modules as Python does, and refuses those of a project that another user may change."""

    def __init__(self, project: Path) -> None:
        self._project = project

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module. Raises RunError."""
        spec = PathFinder.find_spec(fullname, path, target)
        for file in (spec.origin, spec.cached) if spec else ():
            if file and Path(file).is_relative_to(self._project):
                _require_trusted(Path(file), self._project)
        return spec


def _require_trusted(path: Path, project: Path) -> None:
    """Check that no other user decides what is run. Raises RunError."""
    if fault := distrust(path, project):
        raise RunError(f"{fault}, so {path} isn't run; name the project on purpose: `locallb -C {project} up`")
