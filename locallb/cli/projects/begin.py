"""A new project, written into an empty directory or one that Git has just made; nothing is ever overwritten."""

from __future__ import annotations

import shlex
from contextlib import ExitStack, suppress
from pathlib import Path

from locallb.cli.failures import Refused
from locallb.cli.projects.layout import MANIFESTS, Sources, project_files
from locallb.cli.projects.place import PROJECT_FILE
from locallb.storage import files
from locallb.storage.paths import shipped

_JOBS = {
    ".github/workflows/load-balancers.yml": "examples/ci/github-actions.yml",
    ".gitlab-ci.yml": "examples/ci/gitlab-ci.yml",
}
_MAY_EXIST = (".", "README", "LICENSE")
"""How names begin that a repository has before anything is in it."""


def begin(directory: Path, sources: Sources) -> None:
    """Write a project around its `sources`. Raises Refused where other files exist."""
    try:
        _write(directory, _names_in_use(sources))
    except (FileExistsError, NotADirectoryError) as error:
        raise Refused(
            f"a project in {directory} can't be made: {error.filename} is a file or a link; name another directory"
        ) from None


def _names_in_use(sources: Sources) -> frozenset[str]:
    """Return the first parts of the paths of manifests, by default `manifests`."""
    paths = (Path(str(value)) for source in sources for key, value in source.items() if key == "manifests")
    return frozenset({MANIFESTS, *(path.parts[0] for path in paths if path.parts)})


def _write(directory: Path, manifests: frozenset[str]) -> None:
    if directory.is_dir():
        _require_room(directory, manifests)
    jobs = {path: shipped(name).read_text(encoding="utf-8") for path, name in _JOBS.items()}
    texts = {path: text for path, text in project_files(jobs).items() if not (directory / path).exists()}
    with ExitStack() as undoing:  # a part of a project would be neither one nor room for one
        for path, text in texts.items():
            _make_directory((directory / path).parent, undoing)
            files.create(directory / path, text)
            undoing.callback(files.remove, directory / path)
        undoing.pop_all()


def _make_directory(path: Path, undoing: ExitStack) -> None:
    if not path.is_dir():
        _make_directory(path.parent, undoing)
        path.mkdir(exist_ok=True)
        undoing.callback(_remove_empty, path)


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):  # others have files in it
        directory.rmdir()


def _require_room(directory: Path, manifests: frozenset[str]) -> None:
    names = {path.name for path in directory.iterdir() if not path.name.startswith(_MAY_EXIST)}
    if others := sorted(names - manifests):
        here = str(directory.resolve())
        elsewhere = f"locallb init {shlex.quote(f'{here}-lb')} --manifests {shlex.quote(here)}"
        raise Refused(
            f"{directory} is no project, it has no {PROJECT_FILE}, but {others[0]}: a project begins in an empty"
            f" directory, or around {MANIFESTS}/; `--manifests {directory}` names it in another project, and"
            f" `{elsewhere}` begins one beside it"
        )
