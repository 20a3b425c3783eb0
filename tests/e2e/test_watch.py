"""`locallb watch` on a directory of manifests: what happens there comes true, whatever happens to the loop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.support.backends import Backend, Client, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys
from tests.support.watching import Watch, answers, eventually, get, is_alive, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

Backends = Callable[..., Backend]


def refused(address: str, number: int) -> bool:
    try:
        ask(address, number)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _runs(play: Stage, name: str, before: int = 0) -> bool:
    """Return whether a Service has a proxy, another one than before."""
    return play.pids().get(name, before) != before


def test_services_come_change_and_go_as_the_manifests_do(play: Stage, backend: Backends) -> None:
    """Created, a port added, removed: without any command; the neighbour keeps its process throughout."""
    web = backend("web")
    play.write("base.yaml", node(), service("keeper", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/keeper"], 8080, "web"), watch)
        eventually(partial(_runs, play, "n/keeper"), watch)  # traffic comes before the state is written
        keeper = play.pids()["n/keeper"]
        play.write("web.yaml", service("web", port(8080, web.port)))
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        address = play.addresses()["n/web"]
        play.write("web.yaml", service("web", port(8080, web.port), port(8081, web.port)))
        eventually(lambda: answers(address, 8081, "web"), watch)
        assert play.addresses()["n/web"] == address
        (play.manifests / "web.yaml").unlink()
        eventually(lambda: refused(address, 8080), watch)
        eventually(lambda: "n/web" not in play.pids(), watch)
        assert play.pids() == {"n/keeper": keeper}


def test_watch_takes_over_processes_of_up_unchanged(play: Stage, backend: Backends) -> None:
    """`up` first, then `watch`, stopped and started again: same processes, and a stop leaves all of it running."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    play.up()
    before, address = play.pids(), play.addresses()["n/web"]
    for number in (signal.SIGTERM, signal.SIGINT):
        with watching(play) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
            assert "checked" in watch.reported()
            assert "updated" not in watch.reported()
            play.write("other.yaml", service(f"other-{number}", port(8080, web.port)))
            eventually(partial(_runs, play, f"n/other-{number}"), watch)
            assert watch.stop(number) == 0, watch.reported()
    assert answers(address, 8080, "web")
    assert play.pids().items() >= before.items()
    assert play.run("up", "--yes", "--expect-no-changes").code == 0


def test_a_killed_proxy_serves_again_under_its_address(play: Stage, backend: Backends) -> None:
    """Again and again; the neighbour keeps its process."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)), service("keeper", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: set(play.pids()) == {"n/web", "n/keeper"}, watch)
        address, keeper = play.addresses()["n/web"], play.pids()["n/keeper"]
        for _ in range(3):
            pid = play.pids()["n/web"]
            os.kill(pid, signal.SIGKILL)
            eventually(partial(_runs, play, "n/web", pid), watch)
            eventually(lambda: answers(address, 8080, "web"), watch)
        assert play.addresses()["n/web"] == address
        assert play.pids()["n/keeper"] == keeper


def test_killed_watch_loses_no_request_and_the_next_one_continues(play: Stage, backend: Backends) -> None:
    """Kill -9 in the midst of changes, under a client at constant rate that loses no request."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    play.up()
    address, pid = play.addresses()["n/web"], play.pids()["n/web"]
    with Client(address, 8080) as client:
        for number in range(3):
            with watching(play) as watch:
                play.write("more.yaml", *(service(f"s{number}{digit}", port(8080, web.port)) for digit in range(4)))
                eventually(partial(_runs, play, f"n/s{number}0"), watch)
                watch.process.kill()
                watch.process.wait()
        with watching(play) as watch:
            eventually(lambda: set(play.pids()) == {"n/web", *(f"n/s2{digit}" for digit in range(4))}, watch)
            eventually(lambda: len(envoys(play.root)) == 5, watch)
    assert client.failures == []
    assert len(client.answers) > 20
    assert play.pids()["n/web"] == pid
    assert is_alive(pid)


