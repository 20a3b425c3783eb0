"""Laws of who is served by which proxy, over histories of Services that come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import ProxySettings, Sharing
from locallb.model.identities import ClusterName, Home, ObjectKey, ObjectKind, ProxyName
from locallb.model.objects import Discovery, Service, ServicePort
from locallb.model.snapshot import HeldProxy, HeldProxyAssignment, HostFacts, Snapshot
from locallb.planning.proxy_assignment import (
    EACH,
    MAX_SHARED_LISTENERS,
    Need,
    ProxyAssignments,
    ProxyDemand,
    assign_proxies,
    assign_shared,
    sharing_services,
)

NAMES = "abcdefgh"
GATEWAYS = "ABCD"
"""Names of what is served by HTTP; the others are Services."""
HOME = Home("local-lb", "dev", "/project")
HISTORIES = st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=6)
"""Which Services there are, one set a run."""
SHARED = st.builds(ProxySettings, st.just(Sharing.SHARED), count=st.integers(1, 3))
GROWING = st.builds(ProxySettings, st.just(Sharing.SHARED), each=st.integers(1, 3))
SPARES = st.builds(ProxySettings, spares=st.integers(0, 3))
MIXED = st.lists(st.sets(st.sampled_from(NAMES[:4] + GATEWAYS)), min_size=1, max_size=6)
SPARED = SPARES | st.builds(ProxySettings, st.just(Sharing.SHARED), spares=st.integers(0, 3))
PLENTY = 1000


def key(name: str) -> ObjectKey:
    return ObjectKey(ClusterName("c"), "n", name, ObjectKind.GATEWAY if name in GATEWAYS else ObjectKind.SERVICE)


def service(name: str, ports: int = 1) -> Service:
    """Make a Service with so many ports; the letters are their age."""
    return Service(key(name), tuple(ServicePort(80 + number) for number in range(ports)), created=name)


@dataclass
class World:
    """What runs: the outcome of one plan is what the next one finds."""

    settings: ProxySettings
    watches: int = PLENTY
    many: Collection[str] = ()
    """Services with more listeners than a shared proxy takes."""
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(HOME))

    def plan(self, names: Iterable[str], *, narrow: bool = False) -> ProxyAssignments:
        snapshot = replace(self.snapshot, host=HostFacts(watches=self.watches))
        files = {key(name): 3 for name in names if name in GATEWAYS}
        ports = dict.fromkeys(self.many, MAX_SHARED_LISTENERS + 1)
        demands = [ProxyDemand.of(service(name, ports.get(name, 1))) for name in names]
        if narrow:
            sharing = sharing_services(snapshot.assignments, snapshot.proxies, files, self.settings.mode)
            demands = [each._replace(upstreams=0) if each.service in sharing else each for each in demands]
        return assign_proxies(demands, snapshot, self.settings, files)

    def run(self, names: Iterable[str]) -> ProxyAssignments:
        made = self.plan(names)
        self.snapshot = Snapshot(
            HOME,
            proxies=tuple(
                HeldProxy(key, assignment.discovery, 3)
                for key, assignment in made.assignments.items()
                if not assignment.in_part
            ),
            stack_proxies=(
                *made.proxies,
                *(assignment.proxy for assignment in made.assignments.values() if assignment.whole),
            ),
            http_proxies=made.http | {assignment.proxy for assignment in made.assignments.values() if assignment.whole},
            assignments=tuple(
                HeldProxyAssignment(key, assignment.proxy, whole=assignment.whole)
                for key, assignment in made.assignments.items()
                if assignment.proxy
            ),
        )
        return made


@given(HISTORIES, SHARED | GROWING | SPARES, st.integers())
def test_the_order_of_what_was_read_means_nothing(history: list[set[str]], settings: ProxySettings, seed: int) -> None:
    """Equal inputs in another order give the same assignments and the same proxies."""
    world, random = World(settings), Random(seed)
    for names in history:
        shuffled = sorted(names)
        random.shuffle(shuffled)
        assert world.plan(shuffled) == world.plan(sorted(names))
        world.run(sorted(names))


@given(HISTORIES, SHARED | GROWING | SPARES)
def test_remaining_services_keep_their_proxy_when_others_come_or_go(
    history: list[set[str]], settings: ProxySettings
) -> None:
    """A Service of two runs is served by the same proxy in both."""
    world = World(settings)
    before = world.run(sorted(history[0]))
    for names in history[1:]:
        after = world.run(sorted(names))
        assert all(
            after.assignments[key] == assignment
            for key, assignment in before.assignments.items()
            if key in after.assignments
        )
        assert set(after.assignments) == {key(name) for name in names}
        before = after


@given(HISTORIES, SHARED | GROWING | SPARES)
def test_assignment_of_unchanged_services_is_a_fixpoint(history: list[set[str]], settings: ProxySettings) -> None:
    """The same Services again change nothing, not even a spare."""
    world = World(settings)
    for names in history:
        made = world.run(sorted(names))
        assert world.run(sorted(names)) == made


@given(HISTORIES, SPARES)
def test_a_spare_serves_one_service_and_is_replaced(history: list[set[str]], settings: ProxySettings) -> None:
    """As many wait as are wanted; none serves two, and none serves a second one after the first has gone."""
    world, served = World(settings), dict[ProxyName, ObjectKey]()
    for names in history:
        made = world.run(sorted(names))
        claimed = {assignment.proxy: key for key, assignment in made.assignments.items() if assignment.proxy}
        assert len(claimed) == sum(1 for assignment in made.assignments.values() if assignment.proxy)
        assert set(claimed) <= set(made.proxies)
        assert len(made.proxies) - len(claimed) == settings.spares
        before = {proxy: key for proxy, key in served.items() if proxy in made.proxies}
        assert all(claimed.get(proxy) == key for proxy, key in before.items())
        served = claimed


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from(NAMES), SPARES)
def test_a_newcomer_gets_a_waiting_spare_if_there_is_one(
    names: set[str], newcomer: str, settings: ProxySettings
) -> None:
    """It is served by a proxy that ran before; with none waiting it gets one of its own."""
    world = World(settings)
    before = world.run(sorted(names - {newcomer}))
    assignment = world.run(sorted(names | {newcomer})).assignments[key(newcomer)]
    assert (assignment.proxy in before.proxies) if settings.spares else (assignment.proxy == "")


@given(MIXED, SPARED | SHARED | GROWING, st.integers(0, 40), st.sets(st.sampled_from(NAMES)))
def test_ports_of_what_keeps_a_shared_proxy_decide_nothing(
    history: list[set[str]], settings: ProxySettings, watches: int, many: set[str]
) -> None:
    """So that a port that comes or goes assigns nothing anew."""
    world = World(settings, watches, many)
    for names in history:
        assert world.plan(sorted(names), narrow=True) == world.plan(sorted(names))
        world.run(sorted(names))


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), SHARED | GROWING, st.integers(0, 5))
def test_room_for_more_shared_proxies_than_there_are_to_be_changes_nothing(
    before: set[str], after: set[str], settings: ProxySettings, more: int
) -> None:
    """So that it is looked at only where it isn't there."""
    world = World(settings)
    world.run(sorted(before))
    keys = [key(name) for name in sorted(after)]
    given_all = assign_shared(keys, world.snapshot.assignments, settings, settings.count or len(keys) + 1)
    room = len(given_all.proxies) + more
    assert assign_shared(keys, world.snapshot.assignments, settings, room) == given_all


