"""Homes that earlier versions wrote are taken over without an operation on anything that serves.

A home is what a version left on a host: project, state, ledger, directories of proxies. `homes/1` was recorded from
commit 2981389 by its own `up`; `processes.json` beside it says how its Envoys were started. Recorded homes are never
changed: a version that can't take one over breaks a promise to its users.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import envoy
import pytest

from tests.e2e.support import Stage, envoys
from tests.e2e.watching import becomes, watching
from tests.host.support import Namespace
from tests.traffic.spaces import inside

pytestmark = [pytest.mark.envoy, pytest.mark.root]

HOMES = Path(__file__).parent / "homes"
RECORDED = ("1/per-service", "1/shared")
UNTOUCHED = frozenset({"same", "read", "refresh"})
"""Operations that leave a resource as it is."""
_PROCESS = re.compile(r"""("pid":\s?|")(\d+)(,[^{}]{0,80}"started":\s?"|@)([0-9a-f-]{36}\.\d+)""")
"""How files name a process: as two fields, or as `<pid>@<start>`."""


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other test of any user has a recorded home: they lie at one path. The lock leaves no file."""
    deadline = time.monotonic() + 300
    descriptor = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)  # noqa: S108 - what every user may open
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < deadline, "another test keeps the recorded homes"
                time.sleep(0.1)
                continue
            break
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _network() -> Iterator[None]:
    """Be where nobody else serves: the recorded addresses are of the default pool. Who isn't root takes the host's."""
    if os.geteuid() != 0:
        yield
        return
    with tempfile.TemporaryDirectory() as nowhere:
        space = Namespace(Path(nowhere), "ip link set lo up\n", flags=("-n",))
        try:
            with inside(space):
                yield
        finally:
            space.close()


@contextmanager
def restored(home: str) -> Iterator[Stage]:
    """Put a home back where it was recorded, its Envoys running; only one test on this host has it at a time."""
    root = Path(f"/tmp/local-lb-recorded-{home.rpartition('/')[2]}")  # noqa: S108 - names of proxies depend on the path
    with _alone(), _network():
        before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", "LOCALLB_LEDGER")}
        os.environ["XDG_STATE_HOME"] = str(root / "s")
        os.environ["LOCALLB_LEDGER"] = str(root / "s/locallb/ledger")
        shutil.rmtree(root, ignore_errors=True)
        running: list[subprocess.Popen[bytes]] = []
        try:
            running += _copy(HOMES / home, root)
            _rename(HOMES / home, root, running)
            stage = Stage(root)
            yield stage
            assert stage.run("destroy", "--yes").code == 0
        finally:
            for pid in envoys(root):
                os.kill(pid, signal.SIGKILL)
            for process in running:
                process.wait()
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
            shutil.rmtree(root, ignore_errors=True)


def _copy(home: Path, root: Path) -> list[subprocess.Popen[bytes]]:
    """Copy the files with the modes that they had, and start the Envoys."""
    processes = json.loads((home / "processes.json").read_text(encoding="utf-8"))
    binary = str(Path(envoy.__file__).parent / "_bin" / "envoy")
    texts = {
        path.relative_to(home): path.read_text(encoding="utf-8").replace("@ENVOY@", binary)
        for path in home.rglob("*")
        if path.is_file() and path.name != "processes.json"
    }
    old_mask = os.umask(0o077)
    try:
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
    finally:
        os.umask(old_mask)
    shutil.copy(Path(__file__).resolve().parents[2] / "__main__.py", root / "__main__.py")
    return [_start(process, binary) for process in processes]


def _start(process: Mapping[str, Any], binary: str) -> subprocess.Popen[bytes]:
    """Start one Envoy as it was started."""
    directory = Path(process["environment"]["LOCALLB_PROXY"])
    started = subprocess.Popen(
        [binary, *process["arguments"]],
        cwd=directory,
        env=process["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _wait(directory / "admin.sock", started)
    return started


def _rename(home: Path, root: Path, running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Have the files name the processes that run now instead of the recorded ones, all at once."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    names: dict[tuple[str, str], tuple[str, str]] = {}
    recorded = json.loads((home / "processes.json").read_text(encoding="utf-8"))
    for process, started in zip(recorded, running, strict=True):
        directory = Path(process["environment"]["LOCALLB_PROXY"])
        before = json.loads((directory / "process.json").read_text(encoding="utf-8"))
        ticks = Path(f"/proc/{started.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
        names[str(before["pid"]), before["started"]] = str(started.pid), f"{boot}.{ticks}"
    for path in (*root.glob("s/locallb/proxies/*/process.json"), root / ".state/.pulumi/stacks/local-lb/dev.json"):
        text = _PROCESS.sub(
            lambda found: "".join((found[1], names[found[2], found[4]][0], found[3], names[found[2], found[4]][1])),
            path.read_text(encoding="utf-8"),
        )
        path.write_text(text, encoding="utf-8")


def _wait(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert process.poll() is None, "the recorded Envoy ended"
        assert time.monotonic() < deadline, "the recorded Envoy doesn't start"
        time.sleep(0.01)


def touched(report: Mapping[str, Any]) -> list[str]:
    """Return the custom resources on which something was done; components are only names."""
    return [
        f"{step['op']} {step['type']} {step['name']}"
        for step in report["steps"]
        if step["op"] not in UNTOUCHED and step["type"].rpartition(":")[2] not in {"LoadBalancer", "Proxy", "Stack"}
    ]


@pytest.mark.parametrize("home", RECORDED)
def test_a_recorded_home_is_taken_over_without_an_operation(home: str) -> None:
    """`preview` and `up` find nothing to do; processes, addresses and ledger stay what they were."""
    with restored(home) as stage:
        pids, ledger = stage.pids(), sorted(path.name for path in (stage.state_home / "ledger").iterdir())
        previewed = stage.run("preview", "--json")
        assert previewed.code == 0, previewed.err
        done = stage.run("up", "--yes", "--json")
        assert done.code == 0, done.out + done.err
        assert touched(done.json) == []
        assert stage.pids() == pids
        assert sorted(path.name for path in (stage.state_home / "ledger").iterdir()) == ledger
        assert {row["state"] for row in stage.status().values() if row["addresses"]} == {"serving"}
        assert touched(stage.run("up", "--yes", "--json", "--expect-no-changes").json) == []


@pytest.mark.parametrize("home", RECORDED)
def test_the_loop_takes_a_recorded_home_over(home: str) -> None:
    """`watch` starts on it, becomes ready, and every Envoy lives on."""
    with restored(home) as stage:
        pids, running = stage.pids(), sorted(envoys(stage.root))
        with watching(stage) as watch:
            becomes(lambda: "converged" in watch.told(), watch)
        assert stage.pids() == pids
        assert sorted(envoys(stage.root)) == running
