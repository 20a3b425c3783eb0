"""What users read of outside parties that don't answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from locallb.cli.watching.published import PublishedFile, read_published
from locallb.engine.core.lanes import LateLane
from locallb.model.identities import ClusterName, ObjectKey
from locallb.planning.planned import Plan
from locallb.watch.delays import Delay, delays
from locallb.watch.events import Delayed, Stopped
from tests.support.planned_services import plan_of

WEB, API, DB, LAST = (ObjectKey(ClusterName("kind"), "shop", name) for name in ("web", "api", "db", "zoo"))


@pytest.mark.parametrize(
    ("waiting", "sentence"),
    [
        ((), "Docker: no answer for 12 s"),
        ((WEB,), "Docker: no answer for 12 s; 1 load balancer waits for it (kind/shop/web)"),
        (
            (API, DB, WEB, LAST),
            f"Docker: no answer for 12 s; 4 load balancers wait for it ({API}, {DB}, {WEB} and 1 more)",
        ),
    ],
    ids=["nothing", "one", "many"],
)
def test_sentence_names_the_party_and_the_first_that_wait(waiting: tuple[ObjectKey, ...], sentence: str) -> None:
    """With the time that it is given."""
    assert Delay("docker", "Docker", 0.0, waiting).sentence("for 12 s") == sentence


@pytest.mark.parametrize(
    ("lane", "keys", "kind", "party"),
    [
        ("cluster/kind-kind of /k", [WEB], "cluster", "cluster kind"),
        ("cluster/kind-kind of /k", [], "cluster", "cluster kind-kind"),
        ("dns/127.0.0.1:53", [WEB], "dns", "name server 127.0.0.1:53"),
        ("docker", [WEB], "docker", "Docker"),
        ("ledger", [WEB], "ledger", "ledger"),
        ("netlink", [WEB], "netlink", "routes of this host"),
        ("proxy/gone", [WEB], "proxy", "proxy gone"),
    ],
)
def test_each_lane_has_a_name_for_users(lane: str, keys: list[ObjectKey], kind: str, party: str) -> None:
    """Since when is a time of the clock on the wall."""
    found = delays({LateLane(lane, 5.0, frozenset()): keys}, {}, Plan(), 100.0)
    assert found == (Delay(kind, party, 105.0, tuple(keys)),)


def test_a_proxy_is_named_once_whether_it_hangs_or_is_waited_for() -> None:
    """By its name, since the earliest moment, with all that it serves."""
    plan = plan_of("shared")
    (proxy,) = plan.proxies
    first, second = (placement.key for placement in plan.placements)
    lanes = {
        LateLane(f"proxy/{proxy.proxy.id}", 5.0, frozenset()): [first],
        LateLane(f"check/{proxy.proxy.id}", 3.0, frozenset()): [first],
    }
    found = delays(lanes, {proxy.proxy.name: 4.0}, plan, 0.0)
    assert found == (Delay("proxy", f"proxy {proxy.proxy.name}", 3.0, (first, second)),)


def test_commands_read_the_delays_of_a_watch_that_runs(tmp_path: Path) -> None:
    """Nothing of one that has ended, and nothing of a file that says nothing."""
    path = tmp_path / "dev.delays"
    file, delay = PublishedFile(path), Delay("docker", "Docker", 5.0, (WEB,))
    assert read_published(path).delays == ()
    file.listen(Delayed((delay,)))
    assert read_published(path).delays == (delay,)
    text = path.read_text()
    path.write_text(text.replace("@", "@another-boot."))
    assert read_published(path).delays == ()
    path.write_text("{")
    assert read_published(path).delays == ()
    file.listen(Delayed((delay,)))
    file.listen(Delayed(()))
    assert not path.exists()
    file.listen(Delayed((delay,)))
    file.listen(Stopped())
    assert not path.exists()
