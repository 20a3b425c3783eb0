"""What the soak does to a stack and its surroundings: everyday changes, and what goes wrong with everything else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lightkube import ApiError

from tests.support.control_plane import ControlPlane, Objects
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import Watch

SLOTS = 10
MOST_MEDDLING = 3
"""Times that one Service's status is spoiled under one loop: the next repair is seconds later, and twice that then."""
FIRST = 30100
"""NodePort of the first slot; the second port of a slot is `SLOTS` above."""


@dataclass
class Chaos:
    """Everything that happens, by chance but for the seed."""

    plane: ControlPlane
    cluster: Objects
    play: Stage
    chance: Random
    begin: Callable[[], Watch]
    """Starts another loop."""
    watch: Watch
    present: dict[str, int] = field(default_factory=dict)
    """Services that shall be there, by name: how many ports each has."""
    done: Counter[str] = field(default_factory=Counter)
    spoiled: set[Path] = field(default_factory=set)
    """Files of proxies that were removed at some time."""
    _meddled: Counter[str] = field(default_factory=Counter)

    def step(self, *, faults: bool, loop: bool) -> None:
        """Do something; `faults` may go wrong, `loop` may be the loop itself."""
        kinds: list[Callable[[], None]] = [self.create, self.delete, self.add_port, self.drop_port, self.meddle] * 3
        if faults:
            kinds += [self.kill_proxy, self.kill_proxy, self.spoil, self.stop_api, self.freeze_api]
            kinds += [self.stop_etcd, self.fill_disk]
        if loop:
            kinds += [self.kill_loop, self.kill_loop]
        kind = self.chance.choice(kinds)
        self.done[kind.__name__] += 1
        kind()

    def create(self) -> None:
        free = sorted({f"s{slot}" for slot in range(SLOTS)} - self.present.keys())
        for name in free[:1]:
            with suppress(ApiError):  # its predecessor isn't gone yet
                self.cluster.service(service(name, port(8080, FIRST + int(name[1:]))))
                self.present[name] = 1

    def delete(self) -> None:
        if name := self._any():
            self.cluster.delete(name)
            del self.present[name]

    def add_port(self) -> None:
        if name := self._any():
            self._ports(name, 2)

    def drop_port(self) -> None:
        if name := self._any():
            self._ports(name, 1)

    def meddle(self) -> None:
        """Write into a status that isn't ours to write; who does so for ever is in a duel, and waits."""
        if (name := self._any()) and self._meddled[name] < MOST_MEDDLING:
            self._meddled[name] += 1
            self.cluster.change_status(name, {"status": {"loadBalancer": {"ingress": None}}})

    def kill_proxy(self) -> None:
        with suppress(OSError, ValueError):
            pids = {key.removeprefix("n/"): pid for key, pid in self.play.pids().items()}
            if (name := self._any()) in pids:
                os.kill(pids[name], signal.SIGKILL)

    def spoil(self) -> None:
        """Remove a file that one's Envoy reads, of those that every proxy has."""
        if name := self._any():
            for directory in (self.play.state_home / "proxies").iterdir():
                with suppress(OSError, ValueError):
                    if json.loads((directory / "owner.json").read_text())["owner"]["name"] == name:
                        path = directory / self.chance.choice(["bootstrap.json", "cds.json", "lds.json"])
                        path.unlink(missing_ok=True)
                        self.spoiled.add(path)

    def kill_loop(self) -> None:
        """Kill -9 of the loop, in whatever it does, and another one."""
        self.watch.process.kill()
        self.watch.process.wait()
        self.watch = self.begin()
        self._meddled.clear()

    def stop_api(self) -> None:
        """Take the API server away for a moment."""
        self.plane.stop_api()
        time.sleep(self.chance.uniform(0.5, 3))
        self.plane.start_api()

    def freeze_api(self) -> None:
        """Let the API server hang: connections stay, nobody answers."""
        pid = self.plane.processes["kube-apiserver"].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(1, 4))
        os.kill(pid, signal.SIGCONT)

    def stop_etcd(self) -> None:
        self.plane.stop_etcd()
        time.sleep(self.chance.uniform(0.5, 2))
        self.plane.start_etcd()
        self.plane.await_ready()

    def fill_disk(self) -> None:
        """Leave no byte where state and proxies are written."""
        filler = self.play.root / "s" / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        time.sleep(self.chance.uniform(0.5, 2))
        filler.unlink(missing_ok=True)

    def _any(self) -> str:
        return self.chance.choice(sorted(self.present)) if self.present else ""

    def _ports(self, name: str, count: int) -> None:
        slot = FIRST + int(name[1:])
        ports = [port(8080, slot), port(8081, slot + SLOTS)][:count]
        try:
            self.cluster.change(name, {"spec": {"ports": ports}})
        except ApiError as error:
            # An API server that was stopped in between finds out after minutes which NodePorts are free again.
            if "port is already allocated" not in str(error.status.message):
                raise
        else:
            self.present[name] = count


class SmallDisk:
    """A file system of its own for state and proxies, so that filling it harms nothing else. Needs root."""

    def __init__(self, *places: Path) -> None:
        self.places = places

    def mount(self) -> None:
        """Mount it; every place is a part of it."""
        first, *others = self.places
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(first)], check=True)
        for other in others:
            (first / f".{other.name}").mkdir()
            subprocess.run(["mount", "--bind", str(first / f".{other.name}"), str(other)], check=True)

    def unmount(self) -> None:
        for place in reversed(self.places):
            subprocess.run(["umount", "-l", str(place)], check=False)
