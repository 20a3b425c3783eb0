"""A ledger in which others may write: whatever lies there, whoever keeps its lock, claims go on and stay exclusive."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import pytest

from locallb.ledger import claim_files as lock
from locallb.ledger import claims
from locallb.ledger import ledger as module
from locallb.ledger.claim_files import ClaimFiles
from locallb.ledger.ledger import UNKNOWN, ClaimRequest, Ledger, LedgerError, publish
from locallb.model.identities import Protocol, SharingKey
from locallb.model.snapshot import Claim, MappedPort
from tests.support.owners import holders, owner

ROOT = Path(__file__).parents[2]
ADDRESS, OTHER = ip_address("127.77.0.5"), ip_address("127.77.0.6")
NAME = "127.77.0.5~0123456789abcdef.json"
SECONDS = 60.0
Answer = TypeVar("Answer")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger in which everybody may write."""
    directory = tmp_path / "ledger"
    directory.mkdir()
    directory.chmod(0o1777)
    return Ledger(directory)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a lock for a moment only."""
    monkeypatch.setattr(lock, "TIMEOUT", 0.2)
    monkeypatch.setattr(lock, "READER_TIMEOUT", 0.2)


def promptly(deed: Callable[[], Answer]) -> Answer:
    """Do something that must come to its end."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(deed()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it hangs"
    return answers[0]


def link(path: Path, target: str) -> None:
    path.symlink_to(target)


def huge(path: Path) -> None:
    """Put a file of a terabyte, all holes."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def deep(path: Path) -> None:
    """Put JSON that no parser goes through."""
    path.write_text("[" * 60_000)


def bound(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its name may be longer than a socket's path
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "link to a device": lambda path: link(path, "/dev/zero"),
    "link to nothing": lambda path: link(path, "/nowhere/at/all"),
    "link to itself": lambda path: link(path, path.name),
    "link to another claim": lambda path: link(path, "127.77.0.9~0123456789abcdef.json"),
    "directory": Path.mkdir,
    "huge file": huge,
    "socket": bound,
    "empty file": Path.touch,
    "deep JSON": deep,
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 9),
}


def as_written(path: Path) -> tuple[int, ...]:
    """Return which file it is and when it was last written; when it was last looked at is another matter."""
    stat = path.lstat()
    return stat.st_ino, stat.st_mode, stat.st_uid, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@pytest.mark.parametrize("what", HOSTILE)
def test_foreign_file_in_place_of_a_claim_blocks_only_its_address(ledger: Ledger, what: str) -> None:
    """It is reported, and neither read, removed nor waited for."""
    path = ledger.directory / NAME
    ledger.claim(ip_address("127.77.0.9"), owner("nine"))
    HOSTILE[what](path)
    before = as_written(path)
    assert (ADDRESS, UNKNOWN) in promptly(lambda: holders(ledger))
    assert [str(path) in problem for problem in promptly(ledger.problems)] == [True]
    assert not promptly(lambda: ledger.holds(ADDRESS, owner("web")))
    with pytest.raises(LedgerError, match=r"127\.77\.0\.5 can't be claimed: .*remove the file if nobody uses"):
        ledger.claim(ADDRESS, owner("web"))
    promptly(lambda: ledger.release(ADDRESS, owner("web")))
    promptly(lambda: ledger.claim(OTHER, owner("web")))
    assert ledger.holds(OTHER, owner("web"))
    assert as_written(path) == before


@pytest.mark.parametrize(
    "name",
    [b"\xff\xfe~", b"a\nb", b"\x1b[2Jgone", b".hidden", b".127.77.0.5~0123456789abcdef.json.01234567.new", b"term~x"],
)
@pytest.mark.parametrize("what", ["FIFO", "link to a device", "directory"])
def test_odd_names_are_written_in_letters_and_stop_no_claim(ledger: Ledger, name: bytes, what: str) -> None:
    """Names that no encoding has, and those of files that are being written, or that hold a term."""
    HOSTILE[what](ledger.directory / os.fsdecode(name))
    for problem in promptly(ledger.problems):
        assert problem.isprintable()
        problem.encode()
    promptly(lambda: ledger.claim(ADDRESS, owner("web")))
    assert promptly(ledger.claims) == (Claim(ADDRESS, owner("web")),)
    promptly(lambda: ledger.release(ADDRESS, owner("web")))


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, *files: Path) -> None:
    """Have the system refuse every look at these files."""
    refused = set(map(str, files))

    def refusing(real: Callable[..., Answer]) -> Callable[..., Answer]:
        def call(path: object, *args: object, **options: object) -> Answer:
            if str(path) in refused:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **options)

        return call

    for name in ("open", "stat", "lstat"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTCONN, errno.EPERM])
def test_unreadable_ledger_file_blocks_only_its_own_address(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As where another user mounts over it: a half-written file counts as nothing, a claim as an unknown owner's."""
    claim, unfinished = ledger.directory / NAME, ledger.directory / f".{OTHER}~0123456789abcdef.json.01234567.new"
    claim.touch()
    unfinished.touch()
    refuse(monkeypatch, number, claim, unfinished)
    assert holders(ledger) == [(ADDRESS, UNKNOWN)]
    assert [NAME in problem for problem in ledger.problems()] == [True]
    with pytest.raises(LedgerError, match=r"127\.77\.0\.5 can't be claimed"):
        ledger.claim(ADDRESS, owner("web"))
    ledger.claim(OTHER, owner("web"))
    assert ledger.holds(OTHER, owner("web"))


