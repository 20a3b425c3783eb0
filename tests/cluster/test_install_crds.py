"""`locallb gateway install-crds` on a real API: what it says, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from lightkube import Client

from locallb.gateway.crds import DEFINITION, carried, name_of
from locallb.kubernetes.api.discovery import MANAGER
from tests.cluster.installed_crds import BINDING, POLICY, definitions, install, is_removed, remove
from tests.support.cluster_gateways import CRD
from tests.support.conformance_cluster import CLASSES
from tests.support.control_plane import ControlPlane
from tests.support.schemas import mistakes
from tests.support.stages import Stage
from tests.support.waiting import becomes

pytestmark = pytest.mark.cluster
GATEWAYS = "gateways.gateway.networking.k8s.io"
ANNOTATION = "gateway.networking.k8s.io/bundle-version"
SCHEMA = Path(__file__).parents[2] / "docs/schemas/gateway-install-crds.schema.json"


@pytest.fixture
def owner(plane: ControlPlane) -> Iterator[Client]:
    """Return the owner of a cluster that has none of it, before and after."""
    with plane.client() as client:
        remove(client)
        yield client
        remove(client)


def present(client: Client) -> list[str]:
    """Return the definitions that are there, of Gateway API."""
    return [item["metadata"]["name"] for item in client.list(CRD) if item["metadata"]["name"] in definitions()]


def test_definitions_are_shown_then_installed_then_there(plane: ControlPlane, owner: Client, play: Stage) -> None:
    """Nothing is written before --yes; then each is served, managed by a name of our own; again nothing is to do."""
    shown = install(play, plane)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[-1] == "Nothing was changed. --yes does exactly this."
    assert [DEFINITION, GATEWAYS, "create"] in [line.split() for line in shown.out.splitlines()]
    assert present(owner) == []
    done = install(play, plane, "--yes")
    assert done.code == 0, done.err
    standard = {name_of(each) for each in carried().channels["standard"]}
    assert {(DEFINITION, name) for name in present(owner)} == {name for name in standard if name[0] == DEFINITION}
    managers = dict(owner.get(CRD, GATEWAYS))["metadata"]["managedFields"]
    assert [entry["manager"] for entry in managers if entry["operation"] == "Apply"] == [MANAGER]
    assert list(owner.list(CLASSES)) == []
    retry = install(play, plane, "--yes")
    assert (retry.code, retry.out) == (0, f"real has Gateway API {carried().version} (standard) already.\n")
    reported = install(play, plane, "--json")
    schema = json.loads(SCHEMA.read_text())
    assert list(mistakes(reported.json, schema, schema)) == []
    assert all(each["had"] == each["has"] for each in reported.json["objects"])


def annotate(client: Client, version: str, manager: str = MANAGER) -> None:
    """Have the Gateway's definition be of another release."""
    document = next(each for each in carried().channels["standard"] if name_of(each)[1] == GATEWAYS)
    stated = {**document["metadata"]["annotations"], ANNOTATION: version}
    changed = {**document, "metadata": {**document["metadata"], "annotations": stated}}
    client.apply(CRD.from_dict(changed), field_manager=manager, force=True)


def stated(client: Client) -> str:
    """Return of which release the Gateway's definition is."""
    return str(dict(client.get(CRD, GATEWAYS))["metadata"]["annotations"][ANNOTATION])


def test_an_earlier_release_is_brought_up_to_date_and_a_later_one_left(
    plane: ControlPlane, owner: Client, play: Stage
) -> None:
    """Beside a later one, nothing that lacks is installed either."""
    annotate(owner, "v1.6.1")
    assert "update from v1.6.1" in install(play, plane).out
    assert stated(owner) == "v1.6.1"
    assert install(play, plane, "--yes").code == 0
    assert stated(owner) == carried().version
    remove(owner)
    annotate(owner, "v1.99.0")
    done = install(play, plane, "--yes")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "newer than" in done.err
    assert present(owner) == [GATEWAYS]
    assert stated(owner) == "v1.99.0"


def test_install_crds_leaves_definitions_of_another_manager(plane: ControlPlane, owner: Client, play: Stage) -> None:
    """The one who does is named, before anything is written."""
    annotate(owner, "v1.6.1", "helm")
    done = install(play, plane, "--yes")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert '"helm"' in done.err
    assert "bring it up to date by what installed it" in done.err
    assert present(owner) == [GATEWAYS]
    assert stated(owner) == "v1.6.1"


def test_install_crds_refuses_another_channel_than_the_installed_one(
    plane: ControlPlane, owner: Client, play: Stage
) -> None:
    """Without --channel the cluster keeps the channel that it has."""
    assert install(play, plane, "--channel", "experimental", "--yes").code == 0
    assert sorted(present(owner)) == sorted(definitions())
    refused = install(play, plane, "--channel", "standard", "--yes")
    assert (refused.code, "say --channel experimental" in refused.err) == (1, True)
    assert install(play, plane).out == f"real has Gateway API {carried().version} (experimental) already.\n"


def test_install_crds_reports_an_admission_denial_before_writing_anything(
    plane: ControlPlane, owner: Client, play: Stage
) -> None:
    """The preview asks the API server, which applies its admission policies."""
    rule = {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "no definitions on Mondays"}],
    }
    owner.create(POLICY.from_dict({"metadata": {"name": "mondays"}, "spec": spec}))
    bound = {"policyName": "mondays", "validationActions": ["Deny"]}
    owner.create(BINDING.from_dict({"metadata": {"name": "mondays"}, "spec": bound}))
    try:
        becomes(lambda: "on Mondays" in install(play, plane).err, "the policy is in force")
        done = install(play, plane, "--yes")
        assert (done.code, len(done.err.splitlines())) == (1, 1)
        assert present(owner) == []
    finally:
        for kind in (BINDING, POLICY):
            becomes(partial(is_removed, owner, kind, "mondays"), "the policy is gone")


def test_install_crds_without_rights_names_the_rights_needed(plane: ControlPlane, owner: Client, play: Stage) -> None:
    """Local-lb's own rights don't do: its loop must not change what a cluster knows."""
    done = install(play, plane, "--yes", user="local-lb")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "name the --context of somebody who may write CustomResourceDefinitions" in done.err
    assert present(owner) == []
