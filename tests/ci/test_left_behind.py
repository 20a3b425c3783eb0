"""What a test run that is killed leaves on the host: nothing, within moments; and nobody else is touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reaper import VARIABLE, is_used, those_of
from tests.support.podman import end_monitors
from tests.support.waiting import becomes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]
SECONDS = 120
"""Until something hangs."""
CHECKOUT = Path(__file__).resolve().parents[2]
SLEEPERS = """
import json, os, pathlib, subprocess, tempfile, time

def test_it(tmp_path):
    made = tempfile.mkdtemp(prefix="llb-", dir="/tmp")
    sleep = lambda **more: subprocess.Popen(["sleep", "1000"], start_new_session=True, **more).pid
    pids = [sleep(cwd=made, env={{}}), sleep(cwd=tmp_path, env={{}}), sleep(cwd="/")]
    if not os.fork():
        time.sleep(1000)
    reported = pathlib.Path({reported!r})
    reported.with_suffix(".new").write_text(json.dumps([made, os.environ[{variable!r}], pids]))
    reported.with_suffix(".new").rename(reported)
    time.sleep({seconds})
"""
ENVOY = """
import json, pathlib, time
from tests.support.manifests import node, port, service
from tests.support.stages import envoys, stage

def test_it():
    with stage() as play:
        play.write("all.yaml", node(), service("web", port(8080, 30080)))
        play.configure(proxies={{"mode": "per-service", "spares": 1}})
        play.run("up", "--yes")
        reported = pathlib.Path({reported!r})
        reported.with_suffix(".new").write_text(json.dumps([str(play.root), {variable!r}, envoys(play.root)]))
        reported.with_suffix(".new").rename(reported)
        time.sleep({seconds})
"""
PODMAN = """
import json, pathlib, subprocess, time
from tests.support.podman import podman

def test_it():
    with podman() as own:
        run = ("run", "--detach", "--network", "none", "--rootfs", "/:O", "sleep", "1000")
        done = subprocess.run(own.command(*run), env=own.environment, capture_output=True, text=True)
        requested = ("inspect", "--format", "{{{{.State.Pid}}}} {{{{.State.ConmonPid}}}}", done.stdout.strip())
        listed = subprocess.run(own.command(*requested), env=own.environment, capture_output=True, text=True)
        pids = listed.stdout.split()
        reported = pathlib.Path({reported!r})
        news = [str(own.root), {variable!r}, list(map(int, pids)), done.stderr]
        reported.with_suffix(".new").write_text(json.dumps(news))
        reported.with_suffix(".new").rename(reported)
        time.sleep({seconds})
"""
CLUSTER = """
import json, pathlib, tempfile, time
from tests.support.control_plane import control_plane

def test_it():
    root = tempfile.mkdtemp(prefix="llb-", dir="/tmp")
    with control_plane("c", pathlib.Path(root) / "c") as plane:
        pids = [process.pid for process in plane.processes.values()]
        reported = pathlib.Path({reported!r})
        reported.with_suffix(".new").write_text(json.dumps([root, {variable!r}, pids]))
        reported.with_suffix(".new").rename(reported)
        time.sleep({seconds})
