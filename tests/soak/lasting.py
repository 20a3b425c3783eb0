"""What the soak lets go wrong for a while: each of these begins, lasts, and ends; then all has to converge again."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread

import httpx2
from lightkube import ApiError

from locallb.engine.store import Layout
from tests.soak.faults import SLOTS, Chaos
from tests.soak.mortal import PLACES
from tests.support.cluster_services import ingress
from tests.support.control_plane import Document
from tests.support.faulty_api import FaultyApi
from tests.support.odd_api import Answers
from tests.support.watching import eventually, get

FOREIGN = "192.0.2."


@dataclass(frozen=True)
class Lasting:
    """How it begins and ends."""

    begin: Callable[[], object]
    end: Callable[[], object]
    writes: bool = True
    """Whether the loop may write to the API while nobody changes anything."""
    settling: float = 2.0
    """Seconds after which it has shown what it does, and a loop has nothing to do but to wait and to try again."""


@dataclass
class Faults:
    """All of them; the files and locks that are theirs go with their ends."""

    chaos: Chaos
    api: FaultyApi
    overrides: Path
    """Where `mortal` looks."""
    _held: list[int] = field(default_factory=list)
    _made: list[Path] = field(default_factory=list)
    _before: float = 0.0
    _kubeconfig: str = ""
    _over: Event = field(default_factory=Event)
    _writer: Thread | None = None

    @property
    def kinds(self) -> Mapping[str, Lasting]:
        answers = Answers(self.api, self.chaos.chance)
        odd = {
            name: Lasting(partial(self._answering, begin), answers.end, settling=10.0)
            for name, begin in answers.kinds.items()
        }
        play = self.chaos.play
        layout = Layout(play.root / ".state", "local-lb", "dev")
        return odd | {
            "followers ended": Lasting(self.end_followers, self.followers_work),
            "kubeconfig rewritten": Lasting(self.spoil_kubeconfig, self.mend_kubeconfig),
            # Whenever it is whole, what waits is done: only then is nothing left that could be.
            "kubeconfig rewritten all the time": Lasting(self.rewrite_kubeconfig, self.rewrite_no_more, settling=10.0),
            "foreign entries": Lasting(self.add_entries, self.drop_entries, writes=False),
            "ledger's lock held": Lasting(partial(self._hold, play.state_home / "ledger"), self._let_go),
            "stack's lock held": Lasting(partial(self._hold, layout.guard), self._let_go, writes=False),
            "stack locked": Lasting(partial(self.lock_stack, layout.locks), self._let_go, writes=False),
            "a pipe in the ledger": Lasting(self.pipe_in_ledger, self._let_go),
            "leftovers in the ledger": Lasting(self.leftovers_in_ledger, self._let_go),
        }

    def _answering(self, begin: Callable[[], None]) -> None:
        begin()
        self.api.end_watches()

    def end_followers(self) -> None:
        """Let one to four of them end, where chance wants it."""
        self._before = self._ended()
        names = sorted(PLACES)
        for name in {"_take", *self.chaos.chance.sample(names, self.chaos.chance.randrange(len(names)))}:
            (self.overrides / name).touch()
        self.api.end_watches()

    def followers_work(self) -> None:
        """See that each end was counted, and that none is in trouble any more."""
        eventually(lambda: not (self.overrides / "_take").exists(), self.chaos.watch)
        for name in PLACES:
            (self.overrides / name).unlink(missing_ok=True)
        eventually(lambda: self._ended() > self._before, self.chaos.watch)
        eventually(lambda: get(self.chaos.watch, "/readyz")[0] == 200, self.chaos.watch)

    def _ended(self) -> float:
        _, page = get(self.chaos.watch, "/metrics")
        match = re.search(r'^locallb_thread_failures_total\{thread="follower"\} (.+)$', page, re.MULTILINE)
        assert match
        return float(match[1])

    def spoil_kubeconfig(self) -> None:
        """Begin to write it again, in place: nothing is in it yet, then half of it."""
        self._kubeconfig = self.api.kubeconfig.read_text()
        self.api.kubeconfig.write_text("")
        time.sleep(self.chaos.chance.uniform(0, 1))
        if self.chaos.chance.random() < 0.7:
            self.api.kubeconfig.write_text(self._kubeconfig[: len(self._kubeconfig) // 2])

    def mend_kubeconfig(self) -> None:
        self.api.kubeconfig.write_text(self._kubeconfig)

    def rewrite_kubeconfig(self) -> None:
        """Write it again and again, in place, half of it and then all."""
        self._kubeconfig = self.api.kubeconfig.read_text()
        self._over.clear()
        self._writer = Thread(target=self._rewrite, daemon=True)
        self._writer.start()

    def _rewrite(self) -> None:
        number = 0
        while not self._over.wait(0.05):
            number += 1
            half = self._kubeconfig[: len(self._kubeconfig) // 2]
            self.api.kubeconfig.write_text(half if number % 3 else self._kubeconfig)

    def rewrite_no_more(self) -> None:
        self._over.set()
        if self._writer:
            self._writer.join()
        self.mend_kubeconfig()

    def add_entries(self) -> None:
        """Have ten Services, and an entry of somebody else in each."""
        for _ in range(SLOTS):
            self.chaos.create()
        eventually(lambda: all(ingress(self.chaos.cluster, name) for name in self.chaos.present), self.chaos.watch)
        for name in self.chaos.present:
            self._change_entries(name, {"ip": f"{FOREIGN}{int(name[1:]) + 1}", "ipMode": "VIP"})

    def drop_entries(self) -> None:
        for name in self.chaos.present:
            self._change_entries(name)

    def _change_entries(self, name: str, *more: Document) -> None:
        """Leave ours, and `more` in front of it; somebody else may write at the same moment."""

        def changed() -> bool:
            live = self.chaos.cluster.read(name)
            assert live is not None
            had = live["status"].get("loadBalancer", {}).get("ingress", [])
            entries = [*more, *(entry for entry in had if not entry["ip"].startswith(FOREIGN))]
            version = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}}
            try:
                self.chaos.cluster.change_status(name, {**version, "status": {"loadBalancer": {"ingress": entries}}})
            except ApiError as error:
                if error.status.code != httpx2.codes.CONFLICT:
                    raise
                return False
            return True

        eventually(changed, self.chaos.watch)

    def lock_stack(self, folder: Path) -> None:
        """Lock the stack as the official command line does, for a process that lives: this one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "11111111-2222-3333-4444-555555555555.json"
        owner = {"pid": os.getpid(), "username": "somebody", "hostname": socket.gethostname()}
        path.write_text(json.dumps({**owner, "timestamp": datetime.now(UTC).isoformat()}))
        self._made.append(path)

    def pipe_in_ledger(self) -> None:
        """Put pipes where a claim is, and where one is being written: whoever opens them waits."""
        ledger = self.chaos.play.state_home / "ledger"
        free = next(at for at in map(self.chaos.play.at, range(31, 0, -1)) if not list(ledger.glob(f"{at}~*")))
        for name in (f"{free}~{'0' * 16}.json", f".{free}~{'1' * 16}.json.01234567.new"):
            os.mkfifo(ledger / name, 0o600)
            self._made.append(ledger / name)

    def leftovers_in_ledger(self) -> None:
        """Put there what a writer left that was stopped: nothing, and half a claim."""
        ledger = self.chaos.play.state_home / "ledger"
        for number, text in enumerate(["", '{"address": "127.']):
            path = ledger / f".{self.chaos.play.at(30 + number)}~{'2' * 16}.json.0000000{number}.new"
            path.write_text(text)
            self._made.append(path)

    def _hold(self, path: Path) -> None:
        """Lock what is there, and keep it."""
        self._held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(self._held[-1], fcntl.LOCK_EX)

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())
        while self._made:
            with suppress(FileNotFoundError):
                self._made.pop().unlink()
