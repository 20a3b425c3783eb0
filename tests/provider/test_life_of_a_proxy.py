"""A real Envoy through its life: started, adopted, found dead, started again, told new things, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from locallb.host import limits as inotify
from locallb.host.limits import InotifyError
from locallb.host.sockets import SocketError
from locallb.provider import ProviderError, reachable
from locallb.runtimes import processes
from locallb.runtimes.handover import running
from locallb.runtimes.resource_types import LOG
from locallb.storage import paths
from tests.support.provider import Driver, Wanted, accepts, echo, exchanges, owner, process_of
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy


def zombies() -> list[int]:
    """List our children that ended and that nobody has waited for."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] == "Z" and int(fields[1]) == os.getpid():
                    pids.append(int(entry.name))
    return pids


def test_a_created_proxy_serves_and_a_deleted_one_leaves_nothing(driver: Driver, wanted: Wanted, home: Path) -> None:
    """From nothing to a bound listener, and back to no process, no directory, no zombie."""
    config, process, proof = driver.up(wanted)
    assert accepts(wanted.address, 8080)
    assert proof["ports"] == [{"listener": f"{wanted.address}:8080/TCP", "state": "serving", "reason": ""}]
    assert Path(process["binary"]).samefile(f"/proc/{process['pid']}/exe")
    assert driver.read("ProxyConfig", config) == config
    assert driver.read("EnvoyProcess", process) == process
    assert driver.read("Reachable", proof) == proof
    driver.delete("Reachable", proof)
    driver.delete("EnvoyProcess", process)
    driver.delete("ProxyConfig", config)
    assert not processes.is_alive(process_of(process))
    assert not accepts(wanted.address, 8080)
    assert list((home / "locallb" / "proxies").iterdir()) == []
    assert zombies() == []


def test_a_proof_waits_for_the_first_connection_to_a_backend_and_never_again(driver: Driver, wanted: Wanted) -> None:
    """It says so in its output and holds all the same; another backend changes nothing, another port begins anew."""
    _, process, _ = driver.up(wanted)
    with echo() as port, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = {"upstreams": ["tcp-8080-ipv4", f"tcp-8080-ipv4 127.0.0.1:{closed.getsockname()[1]}"]}
        alive = {"upstreams": [f"tcp-8080-ipv4 {wanted.address}:9 127.0.0.1:{port}"]}
        asked = wanted.reachable(process)
        proof = driver.create("Reachable", {**asked, **dead})
        assert proof["waiting"] == reachable.WAITING
        assert driver.read("Reachable", proof) == proof
        assert driver.update("Reachable", proof, {**asked, **dead, "probes": []})["waiting"] == reachable.WAITING
        assert not driver.diff("Reachable", proof, {**asked, **alive}).changes
        answered = driver.read("Reachable", {**proof, **alive})
        assert answered == {**proof, **alive, "waiting": ""}
        assert driver.update("Reachable", answered, {**asked, **dead, "probes": []})["waiting"] == ""
        assert driver.update("Reachable", {**answered, "listeners": []}, {**asked, **dead})["waiting"] != ""


def test_deleting_twice_is_fine(driver: Driver, wanted: Wanted) -> None:
    """What is gone already is no error."""
    config, process, _ = driver.up(wanted)
    for _ in range(2):
        driver.delete("EnvoyProcess", process)
        driver.delete("ProxyConfig", config)


