"""Laws of the desired state: it is whole, without circles, and the same whether earlier plans are known or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.desired import Desired, desired
from locallb.model.desired import ROOTS, Ref, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.identities import ContextName
from locallb.model.memory import AnyMemo
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.provider import KINDS
from locallb.resources.codec import decode
from tests.support import strategies
from tests.support.desired_cases import CASES, plan_of
from tests.support.goldens import Golden

_RETAINED = (
    "published",
    "shared",
    "plain; own",
    "plain; pods",
    "plain; mapped",
    "plain; routes in containers of Podman",
    "plain; zones",
    "Gateways; own",
    "certificates; own",
    "a spare for a Gateway; own",
    "no room; own",
    "classes; own",
    "withdrawn",
)
"""Cases with golden files."""
_SHOWN = 160
"""Characters of a text that a golden file shows."""


def resources_of(wanted: Desired) -> list[Resource]:
    return [resource for group in wanted.groups for resource in group.members]


def check(plan: Plan) -> None:
    """Check that each resource refers to desired ones, that none is desired twice, and that none waits for itself."""
    wanted = desired(plan)
    resources = resources_of(wanted)
    existing = {resource.key: resource for resource in resources}
    assert len(existing) == len(resources)
    for group in wanted.groups:
        assert [member.parent for member in group.members] == [None, *[group.root] * (len(group.members) - 1)]
        assert group.root.type in ROOTS
        assert (existing[group.root].outputs or {})["digest"] == group.digest
        for member in group.members:
            assert {*member.requirements, *(ref.key for ref in member.references), *member.follows} <= existing.keys()
    done: set[ResourceKey] = set()
    waiting = [*resources]
    while waiting:
        ready = [each for each in waiting if done.issuperset((*each.requirements, *each.follows))]
        assert ready, [str(each.key) for each in waiting]
        done.update(each.key for each in ready)
        waiting = [each for each in waiting if each.key not in done]


@pytest.mark.parametrize("case", CASES)
def test_what_a_resource_refers_to_is_desired_once_and_waits_for_nothing_of_it(case: str) -> None:
    """And what each owner comes to has a digest, but a proxy that its only load balancer counts as its own."""
    plan = plan_of(case)
    check(plan)
    wanted = desired(plan)
    assert wanted.digests.keys() == wanted.by_owner.keys()


@given(strategies.snapshots(), strategies.snapshots(), strategies.settings, st.data())
def test_desired_state_is_whole_and_forgets_nothing(
    first: Snapshot, second: Snapshot, settings: Settings, data: st.DataObject
) -> None:
    """Of every plan, one after the other, as of each alone."""
    access = {cluster: Access("/kubeconfig", ContextName(cluster)) for cluster in strategies.CLUSTERS}
    snapshot, planning, wanting = replace(data.draw(strategies.with_pods(first)), access=access), AnyMemo(), AnyMemo()
    for _ in range(3):
        plan = make_plan(snapshot, settings, planning)
        check(plan)
        existing, alone = desired(plan, wanting), desired(plan)
        assert (existing, [*existing.digests], [*existing.by_owner]) == (alone, [*alone.digests], [*alone.by_owner])
        snapshot = data.draw(strategies.with_few_others(snapshot, second))


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_those_of_the_providers_types(case: str) -> None:
    """With a text for each reference: none is missing or superfluous, and each is of its type."""
    for resource in resources_of(desired(plan_of(case))):
        kind = {f"locallb:index:{kind.__name__}": kind for kind in KINDS}.get(resource.key.type)
        if kind:
            decode(kind.inputs, msgspec.to_builtins(_with_texts(resource.inputs)))


def _with_texts(value: Any) -> Any:  # noqa: ANN401 - JSON-like
    if isinstance(value, Ref):
        return {"lds": "", "cds": ""} if value.fields == ("versions",) else "text"
    if isinstance(value, Mapping):
        return {name: _with_texts(item) for name, item in value.items()}
    return [_with_texts(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("case", _RETAINED)
def test_desired_state_is_as_it_was(case: str, golden: Golden) -> None:
    """Another digest updates the load balancer: a change here costs every user an update of everything."""
    wanted = desired(plan_of(case))
    document = {
        str(owner): [_spelled(member) for group in groups for member in group.members]
        for owner, groups in wanted.by_owner.items()
    }
    golden.check(f"desired/{_directory(case)}", {"desired.json": json.dumps(document, indent=1, sort_keys=True) + "\n"})


def test_no_golden_desired_state_is_stale(golden: Golden) -> None:
    """Each directory is a case."""
    golden.cases("desired", [*map(_directory, _RETAINED)])


def _directory(case: str) -> str:
    return case.replace("; ", "-").replace(", ", "-").replace(" ", "-")


def _spelled(resource: Resource) -> Mapping[str, Any]:
    """Write a resource for a reader; long texts are files of Envoy, which have golden files of their own."""
    inputs, outputs = (_shortened(msgspec.to_builtins(given)) for given in (resource.inputs, resource.outputs))
    after = {
        "needs": [" ".join(key) for key in resource.needs],
        "follows": [" ".join(key) for key in resource.follows],
        "outputs": outputs,
    }
    parent = {"parent": " ".join(resource.parent)} if resource.parent else {}
    return {
        "resource": " ".join(resource.key),
        "inputs": inputs,
        **parent,
        **{name: each for name, each in after.items() if each},
    }


def _shortened(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value
