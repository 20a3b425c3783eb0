"""The manifests give the least rights, and the component for programs gives the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from locallb.gateway.kinds import KINDS
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from tests.support import rbac_manifests
from tests.support.rbac_manifests import bound_in, roles_of

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
import pulumi

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args):
        made.append({"type": args.typ, **args.inputs})
        return args.name, args.inputs

    def call(self, args):
        return {}

made = []
pulumi.runtime.set_mocks(Mocks())
from locallb.components.in_cluster import ClusterAccess

@pulumi.runtime.test
def declare():
    some = {"gateways": ["shop"], "ingresses": [], "pod_ranges": True, "watch_certificates": True}
    rights = {**some, "cluster_dns": True, "classes": True, "nodes": True}
    return ClusterAccess("local-lb", leader_election=True, **rights).account.metadata

declare()
print(json.dumps(made))
"""


OF_GROUP = "gateway.networking.k8s.io"
READING = {"get", "list", "watch"}


def documents(name: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in rbac_manifests.documents(name)}


def given(rules: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the verbs that rules give of each resource, with the names of the only objects."""
    verbs: dict[str, set[str]] = {}
    for rule in rules:
        ((group,), (resource,)) = rule["apiGroups"], rule["resources"]
        key = " ".join(filter(None, (group, resource, *rule.get("resourceNames", ()))))
        verbs.setdefault(key, set()).update(rule["verbs"])
    return verbs


def test_the_manifests_give_the_least_rights() -> None:
    """Serving everywhere, leases in one namespace only."""
    assert given(documents("rbac.yaml")["ClusterRole"]["rules"]) == {
        "services": READING,
        "services/status": {"patch"},
        "nodes": {"list", "watch"},
        "discovery.k8s.io endpointslices": {"list", "watch"},
        "events.k8s.io events": {"create"},
    }
    election = documents("rbac-leader-election.yaml")
    assert given(election["Role"]["rules"]) == {
        "coordination.k8s.io leases": {"create"},  # one to create has no name yet
        "coordination.k8s.io leases local-lb": {"get", "update"},
    }
    assert election.keys() == {"Role", "RoleBinding"}


def test_the_manifest_for_gateways_gives_the_least_rights() -> None:
    """No Secret or ConfigMap anywhere unless somebody binds those roles in a namespace, and then by name only."""
    roles = roles_of("rbac-gateways.yaml")
    everywhere = given(roles.pop("local-lb-gateways"))
    assert everywhere.pop("namespaces") == everywhere.pop(f"{OF_GROUP} referencegrants") == {"list", "watch"}
    assert {verb for kind, verbs in everywhere.items() if "/" in kind for verb in verbs} == {"patch"}
    assert all(kind.endswith("/status") for kind in everywhere if "/" in kind)
    assert all(verbs == READING for kind, verbs in everywhere.items() if "/" not in kind)
    served = {kind.removesuffix("/status") for kind in everywhere if "/" in kind}
    assert served == {kind for kind in everywhere if "/" not in kind}
    assert served == {f"{OF_GROUP} {kind.plural}" for kind in KINDS.values() if kind.name != "ReferenceGrant"}
    assert {name: given(rules) for name, rules in roles.items()} == {
        "local-lb-secrets": {"secrets": {"get"}},
        "local-lb-authorities": {"configmaps": {"get"}},
    }
    assert bound_in("rbac-gateways.yaml") == {"local-lb-gateways"}


def test_the_manifest_for_ingresses_gives_the_least_rights() -> None:
    """And likewise; the class in it is no default one."""
    assert {name: given(rules) for name, rules in roles_of("rbac-ingresses.yaml").items()} == {
        "local-lb-ingresses": {
            "networking.k8s.io ingressclasses": {"list", "watch"},
            "networking.k8s.io ingresses": READING,
            "networking.k8s.io ingresses/status": {"patch"},
        },
        "local-lb-secrets": {"secrets": {"get"}},
    }
    assert bound_in("rbac-ingresses.yaml") == {"local-lb-ingresses"}
    klass = documents("rbac-ingresses.yaml")["IngressClass"]
    assert klass["spec"] == {"controller": INGRESS_CONTROLLER}
    assert klass["metadata"] == {"name": "local-lb"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # New classes have no name yet; of existing ones only ours are changed and deleted.
        (
            "classes",
            {
                f"{OF_GROUP} gatewayclasses": {"create"},
                f"{OF_GROUP} gatewayclasses local-lb": {"get", "patch", "delete"},
                "networking.k8s.io ingressclasses": {"create"},
                "networking.k8s.io ingressclasses local-lb": {"get", "patch", "delete"},
            },
        ),
        ("nodes", {"nodes": {"get", "patch"}, "nodes/status": {"patch"}}),
        (
            "pod-ranges",
            {
                "crd.projectcalico.org blockaffinities": {"list", "watch"},
                "cilium.io ciliumnodes": {"list", "watch"},
            },
        ),
        ("relay", {"pods/portforward": {"create"}}),
    ],
)
def test_the_manifest_of_an_option_gives_the_least_rights(word: str, expected: dict[str, set[str]]) -> None:
    """Everywhere, and bound to local-lb."""
    name, manifest = f"local-lb-{word}", f"rbac-{word}.yaml"
    assert {role: given(rules) for role, rules in roles_of(manifest).items()} == {name: expected}
    assert bound_in(manifest) == {name}


def test_the_manifest_for_certificates_is_a_choice() -> None:
    """Nobody is given it with another file, nor anywhere unless somebody binds it."""
    (rules,) = roles_of("rbac-certificates.yaml").values()
    assert given(rules) == {"secrets": {"watch"}, "configmaps": {"watch"}}
    assert bound_in("rbac-certificates.yaml") == set()


def test_the_manifest_for_zones_in_clusters_gives_the_least_rights() -> None:
    """Two ConfigMaps by name, in one namespace."""
    found = documents("rbac-cluster-dns.yaml")
    assert given(found["Role"]["rules"]) == {"configmaps coredns coredns-custom": {"get", "patch"}}
    for kind in ("Role", "RoleBinding"):
        assert found[kind]["metadata"] == {"name": "local-lb-cluster-dns", "namespace": "kube-system"}
    assert found["RoleBinding"]["roleRef"]["name"] == "local-lb-cluster-dns"


def test_the_manifest_for_nodes_that_are_pods_gives_the_least_rights() -> None:
    """To list pods, and whether the namespace is there; in that one alone."""
    found = documents("rbac-machines.yaml")
    namespace = found["Role"]["metadata"]["namespace"]
    pods, present = found["Role"]["rules"]
    assert (pods["resources"], pods["verbs"]) == (["pods"], ["list"])
    assert (present["resources"], present["verbs"], present["resourceNames"]) == (["namespaces"], ["get"], [namespace])
    assert found["RoleBinding"]["metadata"] == found["Role"]["metadata"]
    assert found["RoleBinding"]["roleRef"]["kind"] == "Role"


def test_the_component_declares_what_the_manifests_have() -> None:
    """Same kinds, names, rules, bindings."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, cwd=CHECKOUT, timeout=120
    )
    items = [item for item in json.loads(done.stdout) if "kind" in item]
    made = {item["kind"]: item for item in items if item["metadata"]["name"] == "local-lb"}
    others = {(item["kind"], item["metadata"]["name"]): item for item in items if item not in made.values()}
    expected = documents("rbac.yaml") | documents("rbac-leader-election.yaml")
    assert made.keys() == expected.keys()
    for kind, document in expected.items():
        found = {key: value for key, value in made[kind].items() if key != "type"}
        assert found == document, kind
    roles: dict[str, Any] = {}
    bound: set[str] = set()
    for name in ("gateways", "ingresses", "classes", "nodes", "pod-ranges", "certificates"):
        manifest = f"rbac-{name}.yaml"
        roles, bound = roles | roles_of(manifest), bound | bound_in(manifest)
    assert {name: others.pop(("ClusterRole", name))["rules"] for name in roles} == roles
    assert {others.pop(("ClusterRoleBinding", name))["roleRef"]["name"] for name in bound} == bound
    of_dns = documents("rbac-cluster-dns.yaml")
    for kind, document in of_dns.items():
        found = others.pop((kind, "local-lb-cluster-dns"))
        assert {key: value for key, value in found.items() if key != "type"} == document
    readings = {reading["roleRef"]["name"]: reading for reading in others.values()}
    assert readings.keys() == {"local-lb-secrets", "local-lb-authorities", "local-lb-certificates"}
    for role, reading in readings.items():
        assert reading["metadata"] == {"name": role, "namespace": "shop"}
        assert reading["kind"] == "RoleBinding"
