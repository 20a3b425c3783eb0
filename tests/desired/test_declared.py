"""What Pulumi gets is what is desired: every resource once, with its inputs, its parent and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from components.groups import declare_groups
from components.stack import declare, declare_some
from locallb.desired.groups import Desired, desired
from locallb.desired.shown import exports
from locallb.engine.state.urns import make_urn, stack_urn
from locallb.model.desired import Group, Ref, Resource, ResourceKey
from locallb.model.identities import ObjectKey
from locallb.model.state_resource import CLUSTER_ROUTES, CONTAINER, POD_ROUTES, REACHABLE
from tests.desired.cases import CASES, plan_of
from tests.desired.registered import OUTPUTS, Registered, plain, registered


def urns_of(groups: tuple[Group, ...]) -> Mapping[ResourceKey, str]:
    """Return the URN of each resource."""
    stack = stack_urn("p", "s")
    found: dict[ResourceKey, str] = {}
    for group in groups:
        for resource in group.members:
            parent = found[resource.parent] if resource.parent else stack
            found[resource.key] = make_urn("s", "p", parent, *resource.key)
    return found


def resolved(value: Any, known: Mapping[ResourceKey, Resource]) -> Any:  # noqa: ANN401 - JSON-like
    """Return a value with what the imagined engine gives in the place of references."""
    if isinstance(value, Ref):
        own = {**known[value.key].inputs, **OUTPUTS, "id": f"id of {value.key.name}"}
        return resolved(value.value(*(own[name] for name in value.fields)), known)
    if isinstance(value, Mapping):
        return {name: resolved(item, known) for name, item in value.items()}
    return [resolved(item, known) for item in value] if isinstance(value, list | tuple) else value


def check(made: Registered, groups: tuple[Group, ...]) -> None:
    """Compare what was registered with the data."""
    urns, known = urns_of(groups), {each.key: each for group in groups for each in group.members}
    assert made.goals.keys() == {stack_urn("p", "s"), *urns.values()}
    for key, resource in known.items():
        goal = made.goals[urns[key]]
        assert (goal.type, goal.name, goal.custom) == (*key, resource.outputs is None)
        assert goal.parent == (urns[resource.parent] if resource.parent else stack_urn("p", "s"))
        assert plain(goal.inputs) == plain(resolved(resource.inputs, known))
        by_property = {
            name: tuple(sorted({urns[ref.key] for ref in Resource(key, {name: value}).references}))
            for name, value in resource.inputs.items()
        }
        assert {name: goal.property_dependencies.get(name, ()) for name in by_property} == by_property
        needed = {urns[other] for other in (*resource.needs, *resource.follows) if other in urns}
        assert set(goal.dependencies) == needed.union(*by_property.values())
        assert goal.version == ("5.2.0" if key.type == CONTAINER else "")
        assert made.outputs.get(urns[key]) == (
            None if resource.outputs is None else plain(resolved(resource.outputs, known))
        )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("preview", [False, True])
def test_pulumi_gets_what_is_desired(case: str, preview: bool) -> None:  # noqa: FBT001 - a parameter
    """In previews as in updates, and the addresses as outputs of the stack."""
    plan = plan_of(case)
    made = registered(lambda: declare(plan), preview=preview)
    check(made, desired(plan).groups)
    assert made.outputs[stack_urn("p", "s")] == plain(exports(plan))


@pytest.mark.parametrize("case", CASES)
def test_an_update_of_one_declares_what_it_refers_to(case: str) -> None:
    """And nothing else; routes of its cluster only where they exist."""
    wanted = desired(plan_of(case))
    for key in wanted.by_owner:
        groups = wanted.groups_of([key])
        assert {group.root for group in wanted.by_owner[key]} <= {group.root for group in groups}
        check(registered(lambda key=key: declare_some(wanted, [key], {}), preview=False), groups)  # type: ignore[misc]


def routes_among(wanted: Desired, groups: tuple[Group, ...]) -> set[ObjectKey]:
    """Return the owners of routes that are among groups."""
    return {
        key
        for key, own in wanted.by_owner.items()
        for group in own
        if group.root.type == CLUSTER_ROUTES and group in groups
    }


def test_a_load_balancer_follows_routes_that_exist_and_only_these() -> None:
    """Without them it isn't held up; its digest is the same, so that it isn't said to have what its state lacks."""
    wanted = desired(plan_of("plain; pods"))
    web, routes = ObjectKey.parse("demo/shop/a"), ObjectKey.parse("demo/pod-routes")
    (with_them, without) = wanted.groups_of([web], {routes}), wanted.groups_of([web])
    assert [routes_among(wanted, groups) for groups in (with_them, without)] == [{routes}, set()]
    for groups, count in ((with_them, 1), (without, 0)):
        made = registered(lambda groups=groups: declare_groups(groups), preview=False)  # type: ignore[misc]
        check(made, groups)
        (proof,) = (goal for goal in made.goals.values() if goal.type == REACHABLE)
        assert sum(f"{POD_ROUTES}::" in urn for urn in proof.dependencies) == count
    assert {group.digest for group in without} <= {group.digest for group in with_them}