def test_an_editor_a_checkout_a_swap_and_a_broken_file(play: Stage, backend: Backends) -> None:
    """However files are changed, the last word counts; what can't be read takes nothing away."""
    web = backend("web")
    text = (play.manifests / "web.yaml").write_text
    play.write("base.yaml", node())
    play.write("web.yaml", service("web", port(8080, web.port)))
    source = (play.manifests / "web.yaml").read_text()
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        address = play.addresses()["n/web"]
        text("{ broken")  # half of an editor's save
        eventually(lambda: "web.yaml" in watch.reported(), watch)
        assert answers(address, 8080, "web")
        text(source.replace("8080", "8082"))
        eventually(lambda: answers(address, 8082, "web"), watch)
        swapped = play.root / "swapped"
        shutil.copytree(play.manifests, swapped)
        (swapped / "web.yaml").write_text(source.replace("8080", "8083"))
        play.manifests.rename(play.root / "old")
        swapped.rename(play.manifests)
        eventually(lambda: answers(address, 8083, "web"), watch)
        _git(play, "init", "-q")
        _git(play, "add", "manifests")
        _git(play, "commit", "-qm", "one")
        text(source.replace("8080", "8084"))
        eventually(lambda: answers(address, 8084, "web"), watch)
        _git(play, "checkout", "-q", "--", "manifests")
        eventually(lambda: answers(address, 8083, "web"), watch)
        eventually(lambda: refused(address, 8084), watch)  # the one may answer before the other is closed
        assert play.addresses()["n/web"] == address


def _git(play: Stage, *terms: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *terms], cwd=play.root, check=True, stdin=subprocess.DEVNULL)


def test_service_that_cannot_be_served_delays_no_other_and_is_retried(play: Stage, backend: Backends) -> None:
    """A port that somebody takes while the proxy is away; it serves once the port is free."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    play.up()
    address = play.addresses()["n/web"]
    os.kill(play.pids()["n/web"], signal.SIGKILL)
    eventually(lambda: refused(address, 8080))
    claimed = Backend("taken", address, 8080)
    try:
        with watching(play) as watch:
            play.write("other.yaml", service("other", port(8080, web.port)))
            eventually(lambda: answers(play.addresses()["n/other"], 8080, "web"), watch)
            assert answers(address, 8080, "taken")
            claimed.close()
            eventually(lambda: answers(address, 8080, "web"), watch)
    finally:
        claimed.close()


def test_a_changed_configuration_is_taken_and_a_broken_one_changes_nothing(play: Stage, backend: Backends) -> None:
    """Another pool moves the addresses; a mistake is told, and what serves goes on."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        before = play.addresses()["n/web"]
        play.configure(pools=[{"name": "p", "addresses": ["no address"]}])
        eventually(lambda: "no address" in watch.reported(), watch)
        assert answers(before, 8080, "web")
        play.configure(pools=[{"name": "p", "addresses": ["127.78.0.0/28"]}])
        eventually(
            lambda: answers(play.addresses()["n/web"], 8080, "web") and play.addresses()["n/web"] != before, watch
        )
        assert play.addresses()["n/web"].startswith("127.78.0.")


def test_a_second_loop_gives_way_and_a_command_does_not_have_to(play: Stage, backend: Backends) -> None:
    """One loop a stack; `up` beside it is fine."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        second = play.spawn("watch")
        assert second.code == 1
        assert f"pid {watch.process.pid}" in second.err
        assert play.run("up", "--yes").code == 0
        play.write("more.yaml", service("more", port(8080, web.port)))
        eventually(lambda: answers(play.addresses()["n/more"], 8080, "web"), watch)


def test_while_a_command_holds_the_lock_the_loop_says_so_once_and_goes_on_after_it(
    play: Stage, backend: Backends
) -> None:
    """It says who holds it, and when that is over."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play, "--metrics", "127.0.0.1:0") as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        command = subprocess.Popen(["pulumi", "300"], executable=shutil.which("sleep"))
        try:
            lock = lock_of(play, command.pid)
            play.write("more.yaml", service("more", port(8080, web.port)))
            eventually(lambda: _failures(watch) >= 3, watch)
            assert watch.reported().count("is locked since") == 1
            lock.unlink()
            eventually(lambda: answers(play.addresses()["n/more"], 8080, "web"), watch)
            eventually(lambda: "no longer: " in watch.reported(), watch)
        finally:
            command.kill()
            command.wait()


def _failures(watch: Watch) -> float:
    """Return how often the stack couldn't be updated as a whole."""
    text = get(watch, "/metrics")[1]
    return float(text.partition('locallb_failures_total{kind="engine"} ')[2].split()[0])


