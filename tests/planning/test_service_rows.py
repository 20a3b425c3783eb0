"""What the user is told: plan plus observation gives rows."""

from __future__ import annotations

from ipaddress import ip_address
from typing import cast

import pytest
from msgspec.structs import replace

from locallb.cli.service_output import services_json
from locallb.config.settings import IpMode, StatusOrder
from locallb.kubernetes.status import publication
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, Protocol, ProxyName, UpstreamName
from locallb.model.objects import ServicePort, Via
from locallb.model.reasons import Ingress, IngressPort, Problem, Reason
from locallb.model.serving import Listener
from locallb.planning.notices import FAULT, OTHERS, Notice
from locallb.planning.planned import Placement, Plan, PlannedPort, Rejection
from locallb.planning.service_rows import Observation, State, rows

KEY = ObjectKey(ClusterName("c"), "shop", "web")
OWNER = Owner(Home("local-lb", "dev", "/p"), KEY)
ADDRESS = ip_address("127.77.0.5")
NO_BACKENDS = Problem(Reason.NO_BACKENDS, "c/shop/web port 9000/TCP: no ready endpoint")
SCTP = Problem(Reason.PROTOCOL_UNSUPPORTED, "c/shop/web port 7/SCTP: no listener")


def open_port(number: int) -> PlannedPort:
    listener = Listener(ADDRESS, number, Protocol.TCP, UpstreamName(f"tcp-{number}-ipv4"))
    return PlannedPort(ServicePort(number), (listener,))


def plan_of(*ports: PlannedPort) -> Plan:
    return Plan(placements=(Placement(OWNER, (ADDRESS,), ports, ProxyName("c/shop/web")),))


WEB, ADMIN = "127.77.0.5:8080/TCP", "127.77.0.5:9000/TCP"


@pytest.mark.parametrize(
    ("ports", "listening", "state", "port_states", "reason"),
    [
        ([open_port(8080)], {WEB}, State.SERVING, ["serving"], ""),
        ([open_port(8080), open_port(9000)], {WEB, ADMIN}, State.SERVING, ["serving", "serving"], ""),
        ([open_port(8080), open_port(9000)], {WEB}, State.DEGRADED, ["serving", "pending"], "NotDeployed"),
        ([open_port(8080)], None, State.PENDING, ["pending"], "NotDeployed"),
        ([open_port(8080)], set(), State.DEGRADED, ["pending"], "NotDeployed"),
        (
            [open_port(8080), PlannedPort(ServicePort(9000), problem=NO_BACKENDS)],
            {WEB},
            State.DEGRADED,
            ["serving", "pending"],
            "NoBackends",
        ),
        ([PlannedPort(ServicePort(9000), problem=NO_BACKENDS)], set(), State.DEGRADED, ["pending"], "NoBackends"),
        (
            [open_port(8080), PlannedPort(ServicePort(7, Protocol.SCTP), problem=SCTP)],
            {WEB},
            State.DEGRADED,
            ["serving", "rejected"],
            "ProtocolNotSupported",
        ),
    ],
)
def test_service_state_is_the_worst_of_its_ports(
    ports: list[PlannedPort], listening: set[str] | None, state: State, port_states: list[str], reason: str
) -> None:
    """A Service serves when all its ports do; the first troubled port gives the reason."""
    observed = {} if listening is None else {"c/shop/web": Observation(frozenset(listening))}
    (row,) = rows(plan_of(*ports), observed)
    assert (row.state, [str(port.state) for port in row.ports], row.reason) == (state, port_states, reason)


@pytest.mark.parametrize("via", [*Via, None])
def test_the_way_of_a_port_is_reported_whether_it_serves_or_not(via: Via | None) -> None:
    """In the row, in the JSON, and in the table where it goes straight to pods."""
    plan = plan_of(replace(open_port(8080), via=via), PlannedPort(ServicePort(9000), problem=NO_BACKENDS))
    for listening in ({}, {"c/shop/web": Observation(frozenset({WEB}))}):
        (row,) = rows(plan, listening)
        assert [port.via for port in row.ports] == [via, None]
        assert [port["via"] for port in cast("list[dict[str, object]]", services_json([row])[0]["ports"])] == [
            via or "",
            "",
        ]


def test_a_listener_that_is_not_bound_says_why() -> None:
    """Envoy's own words reach the user."""
    observed = {"c/shop/web": Observation(failed={WEB: "cannot bind: Address already in use"})}
    (row,) = rows(plan_of(open_port(8080)), observed)
    assert (row.state, row.reason) == (State.DEGRADED, "NotBound")
    assert row.message == "127.77.0.5:8080/TCP: cannot bind: Address already in use"


def test_rejections_are_rows_and_rows_are_sorted() -> None:
    """A rejected Service stands among the others, in order."""
    rejected = Rejection(ObjectKey(ClusterName("a"), "x", "y"), Problem(Reason.POOL_EXHAUSTED, "a/x/y: no address"))
    plan = Plan(placements=plan_of(open_port(8080)).placements, rejections=(rejected,))
    assert [(str(row.key), row.state) for row in rows(plan, {})] == [
        ("a/x/y", State.REJECTED),
        ("c/shop/web", State.PENDING),
    ]


def test_the_status_body_has_every_port_and_only_real_errors() -> None:
    """A port that can't be served has an error; one that only lacks backends has none."""
    ports = (
        open_port(8080),
        PlannedPort(ServicePort(9000), problem=NO_BACKENDS),
        PlannedPort(ServicePort(7, Protocol.SCTP), problem=SCTP),
    )
    assert publication(Placement(OWNER, (ADDRESS,), ports, ProxyName("p"))).ingress == (
        Ingress(
            "127.77.0.5",
            "Proxy",
            (
                IngressPort(8080, "TCP"),
                IngressPort(9000, "TCP"),
                IngressPort(7, "SCTP", "local-lb.dev/ProtocolNotSupported"),
            ),
        ),
    )


def test_the_order_of_families_can_be_set() -> None:
    """As spec.ipFamilies has them, or IPv4 first."""
    (placement,) = plan_of(open_port(8080)).placements
    both = replace(placement, addresses=(ip_address("fd00::5"), ip_address("127.77.0.5")))
    first = replace(both, status_order=StatusOrder.IPV4_FIRST)
    assert [entry.ip for entry in publication(both).ingress] == ["fd00::5", "127.77.0.5"]
    assert [entry.ip for entry in publication(first).ingress] == ["127.77.0.5", "fd00::5"]


def test_the_mode_of_an_address_can_be_set() -> None:
    """KEP-1860: with VIP kube-proxy takes Pods' connections itself."""
    (placement,) = plan_of(open_port(8080)).placements
    modes = [entry.mode for mode in IpMode for entry in publication(replace(placement, ip_mode=mode)).ingress]
    assert modes == ["Proxy", "VIP"]


def test_ordered_fault_is_a_condition_beside_serving_and_a_notice_of_the_row() -> None:
    """Without an order the condition is withdrawn."""
    (placement,) = plan_of(open_port(8080)).placements
    faulty = replace(placement, notices=(Notice(OTHERS, "others"), Notice(FAULT, "10% are refused" * 100)))
    serving, ordered = publication(faulty).conditions
    assert (serving.status, serving.reason) == ("True", "Serves")
    assert (ordered.type, ordered.status, ordered.reason) == ("local-lb.dev/FaultOrdered", "True", "FaultOrdered")
    assert len(ordered.message) == 1024
    assert publication(placement).conditions == (serving,)
    (row,) = rows(Plan(placements=(faulty,)), {})
    assert [notice.reason for notice in row.ordered] == [FAULT]
