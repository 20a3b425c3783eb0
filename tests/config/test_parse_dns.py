"""The key `dns`: what is taken, and the sentence for everything that is not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.dns.zones import DnsSettings, Embedded, UpdatedServer, Zone
from locallb.model.identities import OwnerId, ZoneName

SOURCES = {"sources": [{"manifests": "examples/shop", "name": "shop"}]}
ZONE = {"zone": "test", "embedded": "127.0.0.77:5300"}
OTHER = {"zone": "lab.example", "rfc2136": {"server": "127.0.0.1:5353", "tsig": "keys/lab.key"}}
SERVER = Embedded(ip_address("127.0.0.77"), 5300)


def mistake(dns: object, **config: object) -> str:
    with pytest.raises(SettingsError) as caught:
        parse_settings({**SOURCES, **config, "dns": dns})
    (sentence,) = caught.value.sentences
    return sentence.removeprefix("local-lb:")


def test_a_zone_is_enough() -> None:
    """The rest has defaults; without the key there are no names."""
    assert parse_settings(SOURCES).dns is None
    every, zones = "{name}.{namespace}.{cluster}.test", (Zone(ZoneName("test"), SERVER),)
    assert parse_settings({**SOURCES, "dns": {"zones": [ZONE]}}).dns == DnsSettings(zones, every)
    own = (Zone(ZoneName("test"), Embedded()),)
    assert parse_settings({**SOURCES, "dns": {"zones": [{"zone": "Test.", "embedded": True}]}}).dns == DnsSettings(
        own, every
    )


def test_every_dns_key_is_parsed() -> None:
    """Template, TTL and names of the stack."""
    zones = [ZONE, {"zone": "lab.example", "embedded": "[::1]:53"}]
    more = {"template": False, "ttl": 5, "records": {"DB.test": ["127.0.0.1"], "a.test": ["b.test"]}}
    dns = parse_settings({**SOURCES, "dns": {"zones": zones, **more}}).dns
    assert dns == DnsSettings(
        (Zone(ZoneName("test"), SERVER), Zone(ZoneName("lab.example"), Embedded(ip_address("::1"), 53))),
        "",
        5,
        {"db.test": ("127.0.0.1",), "a.test": ("b.test",)},
    )


def test_in_cluster_zones_require_a_server_reachable_from_pods() -> None:
    """Where their servers can be reached from there: at an address of a private network, or of another host."""
    reached = [{"zone": "test", "embedded": "172.18.0.1:5300"}, {**OTHER, "rfc2136": {"server": "192.0.2.1"}}]
    read = parse_settings({**SOURCES, "dns": {"zones": reached, "clusters": "stub"}}).dns
    assert read is not None
    assert read.in_clusters
    assert mistake({"zones": [ZONE], "clusters": "stub"}) == (
        "dns.clusters: pods don't reach 127.0.0.77:5300, which answers for test: it is this host's loopback; have it"
        " answer at an address that Nodes reach, such as 172.18.0.1:5300 on kind's network"
    )
    assert (
        mistake({"zones": reached, "clusters": True})
        == 'dns.clusters: "True" isn\'t known; write stub, or leave it out'
    )
    reported = "is no address of the loopback or of a private network; use 127.0.0.1:9477"
    for address in ("8.8.8.8", "0.0.0.0", "[::]"):
        assert reported in mistake({"zones": [{"zone": "test", "embedded": f"{address}:5300"}]})


@pytest.mark.parametrize(
    ("text", "address", "number"),
    [("127.0.0.1", "127.0.0.1", 53), ("192.0.2.1:54", "192.0.2.1", 54), ("::1", "::1", 53), ("[::1]:54", "::1", 54)],
)
def test_a_server_that_takes_updates(text: str, address: str, number: int) -> None:
    """By its address, with a port or without; the key is a file's name."""
    dns = parse_settings({**SOURCES, "dns": {"zones": [{**OTHER, "rfc2136": {"server": text, "tsig": "k"}}]}}).dns
    assert dns is not None
    assert dns.zones == (
        Zone(ZoneName("lab.example"), UpdatedServer(ip_address(address), number, options=(("tsig", "k"),))),
    )
    assert not dns.embedded


