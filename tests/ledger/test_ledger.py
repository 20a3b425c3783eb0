"""The ledger: one holder an address, whoever writes at once and wherever a writer is stopped."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.ledger.claims import ClaimFile, LedgerError, read_entry
from locallb.ledger.ledger import UNKNOWN, Ledger
from locallb.model.identities import Home, Owner, SharingKey, Uid
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim
from tests.support.descriptors import count_open, few_files
from tests.support.owners import holders, owner

ADDRESS, OTHER = ip_address("127.77.0.5"), ip_address("127.77.0.6")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return an empty ledger whose directory isn't made yet."""
    return Ledger(tmp_path / "state" / "ledger")


def files(ledger: Ledger) -> list[str]:
    return sorted(path.name for path in ledger.directory.iterdir())


def test_reading_an_absent_ledger_creates_nothing(ledger: Ledger) -> None:
    """A ledger that nobody wrote is empty, and stays absent."""
    assert (ledger.claims(), ledger.problems()) == ((), ())
    ledger.release(ADDRESS, owner("web"))
    assert not ledger.directory.exists()


def test_a_claim_holds_until_its_owner_releases_it(ledger: Ledger) -> None:
    """Claiming again is fine; another's release is without effect."""
    for _ in range(2):
        ledger.claim(ADDRESS, owner("web"))
    ledger.release(ADDRESS, owner("other"))
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)
    ledger.release(ADDRESS, owner("web"))
    assert files(ledger) == []


def test_claims_come_sorted_by_number(ledger: Ledger) -> None:
    """127.0.0.10 comes after 127.0.0.9, IPv6 after IPv4."""
    addresses = [ip_address(text) for text in ("127.0.0.9", "127.0.0.10", "fd00::1")]
    for address in reversed(addresses):
        ledger.claim(address, owner("web"))
    assert [claim.address for claim in ledger.claims()] == addresses


@pytest.mark.parametrize(
    "other",
    [
        owner("other"),
        owner("web", uid="u2"),
        owner("web", root="/elsewhere"),
        replace(owner("web"), home=Home("shop", "prod", "/nowhere/shop")),
    ],
)
def test_address_of_another_owner_is_refused(ledger: Ledger, other: Owner) -> None:
    """Every part of the identity counts, and the sentence names the holder."""
    ledger.claim(ADDRESS, owner("web"))
    with pytest.raises(LedgerError, match=r"127\.77\.0\.5 belongs to local/default/web of shop/dev at /nowhere/shop"):
        ledger.claim(ADDRESS, other)
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)


def test_a_claim_is_handed_over(ledger: Ledger) -> None:
    """From the old owner, from nobody, and again."""
    ledger.reown(ADDRESS, owner("web"), owner("web", uid="u2"))
    ledger.reown(ADDRESS, owner("web", uid="u2"), owner("web", uid="u3"))
    ledger.reown(ADDRESS, owner("web", uid="u2"), owner("web", uid="u3"))
    assert ledger.claims() == (Claim(ADDRESS, owner("web", uid="u3")),)
    assert len(files(ledger)) == 1


def test_a_third_ones_claim_is_not_handed_over(ledger: Ledger) -> None:
    """Who is neither the old nor the new owner keeps it."""
    ledger.claim(ADDRESS, owner("third"))
    with pytest.raises(LedgerError, match="belongs to local/default/third"):
        ledger.reown(ADDRESS, owner("web"), owner("web", uid="u2"))
    assert ledger.claims() == (Claim(ADDRESS, owner("third")),)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"address": "127.77.0.6", "owner": {}}', "\x00" * 20])
def test_a_damaged_claim_is_somebodys_and_stays(ledger: Ledger, content: str) -> None:
    """It is reported, holds its address for somebody unknown, and nobody removes or takes it."""
    ledger.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.iterdir())
    path.write_text(content)
    assert holders(ledger) == [(ADDRESS, UNKNOWN)]
    assert f"{path} holds it, but it" in ledger.problems()[0]
    for attempt in (ledger.claim, lambda address, party: ledger.reown(address, party, owner("web", uid="u2"))):
        with pytest.raises(LedgerError, match=r"127\.77\.0\.5 can't be claimed: .*remove the file if nobody uses"):
            attempt(ADDRESS, owner("web"))
    ledger.release(ADDRESS, owner("web"))
    assert path.read_text() == content


def test_a_foreign_file_is_reported_and_stays(ledger: Ledger) -> None:
    """What isn't a claim by its name claims nothing."""
    ledger.claim(ADDRESS, owner("web"))
    (ledger.directory / "notes.txt").write_text("mine")
    (ledger.directory / "999.0.0.1~0123456789abcdef.json").write_text("{}")
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)
    assert len(ledger.problems()) == 2
    ledger.release(ADDRESS, owner("web"))
    assert len(files(ledger)) == 2


