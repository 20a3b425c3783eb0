"""Who gets which name: laws over any wishes, and the sentence for everybody who doesn't get one."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.dns.records import MAX_OF_CLUSTER, MAX_OF_OBJECT, Name, NameRequest, assign, ttl_of
from locallb.dns.zones import DnsSettings, Embedded, UpdatedServer, Zone, name_fault
from locallb.model.identities import ClusterName, ObjectKey, ZoneName

SERVER = Embedded(ip_address("127.0.0.77"), 5300)
ZONES = DnsSettings((Zone(ZoneName("test"), SERVER), Zone(ZoneName("lab.test"), SERVER)))
NAMES = ("a.test", "A.Test.", "b.lab.test", "*.apps.test", "x.apps.test", "lab.test", "no zone", "a..test", "c.example")
TARGETS = ("127.0.0.1", "127.0.0.2", "fd00::1")


def key(name: str) -> ObjectKey:
    return ObjectKey(ClusterName("c"), "n", name)


WISHES = st.lists(
    st.builds(
        NameRequest,
        st.sampled_from([None, key("a"), key("b"), key("c")]),
        st.lists(st.sampled_from(NAMES), max_size=4).map(tuple),
        st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3, unique=True).map(tuple),
        st.just(60),
    ),
    max_size=8,
)


@given(WISHES)
def test_each_name_has_one_owner_and_each_refusal_a_message(wishes: list[NameRequest]) -> None:
    """The first that requests a name has it; others get its name in a message; given names are in a zone."""
    names = assign(wishes, ZONES)
    given_names = [name.name for each in names.given.values() for name in each]
    assert len(given_names) == len(set(given_names))
    for wish in wishes:
        mine = {name.name for name in names.given.get(wish.key, ())}
        reported = [refusal.message for refusal in names.refused if refusal.key == wish.key]
        for text in wish.names:
            normal = text.lower().removesuffix(".")
            first = next(other for other in wishes for each in other.names if each.lower().removesuffix(".") == normal)
            assert (normal in mine) == (not name_fault(normal) and normal.endswith("test") and first.key == wish.key)
            assert normal in mine or any(normal in message for message in reported)
    assert all(message.message.startswith(str(message.key or "local-lb:dns.records")) for message in names.refused)


@given(WISHES, WISHES)
def test_younger_wishes_take_nothing_from_older_ones(older: list[NameRequest], younger: list[NameRequest]) -> None:
    """Whatever comes after them."""
    before, after = assign(older, ZONES), assign([*older, *younger], ZONES)
    for owner, names in before.given.items():
        assert set(names) <= set(after.given[owner])


@pytest.mark.parametrize(
    ("name", "targets", "sentence"),
    [
        ("-.test", ("127.0.0.1",), 'c/n/a: "-.test" can\'t be a name: use labels of at most 63 letters, digits and'),
        (f"{'a.' * 126}test", ("127.0.0.1",), "it has 256 characters; use at most 253"),
        (
            "web.example",
            ("127.0.0.1",),
            "the name web.example is in no zone of this stack (test, lab.test); choose one",
        ),
        ("a.test", ("127.0.0.1", "b.test"), "has the targets 127.0.0.1, b.test; give addresses, or one other name"),
        ("a.test", ("b.test", "c.test"), "has the targets b.test, c.test; give addresses, or one other name"),
        ("a.test", ("b_.-",), 'the name a.test can\'t lead to "b_.-": use labels'),
        ("a.test", ("b.test",), "leads to b.test, which the embedded server can't say; give addresses"),
        ("*.test", ("127.0.0.1",), "the embedded server doesn't answer for *.test; use a wildcard below test"),
    ],
)
def test_impossible_names_and_targets_are_refused_with_a_remedy(
    name: str, targets: tuple[str, ...], sentence: str
) -> None:
    """The sentence has the owner, the name and the remedy."""
    names = assign([NameRequest(key("a"), (name,), targets, 60)], ZONES)
    assert not names.given
    (refusal,) = names.refused
    assert refusal.key == key("a")
    assert sentence in refusal.message


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lab.test", "lab.test is the zone itself, whose records are its server's own; choose a name below it"),
        (
            f"{'a' * 58}.lab.test",
            "leaves no room for the mark of its owner; use at most 57 characters before the first",
        ),
    ],
)
def test_a_name_in_anothers_zone_needs_room_for_its_mark(name: str, sentence: str) -> None:
    """Beside it in the same zone; what an embedded server can't answer is fine there."""
    zones = DnsSettings((Zone(ZoneName("lab.test"), UpdatedServer(ip_address("127.0.0.1"), 53)),))
    (refusal,) = assign([NameRequest(key("a"), (name,), ("127.0.0.1",), 60)], zones).refused
    assert sentence in refusal.message
    ((alias,),) = assign([NameRequest(key("a"), ("x.lab.test",), ("b.test",), 60)], zones).given.values()
    assert alias.records == {"CNAME": ("b.test.",)}


