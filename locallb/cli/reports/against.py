"""The report of two revisions of the same manifests: nothing is deployed or queried, and no file is left.

The old side is planned first, as if no address were held, then the new side as if the old one were deployed: so
Services that keep their address on a host keep it here, and only real changes show.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Settings, SettingsError
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import BACKEND_VARIABLE, Project, load_config, load_project
from locallb.model.identities import Home
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.programs.git import Revision
from locallb.report.assemble import assembled
from locallb.report.changes import Report
from locallb.report.sides import planned_side
from locallb.sources import SourceError
from locallb.sources.configuration import stack_settings
from locallb.sources.hostless import holding, read_hostless
from locallb.sources.source import source_type
from locallb.storage.scratch import scratch

NEW = "the manifests"


class Tree(Struct, frozen=True):
    """A project's files at one moment: where they are, and the stack's settings there."""

    label: str
    root: Path
    settings: Settings
    own: bool = True
    """Whether the settings are its own, to be compared; not those of the new side for another directory."""


class _Old(Struct, frozen=True):
    """The old side: its plan, or a sentence why there is none."""

    label: str
    snapshot: Snapshot
    plan: Plan = field(default_factory=Plan)
    settings: Settings | None = None
    notices: tuple[str, ...] = ()


def report_against(directory: Path, stack: str, other: str) -> Report:
    """Compare the project in `directory` with `other`: a directory, or else a revision of its repository.

    Raises:
        ClientError: if `other` is neither, or can't be read.
        EngineError: if there is no such project or stack.
        SettingsError: if the stack's configuration can't be used.
        SourceError: if a source can't be read.

    """
    project = open_project(directory.resolve())
    home = Home(project.name, stack, str(project.root))
    settings = stack_settings(load_config(project, stack))
    with scratch(f"what {other} has") as made:
        nowhere = made / "readings"
        old = _old_side(project, settings, home, other, made)
        reading = read_hostless(home, settings, project.root, nowhere)
    snapshot = holding(reading.snapshot, old.plan)
    plan = make_plan(snapshot, settings)
    sides = (
        planned_side(old.label, old.snapshot, old.plan, hostless=True),
        planned_side(NEW, snapshot, plan, hostless=True),
    )
    report = assembled(sides, snapshot, settings, old_settings=old.settings)
    return replace(
        report,
        notices=(*old.notices, *report.notices, *reading.notices),
        complaints=reading.complaints,
    )


def open_project(root: Path) -> Project:
    """Open a project without its state, so it needs no backend."""
    return load_project(root, {**os.environ, BACKEND_VARIABLE: f"file://{quote(str(root))}"})


def _old_side(project: Project, settings: Settings, home: Home, other: str, made: Path) -> _Old:
    """Read and plan the old side; one that can't be used is empty and has the reason."""
    label, own = other, None
    try:
        if other and Path(other).is_dir():
            tree = _directory(other, settings, home.stack)
        else:
            revision = Revision.open(project.root, other)
            for path, _ in [source_type(source.type).tree(source) for source in settings.sources]:
                revision.within(path)
            label = f"{other} ({revision.commit[:10]})"
            tree = replace(_revision(revision, home.stack, made / "tree"), label=label)
        own = tree.settings if tree.own else None
        reading = read_hostless(home, tree.settings, tree.root, made / "readings")
    except (EngineError, SettingsError, SourceError) as error:
        why = " ".join(str(error).replace(str(made / "tree"), label).split())
        unread = (f"on the side of {label}: {why}; so everything counts as new",)
        return _Old(label, Snapshot(home), settings=own, notices=unread)
    notices = tuple(f"on the side of {label}: {complaint}" for complaint in reading.complaints)
    return _Old(label, reading.snapshot, make_plan(reading.snapshot, tree.settings), own, notices)


def _directory(other: str, settings: Settings, stack: str) -> Tree:
    """Take another directory for the project, or, if it is none, for the manifests of the only source."""
    root = Path(other).resolve()
    if (root / "Pulumi.yaml").exists():
        return Tree(other, root, stack_settings(load_config(open_project(root), stack)))
    if len(settings.sources) != 1:
        raise SourceError(
            f"{other} has no Pulumi.yaml, and the stack has {len(settings.sources)} sources; "
            "name a directory with the whole project"
        )
    source = source_type(settings.sources[0].type).elsewhere(settings.sources[0], root)
    return Tree(other, root, replace(settings, sources=(source,)), own=False)


def _revision(revision: Revision, stack: str, into: Path) -> Tree:
    """Write what a revision has of the project and its manifests below `into`."""
    root = into / revision.prefix
    root.mkdir(parents=True)
    revision.extract(["Pulumi.yaml"], ("Pulumi.yaml",), into)
    project = open_project(root)
    stack_file = os.path.relpath(project.stack_file(stack), root)
    revision.extract([stack_file], (f"Pulumi.{stack}.yaml",), into)
    settings = stack_settings(load_config(project, stack))
    for path, endings in [source_type(source.type).tree(source) for source in settings.sources]:
        revision.extract([path], endings, into)
    return Tree("", root, settings)
