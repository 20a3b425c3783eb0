"""Objects as a cluster's etcd has them, read and put back with their uids: no API server lets a client choose those."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import httpx2

from tests.support.control_plane import ControlPlane

KINDS = ("/registry/services/specs/n/", "/registry/minions/")
"""Services and Nodes."""


def read_objects(plane: ControlPlane) -> Mapping[str, str]:
    """Return the stored Services and Nodes, in base64, by their keys."""
    objects: dict[str, str] = {}
    for kind in KINDS:
        found = _ask(plane, "range", key=_coded(kind), range_end=_coded(f"{kind[:-1]}0"))  # 0 comes after /
        objects |= {base64.b64decode(each["key"]).decode(): each["value"] for each in found.get("kvs", ())}
    return objects


def put_objects(plane: ControlPlane, objects: Mapping[str, str]) -> None:
    """Store objects; the API server hears of them as of any others."""
    for key, value in objects.items():
        _ask(plane, "put", key=_coded(key), value=value)


def _ask(plane: ControlPlane, verb: str, **body: str) -> Any:  # noqa: ANN401 - whatever etcd answers
    url = f"{plane.etcd_url}/v3/kv/{verb}"
    return httpx2.post(url, json=body, trust_env=False).raise_for_status().json()


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
