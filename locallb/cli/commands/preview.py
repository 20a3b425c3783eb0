"""The command `preview`: the changes that `up` would make, by the stack's state, another revision, or Pulumi's preview.

They are shown as a line for each load balancer in its user's words and for resources of no such object, as a tree of
resources, or as a report. On a terminal a report has the most important changes first, then one line for each Service
that changes. The exit code is the result of the gates, whatever the format.

Not here: resources with their properties (`run_output`), the comparison (`report.changes`, `report.policies`), and
other formats (`report.markdown`, `report.html`).
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from locallb import safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, refuse
from locallb.cli.run_output import QUIET, Progress, print_tree, report_outcome, what_was_planned
from locallb.cli.service_output import MAX_NAMES, print_causes
from locallb.cli.session import Session
from locallb.cli.targets import scope_of
from locallb.config.settings import Settings, SettingsError
from locallb.dns.zones import is_wildcard
from locallb.engine.core.events import Result, Severity, StepRecord
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import BACKEND_VARIABLE, Project, load_config, load_project
from locallb.model.desired import BALANCER, PROXY
from locallb.model.errors import refusal
from locallb.model.fields import object_of
from locallb.model.http_requests import HttpRequest
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Place, Snapshot
from locallb.model.texts import few, named_after
from locallb.patterns import pattern
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.service_rows import NOT_DEPLOYED, Row, causes
from locallb.programs import Revision
from locallb.report.changes import QUIET as QUIET_CHANGES
from locallb.report.changes import Change, Report, ServiceChange, What, Wider
from locallb.report.deployed import DeployedResource, deployed_side
from locallb.report.policies import assembled
from locallb.report.requests import compared_requests, parse_requests
from locallb.report.sides import Side, planned_side
from locallb.report.wording import (
    SIGNS,
    Topic,
    alerts,
    by_gravity,
    closed,
    differences,
    listed,
    moved_request,
    removed,
    reported,
    requests_summary,
    summary,
    visible,
)
from locallb.sources import SourceError
from locallb.sources.configuration import stack_settings
from locallb.sources.snapshot import SnapshotResult, holding, read_hostless
from locallb.sources.source import source_type
from locallb.storage.files import scratch


def print_report(out: Out, report: Report) -> None:
    out.line((f"From {visible(report.old)} to {visible(report.new)} ({report.stack})", "bold"))
    _print_policies(out, report)
    print_changes(out, report)
    if report.requests.compared:
        out.line(requests_summary(report.requests))
        for change in report.requests.moved:
            out.line((" ~ ", "yellow"), (visible(change.request), "bold"), f"  {visible(moved_request(change))}")
    for notice in report.notices:
        out.line(("note: ", "dim"), visible(notice))


def _print_policies(out: Out, report: Report) -> None:
    """Print what policies forbid, unless it is printed as an error beside the report."""
    for alert in alerts(report) if not out.together else ():
        if alert.topic is Topic.POLICY:
            out.line(("! ", "bold red"), visible(alert.message))


FORMATS = {
    "markdown": "markdown:markdown",
    "json": "document:document",
    "html": "html:page",
    "github": "annotations:workflow_commands",
}
"""Modules of `report`, and their functions."""


def offline(args: Arguments, out: Out) -> int:
    """Compare without a stack's state, and print the report."""
    if args.from_pulumi is not None:
        report = report_from_pulumi(args.directory, args.stack, args.from_pulumi)
    else:
        report = report_against(args.directory, args.stack, args.against or "", args.requests)
    return report_to(report, args, out)


def report_to(report: Report, args: Arguments, out: Out) -> int:
    """Print the report in its format, and give the exit code."""
    if args.format == "github":
        report = replace(report, places=_places(args))
    if args.format in FORMATS:
        out.document(writer(args.format)(report))
    else:
        print_report(out, report)
    return verdict(report, args, out)