@given(st.sets(st.sampled_from(NAMES)), SHARED)
def test_services_are_spread_evenly_over_shared_proxies(names: set[str], settings: ProxySettings) -> None:
    """From nothing, no proxy has two more than another; all are there, used or not."""
    made = World(settings).run(sorted(names))
    load = Counter(assignment.proxy for assignment in made.assignments.values())
    assert made.proxies == tuple(f"shared-{number}" for number in range(1, settings.count + 1))
    assert max(load.values(), default=0) - min((load[name] for name in made.proxies), default=0) <= 1


@given(HISTORIES, GROWING)
def test_shared_proxies_grow_with_the_services_and_go_with_their_last(
    history: list[set[str]], settings: ProxySettings
) -> None:
    """None has more than it shall, none but the first is there without any; from nothing as few as it takes."""
    world = World(settings)
    for run, names in enumerate(history):
        made = world.run(sorted(names))
        load = Counter(assignment.proxy for assignment in made.assignments.values())
        assert max(load.values(), default=0) <= settings.each
        assert set(made.proxies) == (set(load) or {ProxyName("shared-1")})
        if not run:
            assert len(made.proxies) == max(1, -(-len(names) // settings.each))


@given(st.sets(st.sampled_from(NAMES), min_size=2), st.integers(1, 3), st.integers(1, 3))
def test_removing_the_proxy_count_moves_no_service(names: set[str], before: int, each: int) -> None:
    """However full the proxies are; a new Service gets a place in another one."""
    world = World(ProxySettings(Sharing.SHARED, count=before))
    old = world.run(sorted(names)).assignments
    world.settings = ProxySettings(Sharing.SHARED, each=each)
    made = world.run([*sorted(names), "z"])
    assert all(made.assignments[key] == assignment for key, assignment in old.items())
    load = Counter(assignment.proxy for assignment in made.assignments.values())
    assert load[made.assignments[key("z")].proxy] <= each


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 3))
def test_where_no_more_proxies_fit_the_present_ones_serve_all(names: set[str], fitting: int) -> None:
    """The bound gives way before a Service does."""
    made = World(ProxySettings(Sharing.SHARED, each=1), watches=fitting * EACH).run(sorted(names))
    assert set(made.assignments) == {key(name) for name in names}
    assert len(made.proxies) == min(fitting, len(names))


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 3), st.integers(1, 3))
def test_changed_proxy_count_moves_only_services_of_removed_proxies(names: set[str], before: int, after: int) -> None:
    """More proxies move no Service."""
    world = World(ProxySettings(Sharing.SHARED, count=before))
    old = world.run(sorted(names)).assignments
    world.settings = ProxySettings(Sharing.SHARED, count=after)
    made = world.run(sorted(names))
    assert all(
        made.assignments[key] == assignment for key, assignment in old.items() if assignment.proxy in made.proxies
    )
    assert {assignment.proxy for assignment in made.assignments.values()} <= set(made.proxies)


