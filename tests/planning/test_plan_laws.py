"""Laws of the planner as a whole, for any snapshot and settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field
from msgspec.structs import replace

from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import PodRouting, ProxySettings, Settings, Sharing
from locallb.model.identities import ClusterName, Family, Home, NodeName, ObjectKey, Protocol
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, MalformedService, Node, Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Claim, HeldProxy, HostFacts, Snapshot, Socket
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support import strategies
from tests.support.strategies import shuffled

SNAPSHOTS = strategies.snapshots()
SETTINGS = st.builds(lambda drawn, mapped: replace(drawn, port_mapping=mapped), strategies.settings, st.booleans())
C = ClusterName("c")


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after the plan was carried out: claims and proxies are those of the plan."""
    others = tuple(claim for claim in snapshot.claims if claim.owner.home != snapshot.home)
    mine = tuple(Claim(address, p.owner, p.mapped) for p in plan.placements for address in p.addresses)
    proxies = tuple(HeldProxy(p.owner.service, p.proxy.discovery) for p in plan.proxies)
    return replace(snapshot, claims=(*others, *mine), remembered=mine, proxies=proxies)


@given(SNAPSHOTS, SETTINGS, st.integers())
def test_equal_inputs_in_any_order_give_equal_plans(snapshot: Snapshot, settings: Settings, seed: int) -> None:
    """The order in which objects were read means nothing; plans are equal to the byte."""
    assert make_plan(shuffled(snapshot, seed), settings) == make_plan(snapshot, settings)


@given(SNAPSHOTS, SETTINGS)
def test_a_plan_that_was_carried_out_is_a_fixpoint(snapshot: Snapshot, settings: Settings) -> None:
    """Planning again keeps every address, and once more changes nothing.

    The first time may add: what Services that are gone gave back, such as a second family's address.
    """
    first = make_plan(snapshot, settings)
    second = make_plan(applied(snapshot, first), settings)
    third = make_plan(applied(snapshot, second), settings)
    retained = {placement.key: set(placement.addresses) for placement in second.placements}
    assert all(set(placement.addresses) <= retained.get(placement.key, set()) for placement in first.placements)
    assert third == second


@st.composite
def mixtures(draw: st.DrawFn, first: Snapshot, second: Snapshot) -> Snapshot:
    """Take a snapshot with some fields of another, and with one of its Services a little different."""
    names = [field for field in Snapshot.__struct_fields__ if field != "home"]
    claimed = {name: getattr(second, name) for name in draw(st.sets(st.sampled_from(names)))}
    mixed = replace(first, **claimed)
    if not mixed.services or not second.services:
        return mixed
    place, donor = draw(st.integers(0, len(mixed.services) - 1)), draw(st.sampled_from(second.services))
    of_service = [field for field in Service.__struct_fields__ if field != "key"]
    given_up = {name: getattr(donor, name) for name in draw(st.sets(st.sampled_from(of_service), max_size=3))}
    services = list(mixed.services)
    services[place] = replace(services[place], **given_up)
    return replace(mixed, services=tuple(services))


@given(SNAPSHOTS, SNAPSHOTS, SETTINGS, SETTINGS, st.data())
def test_a_memory_changes_no_plan(
    first: Snapshot, second: Snapshot, settings: Settings, others: Settings, data: st.DataObject
) -> None:
    """Whatever changes from plan to plan, one made with the memory of the earlier ones is the one made without."""
    memory, snapshot = AnyMemo(), first
    for _ in range(4):
        plan = make_plan(snapshot, settings, memory)
        assert plan == make_plan(snapshot, settings)
        existing = applied(snapshot, plan) if data.draw(st.booleans()) else snapshot
        snapshot = data.draw(mixtures(existing, second))
        settings = data.draw(st.sampled_from((settings, others)))


@given(SNAPSHOTS, SNAPSHOTS, SETTINGS, st.data())
def test_few_changes_give_the_plan_of_all(
    first: Snapshot, second: Snapshot, settings: Settings, data: st.DataObject
) -> None:
    """Where a few Services or their backends change, the plan is the one that is made from nothing."""
    memory, snapshot = AnyMemo(), data.draw(strategies.with_pods(first))
    for _ in range(4):
        assert make_plan(snapshot, settings, memory) == make_plan(snapshot, settings)
        snapshot = data.draw(strategies.with_few_others(snapshot, second))