def _places(args: Arguments) -> Mapping[ObjectKey, Place]:
    """Return where objects of the new side are written, relative to the current directory; nothing outside of it."""
    project, here = open_project(args.directory.resolve()), os.path.realpath("")
    sources = stack_settings(load_config(project, args.stack)).sources
    places = {}
    for key, place in (each for one in sources for each in source_type(one.type).places(one, project.root).items()):
        file = os.path.relpath(os.path.realpath(place.file), here)
        if not file.startswith(os.pardir):
            places[key] = replace(place, file=file)
    return places


def writer(form: str) -> Callable[[Report], str]:
    """Load what writes a format: none needs another's modules."""
    module, _, function = FORMATS[form].partition(":")
    loaded: Callable[[Report], str] = getattr(import_module(f"locallb.report.{module}"), function)
    return loaded


def verdict(report: Report, args: Arguments, out: Out) -> int:
    """Print what is wrong and return the exit code: for unreadable sources, then policies, then changes."""
    for complaint in report.complaints:
        out.error(visible(complaint))
    refused = refuse(report.violations, out)
    if report.complaints:
        return Exit.FAILED
    if args.expect_no_changes and report.changes and not refused:
        out.error("no changes were expected, but there are changes")
        return Exit.CHANGES
    return refused


OLD, NEW = "the stack's state", "the manifests"


def report_live(session: Session, result: Result, reading: SnapshotResult, plan: Plan) -> Report:
    """Make the report of a preview that the engine has made, from the stack's state to the manifests.

    The engine's own preview counts, so a resource that no longer exists shows although its declaration is the same.
    """
    resources = session.resources()
    old = deployed_side(
        OLD,
        (
            DeployedResource(resource.type, resource.name, resource.inputs)
            for resource in resources
            if not resource.delete
        ),
    )
    new = planned_side(NEW, reading.snapshot, plan)
    report = assembled((old, new), reading.snapshot, session.settings, touched=_touched(result, old, new))
    failures = tuple(diagnostic.message for diagnostic in result.diagnostics if diagnostic.severity is Severity.ERROR)
    complaints = tuple(dict.fromkeys((*reading.complaints, *failures)))
    return replace(report, notices=(*report.notices, *reading.notices), complaints=complaints)


def _touched(result: Result, old: Side, new: Side) -> Mapping[ObjectKey, set[str]]:
    """Find the resources that would change, by the Service that owns their load balancer or proxy."""
    keys = {str(key): key for key in (*old.balancers, *new.balancers)}
    operations: dict[ObjectKey, set[str]] = defaultdict(set)
    for step in result.steps:
        root = root_name(step)
        if step.op not in QUIET and root in keys:
            operations[keys[root]].add(f"{step.subject.type.rpartition(':')[2]} {step.op.value}")
    return operations


NEW_REVISION = "the manifests"


class Tree(Struct, frozen=True):
    """A project's files at one moment: where they are, and the stack's settings there."""

    label: str
    root: Path
    settings: Settings
    own: bool = True
    """Whether the settings are its own, to be compared; not those of the new side for another directory."""


class OtherSide(Struct, frozen=True):
    """Another directory or a revision: its plan, or a sentence why there is none."""

    label: str
    snapshot: Snapshot
    plan: Plan = field(default_factory=Plan)
    settings: Settings | None = None
    problem: str = ""
    complaints: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """The sentences about it for a report of what differs from it."""
        unread = (f"{self.problem}; so everything counts as new",) if self.problem else ()
        return (*unread, *(f"on the side of {self.label}: {complaint}" for complaint in self.complaints))


