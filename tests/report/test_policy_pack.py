"""The policy pack of the examples judges as `local-lb:policies` does. Its package is stood in for: it needs none."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Policies, PortRange, Settings
from locallb.desired import desired
from locallb.model.desired import BALANCER
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from locallb.report.changes import Gate
from locallb.report.policies import planned_violations
from tests.support import strategies
from tests.support.stages import CHECKOUT

DIRECTORY = CHECKOUT / "examples/policies"
Policy = Callable[[Any, Callable[[str], None]], None]


def loaded() -> dict[str, Policy]:
    """Run the pack as the CLI does; return what it gives to the package, by its names."""
    package = ModuleType("pulumi_policy")
    for name in ("EnforcementLevel", "PolicyConfigSchema", "PolicyPack"):
        setattr(package, name, Mock())
    package.ResourceValidationPolicy = package.StackValidationPolicy = lambda *given: given  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pulumi_policy", package)
        runpy.run_path(str(DIRECTORY / "__main__.py"))
    policies = package.PolicyPack.call_args.kwargs["policies"]
    return {policy[0]: policy[2] for policy in policies}


PACK = loaded()


def judged(name: str, config: Mapping[str, object], *resources: tuple[str, Mapping[str, object]]) -> list[str]:
    """Return what one policy reports of load balancers."""
    reported: list[str] = []
    args = [
        SimpleNamespace(resource_type=BALANCER, name=name, props=props, get_config=lambda: config)
        for name, props in resources
    ]
    if name == "headroom":
        PACK[name](SimpleNamespace(resources=args, get_config=lambda: config), reported.append)
    for each in args if name != "headroom" else ():
        PACK[name](each, reported.append)
    return reported


@given(strategies.snapshots(), strategies.settings, st.sampled_from(["80", "80-443", "80/UDP", "1-65535/TCP"]))
def test_the_pack_finds_what_the_key_finds(snapshot: Snapshot, settings: Settings, rule: str) -> None:
    """Of ports; of ports that are open to everybody at least these, as it has the clients of all ports together."""
    numbers, _, protocol = rule.partition("/")
    first, _, last = numbers.partition("-")
    allowed = PortRange(int(first), int(last or first), protocol or None)  # type: ignore[arg-type]
    settings = replace(settings, policies=Policies(source_ranges_required=True, ports=(allowed,)))
    plan = make_plan(snapshot, settings)
    roots = [group.members[0] for group in desired(plan).groups]
    balancers = [(root.key.name, root.inputs) for root in roots if root.key.type == BALANCER]
    found = planned_violations(snapshot, plan, settings)
    ours = {gate: {each.message.partition(": ")[0] for each in found if each.gate is gate} for gate in Gate}
    assert {each.partition(": ")[0] for each in judged("ports", {"allowed": [rule]}, *balancers)} == ours[Gate.PORTS]
    assert {each.partition(": ")[0] for each in judged("source-ranges", {}, *balancers)} >= ours[Gate.SOURCE_RANGES]


WEB = ("c/shop/web", {"addresses": "127.77.0.5", "ports": "80/TCP, 53/UDP", "hostnames": "a.test, *"})


@pytest.mark.parametrize(
    ("name", "config", "sentences"),
    [
        ("address-changes", {"addresses": {"shop/web": ["127.77.0.5"]}}, 0),
        ("address-changes", {"addresses": {"c/shop/web": ["127.77.0.6"], "shop/other": ["127.77.0.7"]}}, 1),
        ("headroom", {"pools": {"p": {"addresses": ["127.77.0.4/31"], "free": "50%"}}}, 0),
        ("headroom", {"pools": {"p": {"addresses": ["127.77.0.4/31"], "free": 2}}}, 1),
        ("hostnames", {"allowed": ["*.test", "*"]}, 0),
        ("hostnames", {"allowed": ["*.test"]}, 1),
        ("tls", {}, 0),
    ],
)
def test_what_each_policy_is_configured_by(name: str, config: Mapping[str, object], sentences: int) -> None:
    """As the example's configuration has it."""
    assert len(judged(name, config, WEB)) == sentences


def test_a_port_without_tls_is_reported() -> None:
    """By its number."""
    (sentence,) = judged("tls", {}, (WEB[0], {**WEB[1], "withoutTls": "80/TCP"}))
    assert sentence.startswith("c/shop/web: 80/TCP takes requests without TLS")


def test_the_example_configures_every_policy() -> None:
    """By the names that the pack has."""
    assert json.loads((DIRECTORY / "policies.json").read_text()).keys() == PACK.keys()
