"""A Podman of the tests' own: its service, with storage and settings below one directory, gone at the end.

As root or, with single ids of its own, as another user. The settings are those of a machine whose control groups are of
version 1 and whose limits nobody may raise; elsewhere they do no harm.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from locallb.host.capabilities import PODMAN
from tests.support.host import Namespace

SECONDS = 60.0
_SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{root}/networks"
"""


@dataclass
class Podman:
    """The service of one user; another user than ours has namespaces."""

    root: Path
    user: int = 0
    space: Namespace | None = None
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def socket(self) -> Path:
        """Where this user's service listens, below XDG_RUNTIME_DIR."""
        return self.root / "run" / "podman" / "podman.sock"

    @property
    def runtime(self) -> str:
        """What XDG_RUNTIME_DIR says: another user's lies below /run, or there are no networks without root."""
        return f"/run/user/{self.user}" if self.space and self.user else str(self.root / "run")

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def environment(self) -> dict[str, str]:
        """What Podman's own command needs to be this one."""
        places = {"HOME": str(self.root / "home"), "XDG_RUNTIME_DIR": self.runtime}
        others = {name: value for name, value in os.environ.items() if name != PODMAN}  # which means a remote one
        return {**others, **places, "CONTAINERS_CONF": str(self.root / "containers.conf")}

    def command(self, *terms: str) -> list[str]:
        """Return Podman's own command, as this user."""
        places = ("--root", str(self.root / "storage"), "--runroot", str(self.root / "run" / "containers"))
        command = ("podman", *places, *terms)
        return self.space.enter(*command, user=self.user) if self.space else list(command)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        for directory in (self.root, self.root / "home", self.socket.parent.parent, self.socket.parent):
            directory.mkdir(exist_ok=True)
            os.chown(directory, self.user, self.user)
        if self.space and self.user:
            mount = f"mountpoint -q {self.runtime} || mount --bind {self.root}/run {self.runtime}"
            self.space.shell(f"mkdir -p {self.runtime}; {mount}")
        (self.root / "containers.conf").write_text(_SETTINGS.format(root=self.root))
        with (self.root / "service.log").open("ab") as log:
            command = self.command("system", "service", "--time=0", self.host)
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, cwd=self.root, start_new_session=True
            )
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self.process.poll() is None, (self.root / "service.log").read_text()[-2_000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process:
            with suppress(ProcessLookupError):  # without root it is two processes
                os.killpg(self.process.pid, how)
            self.process.wait(SECONDS)
            self.socket.unlink(missing_ok=True)

    def run(self, *terms: str) -> str:
        done = subprocess.run(
            self.command(*terms),
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=self.environment,
            cwd=self.root,
        )
        return done.stdout.strip()

    def _answers(self) -> bool:
        requested = ["curl", "-s", "--max-time", "5", "--unix-socket", str(self.socket), "http://podman/_ping"]
        return subprocess.run(requested, check=False, capture_output=True).stdout == b"OK"


@contextmanager
def podman(user: int = 0, space: Namespace | None = None) -> Iterator[Podman]:
    """Run one, in namespaces if wanted, and leave no container, storage or mount of it."""
    root = Path(tempfile.mkdtemp(prefix="llb-podman-", dir="/tmp"))
    root.chmod(0o755)
    made = Podman(root, user, space)
    try:
        made.start()
        yield made
    finally:
        made.end()
        for terms in (("rm", "--all", "--force", "--time", "0"), ("system", "reset", "--force")):
            subprocess.run(
                made.command(*terms),
                check=False,
                capture_output=True,
                timeout=SECONDS,
                env=made.environment,
                cwd=root,
            )
        end_monitors(root)
        shutil.rmtree(root, ignore_errors=True)


def end_monitors(root: Path) -> int:
    """Kill what watches over containers of this storage, and these; return how many containers Podman had left.

    First the monitor: it would call Podman once its container has ended, and so make storage again.
    """
    monitors = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _monitors(entry, root)]
    for monitor in monitors:
        with suppress(OSError):
            children = Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()
            for pid in (monitor, *map(int, children)):
                os.kill(pid, signal.SIGKILL)
    return len(monitors)


def _monitors(process: Path, root: Path) -> bool:
    """Return whether a process is a monitor of a container in this storage."""
    with suppress(OSError):
        terms = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return Path(terms[0]).name == "conmon" and any(word.startswith(f"{root}/storage/") for word in terms)
    return False
