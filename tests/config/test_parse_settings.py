"""The stack configuration: what is taken, and the exact sentence for everything that is not."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import KEYS, parse_settings
from locallb.config.settings import Classes, LeaderElection, Pool, ProxySettings, SettingsError, Sharing, Timing
from locallb.model.identities import ClusterName
from locallb.sources.entries import KindClusters, ManifestsSource, cluster_name
from tests.support.strategies import span

SOURCES = {"sources": [{"manifests": "examples/shop", "name": "shop"}]}
A_SOURCE = "{manifests: DIRECTORY, name: CLUSTER}"
A_POOL = "{name: shop, addresses: [127.77.0.0/27]}"
A_RANGE = "127.77.0.0/27 or 127.78.0.10-127.78.0.20"
RANGES = "a list such as [127.77.0.0/27, 127.78.0.10-127.78.0.20]"
A_NAME = "use at most 63 lower-case letters, digits and inner hyphens, such as shop"
KEYS_OF_A_CLUSTER = "name, kubeconfig, context, podCIDRs, nodes, loopbackBackends, classes"
A_CLUSTER = "{kubernetes: {name: CLUSTER, kubeconfig: FILE, context: CONTEXT}}, the last two as needed"


def mistakes(**config: object) -> tuple[str, ...]:
    """Read a configuration that has mistakes and give their sentences, without the namespace."""
    with pytest.raises(SettingsError) as caught:
        parse_settings(SOURCES | config)
    assert all(sentence.startswith("local-lb:") for sentence in caught.value.sentences)
    assert str(caught.value) == "\n".join(caught.value.sentences)
    return tuple(sentence.removeprefix("local-lb:") for sentence in caught.value.sentences)


def pool(*addresses: object, **more: object) -> list[Mapping[str, object]]:
    return [{"name": "p", "addresses": list(addresses), **more}]


def test_sources_alone_are_enough() -> None:
    """Everything else has a default: one pool, all Services without a class, processes."""
    settings = parse_settings(SOURCES)
    assert settings.sources == (ManifestsSource(ClusterName("shop"), "examples/shop"),)
    assert settings.pools == (Pool("default", (span("127.77.0.0", "127.77.0.31"),)),)
    assert (settings.pins, settings.classes, settings.runtime) == ({}, Classes(), "process")


def test_each_setting_is_parsed_into_its_typed_field() -> None:
    """Each key arrives in its field, typed."""
    settings = parse_settings(
        {
            "sources": [{"manifests": "a"}, {"manifests": "b/c", "name": "other"}],
            "runtime": "process",
            "proxies": "per-service",
            "classes": {"default": False, "names": ["local-lb.dev/local", ""]},
            "namespaces": ["shop", "web"],
            "selector": {"team": "web"},
            "pins": {"shop/web": ["10.0.0.9", "fd00::9"]},
            "pools": [
                {"name": "four", "addresses": ["10.0.0.0/28", "10.0.1.5", "10.0.2.1 - 10.0.2.3"], "priority": 5},
                {
                    "name": "six",
                    "addresses": ["fd00::/64"],
                    "exclude": ["fd00::-fd00::7"],
                    "namespaces": ["shop"],
                    "selector": {"tier": "web"},
                },
            ],
        }
    )
    four = (span("10.0.0.0", "10.0.0.15"), span("10.0.1.5", "10.0.1.5"), span("10.0.2.1", "10.0.2.3"))
    assert settings.sources == (
        ManifestsSource(ClusterName("a"), "a"),
        ManifestsSource(ClusterName("other"), "b/c"),
    )
    assert settings.classes == Classes(default=False, names=frozenset({"local-lb.dev/local", ""}))
    assert settings.namespaces == frozenset({"shop", "web"})
    assert settings.selector == {"team": "web"}
    assert settings.pins == {"shop/web": (ip_address("10.0.0.9"), ip_address("fd00::9"))}
    assert settings.pools == (
        Pool("four", four, priority=5),
        Pool(
            "six",
            (span("fd00::", "fd00::ffff:ffff:ffff:ffff"),),
            exclude=(span("fd00::", "fd00::7"),),
            namespaces=frozenset({"shop"}),
            selector={"tier": "web"},
        ),
    )


@pytest.mark.parametrize("value", ["shared", {"mode": "per-service", "spares": 1}])
def test_containers_with_published_ports_serve_one_service_each(value: object) -> None:
    """Their ports are fixed when they are made; on the host's network they aren't."""
    sentence = "proxies: published ports can't be shared or spared; use network host, or per-service proxies"
    assert mistakes(proxies=value, runtime="docker", network="publish") == (sentence,)
    for network in ({}, {"network": "host"}):
        assert parse_settings(SOURCES | {"proxies": value, "runtime": "docker"} | network).runtime == "docker"


@pytest.mark.parametrize(
    ("value", "proxies"),
    [
        ("per-service", ProxySettings()),
        ("shared", ProxySettings(Sharing.SHARED)),
        ({"mode": "shared", "count": 3}, ProxySettings(Sharing.SHARED, count=3)),
        ({"spares": 2}, ProxySettings(spares=2)),
        ({"mode": "shared", "spares": 1}, ProxySettings(Sharing.SHARED, spares=1)),
    ],
)
def test_proxies_are_a_word_or_a_word_with_a_number(value: object, proxies: ProxySettings) -> None:
    """The mode alone, or how many share, or how many wait."""
    assert parse_settings({**SOURCES, "proxies": value}).proxies == proxies


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("shop", "shop"),
        ("examples/shop/", "shop"),
        ("/srv/My Cluster_2", "my-cluster-2"),
        ("..", ""),
        (".", ""),
        ("/", ""),
        ("x" * 70, "x" * 63),
        ("x" * 62 + "-y", "x" * 62),
    ],
)
def test_a_source_is_named_after_its_directory(directory: str, name: str) -> None:
    """The last part as a DNS label; nothing where nothing is left."""
    assert cluster_name(directory) == name


SOURCE_MISTAKES: list[tuple[object, str]] = [
    (None, f"sources: there is none; write a list such as [{A_SOURCE}]"),
    ([], f"sources: there is none; write a list such as [{A_SOURCE}]"),
    ("shop", f'sources: must be a list, not "shop"; write a list such as [{A_SOURCE}]'),
    ({"manifests": "d"}, f"sources: must be a list, not an object of 1 field; write a list such as [{A_SOURCE}]"),
    (["d"], f'sources[0]: must be a mapping, not "d"; write {A_SOURCE}'),
    ([{}], f"sources[0]: it names no directory; write {A_SOURCE}"),
    ([{"name": "x"}], f"sources[0]: it names no directory; write {A_SOURCE}"),
    (
        [{"manifests": 3}],
        "sources[0].manifests: must be a text, not 3; write a directory such as examples/shop/manifests",
    ),
    (
        [{"manifests": " "}],
        'sources[0].manifests: must be a text, not " "; write a directory such as examples/shop/manifests',
    ),
    ([{"manifests": "d", "name": "A B"}], f'sources[0].name: "A B" is not a name; {A_NAME}'),
    ([{"manifests": "d", "name": None}], "sources[0].name: must be a text, not null; write a name such as shop"),
    ([{"manifests": "d", "nam": "x"}], "sources[0].nam: no such key; did you mean name?"),
    (
        [{"manifests": ".."}],
        f'sources[0]: ".." gives the cluster no name; add `name`, such as {A_SOURCE}',
    ),
    (
        [{"manifests": "a/x"}, {"manifests": "b/x"}],
        "sources: a/x and b/x are both called x; give one of them another `name`",
    ),
    ([{"kubernetes": {}}], f"sources[0].kubernetes: the cluster has no name; write {A_CLUSTER}"),
    ([{"kubernetes": {"name": "A"}}], f'sources[0].kubernetes.name: "A" is not a name; {A_NAME}'),
    (
        [{"kubernetes": {"name": "a", "context": 3}}],
        "sources[0].kubernetes.context: must be a text, not 3; write a name such as kind-shop",
    ),
    (
        [{"kubernetes": {"name": "a", "server": "x"}}],
        f"sources[0].kubernetes.server: no such key; the keys are {KEYS_OF_A_CLUSTER}",
    ),
    (
        [{"kubernetes": {"name": "x", "context": "k"}}, {"manifests": "b/x"}],
        "sources: k and b/x are both called x; give one of them another `name`",
    ),
    (
        [{"kind": "some"}],
        'sources[0].kind: "some" names no clusters; write {kind: all} or {kind: [shop, test]}',
    ),
    ([{"kind": []}], "sources[0].kind: a list of 0 items names no clusters; write {kind: all} or {kind: [shop, test]}"),
    (
        [{"kind": "all"}, {"kind": ["a"]}],
        "sources[1].kind: there is one before it; write all names into one, {kind: all} or {kind: [shop, test]}",
    ),
    (
        [{"manifests": "d", "kind": ["a"]}],
        "sources[0]: it is manifests and kind at once; write each as a source of its own",
    ),
]


@pytest.mark.parametrize(("value", "sentence"), SOURCE_MISTAKES)
def test_a_mistake_in_sources_is_reported(value: object, sentence: str) -> None:
    """One sentence with the key, the value and the remedy."""
    assert mistakes(sources=value) == (sentence,)


def test_a_missing_source_is_reported() -> None:
    """A configuration without sources is none."""
    with pytest.raises(SettingsError, match=r"^local-lb:sources: there is none; write a list such as"):
        parse_settings({})


POOL_MISTAKES: list[tuple[object, str]] = [
    ([], "pools: the list is empty; name a pool, or leave the key out for the default 127.77.0.0/27"),
    ("10.0.0.0/8", f'pools: must be a list, not "10.0.0.0/8"; write a list such as [{A_POOL}]'),
    (["x"], f'pools[0]: must be a mapping, not "x"; write {A_POOL}'),
    ([{}], f"pools[0]: the pool is empty; write {A_POOL}"),
    ([{"name": "p"}], f"pools[0].addresses: must be a list, not null; write {RANGES}"),
    ([{"addresses": ["10.0.0.0/24"]}], "pools[0].name: must be a text, not null; write a name such as shop"),
    ([{"name": "P", "addresses": ["10.0.0.0/24"]}], f'pools[0].name: "P" is not a name; {A_NAME}'),
    (
        [{"name": "p", "addresses": "10.0.0.0/24"}],
        f'pools[0].addresses: must be a list, not "10.0.0.0/24"; write {RANGES}',
    ),
    (pool(), f"pools[0].addresses: the list is empty; write {RANGES}"),
    (pool(5), f"pools[0].addresses[0]: must be a text, not 5; write {A_RANGE}"),
    (pool("banana"), f'pools[0].addresses[0]: "banana" is neither a CIDR nor a range; write {A_RANGE}'),
    (pool("10.0.0"), f'pools[0].addresses[0]: "10.0.0" is neither a CIDR nor a range; write {A_RANGE}'),
    (pool("10.0.0.0/33"), f'pools[0].addresses[0]: "10.0.0.0/33" is neither a CIDR nor a range; write {A_RANGE}'),
    (pool("10.0.0.1-x"), f'pools[0].addresses[0]: "10.0.0.1-x" is neither a CIDR nor a range; write {A_RANGE}'),
    (pool("fd00::1%lo"), f'pools[0].addresses[0]: "fd00::1%lo" is neither a CIDR nor a range; write {A_RANGE}'),
    (
        pool("10.0.0.5/24"),
        (
            "pools[0].addresses[0]: 10.0.0.5/24 has bits set beyond its prefix; "
            "write 10.0.0.0/24 for the network, or 10.0.0.5 for one address"
        ),
    ),
    (
        pool("10.0.0.9-10.0.0.3"),
        "pools[0].addresses[0]: 10.0.0.9-10.0.0.3 ends before it begins; write 10.0.0.3-10.0.0.9",
    ),
    (
        pool("10.0.0.9-fd00::3"),
        "pools[0].addresses[0]: 10.0.0.9-fd00::3 begins with IPv4 and ends with IPv6; write one range for each family",
    ),
    (
        pool("10.0.0.0/24", "224.0.0.0/4"),
        "pools[0].addresses: 224.0.0.0/4 is never handed out (multicast); choose another range",
    ),
    (pool("127.0.0.1"), "pools[0].addresses: 127.0.0.1 is never handed out (localhost); choose another range"),
    (pool("::1/128"), "pools[0].addresses: ::1 is never handed out (localhost); choose another range"),
    (
        pool("10.0.0.0/24", exclude=["10.0.0.0/23"]),
        "pools[0].exclude: nothing is left of the pool; exclude less, or remove the pool",
    ),
    (pool("10.0.0.0/24", exclude=["10.0.1.9"]), "pools[0].exclude: 10.0.1.9 is not in the pool; remove it"),
    (
        pool("10.0.0.0/24", exclude=["x"]),
        f'pools[0].exclude[0]: "x" is neither a CIDR nor a range; write {A_RANGE}',
    ),
    (pool("10.0.0.0/24", prio=1), "pools[0].prio: no such key; did you mean priority?"),
    (
        pool("10.0.0.0/24", priority="1"),
        'pools[0].priority: "1" is not a whole number; write one without quotes, such as 10',
    ),
    (
        pool("10.0.0.0/24", priority=True),
        "pools[0].priority: true is not a whole number; write one without quotes, such as 10",
    ),
    (
        pool("10.0.0.0/24", namespaces="shop"),
        'pools[0].namespaces: must be a list, not "shop"; write a list such as [shop]',
    ),
    (pool("10.0.0.0/24", namespaces=["X"]), f'pools[0].namespaces[0]: "X" is not a name; {A_NAME}'),
    (
        pool("10.0.0.0/24", selector=["a"]),
        "pools[0].selector: must be a mapping, not a list of 1 item; write labels such as {team: web}",
    ),
    (pool("10.0.0.0/24", selector={"a": 1}), "pools[0].selector.a: must be a text, not 1; write it in quotes"),
    (
        [*pool("10.0.0.0/24"), *pool("10.0.1.0/24")],
        "pools: 2 pools are called p; give each a name of its own",
    ),
    (
        [*pool("10.0.0.0/24"), {"name": "q", "addresses": ["10.0.0.200-10.0.1.3", "10.0.0.16/28"]}],
        "pools: the pools p and q overlap in 10.0.0.16/28; take it out of one of them",
    ),
    (
        [*pool("fd00::/64"), {"name": "q", "addresses": ["fd00::5-fd01::"]}],
        "pools: the pools p and q overlap in fd00::5-fd00::ffff:ffff:ffff:ffff; take it out of one of them",
    ),
]


@pytest.mark.parametrize(("value", "sentence"), POOL_MISTAKES)
def test_a_mistake_in_pools_is_reported(value: object, sentence: str) -> None:
    """One sentence with the key, the value and the remedy."""
    assert mistakes(pools=value) == (sentence,)


PIN_MISTAKES: list[tuple[object, str]] = [
    ([], "pins: must be a mapping, not a list of 0 items; write {shop/web: [127.77.0.5]}"),
    (
        {"web": ["127.77.0.1"]},
        "pins.web: the key is not a Service; write `namespace/name`, such as shop/web, with `*` for any text",
    ),
    (
        {"a/b/c": ["127.77.0.1"]},
        "pins.a/b/c: the key is not a Service; write `namespace/name`, such as shop/web, with `*` for any text",
    ),
    ({"a/b": "127.77.0.1"}, 'pins.a/b: must be a list, not "127.77.0.1"; write a list such as [127.77.0.5]'),
    ({"a/b": []}, "pins.a/b: the list is empty; name an address or remove the pin"),
    ({"a/b": [5]}, "pins.a/b[0]: must be a text, not 5; write an address such as 127.77.0.5"),
    ({"a/b": ["here"]}, 'pins.a/b[0]: "here" is not an address; write one such as 127.77.0.5'),
    ({"a/b": ["127.77.0.0/27"]}, 'pins.a/b[0]: "127.77.0.0/27" is not an address; write one such as 127.77.0.5'),
    ({"a/b": ["127.0.0.53"]}, "pins.a/b[0]: 127.0.0.53 is never handed out (systemd-resolved); choose another address"),
    (
        {"a/b": ["127.77.0.1", "127.77.0.2"]},
        "pins.a/b[1]: 127.77.0.2 is a second IPv4 address beside 127.77.0.1; keep one of them",
    ),
    (
        {"a/b": ["127.77.0.1"], "c/d": ["127.77.0.1"]},
        "pins.c/d: 127.77.0.1 is already pinned to a/b; give each Service an address of its own",
    ),
    (
        {"a/b": ["10.1.2.3"]},
        "pins.a/b: 10.1.2.3 is in no pool; choose one of a pool's addresses or add it to local-lb:pools",
    ),
]


@pytest.mark.parametrize(("value", "sentence"), PIN_MISTAKES)
def test_a_mistake_in_pins_is_reported(value: object, sentence: str) -> None:
    """One sentence with the key, the value and the remedy."""
    assert mistakes(pins=value) == (sentence,)


def test_a_pin_on_an_excluded_address_is_reported() -> None:
    """It would never be granted."""
    assert mistakes(pools=pool("10.0.0.0/24", exclude=["10.0.0.7"]), pins={"a/b": ["10.0.0.7"]}) == (
        "pins.a/b: 10.0.0.7 is excluded from the pool p; choose another one or take it out of `exclude`",
    )


CONTAINERS = "for the runtimes docker and podman only; remove the key"
PROXIES = "use per-service or shared, or {mode: shared, count: 2} or {mode: per-service, spares: 1}"
OTHER_MISTAKES: list[tuple[str, object, str]] = [
    ("runtime", "lxc", 'runtime: "lxc" is no runtime; use process, docker or podman, or remove the key'),
    ("runtime", None, "runtime: null is no runtime; use process, docker or podman, or remove the key"),
    ("network", "host", 'network: "host" is for the runtimes docker and podman only; remove the key'),
    ("image", "a/b:1", 'image: "a/b:1" is for the runtimes docker and podman only; remove the key'),
    (
        "limits",
        {"memory": 512},
        f"limits: an object of 1 field is {CONTAINERS}",
    ),
    ("proxies", 2, f"proxies: unknown value 2; {PROXIES}"),
    ("proxies", {"mode": "spread"}, f'proxies: unknown value "spread"; {PROXIES}'),
    ("proxies", {"mode": "shared", "numer": 2}, "proxies.numer: no such key; the keys are mode, count, spares"),
    ("proxies", {"count": 2}, "proxies.count: it is for the mode shared only; remove the key or change the mode"),
    ("proxies", {"mode": "shared", "count": 0}, "proxies.count: 0 is out of range; write a number from 1 to 64"),
    ("proxies", {"spares": 65}, "proxies.spares: 65 is out of range; write a number from 0 to 64"),
    ("proxies", {"spares": "1"}, 'proxies.spares: "1" is not a whole number; write one without quotes, such as 10'),
    ("pool", [], "pool: no such key; did you mean pools?"),
    ("colour", "red", f"colour: no such key; the keys are {', '.join(KEYS)}"),
    ("classes", True, "classes: must be a mapping, not true; write {default: true, names: [local-lb.dev/local]}"),
    ("classes", {"name": ["x"]}, "classes.name: no such key; did you mean names?"),
    (
        "classes",
        {"default": "yes"},
        'classes.default: "yes" is neither true nor false; write one of them, without quotes',
    ),
    (
        "classes",
        {"names": "x"},
        'classes.names: must be a list, not "x"; write a list such as [local-lb.dev/local]',
    ),
]


@pytest.mark.parametrize(("key", "value", "sentence"), OTHER_MISTAKES)
def test_unknown_keys_and_wrong_types_are_refused_by_name(key: str, value: object, sentence: str) -> None:
    """Unknown keys, wrong types, and what comes later: refused by name, never ignored."""
    assert mistakes(**{key: value}) == (sentence,)


def test_all_mistakes_are_reported_at_once() -> None:
    """One mistake hides no other."""
    reported = mistakes(sources=[], pools=pool("x", "10.0.0.5/8"), pins={"web": ["y"]}, runtime="lxc", colour=1)
    assert [sentence.split(":")[0] for sentence in reported] == [
        "colour",
        "sources",
        "pools[0].addresses[0]",
        "pools[0].addresses[1]",
        "pins.web",
        "pins.web[0]",
        "runtime",
    ]


TEXT = st.text("ab01:./-% \n\x00é", max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
RANGE = st.sampled_from(["10.0.0.0/8", "::/0", "1.2.3.4", "0.0.0.0/0", "fe80::%x", "1-2", "", "/", "-", "::-::9"])
POOL_KEYS = ("name", "addresses", "exclude", "priority", "namespaces", "selector")
POOL = st.fixed_dictionaries({}, optional=dict.fromkeys(POOL_KEYS, JSON | st.lists(RANGE, max_size=3)))
CONFIG = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON) | {"pools": JSON | st.lists(POOL, max_size=3)})


@given(CONFIG)
def test_any_json_gives_settings_or_printable_errors(config: dict[str, object]) -> None:
    """Any JSON gives settings, or one printable line for each mistake; never another exception."""
    reported: tuple[str, ...] = ("nothing wrong",)
    try:
        parse_settings(config)
    except SettingsError as error:
        reported = error.sentences
    assert reported
    assert all(sentence.isprintable() for sentence in reported)


LIVE = {"kubernetes": {"name": "live"}}


def test_leader_election_is_off_and_has_the_usual_times() -> None:
    """15, 10 and 2 seconds, in the only live cluster, where nothing else is said."""
    assert parse_settings(SOURCES).leader_election is None
    assert parse_settings(SOURCES | {"leaderElection": {"enabled": False}}).leader_election is None
    election = parse_settings({"sources": [LIVE], "leaderElection": {"enabled": True}}).leader_election
    assert election == LeaderElection(ClusterName("live"), "local-lb", "", Timing(15, 10, 2))


@pytest.mark.parametrize(
    ("sources", "given", "reported"),
    [
        (SOURCES["sources"], {}, "leaderElection: no source is a live cluster, so nobody has a Lease; remove the key"),
        (
            [LIVE, {"kubernetes": {"name": "other"}}],
            {},
            "leaderElection.cluster: it is missing; name the cluster that has the Lease: live or other",
        ),
        ([LIVE], {"cluster": "x"}, "leaderElection.cluster: x is no live cluster; name live"),
        (
            [LIVE],
            {"enabled": 1},
            "leaderElection.enabled: 1 is neither true nor false; write one of them, without quotes",
        ),
        (
            [LIVE],
            {"retryPeriod": "2s"},
            'leaderElection.retryPeriod: "2s" is no number of seconds; write one such as 15',
        ),
        (
            [LIVE],
            {"renewDeadline": 15},
            "leaderElection: leaseDuration must be longer than renewDeadline, and that longer than retryPeriod",
        ),
        ([LIVE], {"leaseDurations": 15}, "leaderElection.leaseDurations: no such key; did you mean leaseDuration?"),
    ],
)
def test_invalid_election_is_refused_with_one_sentence(
    sources: object, given: Mapping[str, object], reported: str
) -> None:
    """One sentence each."""
    assert mistakes(sources=sources, leaderElection={"enabled": True, **given}) == (reported,)


def test_clusters_of_kind_are_one_more_source() -> None:
    """All of them, or those that are named."""
    assert parse_settings({"sources": [{"kind": "all"}]}).finders == (KindClusters(),)
    settings = parse_settings({"sources": [{"manifests": "a"}, {"kind": ["shop", "test"]}]})
    assert (len(settings.sources), settings.finders) == (1, (KindClusters(frozenset({"shop", "test"})),))
    assert parse_settings(SOURCES).finders == ()


def test_where_connections_go_first_is_one_of_three() -> None:
    """By themselves straight to pods where those are reached."""
    assert parse_settings(SOURCES).backends == "auto"
    for choice in ("auto", "pods", "nodePorts"):
        assert parse_settings(SOURCES | {"backends": choice}).backends == choice
    assert mistakes(backends="nodeports") == (
        'backends: "nodeports" is no choice; use auto, pods or nodePorts, or remove the key',
    )


def test_the_order_of_addresses_is_one_of_two() -> None:
    """That of spec.ipFamilies where nothing is said."""
    assert parse_settings(SOURCES).status_order == "ipFamilies"
    assert parse_settings(SOURCES | {"statusOrder": "ipv4First"}).status_order == "ipv4First"
    assert mistakes(statusOrder="ipv6First") == (
        'statusOrder: "ipv6First" is no order; use ipFamilies or ipv4First, or remove the key',
    )


def test_ports_are_mapped_on_request_and_then_there_are_no_addresses() -> None:
    """A pool, a pin and kube-proxy's own way to an address contradict it; YAML 1.1 takes `off` for false."""
    assert parse_settings(SOURCES | {"portMapping": "loopback"}).port_mapping
    assert parse_settings(SOURCES | {"portMapping": "loopback"}).pools == ()
    for off in ("off", False):
        assert not parse_settings(SOURCES | {"portMapping": off}).port_mapping
    assert mistakes(portMapping="127.0.0.1") == (
        'portMapping: "127.0.0.1" is no way to map ports; use loopback, or remove the key',
    )
    reported = mistakes(portMapping="loopback", pools=[{"name": "own", "addresses": ["127.78.0.0/27"]}], ipMode="VIP")
    assert reported == (
        "pools: with portMapping every Service is at 127.0.0.1; remove this key, or portMapping",
        "ipMode: with portMapping it would take what Nodes send to their own 127.0.0.1; use Proxy",
    )


