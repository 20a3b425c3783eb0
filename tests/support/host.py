"""Namespaces in which tests may do what they like to routes, sysctls and /var/lib, and the machine notices nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
LOCALLB = (PYTHON, "-c", "import sys; from locallb.cli import main; sys.exit(main())")
SECONDS = 120
PRIVATE = """\
mount -t tmpfs none /var/lib
mkdir -p {root}/etc/sysctl.d {root}/etc/systemd/system
mount --bind {root}/etc/sysctl.d /etc/sysctl.d
mount --bind {root}/etc/systemd/system /etc/systemd/system
cat /proc/sys/fs/inotify/max_user_instances >{root}/instances
mount --bind {root}/instances /proc/sys/fs/inotify/max_user_instances
ip link set lo up
"""
"""What stands in for the machine's own. The sysctl of inotify isn't per namespace: a file takes its place, and what the
kernel really allows doesn't change."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the document is
        return json.loads(self.out)


def _exposed(root: Path) -> str:
    """Let other users reach this Python, this checkout and what it has built, should they lie below a private home."""
    places = (Path(sys.base_prefix), CHECKOUT, (CHECKOUT / ".cache").resolve())
    needed = [path for path in places if path.exists() and _closed(path)]
    lines = [f"mkdir -p {root}/aside{n}; mount --bind '{path}' {root}/aside{n}" for n, path in enumerate(needed)]
    lines += [f"mount -t tmpfs -o mode=755 none '{top}'" for top in {_closed(path) for path in needed}]
    lines += [f"mkdir -p '{path}'; mount --bind {root}/aside{n} '{path}'" for n, path in enumerate(needed)]
    return "".join(f"{line}\n" for line in lines)


def _closed(path: Path) -> Path | None:
    """Find the topmost directory on the way to `path` that others may not pass."""
    return next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 1), None)