def test_a_zone_may_name_the_owner_of_its_marks() -> None:
    """A word; without one the stack has its own."""
    named = {**OTHER, "rfc2136": {"server": "::1", "owner": "laptop-1"}}
    dns = parse_settings({**SOURCES, "dns": {"zones": [named]}}).dns
    assert dns is not None
    assert dns.zones == (
        Zone(ZoneName("lab.example"), UpdatedServer(ip_address("::1"), 53, owner=OwnerId("laptop-1"))),
    )


@pytest.mark.parametrize(
    ("dns", "sentence"),
    [
        ([], "dns: must be a mapping, not a list of 0 items; write {zones: [{zone: test, embedded: 127.0.0.77:5300}]}"),
        ({"zones": []}, "dns.zones: there is none; write a list such as [{zone: test, embedded: 127.0.0.77:5300}]"),
        ({"zones": [{"zone": "test"}]}, "dns.zones[0]: no server answers for it; write {zone: test, embedded:"),
        ({"zones": [{**ZONE, "zone": "*.test"}]}, 'dns.zones[0].zone: "*.test" is no zone: a zone has no wildcard;'),
        ({"zones": [{**ZONE, "zone": "a..b"}]}, 'dns.zones[0].zone: "a..b" is no zone: use labels of at most 63'),
        ({"zones": [ZONE, ZONE]}, "dns.zones: test is there twice; keep one of them"),
        ({"zones": [{**ZONE, "embedded": "127.0.0.77"}]}, 'dns.zones[0].embedded: "127.0.0.77" is no address with a'),
        ({"zones": [{**ZONE, "embedded": "8.8.8.8:53"}]}, "dns.zones[0].embedded: 8.8.8.8 is no address of the loop"),
        (
            {"zones": [{**ZONE, "embedded": "127.77.0.9:53"}]},
            "dns.zones: 127.77.0.9 is an address of the pool default;",
        ),
        ({"zones": [{**ZONE, "rfc2136": {}}]}, "dns.zones[0]: two servers answer for it; keep one of them"),
        (
            {"zones": [{"zone": "a", "rfc2136": {"server": "x"}}]},
            'dns.zones[0].rfc2136.server: "x" is no address; write',
        ),
        ({"zones": [{"zone": "a", "rfc2136": {"server": "::1:x"}}]}, 'dns.zones[0].rfc2136.server: "::1:x" is no'),
        ({"zones": [{"zone": "a", "rfc2136": {"server": "::1", "key": 1}}]}, "dns.zones[0].rfc2136.key: no such key;"),
        (
            {"zones": [{"zone": "a", "rfc2136": {"server": "::1", "owner": "a,b"}}]},
            'dns.zones[0].rfc2136.owner: "a,b" can\'t stand in a mark; use up to 63 letters, digits,',
        ),
        (
            {"zones": [OTHER], "records": {"a.lab.example": ["::1"]}},
            "dns.records.a.lab.example: the zone lab.example has",
        ),
        ({"zones": [ZONE], "zone": 1}, "dns.zone: no such key; did you mean zones?"),
        ({"zones": [ZONE], "ttl": 0}, "dns.ttl: 0 seconds is no TTL; use 1 to 604800, such as 60"),
        ({"zones": [ZONE], "template": "{service}.test"}, 'dns.template: "{service}.test" makes no names: use labels'),
        (
            {"zones": [ZONE], "template": "{name}.org"},
            'dns.template: "{name}.org" lies in none of the zones; write one',
        ),
        ({"zones": [ZONE], "records": {"a..b": ["127.0.0.1"]}}, "dns.records.a..b: it is no name: use labels"),
        ({"zones": [ZONE], "records": {"a.org": ["127.0.0.1"]}}, "dns.records.a.org: it lies in none of the zones;"),
        (
            {"zones": [ZONE], "records": {"a.test": []}},
            "dns.records.a.test: the list is empty; write addresses such as",
        ),
        (
            {"zones": [ZONE], "records": {"a.test": ["x y"]}},
            'dns.records.a.test: "x y" is no address; write [127.0.0.1,',
        ),
        ({"zones": [ZONE], "records": {"a.test": ["::1", "b"]}}, 'dns.records.a.test: "b" is no address; write [127.'),
    ],
)
def test_a_mistake_is_reported_with_its_remedy(dns: object, sentence: str) -> None:
    """One sentence each."""
    assert mistake(dns).startswith(sentence)
