"""Laws of reports over random pairs of states: what a preview says is what the plan that `up` carries out declares."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.report.changes import QUIET, Change, Report, compare
from locallb.report.deployed import deployed_side
from locallb.report.document import document
from locallb.report.html import page
from locallb.report.markdown import markdown
from locallb.report.policies import assembled
from locallb.report.sides import Balancer, Side, planned_side
from locallb.report.wording import alerts
from locallb.sources.snapshot import holding
from tests.support import strategies
from tests.support.reports import declared, inputs_of
from tests.support.strategies import shuffled

FEW = settings(max_examples=40, deadline=None)
SETTINGS = strategies.settings


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """Draw two moments of one stack: Services that stay, change, come and go; hosts that differ."""
    old = draw(strategies.snapshots())
    retained = [service for service in old.services if draw(st.booleans())]
    edited = [draw(changed(service)) for service in retained]
    names = {service.key for service in edited}
    fresh = [service for service in draw(strategies.service_lists(4)) if service.key not in names]
    nodes = old.nodes if draw(st.booleans()) else ()
    return old, replace(old, services=(*edited, *fresh), nodes=nodes)


def changed(service: Service) -> st.SearchStrategy[Service]:
    """Draw what may become of a Service."""
    other = strategies.services(st.just(service.key))
    return st.one_of(
        st.just(service), st.builds(replace, st.just(service), ports=other.map(lambda service: service.ports)), other
    )


def planned(pair: tuple[Snapshot, Snapshot], config: Settings) -> tuple[Plan, Snapshot, Plan]:
    """Plan the old moment, and the new one as if the old were deployed."""
    plan = make_plan(pair[0], config)
    after = holding(pair[1], plan)
    return plan, after, make_plan(after, config)


def report_of(pair: tuple[Snapshot, Snapshot], config: Settings) -> Report:
    """Compare the state that the old plan leaves with the new plan."""
    plan, after, new = planned(pair, config)
    sides = (deployed_side("state", declared(plan)), planned_side("manifests", after, new))
    return assembled(sides, after, config)


@FEW
@given(pairs(), SETTINGS)
def test_the_change_of_every_service_is_what_up_would_do(pair: tuple[Snapshot, Snapshot], config: Settings) -> None:
    """Added, removed, changed and unchanged are exactly those whose declared resources are new, gone, other, equal."""
    plan, _, new = planned(pair, config)
    before, after = inputs_of(plan), inputs_of(new)
    for service in report_of(pair, config).services:
        was, now = before.get(str(service.key)), after.get(str(service.key))
        done = {
            Change.ADDED: was is None and now is not None,
            Change.REMOVED: was is not None and now is None,
            Change.LOST: was is not None and now is None,
            Change.CHANGED: was is not None and now is not None and was != now,
            Change.UNCHANGED: was == now,
            Change.REJECTED: was is None and now is None,
        }
        assert done[service.change], service


@FEW
@given(pairs(), SETTINGS)
def test_report_has_every_service_with_the_addresses_that_up_gives(
    pair: tuple[Snapshot, Snapshot], config: Settings
) -> None:
    """Each Service of either side has one row, with the old and the new addresses and every rejection."""
    plan, _, new = planned(pair, config)
    rows = {service.key: service for service in report_of(pair, config).services}
    listed = [*(p.key for p in (*plan.placements, *new.placements)), *(r.key for r in new.rejections)]
    assert set(rows) == set(listed)
    assert {p.key: p.addresses for p in new.placements} == addresses({k: r.after for k, r in rows.items()})
    assert {p.key: p.addresses for p in plan.placements} == addresses({k: r.before for k, r in rows.items()})
    assert sorted(r.problem for r in new.rejections) == sorted(
        problem for row in rows.values() for problem in row.problems
    )


def addresses(balancers: dict[ObjectKey, Balancer | None]) -> dict[ObjectKey, tuple[object, ...]]:
    """Return the addresses of those that have a load balancer."""
    return {key: balancer.addresses for key, balancer in balancers.items() if balancer}


@FEW
@given(strategies.snapshots(), SETTINGS)
def test_deployed_state_reads_back_as_the_plan(snapshot: Snapshot, config: Settings) -> None:
    """Addresses, ports, sources and backends from Envoy's files are those of the plan; a comparison finds no change."""
    plan = make_plan(snapshot, config)
    deployed, wanted = deployed_side("state", declared(plan)), planned_side("plan", snapshot, plan)
    assert deployed.balancers.keys() == wanted.balancers.keys()
    for key, balancer in wanted.balancers.items():
        found = deployed.balancers[key]
        assert (found.addresses, found.proxy, found.uid) == (balancer.addresses, balancer.proxy, balancer.uid)
        assert found.fingerprint == balancer.fingerprint
        for mine, its in zip(found.ports, balancer.ports, strict=True):
            assert (mine.label, mine.listens, mine.backends) == (its.label, its.listens, its.backends)
            assert mine.sources in {None, its.sources}
    reported = compare(deployed, Side("plan", wanted.balancers))
    assert all(service.change in QUIET and not service.differences for service in reported)
    assert not any(service.exposures or service.narrowings for service in reported)


@FEW
@given(pairs(), SETTINGS, st.integers())
def test_the_order_of_what_was_read_changes_no_byte(
    pair: tuple[Snapshot, Snapshot], config: Settings, seed: int
) -> None:
    """Every format is the same to the byte."""
    first = report_of(pair, config)
    retry = report_of((shuffled(pair[0], seed), shuffled(pair[1], seed)), config)
    for write in (document, markdown, page):
        assert write(first) == write(retry)


@FEW
@given(strategies.snapshots(), SETTINGS)
def test_a_side_compared_with_itself_has_no_changes(snapshot: Snapshot, config: Settings) -> None:
    """After it was carried out: nothing is added, moved or exposed."""
    clean = replace(snapshot, host=HostFacts())
    _, after, _ = planned((clean, clean), config)
    report = report_of((after, after), config)
    assert not report.changes
    assert not any(service.exposures or service.narrowings or service.moved for service in report.services)


@FEW
@given(pairs(), SETTINGS)
def test_no_client_loses_anything_without_an_alert(pair: tuple[Snapshot, Snapshot], config: Settings) -> None:
    """Nor gains: an address, a port, a range of clients that is on one side only has its sentence."""
    report = report_of(pair, config)
    spoken = {alert.service for alert in alerts(report)}
    for service in report.services:
        before, after = reach(service.before), reach(service.after)
        if before != after:
            assert str(service.key) in spoken, (before ^ after, service)


def reach(balancer: Balancer | None) -> set[object]:
    """Return who may reach what, as it is declared; clients that aren't known don't count."""
    ports = balancer.ports if balancer else ()
    found: set[object] = {(port.label, source) for port in ports for source in port.sources or ()}
    return found | {port.label for port in ports} | set(balancer.addresses if balancer else ())
