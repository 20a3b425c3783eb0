"""Conditions in statuses of Gateway API's objects."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from locallb.gateway.parsing import SECRET_REFERENCE
from locallb.gateway.statuses import GatewayResult
from tests.support.gateway_objects import JsonObject

ADDRESS = ip_address("127.77.0.9")
SERVING = GatewayResult((ADDRESS,))


def conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


OK = {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs"), "Programmed": ("True", "Programmed")}


def stand_in(name: str, mark: Any, namespace: str = "shop", **spec: str) -> JsonObject:  # noqa: ANN401 - JSON
    """Make what stands for a Secret or a ConfigMap."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, **mark}


CERT = stand_in("cert", SECRET_REFERENCE, digest="ab" * 32)
