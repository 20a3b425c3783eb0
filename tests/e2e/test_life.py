"""The life of a stack: up, traffic, edits, preview, destroy, each by the command that a user types."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.backends import Backend, ask, refused
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys

pytestmark = pytest.mark.envoy

Backends = Callable[..., Backend]


@pytest.fixture
def shop(play: Stage, backend: Backends) -> Stage:
    """Return a stack of three Services with TCP, UDP and several ports, not deployed yet."""
    web, admin, api, dns = (backend(name) for name in ("web", "admin", "api", "dns"))
    play.write("nodes.yaml", node())
    play.write("web.yaml", service("web", port(8080, web.port), port(9000, admin.port)))
    play.write("api.yaml", service("api", port(8080, api.port)))
    play.write("dns.yaml", service("dns", port(5353, dns.port), port(5353, dns.port, "UDP")))
    return play


def test_every_service_answers_from_its_own_backend_over_tcp_and_udp(shop: Stage) -> None:
    """After `up` each address serves its Service, also where two share a port number."""
    shop.up()
    at = shop.addresses()
    assert len(set(at.values())) == 3
    answers = {
        "web": ask(at["n/web"], 8080),
        "admin": ask(at["n/web"], 9000),
        "api": ask(at["n/api"], 8080),
        "dns": ask(at["n/dns"], 5353),
        "dns udp": ask(at["n/dns"], 5353, "UDP"),
    }
    assert answers == {
        "web": "web: hello",
        "admin": "admin: hello",
        "api": "api: hello",
        "dns": "dns: hello",
        "dns udp": "dns: hello",
    }
    assert {row["state"] for row in shop.status().values()} == {"serving"}


def test_a_second_up_changes_nothing_and_says_so(shop: Stage) -> None:
    """Nothing is created, updated or deleted, and `--expect-no-changes` is content."""
    shop.up()
    pids = shop.pids()
    done = shop.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.err
    assert "unchanged" in done.out
    assert "created" not in done.out
    assert "updated" not in done.out
    assert shop.pids() == pids


def test_an_edit_touches_exactly_what_changed(shop: Stage, backend: Backends) -> None:
    """A port more, a Service less, a Service renamed: neighbours keep address, process and open connection."""
    shop.up()
    at, pids = shop.addresses(), shop.pids()
    with socket.create_connection((at["n/web"], 8080)) as stream, stream.makefile("rb") as answers:
        stream.sendall(b"one\n")
        assert answers.readline() == b"web: one\n"
        extra, moved = backend("extra"), backend("moved")
        web = [port(8080, int(shop_port(shop, "web", 0))), port(9000, int(shop_port(shop, "web", 1)))]
        shop.write("web.yaml", service("web", *web, port(9001, extra.port)))
        (shop.manifests / "api.yaml").unlink()
        shop.write("dns.yaml", service("names", port(5353, moved.port), port(5353, moved.port, "UDP")))
        shop.up()
        stream.sendall(b"two\n")
        assert answers.readline() == b"web: two\n"
    after, pids_after = shop.addresses(), shop.pids()
    assert set(after) == {"n/web", "n/names"}
    assert after["n/web"] == at["n/web"]
    assert pids_after["n/web"] == pids["n/web"]
    assert ask(after["n/web"], 9001) == "extra: hello"
    assert ask(after["n/names"], 5353, "UDP") == "moved: hello"
    assert refused(at["n/api"], 8080)
    assert len(envoys(shop.root)) == 2


def shop_port(shop: Stage, name: str, index: int) -> int:
    """Return the nodePort that a manifest says now."""
    document = yaml.safe_load((shop.manifests / f"{name}.yaml").read_text())
    return int(document["spec"]["ports"][index]["nodePort"])


def test_destroy_removes_processes_directories_claims_and_locks(shop: Stage) -> None:
    """No process, no directory, no claim, no lock."""
    shop.up()
    at = shop.addresses()
    assert shop.run("destroy", "--yes").code == 0
    assert envoys(shop.root) == []
    assert refused(at["n/web"], 8080)
    assert list((shop.state_home / "proxies").glob("*")) == []
    assert [p for p in (shop.state_home / "ledger").glob("*") if not p.name.startswith(".")] == []
    assert list((shop.root / ".state/.pulumi/locks").rglob("*.json")) == []
    assert {row["state"] for row in shop.status().values()} == {"pending"}


def test_preview_changes_nothing_anywhere_and_up_does_what_it_said(shop: Stage) -> None:
    """Preview writes no byte and starts no process; the plan it shows is the one that `up` executes."""
    before = shop.files()
    planned = shop.run("preview", "--json")
    assert planned.code == 0, planned.err
    assert shop.files() == before
    assert envoys(shop.root) == []
    promised = {f"{s['namespace']}/{s['name']}": s["addresses"][0] for s in planned.json["services"]}
    done = shop.run("up", "--yes", "--json")
    assert done.json["changes"] == planned.json["changes"]
    assert shop.addresses() == promised
    between = shop.files()
    assert shop.run("preview").code == 0
    assert shop.files() == between


def test_expect_no_changes_tells_by_its_exit_code(shop: Stage) -> None:
    """7 before the first `up` and after an edit, 0 in between."""
    assert shop.run("preview", "--expect-no-changes").code == 7
    shop.up()
    assert shop.run("preview", "--expect-no-changes").code == 0
    (shop.manifests / "api.yaml").unlink()
    assert shop.run("preview", "--expect-no-changes").code == 7


def test_a_killed_proxy_is_noticed_and_repaired_by_up(shop: Stage) -> None:
    """After kill -9 the status says so; `up` starts that proxy again at the same address, and no other."""
    shop.up()
    at, pids = shop.addresses(), shop.pids()
    os.kill(pids["n/api"], signal.SIGKILL)
    assert shop.status()["n/api"]["state"] == "pending"
    shop.up()
    after = shop.pids()
    assert shop.addresses() == at
    assert ask(at["n/api"], 8080) == "api: hello"
    assert {name for name in pids if pids[name] != after[name]} == {"n/api"}


def test_the_commands_work_in_processes_of_their_own_without_a_terminal(shop: Stage) -> None:
    """`up` without --yes asks on a terminal only; with it, it runs, and status reads it back."""
    requested = shop.spawn("up")
    assert requested.code == 1
    assert "--yes" in requested.err
    assert "Traceback" not in requested.err
    assert shop.spawn("up", "--yes").code == 0
    assert {row["state"] for row in shop.spawn("status", "--json").json} == {"serving"}
    assert shop.spawn("destroy", "--yes").code == 0


def test_two_stacks_of_one_project_share_no_address(shop: Stage) -> None:
    """The same Services in another stack get other addresses; destroying one leaves the other."""
    shop.up()
    shop.configure("other")
    assert shop.run("--stack", "other", "up", "--yes").code == 0
    mine = shop.addresses()
    others = {s["name"]: s["addresses"][0] for s in shop.run("--stack", "other", "status", "--json").json}
    assert not set(mine.values()) & set(others.values())
    assert shop.run("--stack", "other", "destroy", "--yes").code == 0
    assert ask(mine["n/web"], 8080) == "web: hello"


def test_an_interrupted_run_says_so_and_the_next_one_finishes(shop: Stage) -> None:
    """Ctrl-C lets finish what runs: the code is 130, the state is sound, another `up` does the rest."""
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "locallb"), "-C", str(shop.root), "up", "--yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    shop.up()
    assert {row["state"] for row in shop.status().values()} == {"serving"}


def test_a_targeted_update_touches_that_load_balancer_only(shop: Stage, backend: Backends) -> None:
    """`--target` brings one Service up to date; what else changed waits, and the state stays sound."""
    shop.up()
    extra = backend("extra")
    shop.write("extra.yaml", service("extra", port(8080, extra.port)))
    (shop.manifests / "api.yaml").unlink()
    planned = shop.run("preview", "--target", "n/extra", "--json").json["changes"]
    done = shop.run("up", "--yes", "--target", "c/n/extra", "--json")
    assert done.code == 0, done.err
    assert done.json["changes"] == planned == {"create": 6, "same": 1}
    assert ask(shop.addresses()["n/extra"], 8080) == "extra: hello"
    assert len(envoys(shop.root)) == 4
    assert shop.run("state", "check").code == 0
    shop.up()
    assert len(envoys(shop.root)) == 3
    wrong = shop.run("up", "--yes", "--target", "nobody")
    assert wrong.code == 1
    assert wrong.err.startswith("error: there is no load balancer 'nobody'; name one as <cluster>/<namespace>/<name>: ")
    assert "c/n/dns, c/n/extra, c/n/web" in wrong.err


def test_a_state_edited_by_hand_is_refused_with_a_way_out(shop: Stage) -> None:
    """`up` stops before anything changes, `state check` names every broken rule."""
    shop.up()
    path = shop.root / ".state/.pulumi/stacks/local-lb/dev.json"
    good = path.read_text()
    path.write_text(good.replace('"magic":"', '"magic":"0'))
    refused = shop.run("up", "--yes")
    assert refused.code == 1
    assert "magic" in refused.err
    assert len(refused.err.splitlines()) == 1
    checked = shop.run("state", "check")
    assert (checked.code, "magic" in checked.err, "state restore" in checked.out) == (1, True, True)
    path.write_text(good)
    assert shop.run("state", "check").code == 0
    assert shop.run("up", "--yes", "--expect-no-changes").code == 0