def test_a_claim_that_may_not_be_read_is_somebodys(ledger: Ledger) -> None:
    """A directory in its place stands for a file without the right to read it."""
    ledger.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.iterdir())
    path.unlink()
    path.mkdir()
    assert holders(ledger) == [(ADDRESS, UNKNOWN)]
    with pytest.raises(LedgerError, match="can't be claimed"):
        ledger.claim(ADDRESS, owner("web"))


def test_a_link_to_elsewhere_is_nobodys_claim(ledger: Ledger, tmp_path: Path) -> None:
    """It is neither believed nor written through."""
    ledger.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.iterdir())
    target = tmp_path / "target"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_text()
    with pytest.raises(LedgerError, match="it is a link"):
        ledger.reown(ADDRESS, owner("web"), owner("web", uid="u2"))
    assert target.read_text() == before


def test_a_private_ledger_is_private_and_a_shared_one_can_be_read(ledger: Ledger) -> None:
    """Others must see that an address is taken where they may look at all."""
    ledger.claim(ADDRESS, owner("web"))
    assert next(ledger.directory.iterdir()).stat().st_mode & 0o777 == 0o600
    assert ledger.directory.stat().st_mode & 0o777 == 0o700
    ledger.directory.chmod(0o1777)
    ledger.claim(ADDRESS + 1, owner("web"))
    assert sorted(path.stat().st_mode & 0o777 for path in ledger.directory.iterdir()) == [0o600, 0o644]


def _race(directory: str, name: str) -> bool:
    try:
        Ledger(Path(directory)).claim(ADDRESS, owner(name))
    except LedgerError:
        return False
    return True


def test_address_claimed_by_many_threads_goes_to_one(ledger: Ledger) -> None:
    """All claim the same address at once."""
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: _race(str(ledger.directory), f"s{n}"), range(16)))
    assert won.count(True) == 1
    assert ledger.claims()[0].owner == owner(f"s{won.index(True)}")


def test_address_claimed_by_many_processes_goes_to_one(ledger: Ledger) -> None:
    """The lock holds between processes too."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        won = pool.starmap(_race, [(str(ledger.directory), f"s{n}") for n in range(9)])
    assert won.count(True) == 1
    assert len(ledger.claims()) == 1


KILLED_AT = """
import os, sys
from ipaddress import ip_address
from pathlib import Path
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner, Uid

directory, deed, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def counted(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), 9)
        return real(*args, **kwargs)
    return call

