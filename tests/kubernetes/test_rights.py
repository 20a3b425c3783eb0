"""The rights are said three times, for the planner's readers, kubectl and Pulumi: they say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from locallb.kubernetes.rights import (
    AUTHORITY_RULES,
    CERTIFICATE_RULES,
    CLASS_RULES,
    CLUSTER_DNS_RULES,
    ELECTION_RULES,
    GATEWAY_RULES,
    INGRESS_RULES,
    NODE_RULES,
    RANGE_RULES,
    RELAY_RULES,
    RULES,
    SECRET_RULES,
    PolicyRule,
)
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER

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


def documents(name: str) -> dict[str, dict[str, Any]]:
    loaded = yaml.safe_load_all((CHECKOUT / "deploy" / name).read_text())
    return {document["kind"]: document for document in loaded}


def test_the_manifests_give_the_least_rights() -> None:
    """Serving everywhere, leases in one namespace only."""
    assert documents("rbac.yaml")["ClusterRole"]["rules"] == [rule.fields for rule in RULES]
    election = documents("rbac-leader-election.yaml")
    assert election["Role"]["rules"] == [rule.fields for rule in ELECTION_RULES]
    assert election.keys() == {"Role", "RoleBinding"}
    assert all(rule.names or rule.verbs == ("create",) for rule in ELECTION_RULES)


def test_the_manifest_for_gateways_gives_the_least_rights() -> None:
    """No Secret or ConfigMap anywhere unless somebody binds those roles in a namespace, and then by name only."""
    roles, bound = roles_of("rbac-gateways.yaml")
    assert roles == {
        "local-lb-gateways": fields(GATEWAY_RULES),
        "local-lb-secrets": fields(SECRET_RULES),
        "local-lb-authorities": fields(AUTHORITY_RULES),
    }
    assert bound == {"local-lb-gateways"}
    for kind in ("secrets", "configmaps"):
        assert not any(kind in rule["resources"] for rule in roles["local-lb-gateways"])


def test_the_manifest_for_ingresses_gives_the_least_rights() -> None:
    """And likewise; the class in it is no default one."""
    roles, bound = roles_of("rbac-ingresses.yaml")
    assert roles == {"local-lb-ingresses": fields(INGRESS_RULES), "local-lb-secrets": fields(SECRET_RULES)}
    assert bound == {"local-lb-ingresses"}
    klass = documents("rbac-ingresses.yaml")["IngressClass"]
    assert klass["spec"] == {"controller": INGRESS_CONTROLLER}
    assert klass["metadata"] == {"name": "local-lb"}


def test_the_manifest_for_classes_gives_the_least_rights() -> None:
    """New classes have no name yet; of existing ones only ours are changed and deleted."""
    roles, bound = roles_of("rbac-classes.yaml")
    assert (roles, bound) == ({"local-lb-classes": fields(CLASS_RULES)}, {"local-lb-classes"})
    assert all(rule.names == ("local-lb",) or rule.verbs == ("create",) for rule in CLASS_RULES)


def test_the_manifest_for_nodes_gives_the_least_rights() -> None:
    """Nodes are read and patched, and neither made nor deleted."""
    roles, bound = roles_of("rbac-nodes.yaml")
    assert (roles, bound) == ({"local-lb-nodes": fields(NODE_RULES)}, {"local-lb-nodes"})
    assert {verb for rule in NODE_RULES for verb in rule.verbs} == {"get", "patch"}


def test_the_manifest_for_certificates_is_a_choice() -> None:
    """Nobody is given it with another file, nor anywhere unless somebody binds it."""
    roles, bound = roles_of("rbac-certificates.yaml")
    assert (roles, bound) == ({"local-lb-certificates": fields(CERTIFICATE_RULES)}, set())
    assert {verb for rule in CERTIFICATE_RULES for verb in rule.verbs} == {"watch"}


def test_the_manifest_for_ranges_of_pods_gives_the_least_rights() -> None:
    """They are read and never written."""
    roles, bound = roles_of("rbac-pod-ranges.yaml")
    assert roles == {"local-lb-pod-ranges": fields(RANGE_RULES)}
    assert bound == {"local-lb-pod-ranges"}
    assert {verb for rule in RANGE_RULES for verb in rule.verbs} == {"list", "watch"}


def test_the_manifest_for_relays_gives_the_least_rights() -> None:
    """Connections to pods, and nothing of the pods themselves."""
    roles, bound = roles_of("rbac-relay.yaml")
    assert roles == {"local-lb-relay": fields(RELAY_RULES)}
    assert bound == {"local-lb-relay"}
    assert [(rule.resource, rule.verbs) for rule in RELAY_RULES] == [("pods/portforward", ("create",))]


def test_the_manifest_for_zones_in_clusters_gives_the_least_rights() -> None:
    """Two ConfigMaps by name, in one namespace."""
    found = documents("rbac-cluster-dns.yaml")
    assert found["Role"]["rules"] == fields(CLUSTER_DNS_RULES)
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


def fields(rules: tuple[PolicyRule, ...]) -> list[dict[str, list[str]]]:
    """Return rules as the API has them."""
    return [rule.fields for rule in rules]


def roles_of(name: str) -> tuple[dict[str, Any], set[str]]:
    """Return the rules of each role of a manifest, and which of them are bound."""
    loaded = list(yaml.safe_load_all((CHECKOUT / "deploy" / name).read_text()))
    roles = {one["metadata"]["name"]: one["rules"] for one in loaded if one["kind"] == "ClusterRole"}
    return roles, {one["roleRef"]["name"] for one in loaded if one["kind"] == "ClusterRoleBinding"}


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
        of_file, bound_there = roles_of(f"rbac-{name}.yaml")
        roles, bound = roles | of_file, bound | bound_there
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