@given(st.sets(st.sampled_from(NAMES)), SHARED | GROWING | SPARES, st.integers(0, 40))
def test_a_plan_from_nothing_never_takes_more_instances_than_there_are(
    names: set[str], settings: ProxySettings, watches: int
) -> None:
    """Inotify instances of own proxies, shared ones and spares together; real Services come before spares."""
    made = World(settings, watches).run(sorted(names))
    own = [
        Need(key, 1).cost(assignment.discovery) for key, assignment in made.assignments.items() if not assignment.proxy
    ]
    assert EACH * len(made.proxies) + sum(own) <= watches
    if settings.mode is Sharing.PER_SERVICE:
        assert len(made.assignments) == min(len(names), watches // EACH)
    else:
        assert set(made.assignments) == ({key(name) for name in names} if watches >= EACH else set())


@pytest.mark.parametrize("spares", [0, 1])
def test_a_service_with_a_proxy_of_its_own_keeps_it(spares: int) -> None:
    """Spares are for those who come."""
    world = World(ProxySettings())
    world.run("ab")
    world.settings = ProxySettings(spares=spares)
    assert set(world.run("ab").assignments.values()) == {world.run("ab").assignments[key("a")]}
    assert world.run("ab").assignments[key("a")].proxy == ""
    assert world.run("ab").assignments[key("a")].discovery is Discovery.EDS


@given(MIXED, SPARED)
def test_gateways_and_services_keep_what_they_have_and_share_no_spare(
    history: list[set[str]], settings: ProxySettings
) -> None:
    """Whoever comes or goes; a Gateway has a spare whole, which serves nobody before or after; as many wait again."""
    world, used, before = World(settings), dict[ProxyName, ObjectKey](), ProxyAssignments({}, ())
    for names in history:
        made = world.run(sorted(names))
        assert set(made.assignments) == {key(name) for name in names}
        assert all(
            made.assignments[key] == assignment
            for key, assignment in before.assignments.items()
            if key in made.assignments
        )
        spares = {
            assignment.proxy: key
            for key, assignment in made.assignments.items()
            if assignment.proxy.startswith("spare")
        }
        assert all(used.get(proxy, key) == key for proxy, key in spares.items())
        assert all(made.assignments[key].whole is (key.kind is ObjectKind.GATEWAY) for key in spares.values())
        waiting = {name for name in made.proxies if name.startswith("spare")} - spares.keys()
        assert len(waiting) == settings.spares
        assert waiting <= made.http
        assert waiting.isdisjoint(used)
        assert world.run(sorted(names)) == made
        used, before = spares, made


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from(GATEWAYS), SPARED)
def test_a_gateway_takes_a_spare_that_waits(names: set[str], newcomer: str, settings: ProxySettings) -> None:
    """In both modes it is served by a proxy that ran before; with none waiting it gets one of its own."""
    world = World(settings)
    waiting = {name for name in world.run(sorted(names)).proxies if name.startswith("spare")}
    assignment = world.run([*sorted(names), newcomer]).assignments[key(newcomer)]
    assert (assignment.proxy in waiting and assignment.whole) if settings.spares else assignment.proxy == ""
    assert assignment.discovery is Discovery.EDS


