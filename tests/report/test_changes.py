"""What a report says of each kind of change, in its sentences."""

from __future__ import annotations

import io
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.cli.commands.preview import print_report
from locallb.cli.console import Out
from locallb.model.identities import ClusterName, Family, ObjectKey, Protocol
from locallb.model.ranges import covered
from locallb.report.changes import ANY_SOURCE, Change, compare, exposures, is_open, narrowings
from locallb.report.document import document
from locallb.report.html import page
from locallb.report.markdown import markdown
from locallb.report.sides import Balancer, Port, Side
from locallb.report.wording import Topic, alerts, differences, summary
from tests.support.objects import node, service
from tests.support.reports import compared, only, settings

NODE = node("worker", "127.0.0.1")
WEB = service("web")
WEB_KEY = ObjectKey(ClusterName("demo"), "shop", "web")
ALSO_9000 = [{"port": 8080, "nodePort": 30080}, {"name": "b", "port": 9000, "nodePort": 30090}]


def stated(old: object, new: object) -> list[str]:
    """Return the alerts of a change of one Service, without its name."""
    report = compared([NODE, old], [NODE, new])
    return [alert.message.removeprefix("demo/shop/web: ") for alert in alerts(report)]


def test_a_new_service_says_where_and_for_whom() -> None:
    """Its address, its ports, its clients."""
    report = compared(
        [NODE], [NODE, service("web", loadBalancerIP="127.77.0.7", loadBalancerSourceRanges=["10.0.0.0/8"])]
    )
    assert only(report).change is Change.ADDED
    assert [a.message for a in alerts(report)] == ["demo/shop/web: new at 127.77.0.7, port 8080/TCP for 10.0.0.0/8"]
    assert summary(report) == "1 Service: 1 added."


def test_a_service_that_goes_is_an_alert_and_exposes_nothing() -> None:
    """Whoever reviews it sees what its clients lose, above the table, in every format."""
    report = compared([NODE, service("web", loadBalancerIP="127.77.0.7", ports=ALSO_9000)], [NODE])
    assert only(report).change is Change.REMOVED
    assert only(report).exposures == ()
    (alert,) = alerts(report)
    assert alert.topic is Topic.REMOVAL
    assert alert.message == "demo/shop/web: removed, and with it 127.77.0.7, ports 8080/TCP, 9000/TCP"
    written = io.StringIO()
    print_report(Out(written), report)
    for text in (markdown(report), page(report), document(report), written.getvalue()):
        assert text.index("removed, and with it") < text.rindex("127.77.0.7")


def test_a_mapped_port_stays_when_its_own_number_becomes_free() -> None:
    """As the ledger has it by then: compared with what was planned before, nothing moves."""
    both = [NODE, service("a-web"), service("b-web")]
    report = compared(both, [NODE, service("b-web")], settings(portMapping="loopback"))
    assert {str(each.key): each.change for each in report.services} == {
        "demo/shop/a-web": Change.REMOVED,
        "demo/shop/b-web": Change.UNCHANGED,
    }


