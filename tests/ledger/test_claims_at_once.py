"""Claims that are made at once: as one by one, wherever a writer is stopped, whoever else claims."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.kubernetes.api.writes import FENCE
from locallb.ledger import claim_files as lock
from locallb.ledger import ledger as module
from locallb.ledger.claim_files import ClaimFiles
from locallb.ledger.claims import ContendedError, LedgerError, entry_name, entry_text
from locallb.ledger.ledger import ClaimRequest, Ledger, publish
from locallb.model.identities import Protocol, SharingKey
from locallb.model.snapshot import Claim, MappedPort
from locallb.storage import files
from tests.support.owners import owner
from tests.support.stages import CHECKOUT

LOCALHOST = ip_address("127.0.0.1")
ADDRESSES = tuple(map(ip_address, ("127.77.0.5", "127.77.0.50", "fd00::5")))
owners = st.sampled_from("abc").map(owner)
ports = st.builds(MappedPort, st.just(80), st.sampled_from([Protocol.TCP, Protocol.UDP]), st.sampled_from([1, 2, 3]))
several = st.lists(ports, min_size=1, max_size=2, unique=True).map(tuple)
addresses = st.sampled_from([*ADDRESSES, LOCALHOST])
wanted = st.builds(ClaimRequest, addresses, owners, st.sampled_from(["", "key", "other"])) | st.builds(
    ClaimRequest, st.just(LOCALHOST), owners, st.just(""), several
)


def one_by_one(ledger: Ledger, claims: list[ClaimRequest]) -> list[str]:
    """Claim, and return why what fails does."""
    stated = []
    for claim in claims:
        try:
            ledger.claim(claim.address, claim.owner, claim.sharing, claim.ports)
        except LedgerError as error:
            stated.append(str(error))
        else:
            stated.append("")
    return stated


def contents(ledger: Ledger) -> dict[str, str]:
    return {path.name: path.read_text() for path in ledger.directory.iterdir()}


@given(st.lists(wanted, max_size=4), st.lists(wanted, max_size=8, unique_by=lambda claim: (claim.address, claim.owner)))
@settings(max_examples=60, deadline=None)
def test_claims_at_once_are_those_made_one_by_one(before: list[ClaimRequest], now: list[ClaimRequest]) -> None:
    """The same files with the same content, the same sentences to those that are refused."""
    with tempfile.TemporaryDirectory() as directory:
        single, joined = Ledger(Path(directory) / "single"), Ledger(Path(directory) / "joined")
        for ledger in (single, joined):
            one_by_one(ledger, before)
        stated = one_by_one(single, now)
        answers = [str(problem or "").replace("/joined/", "/single/") for problem in joined.claim_all(now)]
        assert answers == stated
        assert bool(now or before) == joined.directory.exists() or not now
        assert not single.directory.exists() or contents(joined) == contents(single)


def test_port_claims_of_one_address_read_each_file_a_constant_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each claim read by all others would be millions of files for a thousand Services at 127.0.0.1."""
    read = list[Path]()

    def counted(path: Path, maximum: int) -> files.SharedFile | None:
        read.append(path)
        return find_shared(path, maximum)

    find_shared = files.find_shared
    monkeypatch.setattr(files, "find_shared", counted)
    many = [ClaimRequest(LOCALHOST, owner(f"s{n}"), ports=(MappedPort(80, Protocol.TCP, n),)) for n in range(1, 41)]
    assert Ledger(tmp_path).claim_all(many) == [None] * len(many)
    Ledger(tmp_path).claim(LOCALHOST, owner("one more"), ports=(MappedPort(80, Protocol.TCP, 99),))
    assert len(read) <= 3 * len(many)
    with pytest.raises(LedgerError, match="port 7/TCP belongs to local/default/s7 "):
        Ledger(tmp_path).claim(LOCALHOST, owner("late"), ports=(MappedPort(80, Protocol.TCP, 7),))