def mapped(number: int) -> tuple[MappedPort, ...]:
    return (MappedPort(80, Protocol.TCP, number),)


@pytest.fixture
def theirs(ledger: Ledger) -> Path:
    """Have two Services at one address; return the claim of the other."""
    ledger.claim(ADDRESS, owner("ours"), ports=mapped(1))
    ledger.claim(ADDRESS, owner("theirs"), ports=mapped(2))
    return ledger.directory / claims.entry_name(ADDRESS, owner("theirs"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_claim_that_cannot_be_read_for_a_moment_keeps_its_address_taken(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """All others are read, claimed and released as ever; the file is told with the remedy."""
    ledger.claim(ADDRESS, owner("web"))
    ledger.claim(OTHER, owner("other"))
    path = ledger.directory / claims.entry_name(ADDRESS, owner("web"))
    with monkeypatch.context() as patch:
        refuse(patch, number, path)
        assert holders(ledger) == [(ADDRESS, UNKNOWN), (OTHER, owner("other"))]
        assert [claim.unread for claim in ledger.claims()] == [True, False]
        (problem,) = ledger.problems()
        assert problem.startswith(f"can't determine who holds {ADDRESS}: {path} can't be read: {os.strerror(number)}; ")
        for name in ("web", "new"):
            with pytest.raises(LedgerError, match=r"127\.77\.0\.5 can't be claimed: can't determine who holds"):
                ledger.claim(ADDRESS, owner(name))
        with pytest.raises(LedgerError, match="can't determine"):
            ledger.holds(ADDRESS, owner("web"))
        with pytest.raises(LedgerError, match="can't determine"):
            ledger.release(ADDRESS, owner("web"))
        ledger.release(OTHER, owner("other"))
        ledger.claim(OTHER, owner("web"))
    assert holders(ledger) == [(ADDRESS, owner("web")), (OTHER, owner("web"))]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_mapped_address_is_reowned_and_released_beside_an_unreadable_claim(
    ledger: Ledger, theirs: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """An owner whose own claim can't be read, or isn't found while one can't, gets an error."""
    refuse(monkeypatch, number, theirs)
    ledger.reown(ADDRESS, owner("ours"), owner("ours", uid="u2"), ports=mapped(1))
    assert ledger.holds(ADDRESS, owner("ours", uid="u2"), mapped(1))
    ledger.claim(ADDRESS, owner("ours", uid="u2"), ports=mapped(1))
    with pytest.raises(LedgerError, match="can't determine"):
        ledger.reown(ADDRESS, owner("ours", uid="u2"), owner("ours", uid="u2"), ports=mapped(3))
    ledger.release(ADDRESS, owner("ours", uid="u2"), mapped=True)
    for absent in (owner("absent"), owner("ours", uid="u2")):
        with pytest.raises(LedgerError, match="can't determine"):
            ledger.release(ADDRESS, absent, mapped=True)
    assert [path.name for path in ledger.directory.iterdir()] == [theirs.name]
    for attempt in (ledger.release, ledger.holds):
        with pytest.raises(LedgerError, match="can't determine"):
            attempt(ADDRESS, owner("theirs"))


def test_a_mapped_port_is_dropped_beside_an_unreadable_claim(
    ledger: Ledger, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives up a port takes nothing from anybody; to take it again, or all of the address, needs certainty."""
    ledger.reown(ADDRESS, owner("ours"), owner("ours"), ports=(*mapped(1), *mapped(3)))
    refuse(monkeypatch, errno.EIO, theirs)
    ledger.reown(ADDRESS, owner("ours"), owner("ours"), ports=mapped(1))
    assert ledger.holds(ADDRESS, owner("ours"), mapped(1))
    for more in ((*mapped(1), *mapped(3)), ()):
        with pytest.raises(LedgerError, match=r"can't be claimed: .*can't determine"):
            ledger.reown(ADDRESS, owner("ours"), owner("ours"), ports=more)
    assert ledger.holds(ADDRESS, owner("ours"), mapped(1))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_claim_under_the_earlier_owners_name_is_not_kept_without_a_word(ledger: Ledger, number: int) -> None:
    """A stop between the two steps of handing over leaves it so; it is released as soon as it can be read."""
    path = ledger.directory / claims.entry_name(ADDRESS, owner("web"))
    path.write_text(claims.entry_text(ADDRESS, owner("web", uid="u2"), SharingKey("")))
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, number, path)
        with pytest.raises(LedgerError, match=f": {path} can't be read: {os.strerror(number)}"):
            ledger.release(ADDRESS, owner("web", uid="u2"))
    ledger.release(ADDRESS, owner("web", uid="u2"))
    assert ledger.claims() == ()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_claimant_of_an_address_may_be_unknown_for_a_moment(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It counts as claimed, and no other is concerned."""
    unfinished = ledger.directory / f".{ADDRESS}~0123456789abcdef.json.01234567.new"
    unfinished.touch()
    refuse(monkeypatch, number, unfinished)
    (claim,) = ledger.claims()
    assert (claim.address, claim.owner, claim.unread) == (ADDRESS, UNKNOWN, True)
    assert claim.problem.startswith(f"can't determine who is about to claim {ADDRESS}: {unfinished}: ")
    wanted = [ClaimRequest(address, owner("web")) for address in (ADDRESS, OTHER)]
    reported = publish(ClaimFiles(ledger.directory), wanted)
    assert list(reported) == [wanted[0]]
    assert "can't determine" in str(reported[wanted[0]])
    assert ledger.holds(OTHER, owner("web"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTCONN])
def test_unreadable_term_file_does_not_stop_its_leader_from_writing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As where another user mounts over it; the term is kept beside it."""

    class Second:
        def term(self) -> int:
            return 2

    mine = Ledger(ledger.directory, Second())  # type: ignore[arg-type]
    mine.claim(ADDRESS, owner("web"))
    (path,) = ledger.directory.glob("term~*")
    path.write_text("99")
    refuse(monkeypatch, number, path)
    mine.claim(OTHER, owner("web"))
    assert mine.term(owner("web").home) == 2
    assert path.read_text() == "99"


def test_a_claim_beside_an_unreadable_one_fails_alone(
    ledger: Ledger, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other addresses in the same batch are made, also if it can be read no more after the first look."""
    third = ClaimRequest(ADDRESS, owner("third"), ports=mapped(3))
    others = [ClaimRequest(ip_address(f"127.77.0.{number}"), owner("web")) for number in (7, 8, 9)]
    refuse(monkeypatch, errno.EIO, theirs)
    reported = ledger.claim_all([others[0], third, others[1]])
    assert [problem is None for problem in reported] == [True, False, True]
    assert "look after that disk" in str(reported[1])
    assert list(publish(ClaimFiles(ledger.directory), [third, others[2]])) == [third]
    assert all(ledger.holds(claim.address, claim.owner) for claim in others)


def test_a_change_that_cannot_be_looked_at_again_is_taken_back(
    ledger: Ledger, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told that it failed has what it had."""
    rewrite = Ledger._rewrite

    def rewritten(self: Ledger, path: Path, claim: ClaimRequest) -> None:
        rewrite(self, path, claim)
        refuse(monkeypatch, errno.EIO, theirs)

    monkeypatch.setattr(Ledger, "_rewrite", rewritten)
    with pytest.raises(LedgerError, match="can't determine"):
        ledger.claim(ADDRESS, owner("ours"), ports=mapped(9))
    assert ledger.holds(ADDRESS, owner("ours"), mapped(1))


def test_a_claim_of_an_earlier_version_is_valid(ledger: Ledger) -> None:
    """Its format is a promise."""
    home = {"project": "shop", "stack": "dev", "root": "/nowhere/shop"}
    service = {"cluster": "local", "namespace": "default", "name": "web", "uid": "u1"}
    text = json.dumps({"address": "127.77.0.5", "owner": {**home, **service}}, indent=1) + "\n"
    (ledger.directory / "127.77.0.5~87d4a5ab4d0ea3ad.json").write_text(text)
    assert ledger.holds(ADDRESS, owner("web"))
    assert ledger.problems() == ()
    with pytest.raises(LedgerError, match="belongs to local/default/web"):
        ledger.claim(ADDRESS, owner("other"))
    ledger.claim(ADDRESS, owner("web"))
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)


def test_a_claim_of_a_newer_version_is_held_and_left_alone(ledger: Ledger) -> None:
    """Ours as well: it may mean more than this version understands."""
    ledger.claim(ADDRESS, owner("web"))
    (path,) = ledger.directory.glob(f"{ADDRESS}~*")
    newer = json.dumps({**json.loads(path.read_text()), "format": 3})
    path.write_text(newer)
    assert holders(ledger) == [(ADDRESS, UNKNOWN)]
    for name in ("web", "other"):
        with pytest.raises(LedgerError, match="format 3, and this version knows 2: install a later local-lb"):
            ledger.claim(ADDRESS, owner(name))
    ledger.release(ADDRESS, owner("web"))
    assert path.read_text() == newer


@pytest.mark.root(only="can give files away")
def test_claim_file_of_another_user_does_not_count_as_ours(ledger: Ledger, tmp_path: Path) -> None:
    """A file of another user that names a directory of ours isn't ours; one that names theirs is theirs."""
    for address, root in ((ADDRESS, str(tmp_path)), (OTHER, "/nowhere/theirs")):
        ledger.claim(address, owner("web", root))
        os.chown(next(ledger.directory.glob(f"{address}~*")), 12345, 12345)
    assert holders(ledger) == [(ADDRESS, UNKNOWN), (OTHER, owner("web", "/nowhere/theirs"))]
    assert "user 12345 wrote it in the name of" in ledger.problems()[0]
    assert not ledger.holds(ADDRESS, owner("web", str(tmp_path)))


@pytest.mark.root(only="can give files away")
def test_a_term_that_another_user_wrote_ends_nobodys(ledger: Ledger) -> None:
    """Ours is kept beside it."""

    class Second:
        def term(self) -> int:
            return 2

    mine = Ledger(ledger.directory, Second())  # type: ignore[arg-type]
    mine.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.glob("term~*"))
    path.write_text("99")
    os.chown(path, 12345, 12345)
    assert mine.term(owner("web").home) == -1
    mine.claim(OTHER, owner("web"))
    assert mine.term(owner("web").home) == 2
    assert path.read_text() == "99"


def test_a_file_that_is_rewritten_in_place_is_its_owners_or_somebodys(ledger: Ledger) -> None:
    """Whatever a reader sees of it: never an error, never free."""
    ledger.claim(ADDRESS, owner("web"))
    path = next(ledger.directory.iterdir())
    text, stop = path.read_text(), threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for length in (0, 5, len(text) // 2, len(text)):
                path.write_text(text[:length])

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        observed = {holder for _ in range(300) for holder in holders(ledger)}
    finally:
        stop.set()
        writer.join()
    assert observed <= {(ADDRESS, UNKNOWN), (ADDRESS, owner("web"))}
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)


KEEP = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, int(sys.argv[2]))
print("retained", flush=True)
sys.stdin.read()
"""


@contextmanager
def retained(directory: Path, how: int = fcntl.LOCK_EX) -> Iterator[int]:
    """Have a process keep the ledger's lock; gives its pid."""
    command = [sys.executable, "-c", KEEP, str(directory), str(how)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as keeper:
        assert keeper.stdout
        assert keeper.stdout.readline() == "retained\n"
        try:
            yield keeper.pid
        finally:
            keeper.kill()


@pytest.mark.parametrize("how", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_permanently_held_lock_stops_no_claim(ledger: Ledger, how: int) -> None:
    """Claims, handovers and releases go on as before, exclusively; the doctor can name the holder."""
    ledger.claim(OTHER, owner("old"))
    with retained(ledger.directory, how) as keeper:
        ledger.claim(ADDRESS, owner("web"))
        ledger.claim(ADDRESS, owner("web"))
        with pytest.raises(LedgerError, match="belongs to local/default/web"):
            ledger.claim(ADDRESS, owner("other"))
        ledger.reown(OTHER, owner("old"), owner("new"))
        assert ledger.claims() == (Claim(ADDRESS, owner("web")), Claim(OTHER, owner("new")))
        assert ledger.holds(OTHER, owner("new"))
        ledger.release(OTHER, owner("new"))
        assert ledger.keepers() == (keeper,)
    assert ledger.keepers() == ()
    assert ledger.claims() == (Claim(ADDRESS, owner("web")),)


def test_ledger_waits_once_for_each_holder_of_its_lock(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next holder is waited for again, for the full time."""
    pauses: list[float] = []
    monkeypatch.setattr("locallb.ledger.claim_files.time.sleep", pauses.append)
    with retained(ledger.directory):
        ledger.claim(ADDRESS, owner("web"))
        waited = len(pauses)
        ledger.claim(OTHER, owner("web"))
        assert waited
        assert len(pauses) == waited
    with retained(ledger.directory):
        ledger.claim(ip_address("127.77.0.7"), owner("web"))
    assert len(pauses) > waited


def _race(directory: str, name: str) -> bool:
    lock.TIMEOUT = 0.1
    try:
        Ledger(Path(directory)).claim(ADDRESS, owner(name))
    except LedgerError:
        return False
    return True


def test_address_goes_to_one_process_while_another_keeps_the_lock(ledger: Ledger) -> None:
    """The lock only avoids collisions; claims are exclusive without it."""
    with retained(ledger.directory), multiprocessing.get_context("spawn").Pool(4) as pool:
        for _ in range(5):
            won = pool.starmap(_race, [(str(ledger.directory), f"s{n}") for n in range(12)], chunksize=1)
            assert won.count(True) == 1
            assert [claim.owner for claim in ledger.claims()] == [owner(f"s{won.index(True)}")]
            ledger.release(ADDRESS, owner(f"s{won.index(True)}"))


STOPPED_AT = """
import os, signal, sys
from ipaddress import ip_address
from pathlib import Path
from locallb.ledger import claim_files
from locallb.ledger.ledger import Ledger
from tests.support.owners import owner

claim_files.TIMEOUT = 0.05

def claim(directory, at):
    calls = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGSTOP)
            return real(*args, **kwargs)
        return call

    for name in ("open", "link", "unlink", "listdir", "fsync", "fchmod", "close"):
        setattr(os, name, counted(getattr(os, name)))
    Ledger(Path(directory)).claim(ip_address("127.77.0.5"), owner("stopped"))

for line in sys.stdin:
    directory, _, at = line.rpartition(" ")
    child = os.fork()
    if not child:
        try:
            claim(directory, int(at))
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    print(child if os.WIFSTOPPED(status) else 0, flush=True)
    if os.WIFSTOPPED(status):
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""For each line, a directory and a number: a process that claims there and is stopped before its call of that number.

Says which process was stopped, or 0 if it ended before that, and then how it ended.
"""


@pytest.mark.parametrize(("lock_is_kept", "stale"), [(True, True), (False, False)])
def test_a_writer_stopped_anywhere_while_another_claims_leaves_one_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lock_is_kept: bool, stale: bool
) -> None:
    """Stopped before each of its system calls in turn, and going on when the other is through.

    Also with the lock in its hand, and also if it is stopped for so long that what it has written counts no more.
    """
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    if stale:
        monkeypatch.setattr(claims, "_STALE", -1.0)
    command, at = [sys.executable, "-c", STOPPED_AT], 0
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        assert writers.stdin
        assert writers.stdout
        while True:
            at += 1
            ledger = Ledger(tmp_path / f"at{at}")
            ledger.directory.mkdir()
            print(ledger.directory, at, file=writers.stdin, flush=True)
            stopped = int(promptly(writers.stdout.readline))
            if not stopped:
                break
            try:
                other = _claims(ledger) if not lock_is_kept else _claims_beside(ledger)
            finally:
                os.kill(stopped, signal.SIGCONT)
            has = {
                name for name, won in (("stopped", promptly(writers.stdout.readline) == "0\n"), ("other", other)) if won
            }
            assert len(has) <= 1, f"two holders after a stop before call {at}"
            assert {claim.owner.service.name for claim in ledger.claims()} >= has
            assert sum(ledger.holds(ADDRESS, owner(name)) for name in ("stopped", "other")) <= 1
    assert at > 8


def _claims(ledger: Ledger) -> bool:
    try:
        ledger.claim(ADDRESS, owner("other"))
    except LedgerError:
        return False
    return True


def _claims_beside(ledger: Ledger) -> bool:
    with retained(ledger.directory, fcntl.LOCK_SH) if _is_free(ledger.directory) else _nothing():
        return _claims(ledger)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _is_free(directory: Path) -> bool:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


EARLIER = """
import fcntl, os, signal, sys
from ipaddress import ip_address
from pathlib import Path
from locallb.storage import files
from locallb.ledger.claims import entry_name, entry_text
from tests.support.owners import owner

directory, name, stop = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
address = ip_address("127.77.0.5")
descriptor = os.open(directory, os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
if any(present.startswith("127.77.0.5~") for present in os.listdir(directory)):
    sys.exit(1)
path = directory / entry_name(address, owner(name))
sibling = files.write_sibling(path, entry_text(address, owner(name), ""), mode=0o644, durable=True)
if stop == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    os.link(sibling, path)
finally:
    sibling.unlink(missing_ok=True)
"""
"""How versions before this one claim: under the lock, and nothing but that."""


def test_a_slow_writer_of_an_earlier_version_is_given_way(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock for longer than anybody waits, and doesn't look again before it links its claim."""
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    command = [sys.executable, "-c", EARLIER, str(ledger.directory), "earlier", "stop"]
    with subprocess.Popen(command, cwd=ROOT) as child:
        os.waitpid(child.pid, os.WUNTRACED)
        try:
            with pytest.raises(LedgerError, match="is being claimed by another process"):
                ledger.claim(ADDRESS, owner("web"))
        finally:
            child.send_signal(signal.SIGCONT)
        assert child.wait(SECONDS) == 0
    assert ledger.claims() == (Claim(ADDRESS, owner("earlier")),)


def test_beside_an_earlier_version_one_wins(ledger: Ledger) -> None:
    """Both take the same lock."""
    for number in range(4):
        earlier = [
            subprocess.Popen([sys.executable, "-c", EARLIER, str(ledger.directory), f"e{n}", ""], cwd=ROOT)
            for n in range(2)
        ]
        mine = _race(str(ledger.directory), "web")
        codes = [child.wait(SECONDS) for child in earlier]
        assert mine + codes.count(0) == 1, number
        holder = ledger.claims()[0].owner
        assert len(ledger.claims()) == 1
        ledger.release(ADDRESS, holder)