def test_a_service_of_another_class_is_removed() -> None:
    """It is still in the manifests, but not ours any more."""
    assert only(compared([NODE, WEB], [NODE, service("web", loadBalancerClass="x.y/z")])).change is Change.REMOVED


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        ({}, {"ports": ALSO_9000}, ["port 9000/TCP is new, for everybody"]),
        ({"ports": ALSO_9000}, {}, ["port 9000/TCP is removed"]),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {},
            ["port 8080/TCP was only for 10.0.0.0/8 and opens for everybody"],
        ),
        (
            {},
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            ["port 8080/TCP was open to everybody and lets in only 10.0.0.0/8"],
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {"loadBalancerSourceRanges": ["10.0.0.0/8", "127.0.0.0/8"]},
            ["port 8080/TCP also lets in 127.0.0.0/8"],
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {"loadBalancerSourceRanges": ["10.1.0.0/16"]},
            ["port 8080/TCP no longer lets in all of 10.0.0.0/8, only 10.1.0.0/16"],
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {"loadBalancerSourceRanges": ["11.0.0.0/8"]},
            [
                "port 8080/TCP also lets in 11.0.0.0/8",
                "port 8080/TCP no longer lets in all of 10.0.0.0/8, only 11.0.0.0/8",
            ],
        ),
        ({}, {"loadBalancerSourceRanges": ["0.0.0.0/0"]}, []),
        ({"loadBalancerSourceRanges": ["0.0.0.0/1", "128.0.0.0/1"]}, {}, []),
        (
            {"ports": ALSO_9000, "loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {"ports": ALSO_9000},
            ["ports 8080/TCP, 9000/TCP were only for 10.0.0.0/8 and open for everybody"],
        ),
        (
            {"loadBalancerIP": "127.77.0.7"},
            {"loadBalancerIP": "127.77.0.8"},
            ["its address 127.77.0.7 becomes 127.77.0.8"],
        ),
    ],
)
def test_moved_addresses_and_changed_source_ranges_are_reported(
    old: dict[str, Any], new: dict[str, Any], sentences: list[str]
) -> None:
    """And where less can be reached; what is only written otherwise is not."""
    assert stated(service("web", **old), service("web", **new)) == sentences


def test_a_second_family_is_new_exposure() -> None:
    """It wasn't reachable over IPv6."""
    config = settings(pools=[{"name": "p", "addresses": ["127.77.0.0/27", "fd00::/120"]}])
    dual = service("web", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
    (alert,) = alerts(compared([NODE, WEB], [NODE, dual], config))
    assert alert.message.startswith("demo/shop/web: port 8080/TCP also at fd00::")


def test_a_port_that_gets_its_first_backend_opens() -> None:
    """It was declared and closed: now somebody answers."""
    old = [service("web"), node("worker", "fd00::1")]
    assert [a.message for a in alerts(compared(old, [NODE, WEB]))] == [
        "demo/shop/web: port 8080/TCP was closed and opens, for everybody"
    ]
    assert [a.message for a in alerts(compared([NODE, WEB], old))] == [
        "demo/shop/web: port 8080/TCP closes: it has no backend any more"
    ]


def test_a_conflict_and_an_exhausted_pool_stand_above_everything_else() -> None:
    """In this order: conflict, exhaustion, address, exposure."""
    config = settings(pools=[{"name": "p", "addresses": ["127.77.0.0-127.77.0.1"]}])
    old = [NODE, service("a", loadBalancerIP="127.77.0.0"), service("b", loadBalancerIP="127.77.0.1")]
    new = [*old, service("c", loadBalancerIP="127.77.0.0"), service("d")]
    report = compared(old, new, config)
    assert [alert.topic for alert in alerts(report)] == ["conflict", "exhaustion"]
    assert report.count(Change.REJECTED) == 2


def test_a_service_that_is_rejected_now_loses_its_address() -> None:
    """Both are told."""
    report = compared([NODE, WEB], [NODE, service("web", loadBalancerIP="127.99.0.1")])
    assert only(report).change is Change.LOST
    topics = [(alert.topic, alert.message) for alert in alerts(report)]
    assert [topic for topic, _ in topics] == ["rejection", "address"]
    assert "loses its address" in topics[1][1]


def test_differences_are_reported_with_both_sides() -> None:
    """Ports that differ alike are told in one sentence; backends and affinity too."""
    old = [NODE, service("web", ports=ALSO_9000)]
    new = [NODE, node("other", "127.0.0.2"), service("web", ports=ALSO_9000, sessionAffinity="ClientIP")]
    assert differences(only(compared(old, new))) == [
        "port 8080/TCP, backends: 127.0.0.1:30080 → 127.0.0.1:30080, 127.0.0.2:30080",
        "ports 8080/TCP, 9000/TCP, session affinity: None → ClientIP",
        "port 9000/TCP, backends: 127.0.0.1:30090 → 127.0.0.1:30090, 127.0.0.2:30090",
    ]


def test_recreated_proxy_or_changed_envoy_is_reported() -> None:
    """Differences that no port shows."""
    before, after = Balancer(WEB_KEY, (), (), uid="1", envoy="1.39.0", fingerprint="a"), Balancer(WEB_KEY, (), ())
    (reported,) = compare(Side("old", {WEB_KEY: before}), Side("new", {WEB_KEY: after}))
    assert differences(reported) == ["recreated in the cluster: another uid", "Envoy: 1.39.0 → none"]
    other = replace(before, fingerprint="b")
    (reported,) = compare(Side("old", {WEB_KEY: before}), Side("new", {WEB_KEY: other}))
    assert differences(reported) == ["its proxy's configuration"]


def test_markdown_report_shows_the_first_alerts_and_counts_the_rest() -> None:
    """The table has all of them anyway."""
    config = settings(pools=[{"name": "p", "addresses": ["127.77.0.0/24", "fd00::/64"]}])
    report = compared([NODE], [NODE, *(service(f"s{n}") for n in range(50))], config)
    assert "- and 10 more\n" in markdown(report)
    assert "IPv6: 0 used, ≈ 2^64 of ≈ 2^64 free" in page(report)


def test_settings_that_differ_are_named() -> None:
    """A pull request may change the configuration alone."""
    was, now = settings(), settings(pools=[{"name": "p", "addresses": ["127.78.0.0/27"]}])
    assert compared([NODE, WEB], [NODE, WEB], now, was).settings == ("pools",)


@hypothesis.settings(deadline=None)
@given(st.lists(st.integers(0, 15), max_size=6), st.lists(st.integers(24, 28), min_size=6, max_size=6), st.data())
def test_covering_is_what_counting_addresses_says(starts: list[int], lengths: list[int], data: st.DataObject) -> None:
    """A network lies within others exactly if each of its addresses does."""
    by = [
        ip_network(f"10.0.{start % 4}.{start // 4 * 64}/{lengths[i]}", strict=False) for i, start in enumerate(starts)
    ]
    third, length = data.draw(st.integers(0, 3)), data.draw(st.integers(22, 28))
    network = ip_network(f"10.0.{third}.0/{length}", strict=False)
    assert covered(network, by) == all(any(address in network for network in by) for address in network)


_FEW_NETWORKS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(28, 32)).map(
        lambda drawn: ip_network(f"10.0.0.{drawn[0]}/{drawn[1]}", strict=False)
    ),
    max_size=4,
).map(tuple)