for name in ("open", "link", "unlink", "rename", "replace", "fsync", "fchmod", "close", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
web = Owner(Home("shop", "dev", "/nowhere/shop"), ObjectKey(ClusterName("local"), "default", "web"), Uid("u1"))
new = Owner(web.home, web.service, Uid("u2"))
ledger, address = Ledger(Path(directory)), ip_address("127.77.0.5")
{"claim": lambda: ledger.claim(address, web), "release": lambda: ledger.release(address, web),
 "reown": lambda: ledger.reown(address, web, new)}[deed]()
"""


@pytest.mark.parametrize("deed", ["claim", "release", "reown"])
def test_a_writer_killed_anywhere_leaves_all_or_nothing(deed: str, tmp_path: Path) -> None:
    """Killed before each of its system calls in turn: the address has its old holder or its new one, never two.

    The deed done again then succeeds, and leaves nothing but what it should.
    """
    web, new = owner("web"), owner("web", uid="u2")
    before = () if deed == "claim" else (web,)
    after = {"claim": (web,), "release": (), "reown": (new,)}[deed]
    retry: Callable[[Ledger], None] = {
        "claim": lambda ledger: ledger.claim(ADDRESS, web),
        "release": lambda ledger: ledger.release(ADDRESS, web),
        "reown": lambda ledger: ledger.reown(ADDRESS, web, new),
    }[deed]
    at, killed = 0, True
    while killed:
        at += 1
        ledger = Ledger(tmp_path / f"at{at}")
        for party in before:
            ledger.claim(ADDRESS, party)
        command = [sys.executable, "-c", KILLED_AT, str(ledger.directory), deed, str(at)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        killed = done.returncode == -9
        assert killed or done.returncode == 0, done.stderr
        assert tuple(claim.owner for claim in ledger.claims()) in {before, after}
        assert tuple(party for party in (web, new) if ledger.holds(ADDRESS, party)) in {before, after}
        assert ledger.problems() == ()
        retry(ledger)
        assert tuple(claim.owner for claim in ledger.claims()) == after
        assert len(files(ledger)) == len(after)
    assert at > 3


@given(
    deeds=st.lists(
        st.tuples(st.sampled_from(["claim", "release", "reown"]), st.integers(0, 2), st.integers(0, 3)), max_size=12
    )
)
@settings(max_examples=40, deadline=None)
def test_an_address_never_has_two_holders(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, int, int]]
) -> None:
    """Whatever is done in whatever order: a dictionary does the same."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    model: dict[IPv4Address, Owner] = {}
    for deed, number, party in deeds:
        address, mine, next_one = IPv4Address("127.0.0.2") + number, owner(f"s{party}"), owner(f"s{(party + 1) % 4}")
        held = model.get(address)
        try:
            if deed == "claim":
                ledger.claim(address, mine)
                assert held in (None, mine)
                model[address] = mine
            elif deed == "release":
                ledger.release(address, mine)
                if held == mine:
                    del model[address]
            else:
                ledger.reown(address, mine, next_one)
                assert held in (None, mine, next_one)
                model[address] = next_one
        except LedgerError:
            assert held is not None
            assert held != mine
        assert {claim.address: claim.owner for claim in ledger.claims()} == model
    assert len(files(ledger)) == len(model)


def test_claim_file_names_its_service_and_stack_readably(ledger: Ledger) -> None:
    """A person who opens the file sees whose address it is."""
    ledger.claim(ADDRESS, owner("web"))
    document = json.loads(next(ledger.directory.iterdir()).read_text())
    assert document["address"] == "127.77.0.5"
    assert list(document["owner"]) == ["project", "stack", "root", "cluster", "namespace", "name", "uid"]


def test_services_with_a_common_sharing_key_share_an_address(ledger: Ledger) -> None:
    """Two of one stack that both say so hold one address; each releases for itself."""
    ledger.claim(ADDRESS, owner("web"), SharingKey("key"))
    ledger.claim(ADDRESS, owner("other"), SharingKey("key"))
    assert {claim.owner for claim in ledger.claims()} == {owner("web"), owner("other")}
    ledger.release(ADDRESS, owner("web"))
    assert ledger.claims() == (Claim(ADDRESS, owner("other")),)


@pytest.mark.parametrize(
    ("mine", "other", "theirs"),
    [("key", owner("other"), ""), ("", owner("other"), "key"), ("key", owner("other", root="/elsewhere"), "key")],
)
def test_address_is_shared_only_with_the_same_key_and_stack(
    ledger: Ledger, mine: str, other: Owner, theirs: str
) -> None:
    """Both owners must have the key, and be of one stack."""
    ledger.claim(ADDRESS, owner("web"), SharingKey(mine))
    with pytest.raises(LedgerError, match="belongs to local/default/web"):
        ledger.claim(ADDRESS, other, SharingKey(theirs))
    with pytest.raises(LedgerError, match="belongs to local/default/web"):
        ledger.reown(ADDRESS, replace(other, uid=Uid("u0")), other, SharingKey(theirs))
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)


def test_a_holder_may_stop_sharing(ledger: Ledger) -> None:
    """Those who are there stay, nobody comes any more."""
    for name in ("web", "other"):
        ledger.claim(ADDRESS, owner(name), SharingKey("key"))
    ledger.reown(ADDRESS, owner("web"), owner("web", uid="u2"), SharingKey(""))
    with pytest.raises(LedgerError):
        ledger.claim(ADDRESS, owner("third"), SharingKey("key"))
    assert {claim.owner for claim in ledger.claims()} == {owner("web", uid="u2"), owner("other")}


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.sampled_from(["a", "b"]), st.sampled_from(["claim", "release", "reown", "damage"])
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_claims_read_with_a_memory_or_for_one_owner_equal_a_fresh_read(
    steps: list[tuple[int, str, str]],
) -> None:
    """After claims, releases, handovers, and files that somebody damaged."""
    with tempfile.TemporaryDirectory() as directory:
        ledger, memory = Ledger(Path(directory)), Memo[ClaimFile | None]()
        for number, name, deed in steps:
            address = IPv4Address(f"127.77.0.{number}")
            with contextlib.suppress(LedgerError):
                if deed == "claim":
                    ledger.claim(address, owner(name), SharingKey("k"))
                elif deed == "release":
                    ledger.release(address, owner(name))
                elif deed == "reown":
                    ledger.reown(address, owner(name), owner("c"), SharingKey("k"))
                else:
                    for path in ledger.directory.glob(f"{address}~*"):
                        path.write_text("{")
            claims = ledger.claims()
            assert ledger.claims(memory) == claims
            for party in map(owner, "abc"):
                assert ledger.holds(address, party) == (Claim(address, party) in claims)
            memory.evict_unused()


