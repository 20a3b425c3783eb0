"""What the loop sees of a Service that others changed: as the update that would repair it sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.kubernetes.status import FINALIZER, ObservedStatus, Published, observed_status, publication
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, ObjectKind, OwnerId
from locallb.model.memory import AnyMemo
from locallb.model.own_classes import WantedClass
from locallb.model.snapshot import Access, HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan, PlannedClass
from locallb.watch import converge
from locallb.watch.converge import Converger, OutputStamps
from locallb.watch.updates import Differences, Wanted
from tests.support import strategies
from tests.support.objects import DEMO, node, parsed, service
from tests.support.waiting import becomes

HOME = Home("p", "s", "/p")
CONFIGURED: Mapping[str, object] = {
    "sources": [{"kubernetes": {"name": "demo"}}],
    "pools": [{"name": "p", "addresses": ["127.77.0.0/28"]}],
}
SETTINGS = parse_settings(CONFIGURED)
THEIRS = {"ip": "172.18.0.9", "ipMode": "VIP"}
Object = dict[str, Any]


def plan_of(*objects: Object) -> Plan:
    read = parsed(*objects, node())
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    return make_plan(
        Snapshot(HOME, services=read.services, nodes=read.nodes, host=HostFacts(), access=access), SETTINGS
    )


def live(published: Published) -> Object:
    """Make a Service that says what was published, beside an entry and a condition of others."""
    (ours,) = published.conditions
    conditions = [{**asdict(ours), "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    ports = [{"port": 8080, "protocol": "TCP"}] if published.ingress else []
    entries = [{"ip": entry.ip, "ipMode": entry.mode, "ports": ports} for entry in published.ingress]
    return {
        "metadata": {"finalizers": [FINALIZER, "example.com/other"]},
        "status": {
            "loadBalancer": {"ingress": [*entries, THEIRS]},
            "conditions": [*conditions, {"type": "example.com/Fine", "status": "True"}],
        },
    }


def converger(plan: Plan) -> Converger:
    """Make one that has applied the plan."""
    made = Converger(HOME, cast("Engine", None))
    made.applied = dict(made.wanted(plan))
    return made


def differing(
    plan: Plan, stated: Mapping[ObjectKey, ObservedStatus], *stale: ClusterName
) -> Mapping[ObjectKey, object]:
    """Compare with what was applied long ago."""
    found, later = converger(plan).differing(stated, plan, stale, now=1000.0)
    assert later is None
    return found


def entries(stated: Object) -> list[Object]:
    listed: list[Object] = stated["status"]["loadBalancer"]["ingress"]
    return listed


def _drop_conditions(stated: Object) -> None:
    stated["status"]["conditions"] = []


def _port(stated: Object) -> None:
    entries(stated)[0]["ports"] = [{"port": 1, "protocol": "TCP"}]


TAMPERINGS: Mapping[str, tuple[Callable[[Object], object], tuple[str, ...]]] = {
    "nothing": (lambda _stated: None, ()),
    "its finalizer": (lambda stated: stated["metadata"]["finalizers"].remove(FINALIZER), ("finalizer",)),
    "its address": (lambda stated: entries(stated).pop(0), ("addresses",)),
    "its address for another": (lambda stated: entries(stated)[0].update(ip="127.77.0.99"), ("addresses",)),
    "its address, twice": (lambda stated: entries(stated).append(dict(entries(stated)[0])), ("addresses",)),
    "its ports": (_port, ("ports",)),
    "its ipMode": (lambda stated: entries(stated)[0].update(ipMode="VIP"), ("ipMode",)),
    "its condition": (lambda stated: stated["status"]["conditions"][0].update(status="False"), ("conditions",)),
    "all conditions": (_drop_conditions, ("conditions",)),
    "another entry": (lambda stated: entries(stated).pop(), ()),
    "the order of entries": (lambda stated: entries(stated).reverse(), ()),
    "a date": (lambda stated: stated["status"]["conditions"][0].update(lastTransitionTime="x"), ()),
    "another finalizer": (lambda stated: stated["metadata"]["finalizers"].remove("example.com/other"), ()),
    "everything": (dict.clear, ("finalizer", "addresses", "conditions")),
}
"""What somebody changes, and what of it is ours."""


@pytest.mark.parametrize("what", TAMPERINGS)
def test_only_changes_to_our_entries_count_as_differences(what: str) -> None:
    """An entry of somebody else may stay for ever; it costs nothing."""
    change, names = TAMPERINGS[what]
    plan = plan_of(service())
    stated = live(publication(plan.placements[0]))
    change(stated)
    assert differing(plan, {plan.placements[0].key: observed_status(stated)}) == (
        {plan.placements[0].key: names} if names else {}
    )


def test_entries_of_others_count_where_they_are_to_be_taken_over() -> None:
    """With takeOver they go."""
    settings = parse_settings({**CONFIGURED, "takeOver": True})
    read = parsed(service(), node())
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    plan = make_plan(Snapshot(HOME, services=read.services, nodes=read.nodes, access=access), settings)
    key, stated = plan.placements[0].key, live(publication(plan.placements[0]))
    assert differing(plan, {key: observed_status(stated)}) == {key: ("addresses",)}


def test_a_rejected_service_has_its_condition_too() -> None:
    """It isn't claimed and has no address: only what it is told is ours."""
    plan = plan_of(service(ports=[{"port": 7, "protocol": "SCTP", "nodePort": 30007}]))
    (rejection,) = plan.rejections
    stated = live(publication(rejection))
    stated["metadata"]["finalizers"] = []
    assert differing(plan, {rejection.key: observed_status(stated)}) == {}
    assert differing(plan, {}) == {rejection.key: ("conditions",)}


