"""Kubeconfigs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from locallb.model.identities import ContextName
from locallb.model.snapshot import Access

SERVER = "https://127.0.0.1:6443"


def written(path: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Access:
    """Write a kubeconfig with one context, `here`."""
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return Access(str(path), ContextName("here"))