class Namespace:
    """A network and a mount namespace, held open by a sleeping process; who isn't root is root in it."""

    def __init__(
        self,
        root: Path,
        prepare: str = PRIVATE,
        flags: Sequence[str] = ("-n", "-m"),
        sibling: Namespace | None = None,
    ) -> None:
        self.root = root
        exposed = _exposed(root) if "-m" in flags else ""
        script = f"set -e\n{exposed}{prepare.format(root=root)}echo ready\nexec sleep {SECONDS * 10}"
        rights = [] if os.geteuid() == 0 or sibling else ["-U", "-r"]
        command = ["unshare", *rights, *flags, "--kill-child", "sh", "-c", script]
        outer = sibling.enter(*command) if sibling else command
        self.holder = subprocess.Popen(outer, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout
        assert self.holder.stdout.readline() == "ready\n", "this machine allows no namespaces"
        self.pid = self._inner()

    def _inner(self) -> int:
        """Find the process inside: `unshare` itself, or its child where it forked."""
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        return int(children[0]) if children else self.holder.pid

    def enter(self, *terms: str, user: int = 0) -> list[str]:
        """Return the command line that runs `terms` inside, as another user if wanted."""
        if user and os.geteuid() != 0:
            pytest.skip("only root can act as other users")
        rights = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"] if user else []
        return ["nsenter", "-t", str(self.pid), "-n", "-m", *rights, *drop, "--", *terms]

    def run(self, *terms: str, user: int = 0, **environment: str) -> Done:
        done = subprocess.run(
            self.enter(*terms, user=user),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **environment},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def shell(self, script: str, *, user: int = 0) -> str:
        """Run a shell script inside that must succeed, and give its output."""
        done = self.run("sh", "-ec", script, user=user)
        assert done.code == 0, f"{script}\n{done.out}{done.err}"
        return done.out

    def close(self) -> None:
        """End the holder and with it the namespaces."""
        self.holder.kill()
        self.holder.communicate()


@dataclass(frozen=True)
class Project:
    """A project in a directory of its own, used inside of a namespace."""

    root: Path
    space: Namespace

    def configure(self, stack: str = "dev", /, **settings: object) -> None:
        """Write a stack's configuration; without `sources` it reads `manifests`."""
        settings.setdefault("sources", [{"manifests": "manifests", "name": "c"}])
        flat = {f"local-lb:{key}": value for key, value in settings.items()}
        (self.root / "stacks" / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({"config": flat}))

    def write(self, name: str, *objects: object) -> None:
        (self.root / "manifests" / name).write_text(yaml.safe_dump_all(objects))

    def locallb(self, *terms: str, user: int = 0, **environment: str) -> Done:
        home = {"XDG_STATE_HOME": str(self.root / "s"), "HOME": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return self.space.run(*LOCALLB, "-C", str(self.root), *terms, user=user, **{**home, **environment})

    def up(self, *, user: int = 0) -> Done:
        """Run `up` and expect it to succeed."""
        done = self.locallb("up", "--yes", user=user)
        assert done.code == 0, done.out + done.err
        return done

    def status(self, *, user: int = 0) -> dict[str, dict[str, Any]]:
        """Return `status --json` by name."""
        done = self.locallb("status", "--json", user=user)
        return {row["name"]: row for row in done.json}


@contextmanager
def project(prepare: str = PRIVATE, owner: int = 0) -> Iterator[Project]:
    """Make a project and its namespaces, owned by another user if wanted; destroy all of it at the end."""
    if owner and os.geteuid() != 0:
        pytest.skip("only root can act as other users")
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    root.chmod(0o755)
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(CHECKOUT / name, root / name)
    for name in ("stacks", "manifests", ".state", "s"):
        (root / name).mkdir()
    for path in (root, *root.rglob("*")):
        if owner:
            os.chown(path, owner, owner)
    space = Namespace(root, prepare)
    made = Project(root, space)
    made.configure()
    try:
        yield made
    finally:
        for path in (root / ".state").glob(".pulumi/stacks/local-lb/*.json"):
            made.locallb("--stack", path.stem, "destroy", "--yes", user=owner)
        for record in (root / "s/locallb/proxies").glob("*/process.json"):
            subprocess.run(["kill", "-9", str(json.loads(record.read_text())["pid"])], check=False)
        space.close()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def background(space: Namespace, *terms: str) -> Iterator[None]:
    """Run a server inside until the block ends; its first line of output says that it serves."""
    server = subprocess.Popen(space.enter(*terms), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        assert server.stdout.readline(), shlex.join(terms)
        yield
    finally:
        server.kill()
        server.communicate()


SERVER = """
import socket, sys, threading
def serve(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.create_server((address, port), family=family, backlog=256)
    def loop():
        while True:
            c, _ = s.accept()
            c.sendall(b"hello from %d\\n" % port)
            c.close()
    threading.Thread(target=loop, daemon=True).start()
for place in sys.argv[1:]:
    address, port = place.rsplit("@", 1)
    serve(address, int(port))
print("ready", flush=True)
threading.Event().wait()
"""
CLIENT = """
import socket, sys
for place in sys.argv[1:]:
    address, port = place.rsplit("@", 1)
    try:
        with socket.create_connection((address, int(port)), timeout=5) as c:
            print(c.recv(99).decode().strip() or "nothing")
    except OSError as error: print(error.__class__.__name__)
"""


def served(space: Namespace, *places: str) -> AbstractContextManager[None]:
    """Serve at each `<address>@<port>` inside; a client is told the port."""
    return background(space, PYTHON, "-c", SERVER, *places)


def requested(space: Namespace, *places: str) -> list[str]:
    """Connect to each `<address>@<port>` from inside, and give what was answered, or the error."""
    return space.shell(shlex.join([PYTHON, "-c", CLIENT, *places])).splitlines()


DEVICE = "ip link add {device} type bridge && ip link set {device} addrgenmode none && ip link set {device} up"
"""Unlike a tap it needs no right to a file of /dev; without a link-local address, which would settle a second later."""
