"""Several components of a program: one configuration, and addresses that no two of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.settings import Settings, SettingsError
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, ObjectKind, Owner
from locallb.model.objects import Service, ServicePort
from locallb.model.snapshot import Claim, Snapshot
from locallb.planning.plan import make_plan
from locallb.report.policies import planned_violations
from locallb.sources import SourceError, program_arguments
from locallb.sources.program_arguments import Stated, settings
from locallb.sources.snapshot import ReadingAndPlan, SnapshotResult, next_to
from tests.support import strategies
from tests.support.strategies import HOME

NAMES = ("a", "b", "c")
Part = tuple[tuple[Service, ...], Settings]
Addresses = Mapping[ObjectKey, set[IPAddress]]


@st.composite
def parts(draw: st.DrawFn, name: str) -> Part:
    """Draw what a component serves: Services of a cluster of its own, and pools that are another one's as well."""
    keys = st.builds(
        ObjectKey,
        st.just(ClusterName(name)),
        st.sampled_from(["shop", "team"]),
        st.sampled_from([*"xyz"]),
        st.just(ObjectKind.SERVICE),
    )
    drawn = draw(st.lists(strategies.services(keys), max_size=4, unique_by=lambda service: service.key))
    return tuple(drawn), Settings((), draw(strategies.pool_lists))


programs = st.dictionaries(st.sampled_from(NAMES), st.none()).flatmap(
    lambda names: st.fixed_dictionaries({name: parts(name) for name in names})
)


def planned(program: Mapping[str, Part], order: Sequence[str], claims: Sequence[Claim] = ()) -> Addresses:
    """Plan the components one after the other."""
    others: list[ReadingAndPlan] = []
    for name in order:
        services, configured = program[name]
        snapshot = next_to(Snapshot(HOME, services, claims=tuple(claims), remembered=tuple(claims)), others)
        others.append((SnapshotResult(snapshot), make_plan(snapshot, configured)))
    return {each.key: {*each.addresses} for _, plan in others for each in plan.placements}


def held(program: Mapping[str, Part], addresses: Addresses) -> list[Claim]:
    """Return the claims of what serves."""
    owners = {service.key: service.uid for services, _ in program.values() for service in services}
    return [Claim(address, Owner(HOME, key, owners[key])) for key, some in addresses.items() for address in some]


def alone(addresses: Addresses) -> bool:
    """Return whether no address is in two components; within one, Services may share one."""
    having = Counter(address for each in {key.cluster for key in addresses} for address in _of(addresses, each))
    return max(having.values(), default=1) == 1


def _of(addresses: Addresses, cluster: ClusterName) -> set[IPAddress]:
    return {address for key, some in addresses.items() if key.cluster == cluster for address in some}


@given(programs, st.randoms(use_true_random=False), st.data())
def test_components_never_choose_one_address(program: dict[str, Part], random: Any, data: st.DataObject) -> None:  # noqa: ANN401 - a Random
    """In whichever order they plan; where one is removed or changed, the others keep what they have."""
    order = sorted(program)
    random.shuffle(order)
    first = planned(program, order)
    assert alone(first)
    if not program:
        return
    one = data.draw(st.sampled_from(order))
    later = {name: part for name, part in program.items() if name != one}
    if data.draw(st.booleans()):
        later[one] = data.draw(parts(one))
    order = sorted(later)
    random.shuffle(order)
    second = planned(later, order, held(program, first))
    assert alone(second)
    assert {key: some & second.get(key, set()) for key, some in first.items() if key.cluster != one} == {
        key: some for key, some in first.items() if key.cluster != one
    }


def manifests(name: str, **more: object) -> dict[str, object]:
    return {"sources": [{"manifests": name, "name": name}], **more}


ROOM = {"headroom": 2}
OWN = [{"name": "p", "addresses": ["127.9.0.0/28"]}]


