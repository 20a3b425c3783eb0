"""Which proxies end what they give up at once: new ones without any stream; those that run stay what they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from locallb.config.settings import ProxySettings, Settings
from locallb.envoy.bootstrap import is_udp_only
from locallb.envoy.rollout import BOOTSTRAP
from locallb.model.identities import Protocol, place
from locallb.model.objects import Discovery, ServicePort
from locallb.model.serving import ProxyTraits
from locallb.model.snapshot import HeldProxy
from locallb.planning.plan import make_plan
from locallb.planning.planned import run_planner
from locallb.sources.snapshot import holding
from tests.planning.two_services import OWN, SHARED, A, snapshot

DNS, DNS_BY_TCP = ServicePort(53, Protocol.UDP, "dns", 30053), ServicePort(53, Protocol.TCP, "tcp", 30054)
SPARE = replace(OWN, proxies=ProxySettings(spares=1))


def udp_only(settings: Settings, held: bool | None, *ports: ServicePort) -> bool:  # noqa: FBT001 - one of three
    """Return whether the proxy that serves a Service with these ports serves UDP alone."""
    service = replace(A, ports=ports)
    proxies = () if held is None else (HeldProxy(A.key, Discovery.STATIC, traits=ProxyTraits(udp_only=held)),)
    plan = make_plan(snapshot(service, proxies=proxies), settings)
    assert [placement.key for placement in plan.placements] == [A.key]
    [serving] = [proxy for proxy in plan.proxies if proxy.proxy.name == plan.placements[0].proxy]
    text = serving.rendered.files[BOOTSTRAP]
    assert is_udp_only(text) == serving.proxy.udp_only
    return is_udp_only(text)


@pytest.mark.parametrize(
    ("held", "ports", "only"),
    [
        (None, (DNS,), True),
        (None, (DNS, replace(DNS, port=54)), True),
        (None, (DNS, DNS_BY_TCP), False),
        (True, (DNS,), True),
        (True, (DNS, DNS_BY_TCP), False),
        (False, (DNS,), False),
        (False, (DNS, DNS_BY_TCP), False),
    ],
)
def test_a_proxy_of_its_own(held: bool | None, ports: tuple[ServicePort, ...], *, only: bool) -> None:  # noqa: FBT001 - one of three
    """One that runs is never made anew but for its first stream."""
    assert udp_only(OWN, held, *ports) is only


def test_one_of_the_stack_may_serve_anything() -> None:
    """Streams of others depend on its drain time."""
    assert not udp_only(SHARED, None, DNS)
    waiting = make_plan(snapshot(), SPARE)
    plan = make_plan(replace(holding(snapshot(), waiting), services=(replace(A, ports=(DNS,)),)), SPARE)
    assert not any(is_udp_only(proxy.rendered.files[BOOTSTRAP]) for proxy in plan.proxies)


@pytest.mark.parametrize(
    ("had", "only", "ports", "released"),
    [
        ((), False, (DNS, DNS_BY_TCP), []),
        ((53,), False, (DNS, DNS_BY_TCP), []),
        ((53, 54), False, (DNS, DNS_BY_TCP), [54]),
        ((53,), False, (DNS_BY_TCP,), [53]),
        ((53, 54, 55), False, (DNS_BY_TCP,), [53, 54, 55]),
        ((53, 54), False, (DNS,), [54]),
        ((53, 54), True, (DNS,), []),
    ],
)
def test_a_process_has_its_udp_ports_that_are_given_up_as_input(
    had: tuple[int, ...],
    only: bool,  # noqa: FBT001 - a column
    ports: tuple[ServicePort, ...],
    released: list[int],
) -> None:
    """All since it was started, in the next plan as well; one of UDP alone frees them by itself."""
    service = replace(A, ports=ports)
    [address] = make_plan(snapshot(service), OWN).placements[0].addresses
    datagrams = frozenset(place(address, port) for port in had)
    read = snapshot(
        service, proxies=(HeldProxy(A.key, Discovery.STATIC, traits=ProxyTraits(udp_only=only, datagrams=datagrams)),)
    )
    plan = make_plan(read, OWN)
    for each in (plan, make_plan(holding(read, plan), OWN)):
        [planned] = each.proxies
        desired = run_planner(planned.run.runtime).desired(planned.run, planned.proxy, planned.owner)
        assert str(desired.inputs.get("released", "")).split() == [place(address, port) for port in released]


def test_a_udp_port_without_backends_is_still_its_services() -> None:
    """They may be back in a moment."""
    service = replace(A, ports=(DNS, DNS_BY_TCP))
    plan = make_plan(snapshot(service), OWN)
    [address] = plan.placements[0].addresses
    held = holding(snapshot(service), plan)
    [proxy] = held.proxies
    assert proxy.traits.datagrams == {f"{address}:53"}
    without = make_plan(replace(held, nodes=()), OWN)
    assert not any(proxy.proxy.released or proxy.proxy.listeners for proxy in without.proxies)


def test_a_udp_port_that_has_no_backends_when_it_is_given_up_is_released() -> None:
    """Its process still has the socket, of the listener of before."""
    service = replace(A, ports=(DNS, DNS_BY_TCP))
    plan = make_plan(snapshot(service), OWN)
    [address] = plan.placements[0].addresses
    held = holding(snapshot(service), plan)
    for services, nodes, released in (
        ((service,), (), ()),
        ((service,), (), ()),
        ((replace(service, ports=(DNS_BY_TCP,)),), (), (f"{address}:53",)),
        ((replace(service, ports=(DNS_BY_TCP,)),), held.nodes, (f"{address}:53",)),
        ((service,), held.nodes, ()),
    ):
        read = replace(holding(held, plan), services=services, nodes=nodes)
        plan = make_plan(read, OWN)
        assert [proxy.proxy.released for proxy in plan.proxies] == [released]


def test_what_was_planned_is_kept() -> None:
    """Planned again, with what the first plan made, it is the same."""
    read = snapshot(replace(A, ports=(DNS,)))
    plan = make_plan(read, OWN)
    retry = make_plan(holding(read, plan), OWN)
    assert [proxy.rendered for proxy in retry.proxies] == [proxy.rendered for proxy in plan.proxies]