class Counted(Memo[Any]):
    """A memo that lists what it had to make: by name, rows by the name of all and the Service of each.

    Questions aren't listed: they are put together from indexes, and decide nothing.
    """

    made: list[object] = field(default_factory=list)
    name: Hashable = ""

    def of(self, key: Hashable, make: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401 - of any type
        def noted(*given: object) -> object:
            if make is Memo:
                return Counted(made=self.made, name=key)
            self.made.append(key)
            return make(*given)

        return super().of(key, noted, *given)

    def each(self, make: Callable[..., Any], *columns: Iterable[object]) -> tuple[Any, ...]:
        if self.name == "questions":
            return super().each(make, *columns)

        def noted(*row: Any) -> object:  # noqa: ANN401 - of any type
            of_row = getattr(row[0], "admitted", row[0])
            self.made.append((self.name, getattr(of_row, "service", of_row).key))
            return make(*row)

        return super().each(noted, *columns)


@pytest.mark.parametrize("mode", Sharing)
def test_one_changed_object_costs_what_it_alone_decides(mode: Sharing) -> None:
    """However many others there are: a port, pods, a Node of another cluster, sockets and watchers of others."""
    services = tuple(
        Service(ObjectKey(C, "n", f"s{number}"), (ServicePort(8080, node_port=30000 + number),)) for number in range(30)
    )
    slices = tuple(EndpointSlice(service.key, Family.IPV4, (EndpointPort(8080),)) for service in services)
    before = Snapshot(Home("p", "s", "/p"), services=services, slices=slices)
    settings, memo = Settings((), (DEFAULT_POOL,), proxies=ProxySettings(mode)), Counted()
    one = services[7]
    port = (*services[:7], replace(one, ports=(ServicePort(8081, node_port=30007),)), *services[8:])
    pods = (*slices[:7], replace(slices[7], endpoints=(Endpoint((ip_address("10.0.0.1"),)),)), *slices[8:])
    group = C, "" if mode is Sharing.PER_SERVICE else "shared-1"
    placed = {("placed", group), ("placed", one.key)}
    mine = {(what, one.key) for what in ("considered", "demands", "problems", "admitted")} | placed
    elsewhere = Node(ClusterName("other"), NodeName("n"), (ip_address("172.18.0.9"),))
    sockets = (Socket(ip_address("10.9.9.9"), 8080, Protocol.TCP), Socket(ip_address("::"), 5353, Protocol.UDP))
    of_nodes = {"eligible", ("routes", PodRouting.AUTO), "backends", ("world", C), "addresses of Nodes"}
    of_nodes |= {"decision", "addresses"}
    for after, costs in (
        (replace(before, services=port), mine),
        (replace(before, slices=pods), {"slices", "listed", *placed}),
        (replace(before, nodes=(elsewhere,)), of_nodes),
        (replace(before, host=HostFacts(watches=9000)), {"decision", "proxies"}),
    ):
        make_plan(before, settings, memo)
        memo.made.clear()
        assert make_plan(after, settings, memo) == make_plan(after, settings)
        assert {*memo.made} == costs
        assert len(memo.made) == len(costs)
    make_plan(before, settings, memo)
    memo.made.clear()
    make_plan(replace(before, host=HostFacts(sockets=sockets)), settings, memo)
    kinds = {made if isinstance(made, str) else made[0] for made in memo.made if isinstance(made, str | tuple)}
    assert kinds == {"everywhere", "ports", "problems", "decision", "listening", "rivals", "sockets"}


@pytest.mark.parametrize("mapped", [False, True])
def test_a_memory_saves_the_work_of_what_is_unchanged(*, mapped: bool) -> None:
    """A Service whose port changes is placed again, and its neighbour isn't."""
    ports = {"a": ServicePort(8080, node_port=30080), "b": ServicePort(9090, node_port=30090)}
    one, other = (Service(ObjectKey(C, "n", name), (port,)) for name, port in ports.items())
    snapshot = Snapshot(Home("p", "s", "/p"), services=(one, other))
    settings, memory = Settings((), (DEFAULT_POOL,), port_mapping=mapped), AnyMemo()
    before = make_plan(snapshot, settings, memory).placements
    changed = replace(snapshot, services=(replace(one, ports=(ServicePort(8081, node_port=30081),)), other))
    after = make_plan(changed, settings, memory).placements
    assert after[0].ports != before[0].ports
    assert after[1] is before[1]


@given(SNAPSHOTS, SETTINGS)
def test_every_service_of_ours_is_placed_or_rejected_and_never_both(snapshot: Snapshot, settings: Settings) -> None:
    """Nobody is forgotten."""
    plan = make_plan(snapshot, settings)
    ours = {s.key for s in snapshot.services if not s.deleting and s.load_balancer_class is None}
    reported = Counter([p.key for p in plan.placements] + [r.key for r in plan.rejections])
    assert all(count == 1 for count in reported.values())
    if settings.classes.default:
        assert ours <= set(reported)


@given(SNAPSHOTS, SETTINGS)
def test_no_two_listeners_want_the_same_place(snapshot: Snapshot, settings: Settings) -> None:
    """Address, port and protocol belong to one listener of one proxy; every listener has an upstream with backends."""
    plan = make_plan(snapshot, settings)
    listeners = [listener for p in plan.proxies for listener in p.proxy.listeners]
    assert len({listener.name for listener in listeners}) == len(listeners)
    for proxy in plan.proxies:
        full = {upstream.name for upstream in proxy.proxy.upstreams if upstream.backends}
        assert {listener.upstream for listener in proxy.proxy.listeners} <= full


@given(SNAPSHOTS, SETTINGS)
def test_malformed_service_changes_nothing_for_the_others(snapshot: Snapshot, settings: Settings) -> None:
    """It becomes a rejection of its own."""
    key = ObjectKey(strategies.CLUSTERS[0], "n", "malformed")
    bad = MalformedService(key, Problem(Reason.MALFORMED, "it is"))
    before, after = (
        make_plan(snapshot, settings),
        make_plan(replace(snapshot, malformed=(*snapshot.malformed, bad)), settings),
    )
    assert (before.placements, before.proxies) == (after.placements, after.proxies)
    assert {r.key for r in after.rejections} == {r.key for r in before.rejections} | {key}


@given(SNAPSHOTS, SETTINGS)
def test_a_host_without_room_rejects_and_never_raises(snapshot: Snapshot, settings: Settings) -> None:
    """No inotify instances: whoever could be placed says HostLimit."""
    plan = make_plan(replace(snapshot, host=HostFacts(watches=0)), settings)
    assert plan.placements == ()
    assert all(json.dumps(str(r.problem)) for r in plan.rejections)
