"""Golden files of what routes serve: manifests → plan → what Envoy and the API are told, and that Envoy takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.identities import ClusterName
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support.deployed_plans import ACCESS
from tests.support.envoy import quiet, validate
from tests.support.goldens import GOLDENS, Golden
from tests.support.plan_cases import HOME, placement_words

CASES = ("gateway", "ingress")
CLUSTER = ClusterName("c")


def planned(case: str, host: HostFacts = HostFacts()) -> Plan:  # noqa: B008 - frozen
    """Make the plan of a case, of a running cluster, whose objects have statuses."""
    documents = yaml.safe_load_all((GOLDENS / "routes" / case / "manifests.yaml").read_text())
    parsed = parse_objects(CLUSTER, list(documents))
    settings = parse_settings({"sources": [{"kubernetes": {"name": CLUSTER}}]})
    routed, access = parsed.gateway_api, {CLUSTER: ACCESS}
    snapshot = Snapshot(HOME, parsed.services, nodes=parsed.nodes, host=host, gateway_api=routed, access=access)
    return make_plan(snapshot, settings)


def outputs(plan: Plan) -> Mapping[str, str]:
    """Write the plan, the status of each object, and each proxy's files."""
    document = {
        "placements": [
            {**placement_words(placement), "routes": list(placement.routes)} for placement in plan.placements
        ],
        "news": [
            {
                "object": str(news.owner.service),
                "serving": news.serving,
                "refused": list(news.refused),
                "troubles": list(news.failures),
            }
            for placement in plan.placements
            for news in placement.news
        ],
        "notices": list(plan.notices),
    }
    statuses = {str(status.key): json.loads(status.status) for status in plan.all_statuses}
    files = {
        f"{planned.owner.service.name or 'ingresses'}~{name}": text
        for planned in plan.proxies
        for name, text in planned.rendered.files.items()
    }
    return {
        "plan.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        "statuses.json": json.dumps(statuses, indent=2) + "\n",
        **files,
    }


@pytest.mark.parametrize("case", CASES)
def test_routes_lead_to_their_golden_plan_configuration_and_statuses(case: str, golden: Golden) -> None:
    """All of it is in tests/goldens/routes, byte for byte."""
    golden.check(f"routes/{case}", outputs(planned(case)), inputs={"manifests.yaml"})


def test_no_golden_case_of_routes_is_stale(golden: Golden) -> None:
    """Every directory of tests/goldens/routes belongs to a case."""
    golden.cases("routes", CASES)


@pytest.mark.envoy
@pytest.mark.parametrize("host", [HostFacts(), HostFacts(watches=2)], ids=["files", "inline"])
@pytest.mark.parametrize("case", CASES)
def test_envoy_validates_the_golden_configuration_of_routes(case: str, host: HostFacts, tmp_path: Path) -> None:
    """`envoy --mode validate` accepts every proxy; without room for watched files, routes stand in the listeners."""
    for number, proxy in enumerate(planned(case, host).proxies):
        directory = tmp_path / str(number)
        directory.mkdir()
        result = validate(directory, proxy.rendered.files)
        assert (result.returncode, quiet(result.stderr)) == (0, ""), (proxy.proxy.name, result.stdout)