def test_without_descriptors_a_claim_is_nobodys_guess(ledger: Ledger) -> None:
    """Neither gone nor an unknown owner's: no other can be read either."""
    ledger.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.iterdir())
    with few_files(0), pytest.raises(LedgerError, match=r"who holds 127.77.*raise the limit of open files") as caught:
        read_entry(path, ADDRESS)
    assert "remove" not in str(caught.value)


def test_a_claim_that_a_failing_disk_does_not_give_is_unread() -> None:
    """It isn't known whether it is somebody else's; nobody is told to remove it."""
    entry = read_entry(Path("/proc/self/mem"), ADDRESS)  # whose first bytes give an error of input and output
    assert entry is not None
    assert (entry.claim.owner, entry.claim.unread) == (UNKNOWN, True)
    assert entry.problem.startswith("can't determine who holds 127.77.0.5: /proc/self/mem can't be read: ")
    assert entry.problem.endswith("; look after that disk")


@pytest.mark.parametrize("spare", range(4))
def test_a_ledger_that_cannot_be_read_has_no_answer(ledger: Ledger, spare: int) -> None:
    """However many descriptors there are: what it says is true, or it says that it can't tell."""
    ledger.claim(ADDRESS, owner("web"))
    memory: Memo[ClaimFile | None] = Memo()
    questions: list[Callable[[], object]] = [
        lambda: ledger.claims(memory) == (Claim(ADDRESS, owner("web")),),
        lambda: ledger.holds(ADDRESS, owner("web")),
        lambda: ledger.problems() == (),
    ]
    for question in questions:
        with few_files(spare), contextlib.suppress(LedgerError):
            assert question()
        assert question()


@pytest.mark.parametrize("spare", range(6))
def test_a_claim_that_fails_for_want_of_descriptors_leaves_nothing(ledger: Ledger, spare: int) -> None:
    """However far it came: who is told that it failed holds nothing."""
    ledger.claim(ADDRESS, owner("other"))
    before = files(ledger)
    with few_files(spare):
        try:
            ledger.claim(OTHER, owner("web"))
        except LedgerError as error:
            reported = str(error)
        else:
            reported = ""
    assert "raise the limit of open files" in reported or ledger.holds(OTHER, owner("web"))
    assert not reported or files(ledger) == before


def test_a_leader_whose_last_term_cannot_be_read_writes_nothing(ledger: Ledger) -> None:
    """One whose term is over could be taken for the leader."""

    class Second:
        def term(self) -> int:
            return 2

    mine = Ledger(ledger.directory, Second())  # type: ignore[arg-type]
    mine.claim(ADDRESS, owner("web"))
    with few_files(0), pytest.raises(LedgerError, match="who led this stack last"):
        mine.term(owner("web").home)
    assert mine.term(owner("web").home) == 2


def every_question(ledger: Ledger) -> list[Callable[[], object]]:
    """Return all that a ledger is asked, and a release."""
    mine = owner("web")
    return [
        ledger.claims,
        ledger.problems,
        ledger.keepers,
        lambda: ledger.holds(ADDRESS, mine),
        lambda: ledger.release(ADDRESS, mine),
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_ledger_that_cannot_be_looked_at_is_not_an_empty_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whatever Python makes of it: nobody's address is free, and no claim is gone."""
    ledger.claim(ADDRESS, owner("web"))
    inspect = os.stat

    def refused(path: object, *args: object, **options: object) -> os.stat_result:
        if str(path) == str(ledger.directory):
            raise OSError(number, os.strerror(number), str(path))
        return inspect(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refused)
    for question in every_question(ledger):
        with pytest.raises(LedgerError, match=f"the ledger .* can't be read: {os.strerror(number)}; "):
            question()


def test_file_in_place_of_the_ledger_directory_is_reported(ledger: Ledger) -> None:
    """The ledger was moved, and a file made there; no claim counts as gone for that."""
    ledger.directory.parent.mkdir()
    ledger.directory.touch()
    for question in every_question(ledger):
        with pytest.raises(LedgerError, match="isn't a directory: move what stands there elsewhere"):
            question()


def test_directory_in_place_of_a_claim_does_not_stay_open(ledger: Ledger) -> None:
    """`watch` reads the claims again and again; in a shared ledger others may put one there."""
    path = ledger.directory / "127.0.0.99~0123456789abcdef.json"
    path.mkdir(parents=True)
    for _ in range(3):
        assert holders(ledger) == [(ip_address("127.0.0.99"), UNKNOWN)]
    assert count_open(path) == 0
