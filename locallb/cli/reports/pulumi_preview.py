"""The report from the output of `pulumi preview --json`, for users of the official command line."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from locallb.cli.reports.against import open_project
from locallb.engine.state.project import load_config
from locallb.model.fields import object_of
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.naming import named_after
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.model.system_errors import refusal
from locallb.report.assemble import assembled
from locallb.report.changes import Report
from locallb.report.resources import Resource, deployed_side
from locallb.report.sides import Side
from locallb.sources import SourceError
from locallb.sources.configuration import stack_settings

OLD, NEW = "the stack's state", "pulumi preview"
_DELETES = frozenset({"delete", "discard", "read-discard"})
_REPLACED = frozenset({"create-replacement", "delete-replaced", "discard-replaced"})
"""Parts of a replacement, which has a step `replace` of its own."""
_QUIET = frozenset({"same", "read", "refresh"})
_WARNING = re.compile(r"(?:warning: )?(\w+): (.*)", re.DOTALL)
_SERVICE = re.compile(r"([^\s/]+)/([^\s/]+)/(\(no name\)|[^\s/:,]+)")


def report_from_pulumi(directory: Path, stack: str, path: Path) -> Report:
    """Make the report of a preview's document; the stack's configuration gives pools and policies.

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
    old = deployed_side(OLD, _states(steps, new=False))
    planned = deployed_side(NEW, _states(steps, new=True))
    warnings = [diagnostic for diagnostic in diagnostics if diagnostic.get("severity") == "warning"]
    new = _with_problems(planned, [str(diagnostic.get("message", "")) for diagnostic in warnings])
    errors = [
        " ".join(str(diagnostic.get("message", "")).split())
        for diagnostic in diagnostics
        if diagnostic.get("severity") == "error"
    ]
    report = assembled((old, new), snapshot, settings, touched=_touched(steps, (old, new)))
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


def _states(steps: list[dict[str, object]], *, new: bool) -> Iterator[Resource]:
    """Return the resources of one side, each once. A resource with only a refresh step stays unchanged."""
    states: dict[str, Resource] = {}
    for step in steps:
        urn, op = str(step.get("urn", "")), str(step.get("op"))
        state = step.get("newState" if new else "oldState")
        if new and op in _DELETES:
            states.pop(urn, None)
        elif isinstance(state, dict) and op not in _REPLACED and (new or urn not in states):
            states[urn] = Resource(str(state.get("type", "")), _name(urn), object_of(state.get("inputs")))
    yield from states.values()


def _touched(steps: list[dict[str, object]], sides: tuple[Side, Side]) -> Mapping[ObjectKey, set[str]]:
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
