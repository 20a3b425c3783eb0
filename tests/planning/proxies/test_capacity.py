"""The budget of inotify instances, shared out among proxies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.objects import Discovery
from locallb.planning.proxy_assignment import Need, share_out


def key(number: int) -> ObjectKey:
    return ObjectKey(ClusterName("c"), "n", f"s{number:04}")


def needs(count: int, upstreams: int = 1) -> list[Need]:
    return [Need(key(n), upstreams) for n in range(count)]


NEEDS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([None, Discovery.EDS, Discovery.STATIC])), max_size=30
).map(lambda drawn: [Need(key(n), upstreams, held) for n, (upstreams, held) in enumerate(drawn)])
BUDGETS = st.integers(0, 150)


def spent(wanted: list[Need], budget: int) -> int:
    methods = share_out(wanted, budget)
    return sum(need.cost(methods[need.service]) for need in wanted if need.service in methods)


def test_forty_single_port_services_fit_the_default_limit_with_eds() -> None:
    """At 128 instances 40 Services of one port all learn endpoints by EDS."""
    assert share_out(needs(40), 128) == {key(n): Discovery.EDS for n in range(40)}


def test_beyond_that_the_later_ones_take_the_cheaper_way() -> None:
    """60 Services fit as well: what EDS would cost too much is static."""
    methods = share_out(needs(60), 128)
    assert len(methods) == 60
    assert [methods[key(n)] for n in range(60)] == [Discovery.EDS] * 8 + [Discovery.STATIC] * 52


def test_service_beyond_the_inotify_budget_gets_no_share() -> None:
    """The 65th of 65 gets no proxy."""
    assert set(share_out(needs(65), 128)) == {key(n) for n in range(64)}


def test_a_host_without_instances_runs_nothing() -> None:
    """No budget, no proxies."""
    assert share_out(needs(3), 0) == {}


@given(NEEDS, BUDGETS)
def test_the_budget_is_never_exceeded(wanted: list[Need], budget: int) -> None:
    """What is given out costs at most the budget."""
    assert spent(wanted, budget) <= budget


@given(NEEDS, BUDGETS)
def test_new_service_changes_no_running_proxy(wanted: list[Need], budget: int) -> None:
    """Once all run as decided, one more neighbour leaves every decision as it is."""
    before = share_out(wanted, budget)
    running = [Need(n.service, n.upstreams, before[n.service]) for n in wanted if n.service in before]
    after = share_out([Need(key(9999), 2), *running], budget)
    assert {n.service: after.get(n.service) for n in running} == dict(before)


@given(NEEDS, BUDGETS)
def test_proxy_is_left_out_only_if_not_even_the_cheapest_way_fits(wanted: list[Need], budget: int) -> None:
    """Beside those that run."""
    methods = share_out(wanted, budget)
    fixed = sum(
        n.cost(n.held or Discovery.STATIC) for n in wanted if n.service in methods and methods[n.service] == n.held
    )
    cheapest = fixed + sum(
        n.cost(Discovery.STATIC) for n in wanted if n.service in methods and methods[n.service] != n.held
    )
    left_out = [n for n in wanted if n.service not in methods]
    assert all(cheapest + n.cost(Discovery.STATIC) > budget for n in left_out)