def report_against(directory: Path, stack: str, other: str, requests: Path | None = None) -> Report:
    """Compare the project in `directory` with `other`: a directory, or else a revision of its repository.

    Nothing is deployed or queried, and no file is left. The old side is planned first, as if no address were held, then
    the new side as if the old one were deployed: so Services that keep their address on a host keep it here, and only
    real changes show. The `requests` in a file that go elsewhere are listed.

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
        old = other_side(project, settings, home, other, made)
        reading = read_hostless(home, settings, project.root, nowhere)
    snapshot = holding(reading.snapshot, old.plan)
    plan = make_plan(snapshot, settings)
    sides = (
        planned_side(old.label, old.snapshot, old.plan, hostless=True),
        planned_side(NEW_REVISION, snapshot, plan, hostless=True),
    )
    report = assembled(sides, snapshot, settings, old_settings=old.settings)
    if requests:
        report = replace(report, requests=compared_requests(old.plan, plan, sample_requests(requests)))
    return replace(
        report,
        notices=(*old.notices, *report.notices, *reading.notices),
        complaints=reading.complaints,
    )


def open_project(root: Path) -> Project:
    """Open a project without its state, so it needs no backend."""
    return load_project(root, {**os.environ, BACKEND_VARIABLE: f"file://{quote(str(root))}"})


_LARGEST = 1 << 20
"""Bytes of a file of requests."""


def sample_requests(path: Path) -> tuple[HttpRequest, ...]:
    """Read a file of requests. Raises SourceError."""
    try:
        return parse_requests(safe_files.read(path, _LARGEST).decode(), is_yaml=path.suffix in {".yaml", ".yml"})
    except UnicodeDecodeError:
        raise SourceError(f"{path} isn't a file of requests: it is no text in UTF-8") from None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {refusal(error)}; name a file of requests") from None
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from None


def other_side(project: Project, settings: Settings, home: Home, other: str, made: Path) -> OtherSide:
    """Read and plan another directory or a revision; what can't be used is empty and has the reason."""
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
        return OtherSide(label, Snapshot(home), settings=own, problem=f"on the side of {label}: {why}")
    plan = make_plan(reading.snapshot, tree.settings)
    return OtherSide(label, reading.snapshot, plan, own, complaints=reading.complaints)


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


DEPLOYED, PREVIEWED = "the stack's state", "pulumi preview"
_DELETES = frozenset({"delete", "discard", "read-discard"})
_REPLACED = frozenset({"create-replacement", "delete-replaced", "discard-replaced"})
"""Parts of a replacement, which has a step `replace` of its own."""
_QUIET = frozenset({"same", "read", "refresh"})
_WARNING = pattern(r"(?:warning: )?(\w+): (.*)", re.DOTALL)
_SERVICE = pattern(r"([^\s/]+)/([^\s/]+)/(\(no name\)|[^\s/:,]+)")


def report_from_pulumi(directory: Path, stack: str, path: Path) -> Report:
    """Make the report of a preview's document; the stack's configuration gives pools and policies.

    The document is the output of `pulumi preview --json`, for users of the official command line.

    Raises:
        SourceError: if the file isn't such a document.
        ClientError, EngineError, SettingsError: if the file, the project or the configuration can't be used.
    """
    project = open_project(directory.resolve())
    settings = stack_settings(load_config(project, stack))
    document = _document(path)
    steps = [step for step in _list(document.get("steps")) if isinstance(step, dict)]
    diagnostics = [entry for entry in _list(document.get("diagnostics")) if isinstance(entry, dict)]
    snapshot = Snapshot(Home(project.name, stack, str(project.root)))
    old = deployed_side(DEPLOYED, _states(steps, new=False))
    planned = deployed_side(PREVIEWED, _states(steps, new=True))
    warnings = [diagnostic for diagnostic in diagnostics if diagnostic.get("severity") == "warning"]
    new = _with_problems(planned, [str(diagnostic.get("message", "")) for diagnostic in warnings])
    errors = [
        " ".join(str(diagnostic.get("message", "")).split())
        for diagnostic in diagnostics
        if diagnostic.get("severity") == "error"
    ]
    report = assembled((old, new), snapshot, settings, touched=_previewed_roots(steps, (old, new)))
    return replace(report, complaints=tuple(dict.fromkeys(errors)))


