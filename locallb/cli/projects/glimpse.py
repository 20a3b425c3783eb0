"""What a project's files say at a glance, for completion: names of stacks and load balancers. Never an error.

Not here: what they mean; the engine reads the same files with all their rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from locallb.cli.projects.place import PROJECT_FILE
from locallb.model.fields import at, object_of, text_of

_BALANCER = "$locallb:index:LoadBalancer::"
_LARGEST = 32 << 20
"""Bytes of a state that are read while somebody waits for a key."""


def stacks(project: Path) -> list[str]:
    """Return the stacks that have a configuration."""
    files = (project / str(_declared(project).get("stackConfigDir") or ".")).glob("Pulumi.*.yaml")
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in files)


def balancers(project: Path, stack: str) -> list[str]:
    """Return the load balancers that a stack's state has."""
    declared = _declared(project)
    url = text_of(at(declared, "backend", "url"))
    path = project / url.removeprefix("file://") / ".pulumi/stacks" / str(declared.get("name")) / f"{stack}.json"
    try:
        if path.stat().st_size > _LARGEST:
            return []
        resources = json.loads(path.read_bytes())["checkpoint"]["latest"]["resources"]
        urns = [str(resource["urn"]) for resource in resources]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return sorted(name for urn in urns for _, mark, name in [urn.partition(_BALANCER)] if mark)


def _declared(project: Path) -> Mapping[str, object]:
    try:
        declared = yaml.load((project / PROJECT_FILE).read_bytes(), yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return object_of(declared)
