"""Another version of Envoy takes over from the one that serves, and no client is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from locallb.envoy import ALONE
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.binary import EnvoyBinary, installed
from locallb.host import limits as inotify
from locallb.model.errors import ClientError
from locallb.resources.properties import EnvoyProcessInputs
from locallb.resources.resource_type import ProviderError
from locallb.runtimes import handover, processes, resource_types
from locallb.runtimes import resource_types as trial
from locallb.runtimes.handover import LINGER, drain, running
from locallb.runtimes.processes import Process, ProcessError
from tests.support.envoy_traffic import Load, Server, ask_tcp
from tests.support.provider import Driver, Wanted, process_of
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy

RATE = 200
ROUNDED = 0.05
"""Seconds by which Envoy's clock and ours may differ."""


@pytest.fixture
def wanted(wanted: Wanted) -> Iterator[Wanted]:
    """Return a proxy of a server that answers."""
    with Server("a", "127.0.0.1") as server:
        yield replace(wanted, ports={8080: server.port})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Return what makes another version the installed one."""
    return Installer(monkeypatch)


class Installer:
    """Says that another version is installed: the same program, or one around it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, version: str, program: Path | None = None) -> None:
        binary = EnvoyBinary(program or installed().path, version)
        self._patch.setattr(resource_types, "installed", lambda: binary)


def memory_of(directory: Path) -> Path:
    """Return the shared memory of a proxy."""
    return handover.MEMORY / f"envoy_shared_memory_{int((directory / handover.BASE_ID).read_text()) * 10 % (1 << 32)}"


def directory_of(config: dict[str, object]) -> Path:
    return Path(str(config["directory"]))


def test_versions_hand_over_one_after_another_and_no_request_fails(
    driver: Driver, wanted: Wanted, install: Installer
) -> None:
    """Three times, at 200 requests a second: none is refused, and whoever is cut off had the time that is due.

    Afterwards one process is left, and deleting it leaves nothing.
    """
    config, process, _ = driver.up(wanted)
    directory = directory_of(config)
    with Load(lambda: ask_tcp(wanted.address, 8080), RATE) as load:
        for version in ("1.40.1", "1.40.2", "1.40.3"):
            install(version)
            former, process = process, driver.update("EnvoyProcess", process, {**wanted.process, "version": version})
            assert running(directory) == (process_of(process),) != (process_of(former),)
            assert driver.read("EnvoyProcess", process) == process
            driver.create("Reachable", wanted.reachable(process))
    cut = [outcome for outcome in load.outcomes if outcome.answer != "a"]
    assert all(outcome.seconds > LINGER - ROUNDED for outcome in cut), cut
    assert len(cut) < len(load.outcomes)
    memory = memory_of(directory)
    assert memory.exists()
    driver.delete("EnvoyProcess", process)
    driver.delete("ProxyConfig", config)
    assert not processes.is_alive(process_of(process))
    assert not memory.exists()
    assert not directory.exists()


def test_envoy_without_hot_restart_is_stopped_first(
    driver: Driver, wanted: Wanted, install: Installer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As earlier versions started them, and as where there is no shared memory."""
    with monkeypatch.context() as without:
        without.setattr(handover, "MEMORY", tmp_path / "none")
        _, process, _ = driver.up(wanted)
    install("1.40.1")
    new = driver.update("EnvoyProcess", process, {**wanted.process, "version": "1.40.1"})
    assert new["pid"] != process["pid"]
    assert not processes.is_alive(process_of(process))
    assert ask_tcp(wanted.address, 8080) == "a"


@pytest.mark.parametrize(("blocks", "free", "hands_over"), [(100, 0, False), (100, 300, True), (0, 0, True)])
def test_shared_memory_that_is_used_up_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks: int, free: int, *, hands_over: bool
) -> None:
    """An Envoy would end with a bus error there; a size of nothing means that there is no bound."""
    space = SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: space)
    epoch = handover.first(tmp_path)
    assert (ALONE not in epoch.arguments) is hands_over is bool(epoch.mark)


def test_failed_successor_leaves_the_old_envoy_serving(
    driver: Driver, wanted: Wanted, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is told, and the next run finds it as it was."""
    config, process, _ = driver.up(wanted)
    install("1.40.1")

    def fail(*_: object) -> Process:
        raise ProcessError("no process can be started")

    monkeypatch.setattr(processes, "start", fail)
    with pytest.raises(ClientError, match="no process can be started"):
        driver.update("EnvoyProcess", process, {**wanted.process, "version": "1.40.1"})
    assert running(directory_of(config)) == (process_of(process),)
    assert driver.read("EnvoyProcess", process) == process


@pytest.mark.parametrize("odd", ["", "x", "-1", "99999999999", "9" * 5000, "7"])
def test_successor_serves_with_any_recorded_epoch(driver: Driver, wanted: Wanted, install: Installer, odd: str) -> None:
    """One that is nobody's, or none at all: the former ends and the new one begins by itself."""
    config, process, _ = driver.up(wanted)
    number = directory_of(config) / handover.BASE_ID
    memory = memory_of(directory_of(config))
    number.write_text(odd)
    install("1.40.1")
    new = driver.update("EnvoyProcess", process, {**wanted.process, "version": "1.40.1"})
    memory.unlink()
    assert running(directory_of(config)) == (process_of(new),)
    assert ask_tcp(wanted.address, 8080) == "a"


def test_a_version_that_fails_to_take_over_begins_by_itself(
    driver: Driver, wanted: Wanted, install: Installer, tmp_path: Path
) -> None:
    """It ends at once when it is to take over, as one of another protocol does."""
    config, process, _ = driver.up(wanted)
    program = tmp_path / "envoy"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--restart-epoch*) exit 1;; esac\nexec {installed().path} "$@"\n')
    program.chmod(0o755)
    install("1.40.1", program)
    new = driver.update("EnvoyProcess", process, {**wanted.process, "version": "1.40.1"})
    assert running(directory_of(config)) == (process_of(new),)
    assert ask_tcp(wanted.address, 8080) == "a"


