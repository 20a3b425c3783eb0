"""The report of what `up` would do here: the stack's state on one side, the manifests on the other.

It uses the engine's own preview, so a resource that no longer exists shows although its declaration is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from locallb.cli.display.tree import QUIET
from locallb.cli.session import Session
from locallb.engine.core.events import Result, Severity
from locallb.model.identities import ObjectKey
from locallb.model.state_resource import BALANCER, PROXY
from locallb.planning.planned import Plan
from locallb.report.assemble import assembled
from locallb.report.changes import Report
from locallb.report.resources import Resource, deployed_side
from locallb.report.sides import Side, planned_side
from locallb.sources.snapshot import SnapshotResult

OLD, NEW = "the stack's state", "the manifests"


def report_live(session: Session, result: Result, reading: SnapshotResult, plan: Plan) -> Report:
    """Make the report of a preview that the engine has made."""
    resources = session.resources()
    old = deployed_side(
        OLD, (Resource(resource.type, resource.name, resource.inputs) for resource in resources if not resource.delete)
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
        subject = step.subject
        root = subject.name if subject.type in {BALANCER, PROXY} else subject.parent.rpartition("::")[2]
        if step.op not in QUIET and root in keys:
            operations[keys[root]].add(f"{subject.type.rpartition(':')[2]} {step.op.value}")
    return operations