def lock_of(play: Stage, pid: int) -> Path:
    """Lock the stack in the name of a process, as the official command line does, once no other process does."""
    folder = play.root / ".state" / ".pulumi" / "locks" / "organization" / "local-lb" / "dev"
    assert folder.is_dir()
    eventually(lambda: not list(folder.iterdir()))
    held = {"pid": pid, "username": "somebody", "hostname": socket.gethostname(), "timestamp": "2099-01-01T00:00:00Z"}
    lock = folder / f"{uuid4()}.json"
    lock.write_text(json.dumps(held))
    return lock


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "its listeners emptied": ("proxies/*/lds.json", lambda path: path.write_text('{"resources": []}')),
    "its bootstrap removed": ("proxies/*/bootstrap.json", Path.unlink),
    "its clusters removed": ("proxies/*/cds.json", Path.unlink),
    "its claim of the address removed": ("ledger/*", Path.unlink),
}
"""What somebody does to the files of a load balancer: which, and how."""


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
@pytest.mark.parametrize("harm", FILES)
def test_files_changed_by_others_are_restored_by_watch(play: Stage, backend: Backends, proxies: str, harm: str) -> None:
    """When everything is looked at; nobody tells of it before. Once repaired nothing differs any more."""
    web = backend("web")
    play.configure(proxies=proxies)
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        eventually(lambda: "converged" in watch.reported(), watch)
        address, before = play.addresses()["n/web"], play.pids()
        pattern, change = FILES[harm]
        paths = list(play.state_home.glob(pattern))
        texts = [path.read_bytes() for path in paths]
        for path in paths:
            change(path)
        watch.process.send_signal(signal.SIGHUP)
        eventually(lambda: [path.read_bytes() for path in paths] == texts, watch)
        eventually(lambda: answers(address, 8080, "web"), watch)
        eventually(lambda: "because of drift" in watch.reported(), watch)
    assert play.pids() == before
    assert play.addresses()["n/web"] == address
    assert play.run("up", "--yes", "--expect-no-changes").code == 0


def test_a_file_that_cannot_be_repaired_is_reported_and_repaired_once_it_can_be(play: Stage, backend: Backends) -> None:
    """A directory in its place; the others are repaired, and what Envoy has goes on serving."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)), service("api", port(8080, web.port)))
    with watching(play) as watch:
        eventually(lambda: set(play.pids()) == {"n/web", "n/api"}, watch)
        eventually(lambda: "converged" in watch.reported(), watch)
        blocked, removed = sorted(play.state_home.glob("proxies/*/lds.json"))
        text = blocked.read_text()
        for path in (blocked, removed):
            path.unlink()
        blocked.mkdir()
        watch.process.send_signal(signal.SIGHUP)
        eventually(removed.exists, watch)
        eventually(lambda: f"{blocked} can't be" in watch.reported(), watch)
        assert all(answers(address, 8080, "web") for address in play.addresses().values())
        blocked.rmdir()
        eventually(lambda: blocked.read_text() == text, watch)
        assert "Traceback" not in watch.reported()


def test_a_new_spare_starts_by_itself_behind_whatever_changes(play: Stage, backend: Backends) -> None:
    """The Service that took the last one gets its ports meanwhile; what is served is told before."""
    web = backend("web")
    play.configure(proxies={"mode": "per-service", "spares": 1})
    play.write("base.yaml", node())
    with watching(play) as watch:
        eventually(partial(_runs, play, "/spare-1"), watch)
        play.write("web.yaml", service("web", port(8080, web.port)))
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        address = play.addresses()["n/web"]
        for number in range(8081, 8085):
            play.write("web.yaml", service("web", port(8080, web.port), port(number, web.port)))
            eventually(partial(answers, address, number, "web"), watch)
        eventually(partial(_runs, play, "/spare-2"), watch)
        eventually(lambda: "updated spare-2" in watch.reported(), watch)
        updated = [line for line in watch.reported().splitlines() if " updated " in line]
        served, spare = (next(n for n, line in enumerate(updated) if name in line) for name in ("c/n/web", "spare-2"))
        assert served < spare


def test_a_cluster_that_never_answers_holds_up_no_other(play: Stage, backend: Backends) -> None:
    """Whose plugin sleeps, from the start on: others are served meanwhile, and an error names it."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["1000"]}
    kubeconfig = {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {**plugin, "interactiveMode": "Never"}}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = play.root / "asleep.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    asleep = {"kubernetes": {"name": "asleep", "kubeconfig": str(path), "context": "here"}}
    play.configure(sources=[asleep, {"manifests": "manifests", "name": "c"}])
    with watching(play) as watch:
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        assert "plugin sleep gives no token" not in watch.reported()  # nothing waited for its end
        assert "error: source asleep: the cluster can't be read: it hasn't answered within 2 s" in watch.reported()
        eventually(lambda: "plugin sleep gives no token: it was ended after 10 s" in watch.reported(), watch)
        assert answers(play.addresses()["n/web"], 8080, "web")