def test_a_process_belongs_to_init_and_to_no_terminal(driver: Driver, wanted: Wanted) -> None:
    """It outlives us: another parent, another session, no input, no environment but its mark."""
    _, process, _ = driver.up(wanted)
    stat = Path(f"/proc/{process['pid']}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) != os.getpid()
    assert int(stat[3]) not in (os.getsid(0), 0)
    assert stat[4] == "0"
    assert str(Path(f"/proc/{process['pid']}/fd/0").readlink()) == "/dev/null"
    marks = {"LOCALLB_PROXY", "LOCALLB_BOOTSTRAP", "LOCALLB_VERSION", "LOCALLB_OWNER", "LOCALLB_EPOCH"}
    shells_own = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert marks <= set(processes.mark_of(process_of(process))) <= marks | shells_own


def test_a_crash_between_start_and_state_adopts_the_running_process(driver: Driver, wanted: Wanted) -> None:
    """Creating again what runs already changes no process, with and without the note in its directory."""
    config, process, _ = driver.up(wanted)
    assert driver.create("ProxyConfig", wanted.config) == config
    assert driver.create("EnvoyProcess", wanted.process) == process
    (Path(config["directory"]) / "process.json").unlink()
    assert driver.create("EnvoyProcess", wanted.process) == process


def test_a_process_that_reads_another_bootstrap_is_stopped_first(driver: Driver, wanted: Wanted) -> None:
    """A leftover with other arguments never keeps the new one from its ports."""
    config, process, _ = driver.up(wanted)
    text = wanted.config["files"]["bootstrap.json"].replace("}}", "}} ", 1)
    changed = {**wanted.config, "files": {**wanted.config["files"], "bootstrap.json": text}}
    config = driver.update("ProxyConfig", config, changed)
    new = driver.create("EnvoyProcess", {**wanted.process, "bootstrap": config["bootstrap"]})
    assert not processes.is_alive(process_of(process))
    assert processes.is_alive(process_of(new))
    driver.create("Reachable", wanted.reachable(new))


def test_a_killed_process_is_noticed_and_started_again(driver: Driver, wanted: Wanted) -> None:
    """After kill -9 both the process and the proof are gone for a refresh; creating them serves again."""
    _, process, proof = driver.up(wanted)
    os.kill(process["pid"], signal.SIGKILL)
    becomes(lambda: not processes.is_alive(process_of(process)), "the end of the killed process")
    assert driver.read("EnvoyProcess", process) is None
    assert driver.read("Reachable", proof) is None
    retry = driver.create("EnvoyProcess", wanted.process)
    assert retry["pid"] != process["pid"]
    driver.create("Reachable", wanted.reachable(retry))
    assert accepts(wanted.address, 8080)


def test_a_stop_that_was_cut_off_is_no_proxy_that_serves(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between drain and end, it still answers but listens no longer: it is gone for a refresh, and replaced."""

    class Cut(Exception):  # noqa: N818 - the end of our own process, played
        """The run ends here."""

    def cut(*_: object) -> None:
        raise Cut

    config, process, _ = driver.up(wanted)
    with monkeypatch.context() as patched:
        patched.setattr(processes, "stop", cut)
        with pytest.raises(Cut):
            driver.delete("EnvoyProcess", process)
    assert processes.is_alive(process_of(process))
    becomes(lambda: not accepts(wanted.address, 8080))  # its threads close their sockets after the answer
    assert driver.read("EnvoyProcess", process) is None
    retry = driver.create("EnvoyProcess", wanted.process)
    assert not processes.is_alive(process_of(process))
    driver.create("Reachable", wanted.reachable(retry))
    assert accepts(wanted.address, 8080)
    driver.delete("ProxyConfig", config)  # as after a refresh that lost sight of the process
    assert not processes.is_alive(process_of(retry))


def test_a_pid_used_again_is_not_taken_for_the_process(driver: Driver, wanted: Wanted) -> None:
    """The start time belongs to the identity: another one means gone, and nobody else is stopped."""
    driver.create("ProxyConfig", wanted.config)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        state = {**wanted.process, "pid": stranger.pid, "started": "boot.1", "binary": "/x"}
        assert driver.read("EnvoyProcess", state) is None
        driver.delete("EnvoyProcess", state)
        assert stranger.poll() is None


def test_a_directory_removed_under_a_running_process_replaces_it(driver: Driver, wanted: Wanted, home: Path) -> None:
    """An Envoy whose directory is gone can't be told anything: it is stopped and started again."""
    config, process, _ = driver.up(wanted)
    Path(config["directory"]).rename(home / "away")
    assert driver.read("ProxyConfig", config) is None
    assert driver.read("EnvoyProcess", process) is None
    _, retry, _ = driver.up(wanted)
    assert retry["pid"] != process["pid"]
    assert not processes.is_alive(process_of(process))


def test_a_port_is_added_under_traffic(driver: Driver, wanted: Wanted) -> None:
    """A live update: the open connection stays, the same process serves the new port."""
    with echo() as target:
        served = replace(wanted, ports={8080: target})
        config, process, proof = driver.up(served)
        with socket.create_connection((wanted.address, 8080), timeout=5) as client:
            assert exchanges(client, b"before")
            more = replace(wanted, ports={8080: target, 8081: target})
            driver.update("ProxyConfig", config, more.config)
            driver.update("Reachable", proof, more.reachable(process))
            assert accepts(wanted.address, 8081)
            assert exchanges(client, b"after")
    assert driver.read("EnvoyProcess", process) == process


def test_a_port_is_exchanged_for_another(driver: Driver, wanted: Wanted) -> None:
    """One update that adds and removes: the new listener serves, the old one refuses, no file is left over."""
    config, process, proof = driver.up(wanted)
    other = replace(wanted, ports={8090: 9})
    config = driver.update("ProxyConfig", config, other.config)
    proof = driver.update("Reachable", proof, other.reachable(process))
    assert (accepts(wanted.address, 8090), accepts(wanted.address, 8080)) == (True, False)
    assert driver.read("ProxyConfig", config) == config
    assert driver.read("Reachable", proof) == proof
    assert not (Path(config["directory"]) / "eds-tcp-8080-ipv4.json").exists()


def test_a_port_that_another_process_holds_fails_in_one_sentence(driver: Driver, wanted: Wanted) -> None:
    """The fault names listener, holder and remedy, and what serves all the same; once free, the next up binds it."""
    both = replace(wanted, ports={8080: 9, 8081: 9})
    driver.create("ProxyConfig", both.config)
    with socket.create_server((wanted.address, 8081)):
        process = driver.create("EnvoyProcess", both.process)
        with pytest.raises(ProviderError) as error:
            driver.create("Reachable", both.reachable(process))
        assert f"{wanted.address}:8081/TCP isn't served: the port is in use by " in str(error.value)
        assert f"({os.getpid()}); end it or" in str(error.value)
        assert f"serving all the same: {wanted.address}:8080/TCP" in str(error.value)
        assert accepts(wanted.address, 8080)
    proof = driver.create("Reachable", both.reachable(process))
    assert accepts(wanted.address, 8081)
    assert driver.read("Reachable", proof) == proof


def test_an_update_that_meets_a_held_port_keeps_the_other_changes(driver: Driver, wanted: Wanted) -> None:
    """A port that can't be bound doesn't keep a removed one open."""
    config, process, proof = driver.up(replace(wanted, ports={8080: 9, 8082: 9}))
    changed = replace(wanted, ports={8080: 9, 8081: 9})
    with socket.create_server((wanted.address, 8081)):
        driver.update("ProxyConfig", config, changed.config)
        with pytest.raises(ProviderError, match="8081/TCP isn't served"):
            driver.update("Reachable", proof, changed.reachable(process))
        becomes(lambda: not accepts(wanted.address, 8082))
    driver.update("Reachable", proof, changed.reachable(process))
    assert accepts(wanted.address, 8081)


def test_a_proxy_without_listeners_is_reachable(driver: Driver, wanted: Wanted) -> None:
    """No port has backends: Envoy runs, refuses everybody, and the proof holds."""
    config, process, proof = driver.up(replace(wanted, ports={}))
    assert (proof["ports"], accepts(wanted.address, 8080)) == ([], False)
    config = driver.update("ProxyConfig", config, wanted.config)
    proof = driver.update("Reachable", proof, wanted.reachable(process))
    assert accepts(wanted.address, 8080)
    empty = replace(wanted, ports={})
    driver.update("ProxyConfig", config, empty.config)
    proof = driver.update("Reachable", proof, empty.reachable(process))
    assert not accepts(wanted.address, 8080)
    assert driver.read("Reachable", proof) == proof


def test_a_proof_without_an_envoy_fails_in_one_sentence(driver: Driver, wanted: Wanted) -> None:
    """It died after its start: told at once, not after a wait."""
    _, process, proof = driver.up(wanted)
    processes.stop(process_of(process), 5)
    with pytest.raises(ProviderError, match=r"the Envoy in \S+ doesn't answer /stats: .*; run up again"):
        driver.update("Reachable", proof, {**wanted.reachable(process), "process": "another"})


def test_an_idle_proxy_stops_at_once(driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is connected, so nobody is waited for, however long that might be."""
    _, process, _ = driver.up(wanted)
    monkeypatch.setattr("locallb.runtimes.handover.LINGER", 600.0)
    start = time.monotonic()
    driver.delete("EnvoyProcess", process)
    assert time.monotonic() - start < 600


def test_a_connection_that_ends_soon_is_not_cut(driver: Driver, wanted: Wanted) -> None:
    """A stopping proxy refuses new clients at once and lets the present one finish."""
    with echo() as target:
        _, process, _ = driver.up(replace(wanted, ports={8080: target}))
        with socket.create_connection((wanted.address, 8080), timeout=5) as client:
            assert exchanges(client, b"before")
            stopping = threading.Thread(target=driver.delete, args=("EnvoyProcess", process))
            stopping.start()
            while accepts(wanted.address, 8080):
                time.sleep(0.01)
            assert exchanges(client, b"late")
        stopping.join(5)
    assert not processes.is_alive(process_of(process))


def test_stopped_proxy_ends_lingering_connections_after_the_drain_time(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever clients are connected then."""
    monkeypatch.setattr("locallb.runtimes.handover.LINGER", 0.4)
    with echo() as target:
        _, process, _ = driver.up(replace(wanted, ports={8080: target}))
        with socket.create_connection((wanted.address, 8080), timeout=5) as client:
            assert exchanges(client, b"before")
            start = time.monotonic()
            driver.delete("EnvoyProcess", process)
            assert time.monotonic() - start >= 0.4
            assert client.recv(1) == b""
    assert not processes.is_alive(process_of(process))


def test_an_envoy_that_ends_at_once_tells_why(driver: Driver, wanted: Wanted) -> None:
    """A bootstrap that Envoy refuses fails with Envoy's own words."""
    files = {**wanted.config["files"], "bootstrap.json": '{"admin": 1}'}
    config = driver.create("ProxyConfig", {**wanted.config, "files": files})
    with pytest.raises(ProviderError, match=r"ended at once: .*admin"):
        driver.create("EnvoyProcess", {**wanted.process, "bootstrap": config["bootstrap"]})
    assert running(Path(config["directory"])) == ()


def test_an_envoy_that_ends_for_lack_of_inotify_is_reported_by_its_limit(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs took the instances while it started: its own words would be an assertion in its code."""
    remaining = iter([100])
    files = {**wanted.config["files"], "bootstrap.json": '{"admin": 1}'}
    config = driver.create("ProxyConfig", {**wanted.config, "files": files})
    monkeypatch.setattr(inotify, "available", lambda wanted: min(wanted, next(remaining, 1)))
    with pytest.raises(InotifyError, match=r"needs \d+ inotify instances, but this user has 1 left of \d+"):
        driver.create("EnvoyProcess", {**wanted.process, "bootstrap": config["bootstrap"]})


def test_a_start_without_inotify_is_refused_in_one_sentence(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy would abort: two watches of its own and one for each port's endpoints are looked for before."""
    monkeypatch.setattr(inotify, "available", lambda wanted: min(wanted, 2))
    driver.create("ProxyConfig", wanted.config)
    with pytest.raises(InotifyError, match="needs 3 inotify instances, but this user has 2 left"):
        driver.create("EnvoyProcess", wanted.process)


def test_a_change_that_inotify_does_not_allow_leaves_the_proxy_alone(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running Envoy would abort, with all that it serves: it isn't told, and goes on."""
    config, process, proof = driver.up(wanted)
    monkeypatch.setattr(inotify, "available", lambda _: 0)
    with pytest.raises(InotifyError, match="needs 1 inotify instances"):
        driver.update("ProxyConfig", config, replace(wanted, ports={8080: 9, 8081: 9}).config)
    assert driver.read("ProxyConfig", config) == config
    assert driver.read("EnvoyProcess", process) == process
    assert driver.read("Reachable", proof) == proof
    driver.update("ProxyConfig", config, replace(wanted, ports={8080: 10}).config)


def test_a_version_that_is_not_installed_is_refused(driver: Driver, wanted: Wanted) -> None:
    """The program wants a version; another binary isn't started in its place."""
    driver.create("ProxyConfig", wanted.config)
    with pytest.raises(ProviderError, match=r"Envoy 0\.1\.0 is wanted, but 1\."):
        driver.create("EnvoyProcess", {**wanted.process, "version": "0.1.0"})


def test_a_process_without_its_configuration_is_refused(driver: Driver, wanted: Wanted) -> None:
    """No directory, or one with a bootstrap that was changed by hand: a sentence, not a start."""
    with pytest.raises(ProviderError, match="has no directory"):
        driver.create("EnvoyProcess", wanted.process)
    config = driver.create("ProxyConfig", wanted.config)
    Path(config["directory"], "bootstrap.json").write_text("{}")
    with pytest.raises(ProviderError, match="isn't what was planned"):
        driver.create("EnvoyProcess", wanted.process)


def test_proxy_in_another_network_is_proven_reachable_by_its_envoy_alone(
    driver: Driver, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pod sees a proxy in the machine's network: its socket isn't in the pod's own tables."""
    _, process, _ = driver.up(wanted)

    def refused(address: object, port: int, seconds: float) -> None:
        raise SocketError(f"{address} port {port} doesn't accept a TCP connection: {seconds}")

    monkeypatch.setattr(reachable, "connect", refused)
    with pytest.raises(ProviderError, match="is bound, but a client of this host can't reach it"):
        driver.create("Reachable", wanted.reachable(process))
    monkeypatch.setattr(reachable, "rows", lambda *_: iter(()))
    assert driver.create("Reachable", wanted.reachable(process))["process"] == f"{process['pid']}@{process['started']}"


def test_proxy_directory_is_private_to_its_user(driver: Driver, wanted: Wanted) -> None:
    """Directories 0700, files 0600, the socket 0660 inside: no other user reads or queries."""
    config, _, _ = driver.up(wanted)
    directory = Path(config["directory"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes.pop("admin.sock") == 0o660
    assert LOG in modes
    assert set(modes.values()) == {0o600}
    for path in (directory, paths.proxies_root(), paths.state_home()):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_log_does_not_grow_without_end(driver: Driver, wanted: Wanted) -> None:
    """Envoy lives on at the limit of its log, and a new one starts a new log and keeps the last."""
    config, process, _ = driver.up(wanted)
    limits = Path(f"/proc/{process['pid']}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max file size"))
    assert line.split()[3] == str(processes.LOG_LIMIT)
    ignored = next(
        line for line in Path(f"/proc/{process['pid']}/status").read_text().splitlines() if line.startswith("SigIgn")
    )
    assert int(ignored.split()[1], 16) >> (signal.SIGXFSZ - 1) & 1
    log = Path(config["directory"]) / LOG
    log.write_bytes(b"x" * processes.LOG_LIMIT)
    driver.delete("EnvoyProcess", process)
    driver.create("EnvoyProcess", wanted.process)
    assert log.stat().st_size < processes.LOG_LIMIT
    assert log.with_suffix(".log.previous").stat().st_size >= processes.LOG_LIMIT


def test_many_proxies_start_at_once(driver: Driver, root: Path, wanted: Wanted) -> None:
    """Started from many threads, each has a process of its own and leaves no zombie."""
    many = [replace(wanted, owner=owner(root, f"s{n}"), ports={8100 + n: 9}) for n in range(6)]
    threads = [threading.Thread(target=driver.up, args=(wanted,)) for wanted in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert all(accepts(wanted.address, port) for wanted in many for port in wanted.ports)
    assert zombies() == []
