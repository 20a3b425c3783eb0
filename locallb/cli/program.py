"""The stack's program: as data where all that it says is `serve()`, otherwise run as the Pulumi CLI would.

Not here: what brings about what it wants (`engine`).
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from locallb.cli.project import is_standard
from locallb.config.settings import Settings, SettingsError
from locallb.desired import desired, exports, provider_version
from locallb.engine.core.declared import EVERYTHING, Declared
from locallb.engine.core.events import Severity
from locallb.engine.state.errors import EngineError
from locallb.engine.state.urns import package_of
from locallb.model.errors import ClientError, of_host
from locallb.safe_files import distrust
from locallb.sources import SourceError
from locallb.sources.snapshot import ReadingAndPlan
from locallb.sources.workspace import Handed, handing

if TYPE_CHECKING:
    from locallb.engine.core.declared import Scope
    from locallb.engine.core.events import Result
    from locallb.engine.engine import Engine
    from locallb.engine.state.values import Value
    from locallb.report.changes import Violation


class Program(Struct):
    """`__main__.py`; keeps what was read and planned for it.

    What a command prints afterwards is of that plan: if it read again, the world might have changed.
    """

    path: Path
    read_and_plan: Callable[[bool], ReadingAndPlan]
    """Reads and plans as the standard program does; a preview, with False, keeps nothing of what is read."""
    judge: Callable[[ReadingAndPlan, Settings | None], Sequence[Violation]] = lambda _planned, _settings: ()
    """Returns what a plan violates of the policies in settings, by default the stack's."""
    handed: ReadingAndPlan | None = None
    """What was read and planned for it already."""
    is_current: Callable[[], bool] = lambda: True
    """Returns whether the plan is still current when it is applied under the stack's lock."""
    _run: Handed = field(default_factory=Handed)

    @property
    def outcome(self) -> ReadingAndPlan | None:
        """What was used; None as long as it didn't get as far as a plan."""
        return self._run.used

    def violations(self) -> Sequence[Violation]:
        """Return what its plan violates of its policies; nothing where there is none."""
        return self.judge(self._run.used, self._run.settings) if self._run.used else ()

    def update(self, engine: Engine, scope: Scope) -> Result:
        """Update a stack to what it wants. Raises EngineError where the engine does."""
        if is_standard(self.path):
            return engine.bring(partial(self._declared, keep=True, whole=scope is EVERYTHING), scope=scope)
        self._run = Handed(whole=scope is EVERYTHING)
        return engine.up(self, scope=scope)

    def preview(self, engine: Engine, scope: Scope) -> Result:
        """Return what an update would do. Raises as `update` does."""
        if is_standard(self.path):
            return engine.bring(partial(self._declared, keep=False, whole=False), preview=True, scope=scope)
        return engine.preview(self, scope=scope)

    def _declared(self, *, keep: bool, whole: bool) -> Declared:
        """Return what it declares, of a `whole` stack only what its policies allow. Raises EngineError."""
        try:
            _require_trusted(self.path, self.path.parent, EngineError)
            current = self.handed if self.is_current() else None
            reading, plan = self._run.used = current or self.read_and_plan(keep)
        except (ClientError, SettingsError, SourceError) as error:
            raise EngineError(" ".join(str(error).split())) from None
        except Exception as error:
            if sentence := of_host(error):
                raise EngineError(sentence) from None
            raise
        violated = self.violations() if whole else ()
        if forbidden := [each.message for each in violated if not each.advisory]:
            raise EngineError("\n".join(forbidden))
        groups = desired(plan).groups
        packages = {package_of(resource.key.type) for group in groups for resource in group.members}
        versions = {package: version for package in sorted(packages) if (version := provider_version(package))}
        outputs = cast("Mapping[str, Value]", exports(plan))
        warnings = (
            *(each.message for each in violated),
            *(str(one.problem) for one in plan.rejections),
            *plan.notices,
            *reading.notices,
        )
        remarks = (
            *((Severity.WARNING, sentence) for sentence in warnings),
            *((Severity.ERROR, sentence) for sentence in reading.complaints),
        )
        return Declared(groups, outputs, versions, remarks)

    def __call__(self) -> None:
        """Run it once. Raises RunError where it isn't there."""
        from pulumi import RunError  # noqa: PLC0415 - the SDK is loaded where a program is run

        if not self.path.is_file():
            raise RunError(
                f"{self.path} doesn't exist, and it is the program; bring it back: `git checkout {self.path}`"
            )
        _require_trusted(self.path, self.path.parent, RunError)
        self._run = Handed(self.handed if self.is_current() else None, whole=self._run.whole)
        with handing(self._run), _importable(self.path.parent):
            runpy.run_path(str(self.path), run_name="__main__")


@contextmanager
def _importable(project: Path) -> Iterator[None]:
    """Let the program import modules next to it, as Python does, including its own `components`."""
    finder = _TrustedModules(project)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(project))
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
        from pulumi import RunError  # noqa: PLC0415 - as above

        spec = PathFinder.find_spec(fullname, path, target)
        for file in (spec.origin, spec.cached) if spec else ():
            if file and Path(file).is_relative_to(self._project):
                _require_trusted(Path(file), self._project, RunError)
        return spec


def _require_trusted(path: Path, project: Path, refusal: type[Exception]) -> None:
    """Check that no other user decides what is run. Raises the refusal."""
    if fault := distrust(path, project):
        raise refusal(f"{fault}, so {path} isn't run; name the project on purpose: `locallb -C {project} up`")
