"""A project in a temporary directory, tiny backends, clients: the stage on which the whole of local-lb is played."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from locallb.cli import main
from locallb.engine.state.resource import ResourceState
from locallb.engine.store import Store
from locallb.envoy.admin import EnvoyAdmin
from locallb.host.sockets import rows
from locallb.model.identities import Protocol
from tests.support.environment import lent

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the document is
        return json.loads(self.out)


def free_prefix() -> str:
    """Choose the first three bytes of addresses at which nobody on this host serves: neither a stack nor a test.

    Of processes that test side by side each has a tenth of them, so that none takes what another is about to serve at.
    """
    used = {str(row.address).rpartition(".")[0] for protocol in Protocol for row in rows(protocol)}
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or secrets.randbelow(10))
    while (prefix := f"127.{100 + 10 * secrets.randbelow(15) + worker % 10}.{secrets.randbelow(250)}") in used:
        pass
    return prefix


@dataclass
class Stage:
    """A project of its own with its own state home, ledger and pool; `run` is the command line.

    Other stacks of this host may serve from the default pool, and keep claims in a ledger of the host: neither matters.
    """

    root: Path
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    prefix: str = field(default_factory=free_prefix)
    """The first three bytes of the stage's own addresses; its pool has the lowest 32 of them."""
    ledger: Path | None = None
    """The ledger of its claims; None for its own."""

    def at(self, number: int) -> str:
        """Return an address of the stage's own; those below 32 are in its pool."""
        return f"{self.prefix}.{number}"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def state_home(self) -> Path:
        return self.root / "s" / "locallb"

    @property
    def homes(self) -> dict[str, str]:
        """The variables of the environment which say where state and ledger are."""
        return {
            "XDG_STATE_HOME": str(self.root / "s"),
            "LOCALLB_LEDGER": str(self.ledger or self.state_home / "ledger"),
        }

    def configure(self, stack: str = "dev", /, **settings: object) -> None:
        """Write a stack's configuration; without `sources` it reads `manifests`, without `pools` it has its own."""
        settings.setdefault("sources", [{"manifests": "manifests", "name": "c"}])
        if "portMapping" not in settings:
            settings.setdefault("pools", [{"name": "default", "addresses": [f"{self.at(0)}/27"]}])
        flat = {f"local-lb:{key}": value for key, value in settings.items()}
        (self.root / "stacks" / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({"config": flat}))

    def write(self, name: str, *objects: Mapping[str, object]) -> None:
        """Write a file of manifests, renamed into place."""
        path = self.manifests / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(yaml.safe_dump_all(objects))
        path.with_suffix(".new").rename(path)

    def run(self, *terms: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(["-C", str(self.root), *terms])
            except SystemExit as leaving:
                code = int(leaving.code or 0)
        return Done(code, out.getvalue(), err.getvalue())

    def spawn(self, *terms: str) -> Done:
        """Run a command in a process of its own, without a terminal."""
        command = [str(Path(sys.executable).parent / "locallb"), "-C", str(self.root), *terms]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def up(self) -> Done:
        """Run `up` and expect it to succeed."""
        done = self.run("up", "--yes")
        assert done.code == 0, done.out + done.err
        return done

    def status(self) -> dict[str, dict[str, Any]]:
        """Return `status --json` by `namespace/name`."""
        done = self.run("status", "--json")
        assert done.out, done.err
        return {f"{row['namespace']}/{row['name']}": row for row in done.json}

    def addresses(self) -> dict[str, str]:
        """Return the first address of every Service that has one."""
        return {key: row["addresses"][0] for key, row in self.status().items() if row["addresses"]}

    def pids(self) -> dict[str, int]:
        """Return the process of every proxy by Service, as the state has it."""
        found = stated(self.root, "locallb:index:EnvoyProcess")
        owners: list[Any] = [each.inputs["owner"] for each in found]
        pids: list[Any] = [each.outputs["pid"] for each in found]
        return {f"{owner['namespace']}/{owner['name']}": int(pid) for owner, pid in zip(owners, pids, strict=True)}

    def healthy_backends(self) -> list[str]:
        """Return the places that the proxies' own health checks find healthy."""
        found = []
        for directory in (self.state_home / "proxies").iterdir():
            for cluster in json.loads(EnvoyAdmin(directory)._ask("GET", "/clusters?format=json"))["cluster_statuses"]:
                for host in cluster.get("host_statuses", ()):
                    address = host["address"]["socket_address"]
                    if host["health_status"] == {"eds_health_status": "HEALTHY"}:
                        found.append(f"{address['address']}:{address['port_value']}")
        return found

    def files(self) -> dict[str, bytes]:
        """Return every file below the project but Python's caches: to see that nothing was written."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }


def stated(root: Path, kind: str) -> list[ResourceState]:
    """Return a stack's resources of a type, also those that a `watch` hasn't written into the state's file yet."""
    existing = Store(root / ".state", "local-lb", "dev").peek().in_order()
    return [each for each in existing if each.type == kind]


SHORT = "/tmp"  # noqa: S108 - paths of sockets may have 107 characters


@contextlib.contextmanager
def stage(place: str | None = None) -> Iterator[Stage]:
    """Make a stage below /tmp, or another place with a short path, and destroy the stacks at the end."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir=place or SHORT))
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(CHECKOUT / name, root / name)
    for name in ("stacks", "manifests", ".state", "s"):
        (root / name).mkdir()
    made = Stage(root)
    with lent(made.homes):
        made.configure()
        try:
            yield made
        finally:
            for path in (root / ".state").glob(".pulumi/stacks/local-lb/*.json"):
                made.run("--stack", path.stem, "destroy", "--yes")
            for pid in envoys(root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(root, ignore_errors=True)


def envoys(stage_root: Path) -> list[int]:
    """List the Envoys whose working directory is a proxy's below the stage."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str((entry / "cwd").readlink()).startswith(str(stage_root)):
                pids += [int(entry.name)] if (entry / "comm").read_text().strip() == "envoy" else []
    return pids
