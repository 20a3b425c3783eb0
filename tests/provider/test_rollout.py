"""The order in which a running Envoy gets files: no listener ever lacks its cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.envoy.rollout import LONGEST_PAUSE, Pause, Remove, RolloutStep, Write, steps

Names = frozenset[str]
clusters = st.frozensets(st.sampled_from(["a", "b", "c", "d"]))
contents = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 1), max_size=4)


def files(served: Mapping[str, int], version: str) -> dict[str, str]:
    """Make the files of a proxy with a listener and a cluster for each name, in one of two variants."""
    lds = [{"name": name, "cluster": name} for name in sorted(served)]
    cds = [{"name": name, "variant": variant} for name, variant in sorted(served.items())]
    made: dict[str, Any] = {
        "bootstrap.json": {},
        "lds.json": {"version_info": f"l{version}", "resources": lds},
        "cds.json": {"version_info": f"c{version}", "resources": cds},
        **{f"eds-{name}.json": {"endpoint": variant} for name, variant in served.items()},
    }
    return {name: json.dumps(value) for name, value in made.items()}


def names(text: str) -> set[str]:
    """Read the names of a file's resources."""
    return {resource["name"] for resource in json.loads(text)["resources"]}


def sound(disk: Mapping[str, str]) -> bool:
    """Return whether every listener has its cluster, and every cluster its endpoints."""
    lds, cds = names(disk["lds.json"]), names(disk["cds.json"])
    return lds <= cds <= {name[4:-5] for name in disk if name.startswith("eds-")}


def _take(step: RolloutStep, disk: dict[str, str]) -> None:
    if isinstance(step, Write):
        disk[step.name] = step.text
    elif isinstance(step, Remove):
        del disk[step.name]


@settings(deadline=None)
@given(before=contents, after=contents)
def test_every_moment_of_a_change_is_sound(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """From any proxy to any other: sound after each step, and in the end what was wanted."""
    disk, wanted = files(before, json.dumps(before)), files(after, json.dumps(after))
    for step in steps(dict(disk), wanted):
        _take(step, disk)
        assert sound(disk)
    assert disk == wanted


@settings(deadline=None)
@given(
    present=st.dictionaries(st.sampled_from(["lds.json", "cds.json", "eds-a.json", "eds-x.json"]), st.text()),
    after=contents,
)
def test_damaged_and_foreign_files_are_overwritten(present: Mapping[str, str], after: Mapping[str, int]) -> None:
    """Damaged and foreign files don't keep the wanted ones from being written."""
    disk, wanted = dict(present), files(after, "1")
    for step in steps(present, wanted):
        _take(step, disk)
    assert disk == wanted


@settings(deadline=None)
@given(served=contents)
def test_unchanged_files_need_no_step(served: Mapping[str, int]) -> None:
    """No step for what is right already."""
    wanted = files(served, "1")
    assert list(steps(wanted, wanted)) == []


def test_a_port_exchanged_has_both_clusters_in_between() -> None:
    """The only case with an extra step; its version can't be taken for the wanted one."""
    claimed = list(steps(files({"a": 0}, "1"), files({"b": 0}, "2")))
    assert [(_name(step), step.version if isinstance(step, Write) else "") for step in claimed] == [
        ("eds-b.json", ""),
        ("cds.json", "c2+previous"),
        ("lds.json", "l2"),
        ("cds.json", "c2"),
        ("eds-a.json", ""),
    ]
    assert isinstance(claimed[-1], Remove)


def test_routes_never_lack_a_cluster() -> None:
    """Clusters that are new come before routes, those that go after Envoy has taken the routes; listeners stay."""
    table = "rds-0123456789ab.json"
    before, after = (files({name: 0}, version) for name, version in (("a", "1"), ("b", "2")))
    before |= {table: json.dumps({"version_info": "r1"})}
    after |= {table: json.dumps({"version_info": "r2"}), "lds.json": before["lds.json"]}
    after |= {"rds-ffffffffffff.json": json.dumps({"version_info": "new"})}
    claimed = [(_name(step), step.version if isinstance(step, Write) else "") for step in steps(before, after)]
    assert claimed == [
        ("eds-b.json", ""),
        ("cds.json", "c2+previous"),
        (table, "r2"),
        ("rds-ffffffffffff.json", ""),
        ("cds.json", "c2"),
        ("eds-a.json", ""),
    ]


@pytest.mark.parametrize(("delay", "pause"), [("0.500s", 0.75), ("2s", 2.25), ("3600s", LONGEST_PAUSE)])
def test_clusters_stay_while_requests_are_delayed_that_go_there(delay: str, pause: float) -> None:
    """Between the routes and the clusters that go: as long as the routes of before delay, within bounds."""
    table = "rds-0123456789ab.json"
    served = {table: json.dumps({"version_info": "r1", "routes": {"fixed_delay": delay}})}
    before, after = files({"a": 0}, "1") | served, files({"b": 0}, "2") | {table: json.dumps({"version_info": "r2"})}
    claimed = list(steps(before, after))
    assert [step for step in claimed if isinstance(step, Pause)] == [Pause(pause)]
    assert [_name(step) for step in claimed][-5:] == [table, "lds.json", "a pause", "cds.json", "eds-a.json"]


def test_clusters_stay_also_where_the_routes_go_with_their_listener() -> None:
    """Requests that are delayed are under way still."""
    table = "rds-0123456789ab.json"
    served = {table: json.dumps({"version_info": "r1", "routes": {"fixed_delay": "1s"}})}
    claimed = [_name(step) for step in steps(files({"a": 0, "b": 0}, "1") | served, files({"b": 0}, "2"))]
    assert claimed == ["lds.json", "a pause", "cds.json", "eds-a.json", table]


@settings(deadline=None)
@given(before=contents, after=contents, delayed=st.booleans())
def test_only_a_cluster_that_goes_is_paused_for(
    before: Mapping[str, int], after: Mapping[str, int], *, delayed: bool
) -> None:
    """Other changes of routes that delay are as fast as ever."""
    table = "rds-0123456789ab.json"
    routes = {"version_info": "r1", **({"fixed_delay": "1s"} if delayed else {})}
    present = files(before, "1") | {table: json.dumps(routes)}
    wanted = files(after, "2") | {table: json.dumps({"version_info": "r2"})}
    pauses = [step for step in steps(present, wanted) if isinstance(step, Pause)]
    assert bool(pauses) is (delayed and bool(before.keys() - after.keys()))


def test_new_clusters_are_waited_for_where_something_leads_to_them() -> None:
    """By name: neither those that were there, nor where clusters alone change."""
    before, after = files({"a": 0, "b": 0}, "1"), files({"b": 1, "c": 0}, "2")
    waited = [step.clusters for step in steps(before, after) if isinstance(step, Write)]
    assert [names for names in waited if names] == [{"c"}]
    unused = after | {"lds.json": before["lds.json"]}
    assert not any(step.clusters for step in steps(before, unused) if isinstance(step, Write))


def _name(step: RolloutStep) -> str:
    return "a pause" if isinstance(step, Pause) else step.name


def test_a_changed_backend_touches_its_file_only() -> None:
    """Endpoints change without listeners and clusters."""
    before, after = files({"a": 0}, "1"), files({"a": 0}, "1") | {"eds-a.json": "{}"}
    assert list(steps(before, after)) == [Write("eds-a.json", "{}")]