@given(st.integers(1, 3), st.integers(1, 3))
def test_a_spare_of_an_earlier_version_is_for_services_only(old: int, services: int) -> None:
    """Its bootstrap lacks what HTTP needs and stays as it is; Services take those first."""
    world = World(ProxySettings(spares=old))
    held = world.run("").proxies
    world.snapshot = replace(world.snapshot, http_proxies=frozenset())
    assert world.run("").proxies == held
    assert world.run("").http == frozenset()
    made = world.run("A")
    assert (made.assignments[key("A")].proxy, made.proxies, made.http) == ("", held, frozenset())
    made = world.run(["A", *NAMES[:services]])
    assert {assignment.proxy for key, assignment in made.assignments.items() if assignment.proxy} == set(
        held[:services]
    )
    assert made.http == frozenset(made.proxies) - {*held}


@given(st.sets(st.sampled_from(NAMES + GATEWAYS)), SPARED, st.integers(0, 40))
def test_gateways_and_spares_stay_within_the_budget_too(names: set[str], settings: ProxySettings, watches: int) -> None:
    """From nothing, and when those that wait are taken."""
    world = World(settings, watches)
    for _ in range(2):
        made = world.run(sorted(names))
        own = [
            Need(key, 3 if key.kind is ObjectKind.GATEWAY else 1).cost(assignment.discovery)
            for key, assignment in made.assignments.items()
            if not assignment.in_part
        ]
        assert EACH * len(made.proxies) + sum(own) <= watches


@given(st.sets(st.sampled_from(NAMES + GATEWAYS)), st.integers(1, 3), st.integers(0, 60))
def test_started_spares_take_no_files_from_services(names: set[str], spares: int, watches: int) -> None:
    """Whatever number of instances there is, all are served just as without spares."""
    methods = [
        {
            key: assignment.discovery
            for key, assignment in World(settings, watches).run(sorted(names)).assignments.items()
        }
        for settings in (ProxySettings(), ProxySettings(spares=spares))
    ]
    assert methods[0] == methods[1]