def _document(path: Path) -> Mapping[str, object]:
    """Read what the user names, which may be a pipe. Raises SourceError."""
    try:
        document = json.loads(path.read_bytes().decode(errors="replace"))
    except FileNotFoundError:
        raise SourceError(f"{path} doesn't exist; make it with `pulumi preview --json > {path}`") from None
    except OSError as error:
        reported = f"{path} can't be read: {refusal(error)}"
        raise SourceError(f"{reported}; name a file that `pulumi preview --json` wrote") from None
    except (ValueError, RecursionError):
        document = {}
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        raise SourceError(f"{path} isn't what `pulumi preview --json` prints; make it again with that command")
    return document


def _states(steps: list[dict[str, object]], *, new: bool) -> Iterator[DeployedResource]:
    """Return the resources of one side, each once. A resource with only a refresh step stays unchanged."""
    states: dict[str, DeployedResource] = {}
    for step in steps:
        urn, op = str(step.get("urn", "")), str(step.get("op"))
        state = step.get("newState" if new else "oldState")
        if new and op in _DELETES:
            states.pop(urn, None)
        elif isinstance(state, dict) and op not in _REPLACED and (new or urn not in states):
            states[urn] = DeployedResource(str(state.get("type", "")), _name(urn), object_of(state.get("inputs")))
    yield from states.values()


def _previewed_roots(steps: list[dict[str, object]], sides: tuple[Side, Side]) -> Mapping[ObjectKey, set[str]]:
    """Find the resources that would change, by Service."""
    keys = {str(key): key for side in sides for key in side.balancers}
    operations: dict[ObjectKey, set[str]] = defaultdict(set)
    for step in steps:
        urn, op = str(step.get("urn", "")), str(step.get("op"))
        key = named_after(_name(urn), keys)
        if key is not None and op not in _QUIET | _REPLACED:
            kind = urn.rpartition("::")[0].rpartition(":")[2]
            operations[key].add(f"{kind} {op}")
    return operations


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _with_problems(side: Side, messages: list[str]) -> Side:
    """Take the warnings of the program for the rejections that they are; all others are notices."""
    rejections: dict[ObjectKey, tuple[Problem, ...]] = {}
    notices: list[str] = []
    for message in messages:
        match = _WARNING.fullmatch(message.strip())
        subject = _SERVICE.search(match[2]) if match else None
        if match and subject and match[1] in set(Reason):
            key = ObjectKey(ClusterName(subject[1]), subject[2], subject[3])
            rejections[key] = (*rejections.get(key, ()), Problem(Reason(match[1]), match[2]))
        elif message.startswith("warning: "):
            notices.append(" ".join(message.split()))
    return Side(side.label, side.balancers, rejections, tuple(notices))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def preview(session: Session, args: Arguments, out: Out) -> int:
    """Show what `up` would do."""
    session.settings  # noqa: B018 - a mistake in the configuration is told before anything else
    scope, handed = scope_of(session, args.targets, keep=False)
    silent, program = args.json or args.format != "tree", session.program(handed)
    with Progress(out, f"Previewing update ({session.stack})", silent=silent) as progress:
        result = program.preview(session.engine(progress.listen), scope)
    reading, plan = what_was_planned(session, program)
    report = report_live(session, result, reading, plan)
    if args.targets:  # policies are about whole stacks
        touched = tuple(each for each in report.services if any(root_name(s) == str(each.key) for s in result.steps))
        report = replace(report, services=touched, violations=())
    elif args.format != "tree":
        return Exit.INTERRUPTED if result.interrupted else report_to(report, args, out)
    if not args.json:
        _print_policies(out, report)
    shown = {service.key for service in report.services}

    def changes(table: Sequence[Row]) -> None:
        print_changes(out, report, result.steps, [row for row in table if not args.targets or row.key in shown])

    code = report_outcome(session, args, out, "preview", result, plan, changes=None if args.diff else changes)
    refused = refuse(report.violations, out)
    return refused or code if code in {Exit.OK, Exit.CHANGES} else code


