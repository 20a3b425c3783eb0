"""The report as one JSON document, described by docs/preview-report.schema.json."""

from __future__ import annotations

import json
from collections.abc import Mapping

from locallb.model.identities import IPNetwork
from locallb.model.reasons import section
from locallb.report.changes import Change, Exposure, Narrowing, Report, SampleRequests, ServiceChange
from locallb.report.sides import Balancer
from locallb.report.wording import alerts, summary

VERSION = 1
"""Grows when a field changes its meaning or goes; new fields, topics and kinds may come at any time."""


def document(report: Report) -> str:
    """Write the report: the same bytes for the same report, nothing in it that a terminal acts on."""
    text = json.dumps(fields(report), indent=2, ensure_ascii=True)
    return text.replace("\x7f", "\\u007f") + "\n"


def fields(report: Report) -> Mapping[str, object]:
    return {
        "version": VERSION,
        "stack": report.stack,
        "old": report.old,
        "new": report.new,
        "summary": summary(report),
        "changes": report.changes,
        "counts": {str(change): report.count(change) for change in Change},
        "alerts": [{"topic": str(a.topic), "service": a.service, "message": a.message} for a in alerts(report)],
        "violations": [
            {"policy": str(each.gate), "message": each.message, "advisory": each.advisory} for each in report.violations
        ],
        "services": [_service(service) for service in report.services],
        "pools": [
            {"pool": r.pool, "family": str(r.family), "size": r.size, "used": r.used, "free": r.free}
            for r in report.rooms
        ],
        "settings": list(report.settings),
        "notices": list(report.notices),
        "complaints": list(report.complaints),
        "requests": _requests(report.requests),
    }


def _requests(requests: SampleRequests) -> Mapping[str, object]:
    moved = [{"request": each.request, "before": each.before, "after": each.after} for each in requests.moved]
    return {"compared": requests.compared, "moved": moved}


def _service(service: ServiceChange) -> Mapping[str, object]:
    return {
        **service.key._asdict(),
        "change": str(service.change),
        "before": _balancer(service.before),
        "after": _balancer(service.after),
        "problems": [
            {"reason": str(problem.reason), "message": problem.message, "help": section(problem.reason)}
            for problem in service.problems
        ],
        "differences": [
            {
                "what": str(difference.what),
                "port": difference.port,
                "before": list(difference.before),
                "after": list(difference.after),
            }
            for difference in service.differences
        ],
        "exposures": [_reach(exposure, "before", exposure.before) for exposure in service.exposures],
        "narrowings": [_reach(narrowing, "after", narrowing.after) for narrowing in service.narrowings],
    }


def _balancer(balancer: Balancer | None) -> Mapping[str, object] | None:
    if balancer is None:
        return None
    return {
        "addresses": [str(address) for address in balancer.addresses],
        "proxy": balancer.proxy,
        "ports": [
            {
                "port": port.number,
                "protocol": str(port.protocol),
                "mapped": port.mapped,
                "listens": [str(address) for address in port.listens],
                "sources": None if port.sources is None else [str(source) for source in port.sources],
                "backends": list(port.backends),
                "via": str(port.via or ""),
                "affinity": port.affinity,
                "reason": str(port.problem),
                "message": port.message,
                "help": section(port.problem) if port.problem else "",
            }
            for port in balancer.ports
        ],
    }


def _reach(reach: Exposure | Narrowing, existing: str, others: tuple[IPNetwork, ...]) -> Mapping[str, object]:
    """Write what became reachable, or no longer is; `existing` names the field for the other side's sources."""
    return {
        "kind": str(reach.kind),
        "ports": list(reach.ports),
        "addresses": [str(address) for address in reach.addresses],
        "sources": [str(network) for network in reach.sources],
        existing: [str(network) for network in others],
    }
