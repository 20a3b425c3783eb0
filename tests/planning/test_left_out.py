"""Why a Service isn't served although it is there: told by the reason, in a bounded number of bounded sentences."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import Classes, Settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.kubernetes.relevant import kinds_of
from locallb.model.identities import ClusterName, Home
from locallb.model.objects import MalformedService, Service
from locallb.model.snapshot import Contents, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.refused import few_kinds
from locallb.planning.selection import is_ours
from tests.support.objects import DEMO, JsonObject, node, service


def plan(configured: Settings, *objects: JsonObject, contents: tuple[Contents, ...] = ()) -> Plan:
    parsed = parse_objects(DEMO, objects)
    home = Home("p", "dev", "/p")
    return make_plan(Snapshot(home, parsed.services, parsed.malformed, parsed.nodes, contents=contents), configured)


def configured(**more: object) -> Settings:
    return Settings((), (DEFAULT_POOL,), **more)  # type: ignore[arg-type]  # each test gives what fits


LABELLED = service("web", meta={"labels": {"team": "db"}})
MALFORMED = service("odd", loadBalancerClass="foo/bar", ports="none")


@pytest.mark.parametrize(
    ("some", "objects", "reported"),
    [
        (configured(), [service()], []),
        (
            configured(),
            [service(loadBalancerClass="foo/bar")],
            ["1 Service left out: class foo/bar (this stack serves those without a class): demo/shop/web"],
        ),
        (
            configured(),
            [service(name, loadBalancerClass="foo/bar") for name in "abcde"] + [MALFORMED],
            [
                (
                    "6 Services left out: class foo/bar (this stack serves those without a class):"
                    " demo/shop/a, demo/shop/b, demo/shop/c and 3 more"
                )
            ],
        ),
        (
            configured(classes=Classes(default=False, names=frozenset({"x", ""}))),
            [service()],
            ["1 Service left out: no class (this stack serves class ``, class x): demo/shop/web"],
        ),
        (
            configured(classes=Classes(default=False)),
            [service()],
            ["1 Service left out: no class (this stack serves none, see local-lb:classes): demo/shop/web"],
        ),
        (
            configured(namespaces=frozenset({"a", "b"})),
            [service()],
            ["1 Service left out: namespace shop (local-lb:namespaces has a, b): demo/shop/web"],
        ),
        (
            configured(selector={"team": "web", "x": "y"}),
            [LABELLED],
            ["1 Service left out: other labels (local-lb:selector wants team=web, x=y): demo/shop/web"],
        ),
        (configured(), [service(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], []),
    ],
)
def test_each_reason_is_a_sentence(some: Settings, objects: list[JsonObject], reported: list[str]) -> None:
    """With the number, some names, and what this stack wants instead."""
    served = [sentence for sentence in plan(some, *objects, node()).left_out if not sentence.startswith("Nothing")]
    assert served == reported


def test_where_nothing_is_served_it_says_what_was_read() -> None:
    """Each source, by kind; Services of other types among them."""
    objects = [service("a", type="ClusterIP"), service("b", type=None), {"kind": "Deployment"}, {"x": 1}, node()]
    files = Contents(DEMO, few_kinds(kinds_of([{"kind": "List", "apiVersion": "v1", "items": objects}])), 2)
    empty, live = Contents(ClusterName("e"), {}, 0), Contents(ClusterName("live"), {"Node": 1})
    (reported,) = plan(configured(), contents=(files, empty, live)).left_out
    assert reported == (
        "Nothing to serve. Read: demo has 2 files with 5 objects (2 Service of type ClusterIP, 1 Deployment, 1 Node,"
        " 1 without a kind); e has no manifest that could be read; live has 1 object (1 Node)."
    )
    assert plan(configured()).left_out == ("Nothing to serve.",)
    assert plan(configured(), service(), node(), contents=(files,)).left_out == ()


def test_a_pin_without_a_service_is_a_notice() -> None:
    """One of a Service that is left out, or can't be understood, isn't."""
    pins = {"shop/web": (ip_address("127.77.0.5"),), "shop/odd": (), "shop/wbe": ()}
    (reported,) = plan(configured(pins=pins), service(loadBalancerClass="x/y"), MALFORMED).notices
    assert reported == (
        "local-lb:pins has shop/wbe, but no source has a Service of that name and of type LoadBalancer;"
        " correct the name or remove the pin"
    )


NAMES = st.text(min_size=1, max_size=300)


@given(st.lists(st.tuples(NAMES, NAMES | st.none(), NAMES), max_size=40), st.sets(NAMES, max_size=5))
@settings(max_examples=60, deadline=None)
def test_each_service_is_placed_rejected_or_counted_in_bounded_sentences(
    made: list[tuple[str, str | None, str]], classes: set[str]
) -> None:
    """Names from elsewhere are made printable."""
    some = configured(classes=Classes(names=frozenset(classes)), namespaces=frozenset({"shop"}))
    objects = [service(name, namespace=where, loadBalancerClass=klass) for name, klass, where in made]
    result, parsed = plan(some, *objects), parse_objects(DEMO, objects)
    everything: list[Service | MalformedService] = [*parsed.services, *parsed.malformed]
    others = [service for service in everything if not is_ours(service, some)]
    assert len(result.placements) + len(result.rejections) + len(others) == len(everything)
    assert bool([sentence for sentence in result.left_out if "left out" in sentence]) == bool(others)
    assert len(result.left_out) <= 10
    assert all(len(sentence) < 1500 and sentence.isprintable() for sentence in result.left_out)


@given(st.lists(NAMES, max_size=60))
def test_kinds_are_counted_at_a_bounded_size(kinds: list[str]) -> None:
    """None is lost."""
    counted = few_kinds(kinds)
    assert sum(counted.values()) == len(kinds)
    assert len(counted) <= 9
