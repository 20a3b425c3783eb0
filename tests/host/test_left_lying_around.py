"""What lies around while a stack serves: each file, directory, socket and process, its mode, owner and secrets."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys, stage

pytestmark = pytest.mark.envoy

SECRET = "hunter2-a-token-of-the-users-shell"  # noqa: S105 - a stand-in
OURS = {"LOCALLB_PROXY", "LOCALLB_OWNER", "LOCALLB_BOOTSTRAP", "LOCALLB_VERSION", "LOCALLB_EPOCH"}
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}
"""What /bin/sh may add."""


@pytest.fixture(scope="module", params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask-{mask:03o}")
def deployed(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Return a stack deployed under a umask, with a secret in the environment of whoever ran `up`."""
    backends: list[Backend] = [Backend("web")]
    before = os.umask(request.param)
    os.environ["MY_TOKEN"] = SECRET
    try:
        with stage() as made:
            made.write("web.yaml", node(), service("web", port(8080, backends[0].port), port(8081, backends[0].port)))
            made.up()
            yield made
    finally:
        os.umask(before)
        del os.environ["MY_TOKEN"]
        backends[0].close()


def below(*roots: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Return everything below some directories, and those themselves."""
    for root in roots:
        for path in (root, *root.rglob("*")):
            yield path, path.lstat()


def offending(found: Iterator[tuple[Path, os.stat_result]], may: Callable[[os.stat_result], int]) -> list[str]:
    """List what grants more than it may."""
    return [
        f"{path} {stat.S_IMODE(status.st_mode):o}" for path, status in found if status.st_mode & 0o777 & ~may(status)
    ]


def test_files_of_proxies_and_ledger_are_closed_to_others(deployed: Stage) -> None:
    """Directories 0700, files 0600, the admin socket for owner and group inside a closed directory.

    There are the sockets besides by which the next version of Envoy takes over.
    """

    def may(status: os.stat_result) -> int:
        if stat.S_ISDIR(status.st_mode):
            return 0o700
        return 0o660 if stat.S_ISSOCK(status.st_mode) else 0o600

    assert offending(below(deployed.state_home), may) == []
    sockets = [path for path, status in below(deployed.state_home) if stat.S_ISSOCK(status.st_mode)]
    assert {path.name.partition("_")[0] for path in sockets} == {"admin.sock", "hot"}


def test_copies_of_source_objects_are_readable_by_owner_only(deployed: Stage) -> None:
    """The copies of the sources' objects are closed, whatever the umask."""
    assert (
        offending(below(deployed.root / ".state/locallb"), lambda s: 0o700 if stat.S_ISDIR(s.st_mode) else 0o600) == []
    )


def test_state_files_can_be_written_by_their_owner_only(deployed: Stage) -> None:
    """Any user who could write the state would control what the next run does to the host."""
    open_ones = offending(below(deployed.root / ".state/.pulumi"), lambda _status: 0o755)
    assert open_ones == []


def test_files_and_processes_belong_to_the_calling_user(deployed: Stage) -> None:
    """Files and processes alike; nothing gained a right on the way."""
    assert {status.st_uid for _, status in below(deployed.state_home, deployed.root / ".state")} == {os.geteuid()}
    for pid in envoys(deployed.root):
        fields = dict(
            line.partition(":")[::2] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        assert set(fields["Uid"].split()) == {str(os.geteuid())}
        assert int(fields["CapAmb"], 16) == 0
        assert int(fields["CapInh"], 16) == 0


def descriptors(pid: int) -> Iterator[str]:
    """Return what a process's descriptors lead to; those closed meanwhile are passed over."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(link.readlink())


def test_a_proxy_inherits_neither_environment_nor_descriptors(deployed: Stage) -> None:
    """Only the marks by which it is found again; no token of the shell, no file of the run that started it."""
    pids = envoys(deployed.root)
    assert len(pids) == 1
    environment = Path(f"/proc/{pids[0]}/environ").read_bytes().decode()
    names = {pair.partition("=")[0] for pair in environment.split("\0") if pair}
    assert OURS <= names <= OURS | OF_THE_SHELL
    assert SECRET not in environment
    held = set(descriptors(pids[0]))
    files = {path for path in held if path.startswith("/") and not path.startswith(("/dev/", "/memfd"))}
    proxy = Path(f"/proc/{pids[0]}/cwd").readlink()
    assert files == {str(proxy / "envoy.log")}


def test_no_secret_is_written_anywhere(deployed: Stage) -> None:
    """Neither into the state nor into a proxy's directory nor its command line."""
    written = [
        path
        for path, status in below(deployed.root)
        if stat.S_ISREG(status.st_mode) and SECRET.encode() in path.read_bytes()
    ]
    assert written == []
    assert all(SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in envoys(deployed.root))


def test_a_proxy_listens_where_its_service_is_and_nowhere_else(deployed: Stage) -> None:
    """No administration over TCP, nothing on every address."""
    pid = envoys(deployed.root)[0]
    inodes = {match[1] for held in descriptors(pid) if (match := re.match(r"socket:\[(\d+)]", held))}
    address = deployed.addresses()["n/web"]
    number = int.from_bytes(bytes(map(int, address.split("."))), "little")
    listening = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                listening.add(fields[1])
    assert listening == {f"{number:08X}:{8080:04X}", f"{number:08X}:{8081:04X}"}


def test_destroy_leaves_no_file_of_ours(deployed: Stage) -> None:
    """But the state's own history, and the empty places."""
    assert deployed.run("destroy", "--yes").code == 0
    remaining = [
        path
        for path, status in below(deployed.state_home, deployed.root / ".state/locallb")
        if stat.S_ISREG(status.st_mode)
    ]
    assert remaining == []
    assert envoys(deployed.root) == []
