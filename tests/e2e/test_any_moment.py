"""Every command, a thousand times: signalled, starved or cut at a random moment. Sentences only, nothing half-done."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from locallb.cli.failures import Exit
from locallb.engine.state.checkpoint import check_state
from tests.e2e.prepared import WAITING, Order, Prepared, no_bytecode
from tests.support.backends import Backend, ask
from tests.support.commands import ENDLESS, WORDS
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

PREPARED, STARTED = 900, 100
"""Commands that are forked, and those that are started from the very beginning."""
HEALED_EVERY = 25


@dataclass
class Case:
    """One command and what befalls it."""

    terms: tuple[str, ...]
    fault: str
    at: float
    """Seconds after its start."""
    number: signal.Signals = signal.SIGTERM
    limits: dict[str, int] = field(default_factory=dict)


def drawn(chance: random.Random, faults: tuple[str, ...], longest: float, *, starting: bool) -> Case:
    """Draw a command, a fault and a moment."""
    case = Case(chance.choice(WORDS), chance.choice(faults), chance.uniform(0, longest), chance.choice(WAITING))
    if case.fault == "starve":
        limits = {
            "RLIMIT_NOFILE": chance.choice((8, 16, 64, 255, 256, 300)),
            "RLIMIT_FSIZE": chance.choice((0, 1, 100, 5_000, 50_000)),
            "RLIMIT_NPROC": chance.choice((1, 20, 200)),
            "RLIMIT_AS": chance.choice((1, 10, 50, 200)) << 20,
        }
        if starting or case.terms in ENDLESS:  # the interpreter itself can't begin with so little
            del limits["RLIMIT_AS"]
        name = chance.choice(sorted(limits))
        case.limits = {name: limits[name]}
    return case


class Disk:
    """The state's own small disk, where this user may mount one; it can fill up and become read-only."""

    def __init__(self, place: Path) -> None:
        self._place = place
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)]
        done = subprocess.run(mount, check=False, capture_output=True)
        self.faults = ("full", "read-only") if done.returncode == 0 else ()

    def befall(self, fault: str) -> None:
        """Fill it, or make it read-only where nobody writes just then."""
        if fault == "read-only":
            self._remount("ro")
        elif fault == "full":
            with (self._place / "filler").open("wb", buffering=0) as filler:
                try:
                    while filler.write(bytes(1 << 16)):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 - what filling it means

    def heal(self) -> None:
        if self.faults:
            self._remount("rw")
            (self._place / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.faults:
            subprocess.run(["umount", "-l", str(self._place)], check=True)

    def _remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self._place)], check=False, capture_output=True)


