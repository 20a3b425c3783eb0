"""Since when proxies can't be brought back: laws over random histories."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Listener, Proxy
from locallb.planning.service_rows import Observation
from locallb.watch.failures import GRACE, Outages, serves

NAMES = ("web", "api", "shared-1")
names = st.frozensets(st.sampled_from(NAMES))
history = st.lists(st.tuples(st.floats(0, 20), names, names), max_size=20)


@given(history)
def test_proxy_down_longer_than_a_repair_takes_is_an_outage_until_it_serves(
    steps: list[tuple[float, frozenset[str], frozenset[str]]],
) -> None:
    """Since the first failed repair, however many follow; a shorter one has a time at which it will count."""
    outages, now, away = Outages(), 0.0, dict[str, float]()
    for gap, failed, ended in steps:
        now += gap
        for name in failed:
            away.setdefault(name, now)
        for name in ended:
            away.pop(name, None)
        outages = outages.failed(now, failed).ended(ended)
        assert outages.since == away
        assert outages.lasting(now) == {name for name, since in away.items() if since + GRACE <= now}
        if away.keys() - outages.lasting(now):
            at = outages.check_at(now)
            assert at is not None
            assert now < at <= now + GRACE
            assert outages.lasting(at) > outages.lasting(now)
        else:
            assert outages.check_at(now) is None


@given(names, names)
def test_a_proxy_that_is_planned_no_more_is_forgotten(failed: frozenset[str], planned: frozenset[str]) -> None:
    """What comes back under its name begins again."""
    assert Outages().failed(0.0, failed).planned(planned).since.keys() == failed & planned


def test_a_proxy_serves_that_answers_with_any_of_its_listeners() -> None:
    """One port that somebody else took is no outage; an Envoy that hangs, or has none of them, is one."""
    listeners = tuple(Listener(ip_address("127.77.0.5"), port, Protocol.TCP, UpstreamName("up")) for port in (80, 443))
    proxy = Proxy(ProxyName("web"), ProxyId("0" * 12), Discovery.STATIC, listeners)
    both = frozenset(listener.name for listener in listeners)
    assert serves(proxy, Observation(both))
    assert serves(proxy, Observation(frozenset({listeners[0].name}), {listeners[1].name: "in use"}))
    assert not serves(proxy, Observation())
    assert not serves(proxy, None)
    assert serves(Proxy(ProxyName("shared-1"), ProxyId("1" * 12), Discovery.STATIC), Observation())
