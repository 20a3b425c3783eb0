"""What Pulumi gets is what is desired: every resource once, with its inputs, its parent and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from locallb.components.stack import declare
from locallb.desired import desired, exports
from locallb.engine.state.urns import make_urn, stack_urn
from locallb.model.desired import CONTAINER, Group, Ref, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from tests.desired.registered import OUTPUTS, Registered, plain, registered
from tests.support.desired_cases import CASES, plan_of


def urns_of(groups: tuple[Group, ...]) -> Mapping[ResourceKey, str]:
    stack = stack_urn("p", "s")
    found: dict[ResourceKey, str] = {}
    for group in groups:
        for resource in group.members:
            parent = found[resource.parent] if resource.parent else stack
            found[resource.key] = make_urn("s", "p", parent, *resource.key)
    return found


def resolved(value: Any, existing: Mapping[ResourceKey, Resource]) -> Any:  # noqa: ANN401 - JSON-like
    """Return a value with what the imagined engine gives in the place of references."""
    if isinstance(value, Ref):
        own = {**existing[value.key].inputs, **OUTPUTS, "id": f"id of {value.key.name}"}
        return resolved(value.value(*(own[name] for name in value.fields)), existing)
    if isinstance(value, Mapping):
        return {name: resolved(item, existing) for name, item in value.items()}
    return [resolved(item, existing) for item in value] if isinstance(value, list | tuple) else value


def check(made: Registered, groups: tuple[Group, ...]) -> None:
    """Compare what was registered with the data."""
    urns, existing = urns_of(groups), {each.key: each for group in groups for each in group.members}
    assert made.goals.keys() == {stack_urn("p", "s"), *urns.values()}
    for key, resource in existing.items():
        goal = made.goals[urns[key]]
        assert (goal.type, goal.name, goal.custom) == (*key, resource.outputs is None)
        assert goal.parent == (urns[resource.parent] if resource.parent else stack_urn("p", "s"))
        assert plain(goal.inputs) == plain(resolved(resource.inputs, existing))
        by_property = {
            name: tuple(sorted({urns[ref.key] for ref in Resource(key, {name: value}).references}))
            for name, value in resource.inputs.items()
        }
        assert {name: goal.property_dependencies.get(name, ()) for name in by_property} == by_property
        needed = {urns[other] for other in (*resource.needs, *resource.follows) if other in urns}
        assert set(goal.dependencies) == needed.union(*by_property.values())
        assert goal.version == ("5.2.0" if key.type == CONTAINER else "")
        assert made.outputs.get(urns[key]) == (
            None if resource.outputs is None else plain(resolved(resource.outputs, existing))
        )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("preview", [False, True])
def test_pulumi_gets_what_is_desired(case: str, preview: bool) -> None:  # noqa: FBT001 - a parameter
    """In previews as in updates, and the addresses as outputs of the stack."""
    plan = plan_of(case)
    made = registered(lambda: declare(plan), preview=preview)
    check(made, desired(plan).groups)
    assert made.outputs[stack_urn("p", "s")] == plain(exports(plan))