def test_the_mode_of_addresses_is_one_of_two() -> None:
    """Proxy where nothing is said."""
    assert parse_settings(SOURCES).ip_mode == "Proxy"
    assert parse_settings(SOURCES | {"ipMode": "VIP"}).ip_mode == "VIP"
    assert mistakes(ipMode="vip") == ('ipMode: "vip" is no mode; use Proxy or VIP, or remove the key',)


@pytest.mark.parametrize(
    ("entry", "classes"),
    [
        ({"kind": "all"}, True),
        ({"kind": ["shop"], "classes": False}, False),
        ({"kind": "all", "classes": False}, False),
        ({"kubernetes": {"name": "c"}}, False),
        ({"kubernetes": {"name": "c", "classes": True}}, True),
        ({"gardener": {}}, False),
        ({"gardener": {"classes": True}}, True),
    ],
)
def test_clusters_of_kind_get_classes_and_others_on_request(entry: Mapping[str, object], classes: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """A key of each source says otherwise."""
    settings = parse_settings({"sources": [entry]})
    found: list[Any] = [*settings.sources, *settings.finders]
    assert [each.classes for each in found] == [classes]


def test_whether_a_source_gets_classes_is_true_or_false() -> None:
    """Nothing else."""
    (sentence,) = mistakes(sources=[{"kind": "all", "classes": "no"}])
    assert sentence == 'sources[0].classes: "no" is neither true nor false; write one of them, without quotes'