def test_port_change_is_undone_when_another_owner_claims_the_port_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody keeps the lock, neither sees the other before it has written; the one that sees it goes back."""
    old, new = (MappedPort(80, Protocol.TCP, 1),), (MappedPort(80, Protocol.TCP, 2),)
    ledger, rewrite = Ledger(tmp_path), Ledger._rewrite
    ledger.claim(LOCALHOST, owner("web"), ports=old)

    def beaten(self: Ledger, path: Path, claim: ClaimRequest) -> None:
        theirs = tmp_path / entry_name(LOCALHOST, owner("other"))
        theirs.write_text(entry_text(LOCALHOST, owner("other"), SharingKey(""), new))
        rewrite(self, path, claim)

    monkeypatch.setattr(Ledger, "_rewrite", beaten)
    with pytest.raises(LedgerError, match="port 2/TCP belongs to local/default/other"):
        ledger.claim(LOCALHOST, owner("web"), ports=new)
    assert ledger.holds(LOCALHOST, owner("web"), old)
    assert ledger.holds(LOCALHOST, owner("other"), new)


@pytest.mark.parametrize(
    ("text", "hinders"),
    [
        (entry_text(LOCALHOST, owner("other"), SharingKey(""), [MappedPort(80, Protocol.TCP, 2)]), False),
        (entry_text(LOCALHOST, owner("other"), SharingKey(""), [MappedPort(443, Protocol.TCP, 1)]), True),
        (entry_text(LOCALHOST, owner("other"), SharingKey("")), True),
        ("", True),
    ],
)
def test_half_done_claim_blocks_only_its_own_ports(tmp_path: Path, text: str, *, hinders: bool) -> None:
    """Of another user who was killed meanwhile: only for a minute, but all Services are at that address."""
    files.write_sibling(tmp_path / entry_name(LOCALHOST, owner("other")), text)
    wanted = ClaimRequest(LOCALHOST, owner("web"), ports=(MappedPort(80, Protocol.TCP, 1),))
    assert [type(problem) for problem in publish(ClaimFiles(tmp_path), [wanted]).values()] == [ContendedError] * hinders


def test_threads_that_claim_while_another_does_share_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lock and one look at all names for all who came meanwhile."""
    ledger, sizes, claim_all = Ledger(tmp_path), [], Ledger.claim_all

    def counted(self: Ledger, wanted: Sequence[ClaimRequest]) -> list[LedgerError | None]:
        sizes.append(len(wanted))
        while len(sizes) == 1 and len(module._QUEUES[tmp_path, FENCE]._waiting) < 12 - len(wanted):
            time.sleep(0.001)
        return claim_all(self, wanted)

    monkeypatch.setattr(Ledger, "claim_all", counted)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: ledger.claim(ip_address(f"127.77.0.{n}"), owner(f"s{n}")), range(12)))
    assert len(sizes) == 2
    assert {claim.owner.service.name for claim in ledger.claims()} == {f"s{n}" for n in range(12)}


STOPPED_AT = """
import os, sys
from ipaddress import ip_address
from pathlib import Path
from locallb.kubernetes.api.writes import FENCE
from locallb.ledger import ledger as module
from locallb.ledger import claim_files
from locallb.ledger.ledger import Ledger
from locallb.ledger.ledger import ClaimRequest
from tests.support.owners import owner

claim_files.TIMEOUT = 0.05
directory, signal, at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
calls = 0

def counted(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal)
        return real(*args, **kwargs)
    return call

for name in ("open", "link", "unlink", "listdir", "fsync", "fchmod", "close"):
    setattr(os, name, counted(getattr(os, name)))
wanted = [ClaimRequest(ip_address(text), owner("stopped")) for text in ("127.77.0.5", "127.77.0.50", "fd00::5")]
print(*(int(problem is None) for problem in Ledger(directory).claim_all(wanted)))
"""
"""Three claims at once, by a process that gets a signal before its system call of that number."""


def begun(ledger: Ledger, signal: int, at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STOPPED_AT, str(ledger.directory), str(signal), str(at)]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_writer_of_several_killed_anywhere_leaves_each_whole_or_absent(tmp_path: Path) -> None:
    """What it had begun is claimed by whoever comes next, and nothing else stays behind."""
    everything = tuple(Claim(address, owner("stopped")) for address in ADDRESSES)
    at, killed = 0, True
    while killed:
        at += 1
        ledger = Ledger(tmp_path / f"at{at}")
        ledger.directory.mkdir()
        with begun(ledger, 9, at) as writer:
            killed = writer.wait(60) == -9
        assert set(ledger.claims()) <= set(everything)
        assert ledger.problems() == ()
        wanted = [ClaimRequest(claim.address, claim.owner) for claim in everything]
        assert ledger.claim_all(wanted) == [None] * len(wanted)
        assert ledger.claims() == everything
        assert len(contents(ledger)) == len(everything)
    assert at > 20


@pytest.mark.slow
def test_a_writer_of_several_stopped_anywhere_while_another_claims_leaves_one_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each address, although the lock is in its hand, and although it goes on when the other is through."""
    monkeypatch.setattr(lock, "TIMEOUT", 0.05)
    monkeypatch.setattr("locallb.ledger.ledger.TIMEOUT", 0.1)
    at, stopped = 0, True
    while stopped:
        at += 1
        ledger = Ledger(tmp_path / f"at{at}")
        ledger.directory.mkdir()
        with begun(ledger, 19, at) as writer:
            stopped = os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
            if not stopped:
                break
            stated = one_by_one(ledger, [ClaimRequest(address, owner("other")) for address in ADDRESSES])
            writer.send_signal(18)
            assert writer.stdout
            won = [word == "1" for word in writer.stdout.readline().split()]
        for address, mine, problem in zip(ADDRESSES, won, stated, strict=True):
            holders = {party for party in ("stopped", "other") if ledger.holds(address, owner(party))}
            assert {name for name, has in (("stopped", mine), ("other", not problem)) if has} <= holders
            assert len(holders) <= 1, f"{address} after a stop before call {at}"
    assert at > 20


def test_concurrent_threads_leave_each_address_one_holder(tmp_path: Path) -> None:
    """All claim all addresses at once."""
    claims = [ClaimRequest(address, owner(f"s{n}")) for n in range(6) for address in ADDRESSES]
    with ThreadPoolExecutor(len(claims)) as pool:
        stated = list(pool.map(lambda claim: one_by_one(Ledger(tmp_path), [claim])[0], claims))
    assert stated.count("") == len(ADDRESSES)
    assert sorted(claim.address.version for claim in Ledger(tmp_path).claims()) == [4, 4, 6]