def test_no_difference_is_seen_in_a_source_that_cannot_be_read() -> None:
    """Its last content is no reason to write."""
    plan = plan_of(service())
    assert differing(plan, {}).keys() == {plan.placements[0].key}
    assert differing(plan, {}, DEMO) == {}


def test_unapplied_load_balancers_are_not_compared() -> None:
    """An update that is to come writes it anyway."""
    plan = plan_of(service())
    made = converger(plan)
    made.applied[plan.placements[0].key] = ""
    assert made.differing({}, plan, (), now=1000.0) == ({}, None)


def test_just_after_an_update_the_service_may_be_as_it_was() -> None:
    """The watch may tell of it a moment later: it is looked at again."""
    plan = plan_of(service())
    made = converger(plan)
    made._touched[plan.placements[0].key] = 999.5
    assert made.differing({}, plan, (), now=1000.0) == ({}, 1000.5)
    assert made.differing({}, plan, (), now=1000.5)[0].keys() == {plan.placements[0].key}


def test_unchanged_plan_costs_no_group_and_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pool is too small a thousand may be rejected, and each plan makes all rejections again."""
    some = [service(f"s{number}", ports=[{"port": 80, "nodePort": 30000 + number}]) for number in range(40)]
    first, second = plan_of(*some), plan_of(*some)
    assert first.rejections
    assert first.placements
    assert first.rejections == second.rejections
    assert first.rejections[0] is not second.rejections[0]
    made = converger(first)
    before = made.differing({}, first, (), now=1000.0)
    assert before[0].keys() == made.wanted(first).keys()
    monkeypatch.setattr("locallb.desired.rejection_group", lambda rejection: pytest.fail(str(rejection.key)))
    monkeypatch.setattr(
        "locallb.watch.updates.differences_of", lambda placement, _stated: pytest.fail(str(placement.key))
    )
    assert made.wanted(second) == made.applied
    assert made.differing({}, second, (), now=1000.0) == before


@given(strategies.snapshots(), strategies.snapshots(), strategies.settings, st.data())
def test_plan_after_plan_is_compared_as_each_alone(
    first: Snapshot, second: Snapshot, settings: Settings, data: st.DataObject
) -> None:
    """What is wanted, and what differs from what objects say, is the same for who knows the plans before."""
    access = {cluster: Access("/kubeconfig", ContextName(cluster)) for cluster in strategies.CLUSTERS}
    snapshot = replace(data.draw(strategies.with_pods(first)), access=access)
    memory, wanted, differences = AnyMemo(), Wanted(), Differences()
    for _ in range(4):
        plan, alone = make_plan(snapshot, settings, memory), Wanted()
        assert wanted.of(plan) == alone.of(plan)
        assert [*wanted.of(plan).digests] == [*alone.of(plan).digests]
        assert (wanted.spare, wanted.status_only, wanted.proxies) == (alone.spare, alone.status_only, alone.proxies)
        assert [*differences.of(plan, {})] == [*Differences().of(plan, {})]
        snapshot = data.draw(strategies.with_few_others(snapshot, second))


class Drifting:
    """An engine that finds one resource changed by others."""

    def __init__(self, name: str) -> None:
        self.name = name

    def state_stamp(self) -> int:
        return 0

    def drifted(self, _types: object, **_terms: object) -> list[str]:
        return [f"urn:pulumi:s::p::locallb:index:LoadBalancer$locallb:index:LoopbackAddress::{self.name}"]


@pytest.mark.parametrize("namespace", ["n", *ObjectKind])
def test_an_address_whose_claim_was_removed_leads_to_its_service(namespace: str) -> None:
    """Also where the namespace is called as a kind of objects is."""
    key = ObjectKey(DEMO, namespace, "web")
    converger = Converger(HOME, cast("Engine", Drifting(f"{key}/127.77.0.1")))
    converger.applied = {key: "digest"}
    assert converger.drifted(Plan()) == {key}
    converger._note_begun([key], {key: "other"}, refresh=False)
    assert converger.drifted(Plan()) == set(), "it differs by what is under way"


def test_an_output_whose_party_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as it was last, is asked once at a time, and its answer counts whenever it comes."""
    released, requested = threading.Event(), list[int]()

    def slow(_plan: Plan) -> object:
        requested.append(len(requested))
        released.wait()
        return len(requested)

    made = {"slow": SimpleNamespace(stamp=slow), "quick": SimpleNamespace(stamp=lambda _plan: "quick")}
    monkeypatch.setattr(converge, "outputs", lambda: made)
    stamps = OutputStamps()
    becomes(lambda: stamps.of(Plan()) == (None, "quick"))
    assert [stamps.of(Plan()) for _ in range(3)] == [(None, "quick")] * 3
    assert requested == [0]
    released.set()
    becomes(lambda: stamps.of(Plan())[0] is not None)


