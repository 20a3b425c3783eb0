"""The rights of local-lb in a cluster, as the manifests of deploy/ give them."""

from __future__ import annotations

from typing import Any

import yaml

from locallb.storage.paths import shipped


def documents(manifest: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all(shipped(f"deploy/{manifest}").read_text(encoding="utf-8")))


def roles_of(manifest: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each role of a manifest, by its name."""
    return {each["metadata"]["name"]: each["rules"] for each in documents(manifest) if "rules" in each}


def bound_in(manifest: str) -> set[str]:
    """Return the names of ClusterRoles that a manifest binds."""
    return {each["roleRef"]["name"] for each in documents(manifest) if each["kind"] == "ClusterRoleBinding"}


def rules_for_gateways() -> list[dict[str, Any]]:
    """Return all rules that serving Gateways takes, of any namespace."""
    return [rule for rules in roles_of("rbac-gateways.yaml").values() for rule in rules]
