"""Golden files of the whole way: manifests → plan → what Envoy and the API are told, and that Envoy takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from locallb.envoy.fragments import as_files
from locallb.kubernetes.status import differences, observed_status, publication
from locallb.planning.planned import Plan, PlannedProxy
from tests.support.deployed_plans import FOREIGN, deployed, in_cluster
from tests.support.envoy import quiet, validate
from tests.support.goldens import Golden
from tests.support.plan_cases import CASES, placement_words, planned

INPUTS = {"manifests.yaml", "settings.yaml"}


def outputs(plan: Plan) -> Mapping[str, str]:
    """Write the plan as one document, and each proxy's files beside it."""
    document = {
        "placements": [placement_words(placement) for placement in plan.placements],
        "proxies": [{"name": p.proxy.name, "id": p.proxy.id, "discovery": p.proxy.discovery} for p in plan.proxies],
        "rejections": [
            {"service": str(r.key), "reason": r.problem.reason, "message": r.problem.message} for r in plan.rejections
        ],
        "notices": list(plan.notices),
    }
    files = {
        f"{planned.owner.service.name}~{name}": text
        for planned in plan.proxies
        for name, text in planned.rendered.files.items()
    }
    parts = {
        f"{placement.key.name}~{name}": text
        for placement in plan.placements
        if placement.part
        for name, text in as_files(placement.part.rendered.listeners, placement.part.rendered.clusters).items()
    }
    with deployed(in_cluster(plan)) as (api, _engine):
        written = dict(sorted(api.written.items()))
    return {
        "plan.json": json.dumps(document, indent=2) + "\n",
        "api.json": json.dumps(written, indent=2) + "\n",
        **files,
        **parts,
    }


def whole(plan: Plan, proxy: PlannedProxy) -> Mapping[str, str]:
    """Return the files of a proxy, joined from its parts where it is the stack's."""
    rendered = [
        placement.part.rendered
        for placement in plan.placements
        if placement.part and placement.proxy == proxy.proxy.name
    ]
    listeners = {name: text for part in rendered for name, text in part.listeners.items()}
    clusters = {name: text for part in rendered for name, text in part.clusters.items()}
    return {**as_files(listeners, clusters), **proxy.rendered.files}


@pytest.mark.parametrize("case", CASES)
def test_written_statuses_leave_nothing_for_the_watch_to_repair(case: str) -> None:
    """And nothing of ours once they are withdrawn."""
    plan = in_cluster(planned(case))
    with deployed(plan) as (api, engine):
        for placement in plan.placements:
            stated = observed_status(api.services[placement.key.namespace, placement.key.name])
            assert stated.claimed
            assert differences(stated, (), publication(placement)) == ()
        for rejection in plan.rejections:
            if rejection.owner:
                stated = observed_status(api.services[rejection.key.namespace, rejection.key.name])
                assert differences(stated, (), publication(rejection)) == ()
        assert engine.destroy().ok
        for service in api.services.values():
            remaining = observed_status(service)
            assert ([entry.ip for entry in remaining.ingress], remaining.conditions, remaining.claimed) == (
                [FOREIGN],
                (),
                False,
            )


@pytest.mark.parametrize("case", CASES)
def test_manifests_lead_to_their_golden_plan_and_configuration(case: str, golden: Golden) -> None:
    """Plan and Envoy's files are those in tests/goldens/plan, byte for byte."""
    golden.check(f"plan/{case}", outputs(planned(case)), inputs=INPUTS)


def test_no_golden_plan_is_stale(golden: Golden) -> None:
    """Every directory of tests/goldens/plan belongs to a case."""
    golden.cases("plan", CASES)


@pytest.mark.envoy
@pytest.mark.parametrize("case", CASES)
def test_envoy_validates_what_every_golden_plan_says(case: str, tmp_path: Path) -> None:
    """`envoy --mode validate` accepts every proxy of the plan without a warning."""
    plan = planned(case)
    for number, proxy in enumerate(plan.proxies):
        directory = tmp_path / str(number)
        directory.mkdir()
        result = validate(directory, dict(whole(plan, proxy)))
        assert (result.returncode, quiet(result.stderr)) == (0, ""), (proxy.proxy.name, result.stdout)