"""


@contextlib.contextmanager
def running(place: Path, test: str, seconds: int, *terms: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a test in a pytest of its own, until it has told what it started."""
    reported = place / "told.json"
    (place / "test_it.py").write_text(test.format(reported=str(reported), variable=VARIABLE, seconds=seconds))
    (place / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.left_behind", *terms]
    retained = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [*command, f"--basetemp={place}/t", "test_it.py"],
        cwd=place, env={**retained, "PYTHONPATH": str(CHECKOUT), **more}, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        becomes(lambda: reported.exists() or process.poll() is not None)
        assert reported.exists()
        yield process
    finally:
        process.kill()
        process.wait()


def exists(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def with_word(word: str) -> list[str]:
    """Return the processes, by number, that have a word among those of their command or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            reported = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            found += [entry.name] if entry.name.isdigit() and word.encode() in reported else []
    return found


def mounts_below(root: str) -> list[str]:
    """Return where something is mounted in a directory, in the order in which it was."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in places if Path(place).is_relative_to(root)]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "worker"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_nothing(tmp_path: Path, number: int, workers: tuple[str, ...]) -> None:
    """Whatever it started, in whatever session; the reaper goes as well; who is called almost the same stays."""
    with running(tmp_path, SLEEPERS, 1000, *workers) as run:
        made, session, pids = json.loads((tmp_path / "told.json").read_text())
        (neighbour := Path(f"{made}-x")).mkdir()
        others = [
            subprocess.Popen(["sleep", "1000"], cwd=neighbour),
            subprocess.Popen(["sleep", "1000"], env={VARIABLE: f"{session}0"}),
        ]
        try:
            assert all(map(exists, pids))
            run.send_signal(number)
            becomes(lambda: not any(map(exists, pids)))
            (of_neighbour,) = [str(other.pid) for other in others[1:]]
            becomes(lambda: with_word(session) == [of_neighbour])
            assert [other.poll() for other in others] == [None, None]
        finally:
            for other in others:
                other.kill()
                other.wait()
            neighbour.rmdir()
            Path(made).rmdir()


def test_a_run_that_ends_itself_is_not_followed_up(tmp_path: Path) -> None:
    """What its fixtures leave is their affair, and seen; its reaper is gone before the run is."""
    with running(tmp_path, SLEEPERS, 0) as run:
        made, session, pids = json.loads((tmp_path / "told.json").read_text())
        try:
            assert run.wait(SECONDS) == 0
            assert all(map(exists, pids))
            reapers = [pid for pid in with_word(session) if b"reaper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            assert reapers == []
        finally:
            for pid in {*pids, *map(int, with_word(session))}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            Path(made).rmdir()


@pytest.mark.envoy
def test_envoys_of_a_stage_end_with_its_run(tmp_path: Path) -> None:
    """They are detached from whoever started them."""
    with running(tmp_path, ENVOY, 1000) as run:
        root, _, pids = json.loads((tmp_path / "told.json").read_text())
        assert len(pids) == 2
        run.kill()
        becomes(lambda: not any(map(exists, pids)))
    shutil.rmtree(root)


@pytest.mark.docker
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("podman"), reason="only root, where Podman is installed, can have one"
)
def test_containers_of_a_podman_of_the_runs_own_end_with_it(tmp_path: Path) -> None:
    """Neither a container nor what attends it has the run's mark, and no other Podman knows of them."""
    with running(tmp_path, PODMAN, 1000) as run:
        root, _, pids, why = json.loads((tmp_path / "told.json").read_text())
        assert len(pids) == 2, why
        run.kill()
        becomes(lambda: not any(map(exists, pids)) and not with_word(root))
    for mounted in reversed(mounts_below(root)):  # its storage, which no `system reset` has taken away
        subprocess.run(["umount", mounted], check=True)
    shutil.rmtree(root)


@pytest.mark.cluster
def test_a_cluster_of_the_run_ends_with_it(tmp_path: Path) -> None:
    """With its etcd."""
    with running(tmp_path, CLUSTER, 1000) as run:
        root, _, pids = json.loads((tmp_path / "told.json").read_text())
        assert len(pids) > 1
        run.kill()
        becomes(lambda: not any(map(exists, pids)))
    shutil.rmtree(root)


def test_containers_of_the_run_are_removed_and_no_others(tmp_path: Path) -> None:
    """Through whatever engine is on PATH: those that name a directory of the run in a label or mount from it."""
    log, programs = tmp_path / "asked", tmp_path / "bin"
    programs.mkdir()
    script = f"""#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$*" in
"ps --all --quiet") echo one; echo two;;
"inspect one two") printf '[{{"Id": "one", "Mounts": [{{"Source": "%s/t/x"}}]}}, {{"Id": "two"}}]' {tmp_path};;
esac
"""
    (programs / "docker").write_text(script)
    (programs / "docker").chmod(0o755)
    with running(tmp_path, SLEEPERS, 1000, PATH=f"{programs}:/usr/bin:/bin") as run:
        made, session, _ = json.loads((tmp_path / "told.json").read_text())
        run.kill()
        becomes(lambda: with_word(session) == [])
        Path(made).rmdir()
    requested = [line for line in log.read_text().splitlines() if line.startswith("docker")]
    assert [line for line in requested if " rm " in line] == ["docker rm --force --volumes one"]


@pytest.mark.parametrize(
    ("inspected", "ours"),
    [
        ({"Config": {"Labels": {"local-lb.dev/root": "/t/llb-a"}}}, ["i"]),
        ({"Config": {"Labels": {"any": "/t/llb-a/c"}}}, ["i"]),
        ({"Labels": {"local-lb.dev/test-cluster": "/t/llb-a"}}, ["i"]),
        ({"labels": {"local-lb.dev/test-cluster": "/t/llb-a"}}, ["i"]),
        ({"Mounts": [{"Source": "/t/llb-a/proxies/1"}]}, ["i"]),
        ({"Mounts": [{"Source": "/t/llb-ab"}, {"Type": "tmpfs"}]}, []),
        ({"Config": {"Labels": {"any": "/t"}}, "Mounts": [{"Source": "/t"}]}, []),
        ({"Config": {"Labels": None}, "Labels": None, "Mounts": None}, []),
        ({}, []),
    ],
)
def test_objects_labelled_or_mounted_under_a_runs_directory_belong_to_it(
    inspected: dict[str, Any], ours: list[str]
) -> None:
    """In the formats in which Docker and Podman list containers and networks."""
    assert those_of([{"Id": "i", **inspected}], {"/t/llb-a"}) == ours


@pytest.mark.parametrize(
    ("engine", "user", "storage", "used"),
    [
        ("podman", 4321, False, False),
        ("podman", 4321, True, True),
        ("podman", 0, False, True),
        ("docker", 4321, False, True),
        ("absent", 0, True, False),
    ],
)
def test_a_podman_that_a_user_never_ran_is_not_asked(  # noqa: PLR0913 - a row and two fixtures
    engine: str, user: int, *, storage: bool, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would make its storage, and start a process that nobody ends."""
    for name in ("podman", "docker"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    if storage:
        (tmp_path / "data" / "containers" / "storage").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert is_used(engine) is used


def test_end_monitors_kills_conmon_of_its_own_storage_only(tmp_path: Path) -> None:
    """Podman once forgot a container, which went on serving; a monitor of another storage isn't ours."""
    terms = ["bash", "-c", 'exec -a conmon bash -c "sleep 1000; true" conmon "$0"']
    ours, others = (
        subprocess.Popen([*terms, f"{tmp_path / name}/storage/c/userdata"], start_new_session=True)
        for name in ("one", "two")
    )
    try:
        becomes(lambda: Path(f"/proc/{ours.pid}/cmdline").read_bytes().startswith(b"conmon"))
        becomes(lambda: Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text() != "")
        child = int(Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text())
        becomes(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep"))  # a fork's is its parent's
        assert end_monitors(tmp_path / "one") == 1
        assert ours.wait(10) == -signal.SIGKILL
        becomes(lambda: not exists(child))
        assert others.poll() is None
        assert end_monitors(tmp_path / "one") == 0
    finally:
        for process in (ours, others):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