STYLES = {
    Change.ADDED: "green",
    Change.CHANGED: "yellow",
    Change.REPAIRED: "yellow",
    Change.LOST: "bold red",
    Change.REMOVED: "red",
    Change.REJECTED: "red",
    Change.UNCHANGED: "dim",
}
WIDER_CLIENTS = frozenset({Wider.UNRESTRICTED, Wider.SOURCES})
"""Exposures that are said apart from the line of their Service: clients get access that they lacked before."""
_OF_ENGINE = "pulumi:"
"""What types begin with that no user declares."""


def root_name(step: StepRecord) -> str:
    """Return the name of the load balancer or proxy that a resource is or belongs to."""
    subject = step.subject
    return subject.name if subject.type in {BALANCER, PROXY} else subject.parent.rpartition("::")[2]


def print_changes(out: Out, report: Report, steps: Sequence[StepRecord] = (), table: Sequence[Row] = ()) -> None:
    """Print all changes, what isn't served by its causes, resources among `steps` of no object, and the summary.

    Of Services in the `table` that only the update deploys nothing more is said than what it changes.
    """
    services = [service for service in by_gravity(report) if service.change not in QUIET_CHANGES]
    for service in services:
        for exposure in service.exposures:
            if exposure.kind in WIDER_CLIENTS:
                out.line(("! ", "yellow"), visible(f"{service.key}: {reported(exposure)}"))
    for service in services:
        style = STYLES[service.change]
        phrases = "; ".join(_phrases(service))
        out.line(
            (f" {SIGNS[service.change]:<2} ", style), (visible(service.key.shown), "bold"), f"  {visible(phrases)}"
        )
    shown = {str(service.key) for service in services}
    others = [step for step in steps if root_name(step) not in shown and step.op not in QUIET]
    others = [step for step in others if not step.subject.type.startswith(_OF_ENGINE)]
    print_tree(out, others)
    planned, now = map(_problems, by_gravity(report)), map(_faults, table)
    print_causes(out, causes(chain.from_iterable(chain(planned, now))), coded=True)
    out.line("" if services or others else "Nothing to change. ", summary(report))


def _problems(service: ServiceChange) -> Iterator[tuple[ObjectKey, str, str]]:
    """Return why it isn't served, and why ports of one that changes aren't."""
    yield from ((service.key, str(problem.reason), problem.message) for problem in service.problems)
    for port in service.after.ports if service.after and service.change not in QUIET_CHANGES else ():
        if port.problem:
            yield service.key, port.problem, port.message


def _faults(row: Row) -> Iterator[tuple[ObjectKey, str, str]]:
    """Return what is wrong with it now, and what of it isn't served as written."""
    if row.reason != NOT_DEPLOYED:
        yield row.key, row.reason, row.message
    yield from ((row.key, notice.reason, notice.message) for notice in row.notices)


def _phrases(service: ServiceChange) -> Iterator[str]:
    """Return what becomes of a load balancer, before → after."""
    after = service.after
    if service.change is Change.ADDED and after:
        places = " ".join(map(str, after.addresses)) or "no address"
        yield f"new at {places}: {listed(port.label for port in after.ports)}"
        if after.names:
            names = (name.split()[0] for name in after.names)
            yield few(sorted(names, key=lambda name: (is_wildcard(name), name)), MAX_NAMES)
        if clients := {source for port in after.ports for source in port.sources or ()}:
            yield f"only for {listed(sorted(map(str, clients)))}"
    elif service.change is Change.REMOVED and service.before:
        yield removed(service.before)
    else:
        yield from _differences(service)
    yield from chain((str(problem.reason) for problem in service.problems), closed(service))


def _differences(service: ServiceChange) -> Iterator[str]:
    ports = [each for each in service.differences if each.what is What.PORT]
    removed, new = [each.port for each in ports if not each.after], [each.port for each in ports if not each.before]
    if not removed or not new:
        yield from differences(service)
        return
    yield f"{'port' if len(removed) == len(new) == 1 else 'ports'} {listed(removed)} → {listed(new)}"
    yield from differences(service, apart=ports)
