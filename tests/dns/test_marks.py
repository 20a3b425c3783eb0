"""Whose a name is, and what an update may change: laws over whatever a zone has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.dns.rfc2136 import parse_key
from locallb.dns.updates import TYPES, Former, Marker, ServerAnswer, Set, marker_name, putting, removing
from locallb.model.identities import OwnerId

MINE, OTHER = Marker(OwnerId("local-lb-1"), "service/c/n/web"), Marker(OwnerId("local-lb-1"), "service/c/n/x")
EARLIER = Marker(OwnerId("local-lb-0"), "service/c/n/web")
OTHERS = Marker(OwnerId("local-lb-0"), "service/c/n/x"), Marker(OwnerId("default"), "ingress/a/b")
TEXTS = (*map(str, (MINE, OTHER, EARLIER, *OTHERS)), "v=spf1 -all", "heritage=external-dns")
VALUES = st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=2, unique=True).map(tuple)
RECORDS = st.dictionaries(st.sampled_from(TYPES), VALUES)
TOLD = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2).map(tuple)
SEEN = st.builds(ServerAnswer, RECORDS, st.dictionaries(st.sampled_from(TYPES), TOLD))
CLASSIC = st.builds(ServerAnswer, RECORDS, st.dictionaries(st.sampled_from(TYPES), TOLD), classic=TOLD | st.just(()))
OVER = "default"
NAME = "web.lab.example"


@given(SEEN, RECORDS.filter(bool), st.sampled_from([None, EARLIER]))
def test_an_update_changes_what_has_our_mark_and_what_is_free(
    observed: ServerAnswer, wanted: dict[str, tuple[str, ...]], before: Marker | None
) -> None:
    """Whatever it changes is either marked as ours, which the server checks again, or must not be there."""
    update = putting(NAME, wanted, MINE, observed, Former(before))
    kinds = {*observed.ours(MINE.owner), *(observed.having(before) if before else ())}
    present, absent = {each.name for each in update.present}, {(each.name, each.kind) for each in update.absent}
    for each in (*update.put, *update.removed):
        kind = each.kind if each.name == NAME else each.name.partition("-")[0].upper()
        ours = marker_name(NAME, kind) in present
        assert ours == (kind in kinds)
        marks = {(marker_name(NAME, kind), held) for held in ("TXT", "CNAME")}
        assert ours or {(NAME, kind), *marks} <= absent
    assert {each.kind: each.values for each in update.put if each.name == NAME} == wanted
    assert {each.name: each.values for each in update.put if each.name != NAME} == {
        marker_name(NAME, kind): (str(MINE),) for kind in wanted
    }


@given(CLASSIC, RECORDS.filter(bool))
def test_takeover_changes_only_records_marked_by_the_former_owner(
    observed: ServerAnswer, wanted: dict[str, tuple[str, ...]]
) -> None:
    """Each changed record is conditional on a mark of either owner, at the name or beside it, or on its absence."""
    update = putting(NAME, wanted, MINE, observed, Former(owner=OwnerId(OVER)))
    held = {(each.name, each.values) for each in update.present}
    for name, values in held:
        marker = Marker.parse(values[0])
        assert len(values) == 1
        assert marker
        assert marker.owner in {OVER, MINE.owner}
        assert name == NAME or observed.markers[name.partition("-")[0].upper()] == values
    classic = (NAME, observed.classic) in held
    absent = {(each.name, each.kind) for each in update.absent}
    for each in (*update.put, *update.removed):
        kind = each.kind if each.name == NAME else each.name.partition("-")[0].upper()
        if (each.name, each.kind) == (NAME, "TXT"):
            assert classic
        elif marker_name(NAME, kind) not in {name for name, _ in held}:
            by_classic = (
                classic and kind in {"A", "CNAME"} and kind in observed.records and kind not in observed.markers
            )
            assert by_classic or (NAME, kind) in absent
            assert kind not in wanted or {(marker_name(NAME, kind), each) for each in ("TXT", "CNAME")} <= absent
    assert classic == (Set(NAME, "TXT") in update.removed)
    assert putting(NAME, wanted, MINE, observed) == putting(NAME, wanted, MINE, replace(observed, classic=()))


@given(SEEN)
def test_removal_deletes_only_records_marked_by_this_object(observed: ServerAnswer) -> None:
    """Not even what another object of the same stack has."""
    update = removing(NAME, MINE, observed)
    mine = {kind for kind, marker in observed.ours(MINE.owner).items() if marker == MINE}
    assert (update is None) == (not mine)
    if update:
        assert {each.kind for each in update.removed if each.name == NAME} == mine
        assert {each.name for each in update.present} == {marker_name(NAME, kind) for kind in mine}
        assert not update.put


@given(st.text())
def test_any_text_is_a_mark_or_none(text: str) -> None:
    """Never an exception; ours are read back."""
    marker = Marker.parse(text)
    assert marker is None or text.strip('"').startswith("heritage=external-dns")
    assert Marker.parse(str(MINE)) == Marker.parse(f'"{MINE}"') == MINE


def test_keys_as_bind_writes_them() -> None:
    """In one line or several; without an algorithm that is known, or a secret, there is none."""
    key = parse_key('# mine\nkey "lab." {\n\talgorithm hmac-sha512;\n\tsecret "c2VjcmV0";\n};\n')
    assert key is not None
    assert (key.name, key.algorithm, key.secret) == ("lab.", "hmac-sha512", "c2VjcmV0")
    assert "c2VjcmV0" not in repr(key)
    old = 'key "old" { algorithm hmac-sha256; secret "b2xk"; };'
    new = 'key "new" { secret "//8="; }; // key of May'
    for text in (f"# {old}\n{new}", f"//{old}\n{new}", f"/* {old}\n */{new}", f"{new}\n{old}"):
        key = parse_key(text)
        assert key is not None
        assert (key.name, key.algorithm, key.secret) == ("new", "hmac-sha256", "//8=")
    assert parse_key('key x { algorithm gss-tsig; secret "c2VjcmV0"; };') is None
    assert parse_key("key x { algorithm hmac-sha256; };") is None
