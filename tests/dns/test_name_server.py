"""DnsName against a real BIND 9: put, changed, removed; what others have is never touched; every failure a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import dns.query
import dns.update
import pytest
from msgspec.structs import replace

from locallb.dns.owner_ids import establish, owner_id
from locallb.dns.provider import open_zone
from locallb.dns.updates import early_owner_id
from locallb.dns.zones import UpdatedServer
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, OwnerId, Uid, ZoneName
from locallb.outputs.names import DnsName
from locallb.resources.properties import DnsNameInputs, DnsNameState
from locallb.resources.resource_type import ProviderError
from tests.support.bind import ZONE, Bind, bind

HOME = Home("local-lb", "dev", "/nowhere")


@pytest.fixture(scope="module")
def server() -> Iterator[Bind]:
    """Run a server whose zone takes updates from everybody."""
    with bind() as running:
        yield running


def wanted(
    server: Bind, name: str, *records: str, owner: str = "web", home: Home = HOME, **more: object
) -> DnsNameInputs:
    owned_by = Owner(home, ObjectKey(ClusterName("c"), "n", owner), Uid("u"))
    given = DnsNameInputs(
        owner=owned_by,
        zone=ZONE,
        name=f"{name}.{ZONE}",
        server="127.0.0.1",
        port=server.port,
        tsig="",
        mark=OwnerId(""),
        takes=OwnerId(""),
        ttl=60,
        records=records,
    )
    return replace(given, **more)


def by_hand(server: Bind, change: str, name: str, *rest: object) -> None:
    message = dns.update.UpdateMessage(f"{ZONE}.")
    getattr(message, change)(name, *rest)
    assert dns.query.tcp(message, "127.0.0.1", 5, server.port).rcode() == 0


KIND = DnsName(Path("/nowhere"))


def put(new: DnsNameInputs) -> DnsNameState:
    return KIND.create(new)[1]


@pytest.mark.parametrize("name", ["web", "*.apps", "a" * 57])
def test_a_name_comes_changes_and_goes(server: Bind, name: str) -> None:
    """With its markers, and with everything else as it was; the serial moves on."""
    before, serial = server.records(), server.serial()
    state = put(wanted(server, name, "A 127.0.0.1", "A 127.0.0.2", "AAAA fd00::1"))
    full = f"{name}.{ZONE}"
    assert server.records()[full] == {"A 127.0.0.1", "A 127.0.0.2", "AAAA fd00::1"}
    (marker,) = server.records()[f"aaaa-{full}"]
    assert marker == (
        f'TXT "heritage=external-dns,external-dns/owner={owner_id(HOME)},external-dns/resource=service/c/n/web"'
    )
    assert KIND.read(state) == state
    state = KIND.update(state, wanted(server, name, "A 127.0.0.3"))
    assert server.records()[full] == {"A 127.0.0.3"}
    assert f"aaaa-{full}" not in server.records()
    state = KIND.update(state, wanted(server, name, "CNAME elsewhere.lab.example.", ttl=5))
    assert server.records()[full] == {"CNAME elsewhere.lab.example."}
    assert KIND.read(state) == state
    assert not KIND.leaves_nothing(state)
    KIND.delete(state)
    KIND.delete(state)
    assert KIND.leaves_nothing(state)
    assert KIND.read(state) is None
    assert server.records() == before
    assert server.serial() > serial


def test_records_of_other_owners_are_never_changed(server: Bind) -> None:
    """Unmarked, marked by external-dns, marked by another stack; nor is it on removal."""
    by_hand(server, "add", "theirs", 60, "A", "192.0.2.2")
    text = '"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/shop/x"'
    by_hand(server, "add", "marked", 60, "A", "192.0.2.3")
    by_hand(server, "add", "a-marked", 60, "TXT", text)
    other = put(wanted(server, "other", "A 127.0.0.9", home=Home("local-lb", "other", "/nowhere")))
    before = server.records()
    for name, party in (
        ("theirs", "somebody who left no mark"),
        ("marked", "ingress/shop/x of default"),
        ("other", f"service/c/n/web of {owner_id(other.owner.home)}"),
    ):
        for records in (("A 127.0.0.1",), ("A 127.0.0.1", "AAAA fd00::1")):
            place = f"127.0.0.1:{server.port}"
            reported = f"{name}.{ZONE} isn't this stack's to change: zone {ZONE} at {place} has it for {party};"
            with pytest.raises(ProviderError, match=reported.replace(".", r"\.")):
                put(wanted(server, name, *records))
        KIND.delete(blank(wanted(server, name, "A 192.0.2.2")))
    with pytest.raises(ProviderError, match="isn't this stack's to change"):
        put(wanted(server, "mail", "CNAME elsewhere.lab.example."))
    assert server.records() == before


def blank(new: DnsNameInputs) -> DnsNameState:
    """Return the state that an earlier version, or an interrupted creation, has of it."""
    return DnsNameState(**{field: getattr(new, field) for field in DnsNameInputs.__struct_fields__}, marked=OwnerId(""))


def test_two_hosts_with_the_same_directory_leave_each_others_names_alone(server: Bind, tmp_path: Path) -> None:
    """Each has an id of its own, which stays; neither changes nor removes what the other has."""
    home, root = Home("local-lb", "dev", str(tmp_path / "p")), tmp_path / "p"
    establish(home)
    theirs = owner_id(home)
    other = put(wanted(server, "both", "A 127.0.0.1", home=home))
    assert other.marked == theirs
    root.rename(tmp_path / "other-host")
    establish(home)
    establish(home)
    assert theirs != owner_id(home) != early_owner_id(home)
    mine = wanted(server, "both", "A 127.0.0.2", home=home)
    with pytest.raises(ProviderError, match=f"has it for service/c/n/web of {theirs};"):
        put(mine)
    assert KIND.leaves_nothing(blank(mine))
    DnsName(root).delete(blank(mine))
    assert server.records()[f"both.{ZONE}"] == {"A 127.0.0.1"}
    assert KIND.read(other) == other
    DnsName(root).delete(other)
    assert f"both.{ZONE}" not in server.records()


def test_records_marked_earlier_by_the_same_stack_are_taken_over_and_no_others(server: Bind, tmp_path: Path) -> None:
    """After the stack was moved or got an owner name; records of an earlier version are recognised."""
    early = blank(put(wanted(server, "early", "A 127.0.0.1", "AAAA fd00::1")))
    assert KIND.read(early) == replace(early, records=("A 127.0.0.1", "AAAA fd00::1"))
    moved = wanted(server, "early", "A 127.0.0.2", home=Home("local-lb", "dev", str(tmp_path / "moved")))
    state = KIND.update(early, moved)
    named = replace(moved, mark=OwnerId("laptop"), records=("A 127.0.0.3",))
    assert KIND.diff(state, named).changed == {"mark", "records"}
    state = KIND.update(state, named)
    records = server.records()
    assert records[f"early.{ZONE}"] == {"A 127.0.0.3"}
    (mark,) = records[f"a-early.{ZONE}"]
    assert "external-dns/owner=laptop,external-dns/resource=service/c/n/web" in mark
    assert f"aaaa-early.{ZONE}" not in records
    other = put(wanted(server, "early2", "A 127.0.0.1", owner="other"))
    with pytest.raises(ProviderError, match="has it for service/c/n/other of local-lb-"):
        KIND.update(early, replace(named, name=f"early2.{ZONE}"))
    for each in (state, other):
        KIND.delete(each)
    assert not [name for name in server.records() if "early" in name]


def test_a_name_beside_other_records_and_below_a_wildcard(server: Bind) -> None:
    """Neither is in the way of an address, and both stay."""
    by_hand(server, "add", "*.wild", 60, "A", "192.0.2.9")
    before = server.records()
    states = [put(wanted(server, name, "A 127.0.0.1")) for name in ("mail", "x.wild")]
    assert server.records()[f"mail.{ZONE}"] == {"MX 10 foreign.lab.example.", "A 127.0.0.1"}
    assert server.records()[f"x.wild.{ZONE}"] == {"A 127.0.0.1"}
    for state in states:
        KIND.delete(state)
    assert server.records() == before


@pytest.mark.parametrize(
    "text",
    [
        '"v=spf1 -all"',
        '"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/shop/x"',
    ],
)
def test_a_text_of_a_wildcard_is_nobodys_mark(server: Bind, text: str) -> None:
    """A name beside it is put, changed and removed, and the wildcard stays; who has a name himself is told by name."""
    by_hand(server, "add", "*.texts", 60, "TXT", text)
    by_hand(server, "add", "*", 60, "TXT", text)
    by_hand(server, "add", "theirs.texts", 60, "A", "192.0.2.2")
    before = server.records()
    names = ["web.texts", "aaaa.texts", "top"]
    states = [put(wanted(server, name, "A 127.0.0.1")) for name in names]
    states = [
        KIND.update(state, wanted(server, state.name.removesuffix(f".{ZONE}"), "AAAA fd00::1")) for state in states
    ]
    assert [server.records()[state.name] for state in states] == [{"AAAA fd00::1"}] * len(names)
    assert [KIND.read(state) for state in states] == states
    with pytest.raises(ProviderError, match="isn't this stack's to change"):
        put(wanted(server, "theirs.texts", "A 127.0.0.1"))
    for state in states:
        KIND.delete(state)
        assert KIND.leaves_nothing(state)
    assert server.records() == before
    for name in ("*.texts", "*", "theirs.texts"):
        by_hand(server, "delete", name)


@pytest.mark.parametrize("mark", ["*.edge", "a-*.edge"])
def test_names_below_a_wildcard_that_may_be_taken_over_are_put_and_it_stays(server: Bind, mark: str) -> None:
    """Its mark of old answers for every name below it; what it marks itself is taken over all the same."""
    text = '"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/shop/x"'
    by_hand(server, "add", "*.edge", 60, "A", "192.0.2.9")
    by_hand(server, "add", mark, 60, "TXT", text)
    before = server.records()
    state = put(wanted(server, "web.edge", "A 127.0.0.1", takes="default"))
    assert server.records()[f"web.edge.{ZONE}"] == {"A 127.0.0.1"}
    KIND.delete(state)
    assert server.records() == before
    state = put(wanted(server, "*.edge", "A 127.0.0.1", takes="default"))
    assert server.records()[f"*.edge.{ZONE}"] == {"A 127.0.0.1"}
    KIND.delete(state)
    assert not [name for name in server.records() if "edge" in name]


def test_a_name_goes_over_to_another_object_in_either_order(server: Bind) -> None:
    """Whoever has it last keeps it, and the removal of the other takes nothing away."""
    old = put(wanted(server, "shared", "A 127.0.0.1", owner="old"))
    new = put(wanted(server, "shared", "A 127.0.0.2", owner="new"))
    KIND.delete(old)
    assert server.records()[f"shared.{ZONE}"] == {"A 127.0.0.2"}
    KIND.delete(new)
    assert f"shared.{ZONE}" not in server.records()


def test_changed_records_are_detected_and_repaired(server: Bind) -> None:
    """Its values, its TTL, all of it."""
    new = wanted(server, "repaired", "A 127.0.0.1")
    state = put(new)
    by_hand(server, "replace", "repaired", 7, "A", "192.0.2.7")
    observed = KIND.read(state)
    assert observed == replace(state, records=("A 192.0.2.7",), ttl=7)
    assert KIND.diff(observed, new).changed == {"records", "ttl"}
    KIND.update(observed, new)
    assert KIND.read(state) == state
    by_hand(server, "delete", "repaired")
    assert KIND.read(state) is None
    put(new)
    assert KIND.read(state) == state
    KIND.delete(state)


def test_the_stacks_names_are_found_by_their_markers(server: Bind) -> None:
    """For who lost its state."""
    home = Home("local-lb", "lost", "/nowhere")
    states = [put(wanted(server, name, "A 127.0.0.1", home=home, owner="x")) for name in ("one", "*.two")]
    zone = open_zone(ZONE, UpdatedServer(ip_address("127.0.0.1"), server.port), Path())
    found = zone.names(owner_id(home))
    assert {(name, marker.resource) for name, marker in found} == {
        (f"one.{ZONE}", "service/c/n/x"),
        (f"*.two.{ZONE}", "service/c/n/x"),
    }
    for state in states:
        KIND.delete(state)
    assert not list(zone.names(owner_id(home)))


def test_tsig_key_is_accepted_or_its_fault_named(tmp_path: Path) -> None:
    """The right one; and in one sentence each: a wrong one, none, one that isn't there, a file without a key."""
    with bind(signed=True) as server:
        state = put(wanted(server, "web", "A 127.0.0.1", tsig=str(server.key)))
        wrong = tmp_path / "wrong.key"
        wrong.write_text(server.key.read_text().replace('secret "', 'secret "AAAA'))
        unknown = tmp_path / "unknown.key"
        unknown.write_text(server.key.read_text().replace('"lab"', '"unknown"'))
        empty = tmp_path / "empty.key"
        empty.write_text("nothing\n")
        at = f"zone {ZONE} at 127.0.0.1:{server.port}"
        for path, reported in (
            (str(wrong), f"{at} doesn't take the key in {wrong}: give `tsig` the file of a key that the server has"),
            (
                str(unknown),
                f"{at} doesn't take the key in {unknown}: give `tsig` the file of a key that the server has",
            ),
            ("", f"{at} refuses an update (REFUSED): allow this host to change and ask it (BIND: `allow-update`), or"),
            (str(tmp_path / "none"), f"{at}: {tmp_path}/none isn't there; write one with `tsig-keygen NAME >"),
            (str(empty), f"{at}: {empty} has no key; write one with `tsig-keygen NAME >"),
        ):
            with pytest.raises(ClientError) as caught:
                put(wanted(server, "other", "A 127.0.0.1", tsig=path))
            assert str(caught.value).startswith(reported)
            assert "\n" not in str(caught.value)
        assert f"other.{ZONE}" not in server.records()
        secret = server.key.read_text().split('"')[3]
        assert secret not in repr(state)


def test_a_server_that_is_away_or_has_no_such_zone(server: Bind) -> None:
    """Nothing is forgotten: what can't be asked stays as it was, and is tried again."""
    state = put(wanted(server, "stays", "A 127.0.0.1"))
    with bind() as other:
        removed = replace(state, port=other.port)
        other.stop()
        assert KIND.read(removed) == removed
        assert not KIND.leaves_nothing(removed)
        for act in (lambda: KIND.delete(removed), lambda: KIND.update(removed, wanted(other, "x", "A 127.0.0.2"))):
            with pytest.raises(ClientError, match=r"doesn't answer: start it, or correct local-lb:dns\.zones; it is"):
                act()
    with pytest.raises(ClientError, match=r"zone other\.example at .* refuses"):
        put(replace(wanted(server, "x", "A 127.0.0.1"), zone=ZoneName("other.example"), name="x.other.example"))
    KIND.delete(state)
