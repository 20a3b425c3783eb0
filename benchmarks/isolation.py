"""How long a new Service takes while something else is slow, hangs or changes all the time.

    python -m benchmarks.isolation [--seconds 120] [--troubles proxy,cluster,...]

A test cluster (etcd and kube-apiserver, see tests/cluster) is followed by `locallb watch`. A Service is created each
second and removed 20 seconds later: before each trouble alone, for a quarter of the time, then beside it. Measured are
the Services beside which others are removed. Tables, and how many times as long it
takes beside each trouble, go to standard error, one JSON object to standard output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from lightkube import ApiError

from benchmarks.figures import Spread, report_to, result, spreads, table
from benchmarks.nodes import COUNT, FIRST, served
from benchmarks.requests import ask, until
from benchmarks.services import Services
from benchmarks.targets import OurLoop
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.faulty_api import FaultyApi, faulty_api
from tests.support.stages import envoys, stage
from tests.support.watching import watching

NEAR, SILENT = "127.0.0.21", "127.0.0.23"
"""Where the test cluster's Node is, and a name server that never answers."""
PORT = 8080
LIFE = 20
"""Seconds for which a created Service stays."""
FOR_EVER = 1_000_000
SLEEP = 100.0


@dataclass
class Stand:
    """What troubles are made of."""

    room: Path
    services: Services
    plane: ControlPlane
    other: ControlPlane
    faulty: FaultyApi
    """The API of the other cluster, as `watch` sees it where it is a source."""


@dataclass
class Trouble:
    """Something that goes wrong beside new Services."""

    settings: Callable[[Stand], Mapping[str, object]] = lambda _: {}
    """Of the stack, from its start."""
    begin: Callable[[Stand, OurLoop], Callable[[], None]] = lambda _stand, _loop: lambda: None
    """Lets it begin, and returns what ends it."""


def hung_proxy(stand: Stand, loop: OurLoop) -> Callable[[], None]:
    """Stop one Service's Envoy and change its port, again and again: a new process is stopped as well."""
    ended = threading.Event()

    def stop_all() -> None:
        number = 0
        while not ended.wait(0.5):
            number += 1
            with suppress(OSError, SystemExit, TimeoutError, ApiError):
                stand.services.change_ports("steady", (PORT + number % 2, FIRST))
                for pid in envoys(loop.directory(stand.services.address("steady"), PORT)):
                    os.kill(pid, signal.SIGSTOP)

    return _until_ended(stop_all, ended)


def hung_writes(stand: Stand, _loop: OurLoop) -> Callable[[], None]:
    """Let each PATCH to another cluster hang, with Services there that need one."""
    stand.faulty.inject("^PATCH ", FOR_EVER, hang=SLEEP)
    there, stuck = Services(stand.other.root / "owner.kubeconfig", "n", {}), range(5)
    for number in stuck:
        there.create(f"stuck-{number}", (PORT, FIRST + COUNT - 1 - number))

    def end() -> None:
        stand.faulty.heal()
        there.clear()
        there.removed(*(f"stuck-{number}" for number in stuck))

    return end


def busy_service(stand: Stand, _loop: OurLoop) -> Callable[[], None]:
    """Change a port of one Service as fast as the API takes it, at most each 5 ms."""
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.wait(0.005):
            number += 1
            with suppress(ApiError):
                stand.services.change_ports("steady", (PORT + number % 50, FIRST))

    return _until_ended(change, ended)


def _until_ended(work: Callable[[], None], ended: threading.Event) -> Callable[[], None]:
    thread = threading.Thread(target=work)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end