@pytest.fixture(params=[True, False], ids=["hands over", "can't hand over"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a place for programs that are tried; processes hand over or there is no memory for it."""
    if not request.param:
        monkeypatch.setattr(handover, "MEMORY", tmp_path / "none")
    return tmp_path


WITHOUT_LISTENERS = """grep -q '"resources":\\[\\]' lds.json"""
BROKEN = [
    ("echo no such symbol; exit 1", "no such symbol"),
    ("exit 127", "it ended with 127"),
    ("kill -SEGV $$", "it ended with -11"),
    ('case "$*" in *validate*) exec sleep 60;; esac; exit 1', "it was ended after 3 s"),
    ('case "$*" in *validate*) exit 0;; esac; echo Illegal instruction; exit 132', "Illegal instruction"),
    ('case "$*" in *validate*) exit 0;; esac; exit 132', "it ended with 132"),
    ('case "$*" in *validate*) exit 0;; esac; kill -SEGV $$', "Segmentation fault"),
    ('case "$*" in *validate*) exit 0;; esac; exec sleep 60', "it doesn't answer within 3 s"),
    (
        f'case "$*" in *validate*) exit 0;; esac; {WITHOUT_LISTENERS} && exec {installed().path} "$@"; exit 139',
        "with 139",
    ),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_version_that_cannot_be_run_takes_nothing_down(
    driver: Driver, wanted: Wanted, install: Installer, apart: Path, broken: tuple[str, str]
) -> None:
    """The one that serves stays and is told, also where it couldn't hand over; a sound version then takes over."""
    config, process, _ = driver.up(wanted)
    (script, why), program, changed = broken, apart / "envoy", {**wanted.process, "version": "1.40.1"}
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    install("1.40.1", program)
    reported = f"{why}.*; Envoy {wanted.process['version']} goes on serving"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "TIMEOUT", 3.0)
        with pytest.raises(ProviderError, match=reported):
            driver.update("EnvoyProcess", process, changed)
    assert running(directory_of(config)) == (process_of(process),)
    assert driver.read("EnvoyProcess", process) == process
    assert ask_tcp(wanted.address, 8080) == "a"
    assert not (directory_of(config) / trial.PLACE).exists()
    install("1.40.1")
    assert driver.update("EnvoyProcess", process, changed)["pid"] != process["pid"]
    assert ask_tcp(wanted.address, 8080) == "a"


def test_envoy_missing_from_the_state_is_taken_over_from_as_well(
    driver: Driver, wanted: Wanted, install: Installer, tmp_path: Path
) -> None:
    """As after a refresh while it didn't answer: not ended for a program that can't run, nor before its successor."""
    config, process, _ = driver.up(wanted)
    changed = {**wanted.process, "version": "1.40.1"}
    program = tmp_path / "envoy"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with Load(lambda: ask_tcp(wanted.address, 8080), RATE) as load:
        install("1.40.1", program)
        with pytest.raises(ProviderError, match=f"Envoy {wanted.process['version']} goes on serving"):
            driver.create("EnvoyProcess", changed)
        assert running(directory_of(config)) == (process_of(process),)
        install("1.40.1")
        new = driver.create("EnvoyProcess", changed)
        assert driver.create("EnvoyProcess", changed) == new
    assert running(directory_of(config)) == (process_of(new),) != (process_of(process),)
    cut = [outcome for outcome in load.outcomes if outcome.answer != "a"]
    assert all(outcome.seconds > LINGER - ROUNDED for outcome in cut), cut


@pytest.mark.parametrize("alone", [False, True], ids=["its shell lives", "its shell was killed"])
def test_trial_envoy_ends_with_the_process_that_started_it(apart: Path, *, alone: bool) -> None:
    """By SIGKILL as well; what lies there then is in nobody's way."""
    program = apart / "envoy"
    program.write_text('#!/bin/sh\ncase "$*" in *validate*) exit 0;; esac\necho $$ >../pid; exec sleep 60\n')
    program.chmod(0o755)
    (apart / "bootstrap.json").write_text("{}")
    requested = f"why_unfit(EnvoyBinary(Path({str(program)!r}), '1'), Path({str(apart)!r}))"
    code = f"from pathlib import Path; from {trial.__name__} import why_unfit, EnvoyBinary; {requested}"
    with subprocess.Popen([sys.executable, "-c", code]) as trying:
        tried = begun(apart)
        if alone:
            os.kill(os.getpgid(tried.pid), signal.SIGKILL)
        trying.kill()
    becomes(lambda: not processes.is_alive(tried))
    program.write_text("#!/bin/sh\nexit 0\n")
    assert trial.why_unfit(EnvoyBinary(program, "1"), apart) == "it ended with 0"
    assert not (apart / trial.PLACE).exists()


def test_trial_envoy_ends_when_its_shell_is_killed(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group is ended, not the shell alone."""
    monkeypatch.setattr(trial, "TIMEOUT", 3.0)
    program = apart / "envoy"
    program.write_text('#!/bin/sh\ncase "$*" in *validate*) exit 0;; esac\necho $$ >../pid; exec sleep 60\n')
    program.chmod(0o755)
    (apart / "bootstrap.json").write_text("{}")
    with ThreadPoolExecutor(1) as pool:
        why = pool.submit(trial.why_unfit, EnvoyBinary(program, "1"), apart)
        tried = begun(apart)
        os.kill(os.getpgid(tried.pid), signal.SIGKILL)
        assert "doesn't answer" in why.result()
    becomes(lambda: not processes.is_alive(tried))


def begun(place: Path) -> Process:
    """Wait for a program that says its number, and return it."""
    reported = place / "pid"
    becomes(lambda: reported.is_file() and reported.read_text().endswith("\n"))
    tried = processes.identify(int(reported.read_text()))
    assert tried is not None
    return tried


def test_clients_of_an_envoy_that_cannot_be_taken_over_from_are_drained(
    driver: Driver, wanted: Wanted, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is gone, as at a user's last logout, or there aren't inotify instances for two at once."""
    config, process, _ = driver.up(wanted)
    requested: list[str] = []

    def noted(directory: Path, note: str, pid: int) -> None:
        requested.append(f"{pid}: {EnvoyAdmin(directory).answers()}")
        drain(directory, note, pid)

    monkeypatch.setattr(handover, "drain", noted)
    memory_of(directory_of(config)).unlink()
    install("1.40.1")
    second = driver.update("EnvoyProcess", process, {**wanted.process, "version": "1.40.1"})
    monkeypatch.setattr(inotify, "available", lambda number: 0 if processes.is_alive(process_of(second)) else number)
    install("1.40.2")
    third = driver.update("EnvoyProcess", second, {**wanted.process, "version": "1.40.2"})
    assert requested == [f"{process['pid']}: True", f"{second['pid']}: True"]
    assert running(directory_of(config)) == (process_of(third),)
    assert ask_tcp(wanted.address, 8080) == "a"


@pytest.mark.parametrize("more", [{"version": "1.40.1"}, {"released": "127.0.0.1:53"}])
def test_a_run_that_is_interrupted_in_the_midst_leaves_one_that_answers(
    driver: Driver, wanted: Wanted, install: Installer, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    """By Ctrl-C, while the former's connections have their time: the next run takes the new one as it is."""
    config, process, _ = driver.up(wanted)
    directory, changed = directory_of(config), {**wanted.process, **more}
    install(str(changed["version"]))
    monkeypatch.setattr(resource_types, "can_release", lambda *_: True)

    def interrupted(*_: Process) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as terminal:
        terminal.setattr(handover, "await_end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            driver.update("EnvoyProcess", process, changed)
    (begun,) = set(running(directory)) - {process_of(process)}
    new = driver.update("EnvoyProcess", process, changed)
    assert running(directory) == (begun,) == (process_of(new),)
    assert ask_tcp(wanted.address, 8080) == "a"


def test_a_directory_that_is_removed_leaves_no_memory(driver: Driver, wanted: Wanted) -> None:
    """Also where a state has lost sight of the process."""
    config, process, _ = driver.up(wanted)
    memory = memory_of(directory_of(config))
    assert memory.exists()
    driver.delete("ProxyConfig", config)
    assert not processes.is_alive(process_of(process))
    assert not memory.exists()


def test_a_run_after_one_that_was_stopped_in_the_midst_takes_what_it_left(
    driver: Driver, wanted: Wanted, install: Installer
) -> None:
    """The new process was started, and nobody waited for the end of the former."""
    config, process, _ = driver.up(wanted)
    directory = directory_of(config)
    install("1.40.1")
    changed = {**wanted.process, "version": "1.40.1"}
    epoch = handover.after(directory, process_of(process))
    assert epoch is not None
    inputs = EnvoyProcessInputs(
        proxy=wanted.proxy, owner=wanted.owner, bootstrap=wanted.process["bootstrap"], version="1.40.1"
    )
    begun: Process = resource_types._start(directory, EnvoyBinary(installed().path, "1.40.1"), inputs, epoch)
    new = driver.update("EnvoyProcess", process, changed)
    assert running(directory) == (begun,) == (process_of(new),)
    assert ask_tcp(wanted.address, 8080) == "a"