@given(st.sampled_from(GATEWAYS), st.integers(0, 12))
def test_the_next_spare_waits_until_the_one_that_took_this_one_has_its_files(newcomer: str, watches: int) -> None:
    """A Gateway that takes the only one that waits is told by files as soon as there is room for those."""
    world = World(ProxySettings(spares=1), watches)
    waiting = world.run("").proxies
    made = world.run(newcomer)
    whole = Need(key(newcomer), 3)
    if waiting:
        fits = whole.cost(Discovery.EDS) <= watches
        assert made.assignments[key(newcomer)].discovery is (Discovery.EDS if fits else Discovery.STATIC)
    assert world.run(newcomer) == made


@given(HISTORIES, st.integers(1, 3), st.integers(1, 3), st.integers(0, 30))
@example([{"c", "d", "f", "h"}, {"g", "h"}, {"f"}], 3, 2, 9)
def test_spares_keep_no_service_from_a_shared_proxy(
    history: list[set[str]], spares: int, each: int, watches: int
) -> None:
    """Where instances are few they make room, in the next runs at the latest: the same are served as without them."""
    worlds = [
        World(ProxySettings(Sharing.SHARED, each=each, spares=number, logs=True), watches) for number in (0, spares)
    ]
    for names in history:
        with_none, with_some = [[world.run(sorted(names)) for _ in range(3)][-1] for world in worlds]
        assert with_some.assignments.keys() == with_none.assignments.keys()


@given(HISTORIES, SHARED | GROWING, st.integers(0, 2), st.sets(st.sampled_from(NAMES)))
def test_a_new_service_with_many_listeners_shares_no_proxy(
    history: list[set[str]], settings: ProxySettings, spares: int, many: set[str]
) -> None:
    """It has a proxy of its own, or a spare, as long as it is there; the others share theirs as without it."""
    world, without = (World(replace(settings, spares=spares), many=many) for _ in range(2))
    before = ProxyAssignments({}, ())
    for names in history:
        made, others = world.run(sorted(names)), without.run(sorted(names - many)).assignments
        shared = {key for key, assignment in made.assignments.items() if assignment.proxy.startswith("shared")}
        assert shared == {key(name) for name in names - many}
        assert all(made.assignments[key].proxy == others[key].proxy for key in shared)
        assert all(
            made.assignments[key] == assignment
            for key, assignment in before.assignments.items()
            if key in made.assignments
        )
        assert world.run(sorted(names)) == made
        before = made


@given(
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(NAMES)),
    SHARED | GROWING,
)
def test_a_service_that_grows_or_shrinks_keeps_its_proxy(
    names: set[str], many: set[str], later: set[str], settings: ProxySettings
) -> None:
    """The number of listeners decides once, about a new Service."""
    world = World(settings, many=many)
    before = world.run(sorted(names)).assignments
    world.many = later
    assert {key: made.proxy for key, made in world.run(sorted(names)).assignments.items()} == {
        key: assignment.proxy for key, assignment in before.items()
    }


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), SHARED | GROWING, st.integers(0, 40))
def test_a_service_with_many_listeners_shares_a_proxy_where_no_other_fits(
    names: set[str], many: set[str], settings: ProxySettings, watches: int
) -> None:
    """Nobody goes unserved for it, and nothing takes more instances than there are."""
    made = World(settings, watches, many=many).run(sorted(names))
    assert set(made.assignments) == ({key(name) for name in names} if watches >= EACH else set())
    own = [assignment for assignment in made.assignments.values() if not assignment.proxy]
    costs = [Need(key("a"), MAX_SHARED_LISTENERS + 1).cost(assignment.discovery) for assignment in own]
    assert EACH * len(made.proxies) + sum(costs) <= watches
