"""What would change, a line for each Service, Gateway or Ingress in its user's words; then resources of no such object.

Not here: resources with their properties, which `--diff` shows (`run_output`), and the comparison (`report.changes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from locallb.cli.console import Out
from locallb.cli.run_output import QUIET, print_tree
from locallb.cli.service_output import MAX_NAMES, print_causes
from locallb.dns.zones import is_wildcard
from locallb.engine.core.events import StepRecord
from locallb.model.desired import BALANCER, PROXY
from locallb.model.identities import ObjectKey
from locallb.model.texts import few
from locallb.planning.service_rows import NOT_DEPLOYED, Row, causes
from locallb.report.changes import QUIET as QUIET_CHANGES
from locallb.report.changes import Change, Report, ServiceChange, What, Wider
from locallb.report.wording import SIGNS, by_gravity, closed, differences, listed, removed, reported, summary, visible

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
        words = "; ".join(_words(service))
        out.line((f" {SIGNS[service.change]:<2} ", style), (visible(service.key.shown), "bold"), f"  {visible(words)}")
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


def _words(service: ServiceChange) -> Iterator[str]:
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