def test_a_flood_of_names_reaches_no_server_and_takes_nothing_from_others() -> None:
    """Of one object, of one cluster; one sentence tells of each; an embedded server is told of all at once."""
    zones = DnsSettings((Zone(ZoneName("lab.test"), UpdatedServer(ip_address("127.0.0.1"), 53)), ZONES.zones[0]))

    def wish(cluster: str, name: str, count: int, zone: str = "lab.test") -> NameRequest:
        wanted = tuple(f"n{number}-{name}.{zone}" for number in range(count))
        return NameRequest(ObjectKey(ClusterName(cluster), "n", name), wanted, ("127.0.0.1",), 60)

    evil = wish("evil", "flood", 100_000)
    many = [wish("evil", f"x{number}", MAX_OF_OBJECT) for number in range(20)]
    own, late = wish("good", "web", 3), wish("evil", "late", 1)
    names = assign([evil, *many, own, late, wish("evil", "near", 2 * MAX_OF_OBJECT, "test")], zones)
    assert len(names.given[evil.key]) == MAX_OF_OBJECT
    assert {name.name for name in names.given[own.key]} == set(own.names)
    reported = [name for given_ in names.given.values() for name in given_ if name.zone.name == "lab.test"]
    assert len(reported) == MAX_OF_CLUSTER + len(own.names)
    assert late.key not in names.given
    assert len(names.given[ObjectKey(ClusterName("evil"), "n", "near")]) == 2 * MAX_OF_OBJECT
    assert [refusal.key for refusal in names.refused] == [evil.key, *(each.key for each in many[9:]), late.key]
    assert names.refused[0].message == (
        "evil/n/flood: 99000 names aren't given: servers that take updates are told of at most 1000 of an object and"
        " 10000 of a cluster; use wildcards, or fewer names"
    )


def test_a_later_request_for_a_name_learns_its_owner() -> None:
    """And somebody with two wishes for one name hears nothing."""
    wish = NameRequest(key("a"), ("web.test",), ("127.0.0.1",), 60)
    names = assign([wish, wish, NameRequest(key("b"), ("web.test",), ("127.0.0.2",), 60)], ZONES)
    assert names.given == {key("a"): (Name("web.test", ZONES.zones[0], 60, (ip_address("127.0.0.1"),)),)}
    assert [refusal.message for refusal in names.refused] == [
        "c/n/b: the name web.test is that of c/n/a, which is older; choose another one"
    ]


def test_records_by_type_and_the_innermost_zone() -> None:
    """Both families side by side; another name in place of them."""
    wish = NameRequest(key("a"), ("x.lab.test",), ("127.0.0.1", "fd00::1", "127.0.0.2"), 60)
    ((name,),) = assign([wish], ZONES).given.values()
    assert name.zone.name == "lab.test"
    assert name.records == {"A": ("127.0.0.1", "127.0.0.2"), "AAAA": ("fd00::1",)}
    assert Name("a.test", ZONES.zones[0], 60, alias="b.test").records == {"CNAME": ("b.test.",)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60), ("5m", 300), ("1h", 3600), ("7s", 7), ("0", None), ("-1", None), ("", None), ("m", None), ("1w", None),
     ("604801", None), ("9" * 40, None), ("٣", None)],
)  # fmt: skip
def test_a_ttl_is_seconds_or_a_duration(text: str, seconds: int | None) -> None:
    """Of a bounded size."""
    assert ttl_of(text) == seconds