def silent_names(_stand: Stand) -> Mapping[str, object]:
    """Have a zone whose server takes questions and never answers; it lasts as long as this process."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((SILENT, 0))
    _KEPT.append(server)
    place = f"{SILENT}:{server.getsockname()[1]}"
    return {"dns": {"zones": [{"zone": "test", "rfc2136": {"server": place}}]}}


_KEPT: list[socket.socket] = []


def pipe_among_manifests(stand: Stand) -> Mapping[str, object]:
    """Have a second source: a directory of manifests with a pipe in it to which nobody writes."""
    folder = stand.room / "manifests"
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        os.mkfifo(folder / "pipe.yaml")
    return {"sources": [stand.plane.source, {"manifests": str(folder), "name": "files"}]}


def sleeping_plugin(stand: Stand) -> Mapping[str, object]:
    """Have a second cluster, whose kubeconfig asks a program for a token that sleeps."""
    kubeconfig = stand.room / "sleeping.kubeconfig"
    document = yaml.safe_load(stand.other.kubeconfig.read_text())
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sleep",
        "args": [f"{SLEEP:.0f}"],
        "interactiveMode": "Never",
    }
    document["users"][0]["user"] = {"exec": plugin}
    kubeconfig.write_text(yaml.safe_dump(document))
    return {"sources": [stand.plane.source, {"kubernetes": {"name": "asleep", "kubeconfig": str(kubeconfig)}}]}


TROUBLES: Mapping[str, Trouble] = {
    "proxy": Trouble(begin=hung_proxy),
    "cluster": Trouble(lambda stand: {"sources": [stand.plane.source, stand.faulty.source]}, hung_writes),
    "names": Trouble(silent_names),
    "busy": Trouble(begin=busy_service),
    "pipe": Trouble(pipe_among_manifests),
    "plugin": Trouble(sleeping_plugin),
}


def measure(stand: Stand, loop: OurLoop, trouble: Trouble, seconds: float) -> Mapping[str, Spread]:
    """Create a Service each second while the trouble lasts."""
    reported: list[float] = []
    answered: list[float] = []
    stand.services.create("steady", (PORT, FIRST))
    until(lambda: ask(stand.services.address("steady"), PORT), "the first Service")
    end = trouble.begin(stand, loop)
    try:
        time.sleep(1)
        begun = time.perf_counter()
        for number in range(LIFE + int(seconds)):
            time.sleep(max(0.0, begun + number - time.perf_counter()))
            if number >= LIFE:
                stand.services.delete(f"new-{number - LIFE}")
            at = time.perf_counter()
            stand.services.create(f"new-{number}", (PORT, FIRST + 1 + number % (COUNT - 8)))
            address = stand.services.address(f"new-{number}")
            is_reported = time.perf_counter()
            has_answered = until(partial(ask, address, PORT), "the first byte")
            if number >= LIFE:
                reported.append((is_reported - at) * 1000)
                answered.append((has_answered - at) * 1000)
    finally:
        end()
        stand.services.clear()
        stand.services.removed("steady", *(f"new-{number}" for number in range(LIFE + int(seconds))))
    return spreads({"address": reported, "first byte": answered})


@contextmanager
def followed(stand: Stand, trouble: Trouble) -> Iterator[OurLoop]:
    """Have a stack of its own follow the cluster, which may never call itself converged; it is destroyed at the end."""
    with stage() as play:
        play.configure(**{"sources": [stand.plane.source], **trouble.settings(stand)})
        with watching(play, "--plain") as watch:
            yield OurLoop("process", play, watch)


@contextmanager
def prepared() -> Iterator[Stand]:
    """Start two clusters, and a Node that answers."""
    room = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, room)
        stack.enter_context(served(NEAR))
        plane = stack.enter_context(control_plane("bench", room / "c"))
        other = stack.enter_context(control_plane("other", room / "o"))
        faulty = stack.enter_context(faulty_api(other, room / "faulty"))
        services = Services(plane.root / "owner.kubeconfig", "n", {})
        services.add_node("near", NEAR)
        yield Stand(room, services, plane, other, faulty)


def main(terms: Sequence[str] | None = None) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made for it is removed then
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="of each trouble (default: %(default)s)")
    parser.add_argument("--troubles", default=",".join(TROUBLES), help="default: %(default)s")
    args = parser.parse_args(terms)
    milliseconds: dict[str, Mapping[str, Spread]] = {}
    ratios: dict[str, float] = {}
    with prepared() as stand:
        for name in args.troubles.split(","):
            alone = f"before {name}"
            for row, trouble, seconds in ((alone, Trouble(), args.seconds / 4), (name, TROUBLES[name], args.seconds)):
                with followed(stand, trouble) as loop:
                    milliseconds[row] = measure(stand, loop, trouble, seconds)
                report_to(table({row: milliseconds[row]}))
            before, beside = (milliseconds[row]["first byte"]["p50"] for row in (alone, name))
            ratios[name] = round(beside / before, 2)
            report_to(f"{name}: {ratios[name]} times as long")
    result("isolation", seconds=args.seconds, milliseconds=milliseconds, ratios=ratios)


if __name__ == "__main__":
    main()
