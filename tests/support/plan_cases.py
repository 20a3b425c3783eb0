"""Cases of golden plans: manifests and settings, and the plan of them."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.identities import ClusterName, Home
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement, Plan, PlannedPort
from tests.support.goldens import GOLDENS

CASES = ("chart", "dual-stack", "published", "shared", "shop", "straight", "traffic-local", "trouble")
HOME = Home("local-lb", "dev", "/project")


def planned(case: str) -> Plan:
    """Make the plan of a case from its manifests and settings."""
    directory = GOLDENS / "plan" / case
    parsed = parse_objects(ClusterName("c"), list(yaml.safe_load_all((directory / "manifests.yaml").read_text())))
    path = directory / "settings.yaml"
    given = yaml.safe_load(path.read_text()) if path.exists() else {}
    settings = parse_settings({"sources": [{"manifests": "manifests"}], **given})
    return make_plan(Snapshot(HOME, parsed.services, parsed.malformed, parsed.nodes, parsed.slices), settings)


def port_words(port: PlannedPort) -> Mapping[str, object]:
    """Write a planned port for a reader."""
    problem = {"reason": port.problem.reason, "message": port.problem.message} if port.problem else None
    return {"port": str(port.port), "listeners": [listener.name for listener in port.listeners], "problem": problem}


def placement_words(placement: Placement) -> Mapping[str, object]:
    return {
        "service": str(placement.key),
        "uid": placement.owner.uid,
        "addresses": [str(address) for address in placement.addresses],
        "ports": [port_words(port) for port in placement.ports],
        "probes": [probe.name for probe in placement.probes],
        **({"proxy": placement.proxy} if placement.part else {}),
    }