def test_one_configuration_has_the_sources_of_all() -> None:
    """Pools are everybody's where all have the same ones, and otherwise for the clusters of whose they are."""
    same = settings({"a": manifests("x", pools=OWN), "b": manifests("y", pools=OWN)}, HOME)
    assert [source.cluster for source in same.sources] == ["x", "y"]
    assert [(pool.name, pool.clusters) for pool in same.pools] == [("p", frozenset())]
    apart = settings({"a": manifests("x", pools=OWN), "b": manifests("y", pins={"n/s": ["127.77.0.5"]})}, HOME)
    assert [(pool.name, pool.clusters) for pool in apart.pools] == [
        ("a/p", frozenset({"x"})),
        ("b/default", frozenset({"y"})),
    ]
    assert list(apart.pins) == ["n/s"]


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (manifests("x", metrics="127.0.0.1:1"), manifests("y"), "differ in metrics, of which a stack has one"),
        (manifests("x"), manifests("x"), "both have the source x: leave it to one of them"),
        (
            manifests("x", pins={"n/s": ["127.77.0.5"]}),
            manifests("y", pins={"n/s": ["127.77.0.6"]}),
            "both have a pin for n/s",
        ),
        (manifests("x", proxies="shared"), manifests("y", proxies="shared"), "can't share proxies"),
        (
            manifests("x", dns={"zones": [{"zone": "test", "embedded": True}]}),
            manifests("y", dns={"zones": [{"zone": "test", "embedded": True}]}),
            "can't share an embedded name server: make it one component",
        ),
        (manifests("x", localhost=True), manifests("y", localhost=True), "can't share the names below localhost"),
        ({"sources": [{"kind": ["k"]}], "pools": OWN}, manifests("y"), "LoadBalancers 'a' finds its clusters"),
    ],
)
def test_what_is_no_one_configuration_is_one_sentence(
    first: dict[str, object], second: dict[str, object], sentence: str
) -> None:
    """With the components' names, the key, and the remedy."""
    with pytest.raises(SettingsError) as refused:
        settings({"a": first, "b": second}, HOME)
    assert sentence in str(refused.value)


def test_headroom_counts_what_all_components_have() -> None:
    """A pool of two addresses, of which each component takes one, has none free."""
    planned_parts: list[ReadingAndPlan] = []
    wanted = settings({"a": manifests("x", pools=[{"name": "p", "addresses": ["127.9.0.0/31"]}], policies=ROOM)}, HOME)
    for name, free in (("a", 1), ("b", 0)):
        key = ObjectKey(ClusterName(name), "n", "s")
        snapshot = next_to(Snapshot(HOME, (Service(key, (ServicePort(80, node_port=30080),)),)), planned_parts)
        plan = make_plan(snapshot, wanted)
        others = {placement.key for _, plan in planned_parts for placement in plan.placements}
        (violation,) = planned_violations(snapshot, plan, wanted, others)
        assert f"{free} of its 2 IPv4 addresses stay free" in violation.message
        planned_parts.append((SnapshotResult(snapshot), plan))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return HOME._replace(root=str(tmp_path))


def test_what_components_said_is_written_and_read(home: Home) -> None:
    """By their names; a component that the last run didn't reach counts as long as the state has it."""
    said = Stated({"a": manifests("x")}, {"b": manifests("y"), "c": manifests("z")})
    program_arguments.write(home, said)
    assert program_arguments.read(home) == said
    assert (said.of("a"), said.of("b"), said.of("d")) == (manifests("x"), manifests("y"), None)
    assert list(said.existing(["a", "c"], home)) == ["c", "a"]
    program_arguments.forget_former(home)
    assert program_arguments.read(home) == Stated({"a": manifests("x")})


def test_a_renamed_component_is_one() -> None:
    """Where the run that renamed it broke off, the state still has the earlier name; what another lacks is kept."""
    whole = Stated({"new": manifests("x", metrics="127.0.0.1:1")}, {"old": manifests("x")})
    assert list(whole.existing(["new", "old"], HOME)) == ["new"]
    both = {"sources": [*({"manifests": name, "name": name} for name in "xy")]}
    assert list(Stated({"new": manifests("x")}, {"old": both}).existing(["new", "old"], HOME)) == ["old", "new"]


def test_the_format_of_one_component_is_read(home: Home) -> None:
    """Whatever the component's name is, that was what it said."""
    program_arguments.write(home, Stated())
    path = program_arguments.file_of(home)
    path.write_text('{"format": 1, "configuration": {"sources": []}}')
    stated = program_arguments.read(home)
    assert stated
    assert stated.of("any") == {"sources": []}
    path.write_text('{"format": 3}')
    with pytest.raises(SourceError, match="its format is 3"):
        program_arguments.read(home)