def test_an_output_that_fails_fails_the_pass_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kept it from telling may be over by then."""
    requested: list[Plan] = []

    def failing(plan: Plan) -> object:
        requested.append(plan)
        raise ClientError("it has no stamp")

    monkeypatch.setattr(converge, "outputs", lambda: {"failing": SimpleNamespace(stamp=failing)})
    monkeypatch.setattr(converge, "STAMP_TIMEOUT", 60.0)
    stamps = OutputStamps()
    for number in (1, 2):
        with pytest.raises(ClientError, match="it has no stamp"):
            stamps.of(Plan())
        assert len(requested) == number


def test_a_class_that_others_changed_is_repaired_where_that_is_known() -> None:
    """Not of a cluster that can't be read, nor one that no update made yet; the digest is the same."""
    wanted_class = WantedClass(ObjectKind.INGRESS_CLASS, OwnerId("local-lb-0"), ClusterName("demo"))
    fine = PlannedClass(DEMO, HOME, Access("/kubeconfig", ContextName("demo")), wanted_class)
    changed = Plan(classes=(replace(fine, differing=("existence",)),))
    assert converger(changed).applied == converger(Plan(classes=(fine,))).applied
    assert differing(Plan(classes=(fine,)), {}) == {}
    assert differing(changed, {}) == {fine.key: ("existence",)}
    assert differing(changed, {}, DEMO) == {}
    made = converger(changed)
    made.applied.clear()
    assert made.differing({}, changed, (), now=1000.0) == ({}, None)