class Show:
    """Runs cases on a stage."""

    def __init__(self, play: Stage, disk: Disk, prepared: Prepared, streams: Path) -> None:
        self._play = play
        self._disk = disk
        self._prepared = prepared
        self._streams = streams

    def fork(self, case: Case) -> str:
        """Play a case with a forked command; return what is wrong with its end."""
        return self._play_out(case, self._prepared.start, lambda _pid: self._prepared.ended())

    def start(self, case: Case) -> str:
        """Play a case with a command that is started; return what is wrong with its end."""
        processes: list[subprocess.Popen[bytes]] = []

        def begin(order: Order) -> int:
            def before() -> None:
                signal.pthread_sigmask(signal.SIG_BLOCK, WAITING)
                order.take_place()

            program = str(Path(sys.executable).parent / "locallb")
            processes.append(
                subprocess.Popen([program, *order.terms], env=no_bytecode(), preexec_fn=before)  # noqa: PLW1509 - no locks
            )
            return processes[0].pid

        return self._play_out(case, begin, lambda _pid: processes[0].wait())

    def _play_out(self, case: Case, start: Callable[[Order], int], end: Callable[[int], int]) -> str:
        out, err = self._streams / "out", self._streams / "err"
        err.write_bytes(b"")
        reader = self._open(out, pipe=case.fault == "reader")
        try:
            pid = start(Order(case.terms, str(self._play.root), str(out), str(err), case.limits))
            self._befall(case, pid, reader)
            code = end(pid)
            reported = err.read_text(errors="replace") + (
                "" if case.fault == "reader" else out.read_text(errors="replace")
            )
        finally:
            reader.close()
            if case.fault in self._disk.faults:
                self._disk.heal()
        return self._judged(code, reported)

    def _open(self, out: Path, *, pipe: bool) -> IO[bytes]:
        """Make what the command writes to, and open who reads it."""
        out.unlink(missing_ok=True)
        if pipe:
            os.mkfifo(out)
        else:
            out.write_bytes(b"")
        return os.fdopen(os.open(out, os.O_RDONLY | os.O_NONBLOCK), "rb")

    def _befall(self, case: Case, pid: int, reader: IO[bytes]) -> None:
        _wait(pid, case.at)
        if case.fault == "reader":
            reader.close()
        elif case.fault == "signal":
            _send(pid, case.number)
        else:
            self._disk.befall(case.fault)
        if case.terms in ENDLESS:
            _wait(pid, case.at)
            _send(pid, signal.SIGTERM)

    def _judged(self, code: int, reported: str) -> str:
        if "Traceback" in reported or "Exception ignored" in reported or "a mistake in local-lb (" in reported:
            return reported
        if code not in set(Exit):
            return f"exit code {code}: {reported}"
        state = self._play.root / ".state/.pulumi/stacks/local-lb/dev.json"
        return "; ".join(check_state(state)) if state.exists() else ""

    def heal(self, names: set[str]) -> str:
        """End what was ordered and run `up`; return what is still wrong afterwards."""
        self._play.run("fault", "--undo")
        self._play.run("drain", "--undo")
        done = self._play.run("up", "--yes")
        if done.code != Exit.OK:
            return f"up: {done.out}{done.err}"
        at = self._play.addresses()
        if set(at) != names or len(envoys(self._play.root)) != len(names):
            return f"{at} and {len(envoys(self._play.root))} Envoys instead of {names}"
        if not all(ask(address, 8080).endswith(": hello") for address in at.values()):
            return f"not all of {at} answer"
        retry = self._play.run("preview", "--expect-no-changes")
        remaining = [leftover for leftover in self._play.run("gc", "--json").json if leftover["ours"]]
        return f"{remaining}{retry.out}{retry.err}" if remaining or retry.code else ""


def _wait(pid: int, seconds: float) -> None:
    """Wait so long, or until the process ends."""
    with contextlib.suppress(ProcessLookupError):
        end = os.pidfd_open(pid)
        try:
            select.select([end], [], [], seconds)
        finally:
            os.close(end)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture
def show(play: Stage) -> Iterator[Show]:
    """Return a stage with a disk of its own."""
    disk, prepared = Disk(play.root / ".state"), Prepared()
    with tempfile.TemporaryDirectory(prefix="llb-streams-", dir="/tmp") as streams:
        try:
            yield Show(play, disk, prepared, Path(streams))
        finally:
            prepared.close()
            play.run("destroy", "--yes")
            disk.close()


def test_no_command_at_any_moment_leaves_a_traceback_or_anything_half_done(
    play: Stage, show: Show, backend: Callable[..., Backend]
) -> None:
    """A thousand: the code is one that is documented, the state is sound, and one `up` heals whatever is left."""
    seed = int(os.environ.get("LOCALLB_SEED") or random.SystemRandom().randrange(2**32))
    chance = random.Random(seed)
    one, two = backend("one").port, backend("two").port
    versions = (
        {"n/web": service("web", port(8080, one)), "n/api": service("api", port(8080, two), port(9000, two))},
        {"n/web": service("web", port(8080, two), port(9000, one))},
    )
    faults = ("signal", "signal", "reader", "starve", *show._disk.faults)
    kinds = [True] * STARTED + [False] * PREPARED
    chance.shuffle(kinds)
    for count, starting in enumerate(kinds):
        version = versions[chance.randrange(2)]
        play.write("all.yaml", node(), *version.values())
        case = drawn(chance, faults, 0.8 if starting else 0.25, starting=starting)
        wrong = (show.start if starting else show.fork)(case)
        assert not wrong, f"seed {seed}, {count}: {case}: {wrong}"
        if count % HEALED_EVERY == 0:
            wrong = show.heal(set(version))
            assert not wrong, f"seed {seed}, after {count}: {case}: {wrong}"
    assert not show.heal(set(version)), f"seed {seed}"