@given(_FEW_NETWORKS, _FEW_NETWORKS)
def test_every_client_that_gains_or_loses_access_is_reported(
    before: tuple[IPv4Network, ...], after: tuple[IPv4Network, ...]
) -> None:
    """Counted client by client, also where ranges are only cut otherwise; and nobody is told who doesn't."""
    clients = [*ip_network("10.0.0.0/27"), ip_address("192.0.2.1")]
    came, come = (
        {client for client in clients if not some or any(client in net for net in some)} for some in (before, after)
    )
    pod_paths = [
        Balancer(WEB_KEY, (ip_address("127.77.0.7"),), (Port(80, Protocol.TCP, sources=some),))
        for some in (before, after)
    ]
    assert bool(exposures(*pod_paths)) == bool(come - came)
    assert bool(narrowings(*pod_paths)) == bool(came - come)


def test_two_ranges_that_cover_all_addresses_count_as_open() -> None:
    """They restrict no client of that family."""
    halves = (ip_network("0.0.0.0/1"), ip_network("128.0.0.0/1"))
    assert is_open(halves, [ANY_SOURCE[Family.IPV4][9]])
    assert not is_open(halves[:1], [ANY_SOURCE[Family.IPV4][9]])
    assert not is_open(halves, [ANY_SOURCE[Family.IPV6][9]])
    assert is_open((), [ANY_SOURCE[Family.IPV6][9]])
